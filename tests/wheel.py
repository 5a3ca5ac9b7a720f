"""Test the published files: ``check WHEEL``, ``sdist FILE``, ``install WHEEL``.

Run by `make wheel`, `make sdist` and `tests/run test-wheel`, with the Python of .venv.
"""

from __future__ import annotations

import argparse
import configparser
import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parents[1]
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

EXTENSION, LIBRARY = "usmq/_core.abi3.so", "usmq/lib/libusmq.so.0"
LAYERS = "usmq/lib/libusmq_layers.so"
# They come from wheels that ours depends on; a copy of one would be a second SYCL runtime.
RUNTIME = {"libsycl.so.9"}
MUST_HAVE = {
    EXTENSION,
    LIBRARY,
    LAYERS,
    "usmq/__init__.py",
    "usmq/py.typed",
    "usmq/_core.pyi",
    "usmq/include/usmq.h",
    "usmq/include/usmq.hpp",
    "usmq/include/usmq/dlpack.hpp",
    "usmq/include/usmq/kernel.h",
    "usmq/include/usmq/debug.h",
    "usmq/cmake/usmq-config.cmake",
    "usmq/cmake/usmq-config-version.cmake",
    "usmq/kernels/flights.cpp",
    "usmq/pyarrow/device_mapper.cc",
}
LARGEST = 6 << 20

TESTED = ("3.11", "3.12", "3.13", "3.14")
# Tests that need numpy and pytest only, and those that need what comes with the extra `demo`.
QUICK = ("test_array_views", "test_kernels", "test_placement")
WITH_DEMO = (*QUICK, "test_cli_output", "test_import", "test_runtime", "test_arrays")
WITH_DEMO += ("test_suai", "test_demo")


class Wrong(Exception):
    """Something that the wheel must not be."""


def demand(truth: object, what: str) -> None:
    if not truth:
        raise Wrong(what)


# --- check


def check(wheel: Path) -> None:
    """Read the wheel and raise at the first thing that is not as it must be."""
    version = CARGO["package"]["version"]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.namelist()
        info = f"usmq-{version}.dist-info"
        check_contents(names, info)
        check_metadata(email.message_from_bytes(archive.read(f"{info}/METADATA")), version)
        check_entry_points(archive.read(f"{info}/entry_points.txt").decode(), names)
        tags = re.findall(r"^Tag: (\S+)$", archive.read(f"{info}/WHEEL").decode(), re.MULTILINE)
        demand(len(tags) == 1, f"one tag, not {tags}")
        demand(
            wheel.name == f"usmq-{version}-{tags[0]}.whl", f"{wheel.name} is not tagged {tags[0]}"
        )
        python, abi, platform = tags[0].split("-")
        demand((python, abi) == ("cp311", "abi3"), f"cp311-abi3, not {python}-{abi}")
        for name in (EXTENSION, LIBRARY):
            check_library(Path(archive.extract(name, folder)), name)
        check_layers(Path(archive.extract(LAYERS, folder)), LAYERS)
    check_symbols(wheel, platform)
    size = wheel.stat().st_size
    demand(size < LARGEST, f"{wheel.name} has {size / 2**20:.1f} MiB, more than {LARGEST >> 20}")
    print(f"wheel: {wheel.name}, {size / 2**20:.1f} MiB: its tag is true, nothing foreign inside")


def check_contents(names: list[str], info: str) -> None:
    demand(len(names) == len(set(names)), "a file is in it twice")
    missing = MUST_HAVE - set(names)
    demand(not missing, f"missing: {sorted(missing)}")
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        demand(f"{info}/licenses/{licence}" in names, f"no {licence} in it")
    foreign = [name for name in names if not name.startswith(("usmq/", f"{info}/"))]
    foreign += [
        name for name in names if ".so" in name and name not in (EXTENSION, LIBRARY, LAYERS)
    ]
    foreign += [name for name in names if "__pycache__" in name or name.endswith(".rs")]
    demand(not foreign, f"does not belong there: {foreign}")


def check_entry_points(text: str, names: list[str]) -> None:
    """What other programs find us by: as pyproject.toml says, each in a module that is there."""
    found = configparser.ConfigParser()
    found.read_string(text)
    wanted = PROJECT["project"]["entry-points"] | {"console_scripts": PROJECT["project"]["scripts"]}
    groups = {group: dict(found[group]) for group in found.sections()}
    demand(groups == wanted, f"its entry points are {groups}, not {wanted}")
    for value in (value for group in wanted.values() for value in group.values()):
        module = value.partition(":")[0].replace(".", "/")
        demand(f"{module}.py" in names, f"{value} is not in it")


