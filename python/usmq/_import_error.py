"""Explains why the extension cannot be loaded, for the ``ImportError`` and for ``doctor``."""

from __future__ import annotations

import os
import re
import sys

# The range of pyproject.toml.
INSTALL = "pip install 'intel-sycl-rt>=2026.1,<2027' 'intel-opencl-rt>=2026.1,<2027'"

# The wheel of a library, by the start of its name; all others come with intel-sycl-rt.
_WHEELS = {
    "libumf": "umf",
    "libur_": "intel-cmplr-lib-ur",
    "libsvml": "intel-cmplr-lib-rt",
    "libimf": "intel-cmplr-lib-rt",
    "libirng": "intel-cmplr-lib-rt",
    "libintlc": "intel-cmplr-lib-rt",
}

_NO_MEMORY = ("failed to map segment", "annot allocate memory", "bad_alloc", "MemoryError")


def explained(missing: ImportError) -> ImportError:
    """Return the error with the package and the fix added to the loader's message."""
    what, fix = reason(missing)
    return ImportError(f"usmq cannot load the SYCL runtime: {what}. To fix it: {fix}")


def reason(missing: ImportError) -> tuple[str, str]:
    """Return the problem and the fix."""
    text = str(missing)
    return limited(text) or _shadowed(text) or _absent(text) or _mismatched(text) or (text, INSTALL)


def limited(text: str) -> tuple[str, str] | None:
    """Explain a memory limit, if the loader reports a failed allocation."""
    if not any(words in text for words in _NO_MEMORY):
        return None
    import resource

    unlimited = resource.RLIM_INFINITY
    limit, most = resource.getrlimit(resource.RLIMIT_AS)
    if limit == unlimited:
        return None
    what = f"ulimit -v is {limit >> 20} MiB, too little for the runtime ({text})"
    if most == unlimited:
        return what, "ulimit -v unlimited"
    return what, "raise the limit where it is set; this process is not allowed to"


def _shadowed(text: str) -> tuple[str, str] | None:
    """Explain libraries that LD_LIBRARY_PATH puts before those of this environment."""
    own = os.path.dirname(os.path.abspath(__file__))
    for _ in range(3):  # The run path of the extension.
        own = os.path.dirname(own)
    found, rest, is_before = [], [], True
    for folder in filter(None, re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", ""))):
        is_before = is_before and os.path.realpath(folder) != os.path.realpath(own)
        taken = _taken(folder, own) if is_before else []
        # The loader may name a library that this environment does not have, such as libstdc++.
        named = re.search(re.escape(os.path.join(folder, "")) + r"[^/\s:]+", text)
        taken = taken or ([named[0]] if named else [])
        found += taken
        rest += [] if taken else [folder]
    if not found:
        return None
    what = f"{text}; LD_LIBRARY_PATH puts {', '.join(found[:3])} before the libraries in {own}"
    path = ":".join(rest).replace("'", r"'\''")
    return what, f"export LD_LIBRARY_PATH='{path}'" if rest else "unset LD_LIBRARY_PATH"


def _taken(folder: str, own: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    libraries = [name for name in names if name.startswith("lib") and ".so" in name]
    pairs = [(os.path.join(folder, name), os.path.join(own, name)) for name in libraries]
    return [
        path
        for path, ours in pairs
        if os.path.exists(ours) and os.path.realpath(path) != os.path.realpath(ours)
    ]


def _absent(text: str) -> tuple[str, str] | None:
    absent = re.match(r"(\S+\.so[.\d]*): cannot open shared object file", text)
    if not absent:
        return None
    library = absent[1]
    wheels = (wheel for start, wheel in _WHEELS.items() if library.startswith(start))
    package = next(wheels, "intel-sycl-rt")
    version = version_of(package)
    if version is None:
        return f"{library} was not found, and {package} is not installed", INSTALL
    what = f"{library} was not found, though {package} {version} is installed"
    return what, f"pip install --force-reinstall '{package}=={version}'"


def _mismatched(text: str) -> tuple[str, str] | None:
    """Explain a library that lacks a symbol or version that another one needs."""
    if "undefined symbol" not in text and "version `" not in text:
        return None
    odd = mismatch()
    if odd:
        return f"{odd[0]} ({text})", odd[1]
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    others = [folder for folder in folders if os.path.exists(os.path.join(folder, "libsycl.so.9"))]
    where = f"; LD_LIBRARY_PATH has one in {others[0]}" if others else ""
    what = f"the runtime lacks what usmq was built with; it is older, or incomplete ({text}){where}"
    return what, INSTALL.replace("pip install", "pip install --upgrade --force-reinstall")


def mismatch() -> tuple[str, str] | None:
    """Return which wheels of the runtime are of different releases, and the fix."""
    runtime, other = version_of("intel-sycl-rt"), version_of("intel-cmplr-lib-ur")
    if not runtime or not other or _release(runtime) == _release(other):
        return None
    how = "newer" if _release(other) > _release(runtime) else "older"
    what = (
        f"intel-cmplr-lib-ur {other} is {how} than intel-sycl-rt {runtime}: they are two releases"
    )
    return what, f"pip install 'intel-cmplr-lib-ur=={runtime}'"


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def is_command() -> bool:
    """Return whether this is the command ``usmq``, which reports a missing runtime itself."""
    import os

    called, arguments = (sys.argv or [""])[0], sys.orig_argv
    # While Python imports the package, sys.argv[0] is still "-m".
    if called == "-m":
        return any(arguments[at : at + 2] == ["-m", "usmq"] for at in range(len(arguments)))
    return os.path.basename(called) == "usmq"
