"""Why the extension cannot be loaded, for the ``ImportError`` and for ``doctor``."""

from __future__ import annotations

import sys

# The range of pyproject.toml.
INSTALL = "pip install 'intel-sycl-rt>=2026.1,<2027' 'intel-opencl-rt>=2026.1,<2027' 'umf>=1.1,<2'"


def explained(missing: ImportError) -> ImportError:
    """Return the error with what the loader's own words lack: the package, and what to do."""
    what, fix = reason(missing)
    return ImportError(f"usmq cannot load the SYCL runtime: {what}. To fix it: {fix}")


def reason(missing: ImportError) -> tuple[str, str]:
    """Return what is wrong, and what to do."""
    import re

    text = str(missing)
    absent = re.match(r"(\S+\.so[.\d]*): cannot open shared object file", text)
    if absent:
        return _absent(absent[1])
    if "undefined symbol" in text or "version `" in text:
        where = _owner(text)
        what = f"the runtime is older than the one that usmq was built with ({text}){where}"
        return what, INSTALL.replace("pip install", "pip install --upgrade")
    return text, INSTALL


def _absent(library: str) -> tuple[str, str]:
    package = "umf" if library.startswith("libumf") else "intel-sycl-rt"
    from importlib import metadata

    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"{library} was not found, and {package} is not installed", INSTALL
    what = f"{library} was not found, though {package} {version} is installed"
    if package == "intel-sycl-rt" and not library.startswith("libsycl"):
        what = f"{library}, which the runtime needs, was not found"
    return what, INSTALL.replace("pip install", "pip install --force-reinstall")


def _owner(text: str) -> str:
    """Say when a variable puts another runtime before the installed one."""
    import os

    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    before = [folder for folder in folders if os.path.exists(os.path.join(folder, "libsycl.so.9"))]
    return f"; LD_LIBRARY_PATH has one in {before[0]}" if before else ""


def is_command() -> bool:
    """Return whether this is the command ``usmq``, which reports a missing runtime itself."""
    import os

    called, arguments = (sys.argv or [""])[0], sys.orig_argv
    # Python has yet to replace "-m" while it imports the package.
    if called == "-m":
        return any(arguments[at : at + 2] == ["-m", "usmq"] for at in range(len(arguments)))
    return os.path.basename(called) == "usmq"