def check_metadata(metadata: email.message.Message, version: str) -> None:
    demand(metadata["Name"] == "usmq", f"its name is {metadata['Name']}")
    demand(
        metadata["Version"] == version, f"version {metadata['Version']} is not Cargo's {version}"
    )
    demand(metadata["Requires-Python"] == ">=3.11", f"Python {metadata['Requires-Python']}")
    demand(metadata["License-Expression"] == CARGO["package"]["license"], "another licence")
    required = [line for line in metadata.get_all("Requires-Dist", []) if ";" not in line]
    wanted = runtime_requirements()
    demand(
        {plain(line) for line in required} == wanted,
        f"it needs {required}, where pyproject.toml has {sorted(wanted)}",
    )
    for line in required:
        demand(">=" in line and "<" in line, f"{line} is no range")
        demand("==" not in line, f"{line} cannot be installed beside other SYCL packages")


def plain(requirement: str) -> tuple[str, frozenset[str]]:
    found = re.fullmatch(r"([A-Za-z0-9_-]+)\s*\(?([^()]*)\)?", requirement.strip())
    demand(found, f"{requirement!r} is no requirement")
    assert found
    return found[1], frozenset(part.strip() for part in found[2].split(","))


def runtime_requirements() -> set[tuple[str, frozenset[str]]]:
    return {plain(line) for line in PROJECT["project"]["dependencies"]}


def check_library(path: Path, name: str) -> None:
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        run_path = [
            part for tag in dynamic.iter_tags("DT_RUNPATH") for part in tag.runpath.split(":")
        ]
        sonames = [tag.soname for tag in dynamic.iter_tags("DT_SONAME")]
        old_paths = list(dynamic.iter_tags("DT_RPATH"))
        symbols = elf.get_section_by_name(".dynsym")
        exported = {
            symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
        }
        asked = {
            symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"
        }
    demand(needed >= RUNTIME, f"{name} needs {sorted(needed)}")
    demand(not old_paths, f"{name} has an RPATH")
    demand(run_path, f"{name} has no run path")
    for part in run_path:
        demand(
            re.fullmatch(r"\$ORIGIN(/\.\.)+(/lib)?", part), f"{name} has {part!r} in its run path"
        )
    up = name.count("/") + 2
    demand(run_path[0] == "$ORIGIN" + "/.." * up, f"{name} does not look in lib of the environment")
    header = (ROOT / "python/usmq/include/usmq.h").read_text(encoding="utf-8")
    functions = set(
        re.findall(r"^static inline [^;{(]*?\*?(usmq_\w+[a-z])\(", header, re.MULTILINE)
    )
    demand(len(functions) > 12, "the functions of usmq.h were not found")
    demand(functions <= exported, f"{name} lacks {sorted(functions - exported)} of usmq.h")
    faults = sorted(symbol for symbol in exported if symbol.startswith("usmq_fault"))
    demand(not faults, f"{name} is a build for tests, with {faults}: build without USMQ_FAULTS")
    if name == LIBRARY:
        demand(sonames == ["libusmq.so.0"], f"{name} calls itself {sonames}")
        demand(not any(symbol.startswith("Py") for symbol in asked), f"{name} needs Python")


def check_layers(path: Path, name: str) -> None:
    """The OpenCL loader needs these functions; others could hide those of another library."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        exported = {
            symbol.name
            for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol.name
        }
    wanted = {
        "clGetLayerInfo",
        "clInitLayer",
        "clInitLayerWithProperties",
        "usmq_layer_gpus",
        "usmq_layer_parts",
    }
    demand(exported == wanted, f"{name} exports {sorted(exported)}")
    foreign = {name for name in needed if not name.startswith(("libc.", "libm.", "libstdc++."))}
    foreign -= {"libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}
    demand(not foreign, f"{name} needs {sorted(foreign)}")


def check_symbols(wheel: Path, platform: str) -> None:
    """Compare the tag with what the libraries really need, by auditwheel's judgement."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True)
    demand(done.returncode == 0, f"auditwheel cannot read it: {done.stderr}")
    found = json.loads(done.stdout)
    foreign = set(found["external_libs"])
    demand(
        foreign == RUNTIME, f"it needs libraries beyond the platform's and the runtime's: {foreign}"
    )
    glibc = r"manylinux_(\d+)_(\d+)_x86_64"
    claimed, true = re.fullmatch(glibc, platform), re.fullmatch(glibc, found["sym_tag"])
    newest = {name: versions[-3:] for name, versions in found["versioned_symbols"].items()}
    demand(claimed, f"{platform} is no manylinux tag")
    demand(true, f"its symbols fit {found['sym_tag']}, not {platform}: {newest}")
    assert claimed
    assert true
    demand(
        tuple(map(int, claimed.groups())) >= tuple(map(int, true.groups())),
        f"its symbols need {found['sym_tag']}, and it says {platform}: {newest}; "
        "build/manylinux.cc replaces those that are too new",
    )


