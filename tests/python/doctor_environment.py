"""Run the doctor in environments broken on purpose, and apply its fix in a new shell."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import usmq
from usmq._core import runtime_libraries

CLEAN = {
    name: None
    for name in os.environ
    if name.startswith(
        ("ONEAPI_DEVICE_", "SYCL_", "ZE_", "UR_", "OCL_ICD_", "USMQ_", "CUDA_VISIBLE")
    )
}
FOLDER = Path(runtime_libraries("libsycl.so")[0]).parent
WHEELS = (
    "intel-sycl-rt",
    "intel-cmplr-lib-rt",
    "intel-cmplr-lib-ur",
    "intel-cmplr-lic-rt",
    "intel-opencl-rt",
    "tbb",
    "tcmlib",
    "umf",
)
# Aliases of large libraries, and libraries that are not loaded here.
SPARE = re.compile(
    r"libsycl-preview|libpstloffload|icx-lto|libintelocl\.so\.|libcommon_clang\.so$"
    r"|libsycl-jit\.so\.|\.pyc$|/include/"
)

# Lists the devices and compiles and runs a kernel in SYCL C++, without SYCL's headers, which take
# seconds.
WORKS = """
import os
os.environ.setdefault("SYCL_CACHE_PERSISTENT", "0")
import usmq
assert usmq.devices(), "no device"
source = '''
#include <cstdint>
#include <vector>
extern "C" [[__sycl_detail__::add_ir_attributes_function("sycl-nd-range-kernel", 1)]]
__attribute__((sycl_device)) void triple(int *x) { *x *= 3; }'''
x = usmq.asarray([14], "i4", usm_type="shared")
usmq.Kernel.from_sycl(source, "triple")(1, x)
assert list(memoryview(x)) == [42], list(memoryview(x))
print("works on", *[device.filter_string for device in usmq.devices()])
"""


@dataclass
class Environment:
    """A separate virtual environment with only usmq and the wheels of the runtime."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    # Starts a shell with another view of the machine.
    wrapper: tuple[str, ...] = ()

    @property
    def lib(self):
        return self.root / "lib"

    @property
    def site(self):
        return next((self.root / "lib").glob("python3*")) / "site-packages"

    @property
    def python(self):
        return self.root / "bin" / "python"

    def shell(self, script, variables, timeout=120):
        """Run a script in a new shell with only the variables that every user has."""
        path = f"{self.root / 'bin'}:{os.defpath}"
        basic = {"HOME": str(self.root), "PATH": path, "LANG": "C.UTF-8"}
        given = basic | self.variables | variables
        env = {name: value for name, value in given.items() if value is not None}
        command = [*self.wrapper, "bash", "--norc", "-c", script]
        return subprocess.run(command, env=env, text=True, capture_output=True, timeout=timeout)

    def run(self, code):
        """Run Python code, which must succeed, and return its output."""
        program = self.root / "program.py"
        program.write_text(code)
        done = self.shell(f"exec python {program}", {})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def command(self, name, script):
        """Put a command on the search path of its shells."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def without(self, *names):
        """Remove libraries, as a broken installation would."""
        for name in names:
            found = list(self.lib.glob(f"{name}*"))
            assert found, f"no {name} in {self.lib}"
            for library in found:
                library.unlink()

    def try_out(self, before, variables):
        """Run these lines in a new shell, and then the program that uses a device."""
        return self.shell(f"set -e\n{before}\nexec python {self.root / 'works.py'}", variables)


ABOVE = "fix what is shown above"


@dataclass
class Checked:
    """The output and the exit status of the command, and its environment."""

    status: int
    text: str
    findings: list[dict[str, Any]]
    environment: Environment
    before: str
    variables: dict[str, str | None]

    def finding(self, *words, state, topic=None):
        """Return the fix of the only finding that contains this text."""
        hits = [
            finding
            for finding in self.findings
            if finding["state"] == state
            and all(word in finding["what"] for word in words)
            and topic in (None, finding["topic"])
        ]
        assert len(hits) == 1, f"{words}: {self.text}"
        return str(hits[0]["fix"])

    def problem(self, *words, topic=None):
        assert self.status == 1
        return self.finding(*words, state="problem", topic=topic)

    def devices(self):
        return [
            finding["what"].split()[0]
            for finding in self.findings
            if finding["topic"] == "devices" and finding["state"] == "ok"
        ]

    def applied(self, fix, *, broken=True):
        """Apply the printed fix in a new shell, and then see a device and the result of a kernel.

        ``broken`` says that without the fix there is none: else the fix would show nothing.
        """
        if broken:
            without = self.environment.try_out(self.before, self.variables)
            assert without.returncode != 0, "it works without the fix"
        lines = f"{self.before}\n{fix}"
        done = self.environment.try_out(lines, self.variables)
        assert done.returncode == 0, f"{fix}\n{done.stdout}\n{done.stderr}\n{self.text}"
        assert done.stdout.rstrip().splitlines()[-1].startswith("works on "), done.stdout

    def all_applied(self):
        """Apply every command that the report has for a problem, in its order."""
        fixes = [finding["fix"] for finding in self.findings if finding["state"] == "problem"]
        commands = dict.fromkeys(fix for fix in fixes if fix != ABOVE)
        assert commands, self.text
        self.applied("\n".join(commands))


@dataclass
class Case:
    """Something broken on purpose, and what the doctor says about it.

    `{name}` stands for a path of the test, such as the CPU driver or a library that it compiles.
    """

    # "topic: words … more words" of each problem, and its fix; "fix…" is only the start of one.
    problems: dict[str, str]
    given: dict[str, str] = field(default_factory=dict)
    before: str = ""  # lines of the shell
    arguments: str = ""
    devices: list[str] | None = None
    says: str = ""  # elsewhere in the report
    not_said: str = "\0"
    broken: bool = True  # whether nothing works without the fix

    def check(self, doctor, paths):
        """Find these problems with their fixes, and apply the fixes in a new shell."""
        given = {name: value.format_map(paths) for name, value in self.given.items()}
        found = doctor(*self.arguments.split(), before=self.before, **given)
        fixes = []
        for told, expected in self.problems.items():
            topic, _, words = told.format_map(paths).partition(": ")
            fixes.append(found.problem(*words.split(" … "), topic=topic))
            start = expected.format_map(paths).removesuffix("…")
            assert fixes[-1] == start or (expected.endswith("…") and fixes[-1].startswith(start))
        assert self.says.format_map(paths) in found.text
        assert self.not_said not in found.text
        if self.devices is not None:
            assert found.devices() == self.devices
        commands = dict.fromkeys(fix for fix in fixes if fix != ABOVE)
        found.applied("\n".join(commands), broken=self.broken)
        return found


def reinstalls(package):
    return f"pip install --force-reinstall '{package}=={version(package)}'"


def version(name):
    return importlib.metadata.version(name)


def second_name(source, target):
    """Hard-link or copy: a symbolic link would be resolved to the original folder."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def make_environment(root, variables=None):
    """Make a virtual environment from the one that runs the tests, file by file."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    new = Environment(root, variables or {})
    for source in FOLDER.iterdir():
        if source.is_file() and not SPARE.search(str(source)):
            second_name(source.resolve(), new.lib / source.name)
    shutil.copytree(Path(usmq.__file__).parent, new.site / "usmq", copy_function=second_name)
    (root / "works.py").write_text(WORKS)
    for name in ("usmq", *WHEELS):
        for info in infos(name):
            shutil.copytree(info, new.site / info.name)
    return new


def infos(name):
    """Return the dist-info folder of an installed wheel; none if it is not installed."""
    try:
        files = importlib.metadata.files(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())).parent for file in files if file.name == "METADATA"]


def rebuilt_wheel(name, into):
    """Rebuild the wheel of an installed package, without the parts not needed here."""
    (info,) = infos(name)
    tags = re.findall(r"^Tag: (\S+)", (info / "WHEEL").read_text(), re.MULTILINE)
    stem = info.name.removesuffix(".dist-info")
    tag = next(tag for tag in tags if "py3" in tag)
    with zipfile.ZipFile(into / f"{stem}-{tag}.whl", "w") as wheel:
        listed = []
        for file in importlib.metadata.files(name) or []:
            place = Path(str(file.locate())).resolve()
            if (
                not place.is_file()
                or SPARE.search(str(place))
                or file.name in ("RECORD", "INSTALLER")
            ):
                continue
            inside = str(file)
            if inside.startswith(".."):
                inside = f"{stem}.data/data/{place.relative_to(FOLDER.parent.resolve())}"
            wheel.write(place, inside)
            listed.append(f"{inside},,")
        record = f"{stem}.dist-info/RECORD"
        wheel.writestr(record, "\n".join([*listed, f"{record},,"]) + "\n")


@pytest.fixture(scope="session")
def index(tmp_path_factory):
    """Return a function that creates a folder with some wheels of the runtime, for pip."""
    folder = tmp_path_factory.mktemp("index")

    def index(*names):
        for name in names:
            if not infos(name):
                pytest.skip(f"the runtime does not come from wheels: {name} is not installed")
            if not list(folder.glob(f"{name.replace('-', '_')}-*")):
                rebuilt_wheel(name, folder)
        return folder

    yield index
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory):
    """Return the environment of the tests that change variables only."""
    root = tmp_path_factory.mktemp("environment")
    yield make_environment(root)
    shutil.rmtree(root)


@pytest.fixture
def fresh(tmp_path, index):
    """Return a function that creates an environment to break, with these wheels for pip."""
    root = tmp_path / "environment"

    def fresh(*wheels):
        pip = {
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(index(*wheels)),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_ROOT_USER_ACTION": "ignore",
        }
        new = make_environment(root, pip)
        # From the interpreter that runs the tests: a new environment has none.
        new.command("pip", f'exec "{sys.executable}" -m pip --python "{new.python}" "$@"')
        return new

    yield fresh
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def doctor(pristine):
    """Return a function that runs ``python -m usmq doctor`` with only the given variables."""

    def doctor(*arguments, environment=pristine, before="", **variables):
        words = " ".join(arguments)
        script = f"{before}\nexec python -m usmq doctor --json {words}"
        done = environment.shell(script, variables)
        assert "Traceback" not in done.stderr, done.stderr
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0)
        for finding in report["findings"]:
            assert finding["state"] in ("ok", "note", "problem")
            assert finding["what"].strip()
            assert (finding["state"] == "problem") <= bool(finding["fix"])
            assert not re.search("it does the same|shown below", finding["fix"] or "")
        findings = report["findings"]
        return Checked(done.returncode, done.stdout, findings, environment, before, variables)

    return doctor


@pytest.fixture(scope="session")
def cpu_driver(pristine):
    path = pristine.lib / "libintelocl.so"
    if not path.exists():
        pytest.skip(f"no OpenCL driver for CPUs beside libsycl in {FOLDER}")
    return str(path)


@pytest.fixture
def runtime_copy(tmp_path):
    """Return a function that copies the runtime's folder without some of its libraries."""

    def runtime_copy(*without):
        folder = tmp_path / "farm" / "lib"
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        for library in FOLDER.glob("lib*.so*"):
            if not library.name.startswith(without or "none"):
                second_name(library.resolve(), folder / library.name)
        return folder

    return runtime_copy


@pytest.fixture
def compiled(tmp_path):
    """Return a function that compiles a library from C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")

    def compiled(name, source, *options):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        headers = f"-I{FOLDER.parent / 'include'}"
        command = [compiler, "-shared", "-fPIC", headers, *options, "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        return str(path)

    return compiled