def check_sdist(path: Path) -> None:
    """Read the source distribution: everything that a build needs, and nothing else."""
    version = CARGO["package"]["version"]
    demand(path.name == f"usmq-{version}.tar.gz", f"{path.name} is not of version {version}")
    with tarfile.open(path) as archive:
        top = f"usmq-{version}/"
        names = {name.removeprefix(top) for name in archive.getnames()}
    tracked = subprocess.run(
        [
            "git",
            "ls-files",
            "src",
            "cpp",
            "layers",
            "build",
            "derive",
            "python",
            "build.rs",
            "pyproject.toml",
            "LICENSE-*",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    needed = set(tracked.stdout.split())
    demand("src/lib.rs" in needed, "git does not list the sources")
    demand(needed <= names, f"missing: {sorted(needed - names)}")
    folders = ("src/", "cpp/", "layers/", "build/", "docs/", "python/usmq/", "examples/")
    single = {"Cargo.toml", "Cargo.lock", "PKG-INFO", "README.md", "CHANGELOG.md"} | needed
    foreign = [name for name in names if name not in single and not name.startswith(folders)]
    foreign += [name for name in names if re.search(r"\.so\b|__pycache__|\.pyc$", name)]
    demand(not foreign, f"does not belong there: {sorted(foreign)}")
    print(f"sdist: {path.name}: {len(names)} files, all that a build needs")


# --- install


def interpreters() -> dict[str, Path]:
    """Find the interpreters that can use the wheel, of PATH and of pyenv."""
    found = {}
    for version in TESTED:
        pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [shutil.which(f"python{version}")]
        candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
        for candidate in filter(None, candidates):
            asked = subprocess.run(
                [candidate, "-c", "import sys, ensurepip; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
            )
            if asked.stdout.strip() == version:
                found[version] = Path(candidate)
                break
        else:
            print(f"wheel: Python {version} is not here, so it is not tried")
    return found


def run(command: list[object], **environment: str) -> None:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "OCL_ICD_FILENAMES")
    }
    text = [str(part) for part in command]
    print("+", " ".join(text), flush=True)
    # Outside the checkout, so that it is not imported.
    done = subprocess.run(text, cwd=tempfile.gettempdir(), env=clean | environment)
    demand(done.returncode == 0, f"{' '.join(text)} ended with {done.returncode}")


def install(wheel: Path, version: str, interpreter: Path, how: str) -> None:
    """Make an environment with nothing but the wheel and what it asks for, and use it."""
    place = ROOT / "target" / "wheel-test" / version
    shutil.rmtree(place, ignore_errors=True)
    try:
        run([interpreter, "-m", "venv", place])
        python = place / "bin" / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        tests = ROOT / "tests" / "python"
        if how == "whole":
            # One resolver run, or a peer would pull the runtime past its range.
            run([*pip, wheel, "-r", ROOT / "requirements" / "test.txt"])
            chosen: list[object] = [tests]
        else:
            extra = "[demo]" if how == "demo" else ""
            run([*pip, f"{wheel}{extra}", "pytest>=9", "numpy>=2"])
            names = WITH_DEMO if how == "demo" else QUICK
            chosen = [tests / f"{name}.py" for name in names]
        run([python, "-m", "usmq", "list"])
        if how != "quick":
            run([python, "-m", "usmq", "demo", "--require-dpnp"])
        environment = {}
        if how == "whole":  # with the second device, for which the runtime of .venv is made
            folders = [place / "lib", ROOT / ".venv-ocl2" / "lib"]
            drivers = ":".join(str(folder / "libintelocl.so") for folder in folders)
            environment["OCL_ICD_FILENAMES"] = drivers
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", ROOT, "-c", ROOT / "pyproject.toml"]
        run([python, "-m", "pytest", *options, *chosen], **environment)
        print(f"wheel: works in a clean environment of Python {version} ({how})", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["check", "sdist", "install"])
    parser.add_argument("wheel", type=Path)
    parser.add_argument(
        "--how",
        choices=["quick", "demo", "whole", "each"],
        default="each",
        help="quick: one Python, a few tests; demo: with the extra; whole: every test; "
        "each: the first Python whole, the others with the demo",
    )
    parser.add_argument("--python", help="only this version, as 3.12")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    try:
        if options.action == "check":
            check(wheel)
            return 0
        if options.action == "sdist":
            check_sdist(wheel)
            return 0
        found = interpreters()
        if options.python:
            demand(options.python in found, f"Python {options.python} is not here")
            found = {options.python: found[options.python]}
        demand(found, f"none of Python {', '.join(TESTED)} is here")
        for number, (version, interpreter) in enumerate(found.items()):
            how = options.how
            if how == "each":
                how = "demo" if number else "whole"
            install(wheel, version, interpreter, how)
            if how == "quick":
                break
    except Wrong as wrong:
        print(f"wheel: FAILED: {wrong}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
