"""Test the wheel and the crate in new environments, with only HOME and PATH set.

    .venv/bin/python tests/environments.py target/wheels/usmq-*.whl [--only NAME …] [--list]

Downloads are shared through pip's cache. Each environment is deleted after its checks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import rust_crate
import slim_root

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))

import doc_blocks  # noqa: E402
from emulated import AXPY  # noqa: E402

PLACE = ROOT / "target" / "environments"

# The first steps of a user, with the result of a kernel in SYCL C++.
FIRST_STEPS = f"""{AXPY}
x = usmq.asarray([1.0, 2.0, 3.0], "f4")
y = usmq.zeros(3, "f4", usm_type="shared")
usmq.Kernel.from_sycl(AXPY, "axpy")(3, 2.0, x, y)
assert list(memoryview(y)) == [2.0, 4.0, 6.0]
"""
# Runtime 2026.2.0 itself finds no device here.
SELECTOR = """
import os
os.environ["ONEAPI_DEVICE_SELECTOR"] = "opencl:cpu"
import usmq
assert [device.filter_string for device in usmq.devices()] == ["opencl:cpu:0"], usmq.devices()
"""
PEER_ASKS_FIRST = """
import usmq, dpctl
assert dpctl.get_devices(), "dpctl sees no device"
assert usmq.devices(), "usmq sees no device"
"""
# The runtime queries drivers once: the error states that, and the variable that it names helps.
ASKED_TOO_EARLY = """
import os, re, sys
given = dict(os.environ)
import dpctl
if dpctl.get_devices():
    sys.exit()
import usmq
try:
    usmq.current_queue()
except usmq.RuntimeNotFoundError as error:
    name, value = re.search("or set ([A-Z_]+)=(\\S+) before", str(error)).groups()
    again = "import dpctl; assert dpctl.get_devices(); import usmq; usmq.current_queue()"
    os.execve(sys.executable, [sys.executable, "-c", again], given | {name: value})
sys.exit("a queue without a device")
"""
WITH_DPNP = """
import usmq, dpnp
assert int(dpnp.arange(4).sum()) == 6
x = usmq.asarray(dpnp.ones(3), copy=False)
assert float(dpnp.asarray(x).sum()) == 3.0
"""
# The first example of README, which needs no other package.
README = doc_blocks.first_example(ROOT / "README.md")
README_EXAMPLE = f"""
import contextlib, io, pathlib
for name, content in {README.files!r}.items():
    pathlib.Path(name).write_text(content)
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec({README.code!r}, {{}})
assert printed.getvalue() == {README.output!r}, printed.getvalue()
for name in {list(README.files)!r}:
    pathlib.Path(name).unlink()
"""
# The installed command and `python -m` give the same.
COMMAND = """
import pathlib, subprocess, sys
script = pathlib.Path(sys.executable).with_name("usmq")
for options in ["--version"], ["list"], ["nosuch"]:
    done = [
        subprocess.run([*command, *options], capture_output=True, text=True)
        for command in ([str(script)], [sys.executable, "-m", "usmq"])
    ]
    assert done[0].returncode == done[1].returncode == (2 if "nosuch" in options else 0), done
    assert done[0].stdout == done[1].stdout, done
    assert bool(done[0].stderr) == bool(done[1].stderr) == ("nosuch" in options), done
"""
# usmq/kernel.h needs no header of the system; the error for sycl.hpp names the missing ones.
SHORT_KERNEL = """
import usmq
axpy = usmq.Kernel.from_sycl(
    '#include <usmq/kernel.h>\\n'
    'USMQ_KERNEL(1) void axpy(float a, const float *x, float *y) {\\n'
    '  y[global_id(0)] += a * x[global_id(0)]; }',
    "axpy",
)
x, y = usmq.asarray([1.0, 2.0, 3.0], "f4"), usmq.zeros(3, "f4")
axpy(3, 2.0, x, y)
assert y.tolist() == [2.0, 4.0, 6.0], y.tolist()
for shape in (24,), (4, 6), (2, 3, 4):
    n = len(shape)
    at = [
        "global_id(0)",
        "global_id(0) * 6 + global_id(1)",
        "(global_id(0) * 3 + global_id(1)) * 4 + global_id(2)",
    ]
    put = usmq.Kernel.from_sycl(
        f'#include <usmq/kernel.h>\\nUSMQ_KERNEL({n}) void put(int *x) {{\\n'
        f'  bool fits = true;\\n  for (int d = 0; d < {n}; ++d)\\n'
        '    fits = fits && group_id(d) * local_size(d) + local_id(d) == global_id(d);\\n'
        f'  x[{at[n - 1]}] = fits ? global_linear_id() : -1; }}',
        "put",
    )
    z = usmq.zeros(24, "i4")
    put(shape, z)
    assert z.tolist() == list(range(24)), (shape, z.tolist())
square_sum = usmq.reduction("const float *x", "float", "x[i] * x[i]", "a + b", "0")
assert square_sum(y).tolist() == 56.0
"""
# Prints the command that the error names; it installs what the same kernel then needs.
WITHOUT_HEADERS = f"""{AXPY}
try:
    usmq.Kernel.from_sycl(AXPY, "axpy")
except usmq.KernelBuildError as error:
    text = str(error)
    assert "usmq/kernel.h" in text, text
    open("/fix.sh", "w").write(text[text.index("apt-get update"):text.index("; a kernel")])
else:
    raise SystemExit("a kernel with sycl.hpp was built without headers of C++")
"""
# Before the program of Ray: one emulated GPU for each of two actors.
ON_TWO_GPUS = """
import os
os.environ |= {"USMQ_EMULATE_GPUS": "2", "SELECTORS": "*:0 *:1"}
"""
# Actors have both parts of the OpenCL layer, though Ray's processes ask for devices before usmq.
RAY_LAYERS = """
import os
os.environ["USMQ_EMULATE_GPUS"] = "2"
import usmq, ray
def layers():
    return usmq.layers(), [device.device_type for device in usmq.devices()]
ray.init(num_cpus=2, include_dashboard=False)
found = ray.get([ray.remote(layers).remote() for _ in range(2)])
assert found == [({"waits": True, "emulator": True}, ["gpu", "gpu", "cpu"])] * 2, found
ray.shutdown()
"""
# Both parts of the OpenCL layer are in use, with each runtime that usmq can be built with.
LAYERS = """
import os
os.environ["USMQ_EMULATE_GPUS"] = "2"
import warnings, usmq
warnings.simplefilter("error")
gpus = [device.filter_string for device in usmq.devices() if device.device_type == "gpu"]
assert gpus == ["opencl:gpu:0", "opencl:gpu:1"], gpus
assert usmq.layers() == {"waits": True, "emulator": True}, usmq.layers()
"""
VERSIONS = """
from importlib.metadata import version
found = version("intel-sycl-rt")
print("runtime", found)
assert found.startswith({runtime!r}), found
"""


def program(name: str) -> str:
    """Return a program of the page about Ray and MPI."""
    page = ROOT / "docs" / "howto" / "ray-mpi.md"
    [block] = [block for block in doc_blocks.blocks(page) if block.word == name]
    return block.code


# dpnp's dependencies at versions that fit the older runtime: newer ones do not load with it.
ONEMKL = tuple(
    f"{name}==2026.1.*"
    for name in ("mkl", *(f"onemkl-sycl-{part}" for part in ("blas", "dft", "lapack", "rng", "vm")))
)


class Environment(NamedTuple):
    """The packages of each pip command, in order, and the programs to run afterwards."""

    commands: tuple[tuple[str, ...], ...]
    programs: tuple[str, ...]


WHEEL = "WHEEL"  # stands for the path of the wheel
SOURCE = "SOURCE"  # stands for the path of the checkout
# Builds that are only tested for their runtime.
FAST = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}
RUNTIMES = {
    "2026.1": ("intel-sycl-rt==2026.1.*", "intel-opencl-rt==2026.1.*"),
    "2026.2": ("intel-sycl-rt==2026.2.*", "intel-opencl-rt==2026.2.*"),
}
ENVIRONMENTS = {
    "wheel": Environment(((WHEEL,),), (README_EXAMPLE, COMMAND, FIRST_STEPS)),
    "2026.1": Environment(
        ((WHEEL, *RUNTIMES["2026.1"]),),
        (VERSIONS.format(runtime="2026.1."), FIRST_STEPS, SELECTOR, LAYERS),
    ),
    "2026.2": Environment(
        ((WHEEL, *RUNTIMES["2026.2"]),),
        (VERSIONS.format(runtime="2026.2."), FIRST_STEPS, SHORT_KERNEL, SELECTOR, LAYERS),
    ),
    "dpctl-first": Environment(
        ((WHEEL, "dpctl"),), (PEER_ASKS_FIRST, ASKED_TOO_EARLY, FIRST_STEPS)
    ),
    "dpnp": Environment(((WHEEL, "dpnp"),), (PEER_ASKS_FIRST, WITH_DPNP, FIRST_STEPS)),
    "dpnp-first": Environment((("dpnp",), (WHEEL,)), (PEER_ASKS_FIRST, WITH_DPNP)),
    "usmq-first": Environment(((WHEEL,), ("dpnp",)), (PEER_ASKS_FIRST, WITH_DPNP)),
    # pip builds in an environment of its own; then dpnp comes with the older runtime.
    "source": Environment(
        ((SOURCE,), ("dpnp==0.20.0", *RUNTIMES["2026.1"], *ONEMKL)),
        (VERSIONS.format(runtime="2026.1."), PEER_ASKS_FIRST, WITH_DPNP, FIRST_STEPS, LAYERS),
    ),
    "ray": Environment(
        ((WHEEL, "dpctl", "numpy", "ray"),),
        (program("actors.py"), ON_TWO_GPUS + program("actors.py"), RAY_LAYERS, PEER_ASKS_FIRST),
    ),
    "dashboard": Environment(
        ((WHEEL, "distributed", "numpy", "bokeh", "prometheus-client"),),
        ((ROOT / "tests" / "dashboard.py").read_text(encoding="utf-8"),),
    ),
}


def run(command: list[object], timeout: float = 1200, **variables: str) -> None:
    """Run a command with nothing in its environment that this machine has set."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    text = [str(part) for part in command]
    done = subprocess.run(
        text, cwd=PLACE, env=kept | variables, timeout=timeout, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(text[:6])} … ended with {done.returncode}\n"
            f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    if done.stdout.startswith("runtime"):
        print(" ", done.stdout.strip())


def check(name: str, wheel: Path) -> None:
    """Make an environment, run its programs and the doctor, and delete it."""
    place = PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    try:
        run([sys.executable, "-m", "venv", place])
        python = place / "bin" / "python"
        for packages in ENVIRONMENTS[name].commands:
            paths = {WHEEL: wheel, SOURCE: ROOT}
            names = [paths.get(package, package) for package in packages]
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run([*install, *names], timeout=3600, **FAST if SOURCE in packages else {})
        for number, text in enumerate(ENVIRONMENTS[name].programs):
            file = place / f"program{number}.py"
            file.write_text(text, encoding="utf-8")
            run([python, file])
        run([python, "-m", "usmq", "doctor"])
    finally:
        shutil.rmtree(place, ignore_errors=True)


def check_builds() -> None:
    """Build with each runtime and run with each, an application in Rust and the package.

    No pin of pyproject.toml reaches a cargo build, or a build without isolation.
    """
    places = {release: PLACE / f"builds-{release}" for release in RUNTIMES}
    folder = Path(tempfile.mkdtemp(prefix="usmq-builds-")).resolve()
    try:
        for release, place in places.items():
            shutil.rmtree(place, ignore_errors=True)
            run([sys.executable, "-m", "venv", place])
            pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet"]
            run([*pip, *RUNTIMES[release], "maturin>=1.12,<2"])
        for built, builder in places.items():
            python = builder / "bin" / "python"
            application = rust_crate.build_with(builder, folder)
            wheels = folder / f"wheels-{built}"
            build = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels]
            path = f"{builder / 'bin'}:{os.environ['PATH']}"
            variables = FAST | {"VIRTUAL_ENV": str(builder), "PATH": path}
            run([python, "-m", "pip", "wheel", *build, ROOT], timeout=3600, **variables)
            [wheel] = wheels.glob("usmq-*.whl")
            for used, place in places.items():
                print(f"  built with {built}, run with {used} …", flush=True)
                variables = {"LD_LIBRARY_PATH": str(place / "lib"), "USMQ_EMULATE_GPUS": "2"}
                run([application], **variables)
                user = place / "bin" / "python"
                install = ["--quiet", "--no-deps", "--force-reinstall"]
                run([user, "-m", "pip", "install", *install, wheel])
                for number, text in enumerate((FIRST_STEPS, SELECTOR, LAYERS)):
                    file = place / f"program{number}.py"
                    file.write_text(text, encoding="utf-8")
                    run([user, file])
                run([user, "-m", "usmq", "doctor"])
    finally:
        for place in [*places.values(), folder]:
            shutil.rmtree(place, ignore_errors=True)


def check_slim(wheel: Path) -> None:
    """Take the first steps of a user in a small Debian without compilers and C++ headers."""
    place = PLACE / "slim"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        root = slim_root.Root(place / "root", lambda command: run(command))
        wheels = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary", ":all:"]
        run([*wheels, "--python-version", root.python, "--dest", root.folder / "wheels", wheel])
        root.run("python3 -m venv /user")
        root.run("/user/bin/pip install --quiet --no-index --find-links /wheels usmq")
        for text in (README_EXAMPLE, COMMAND, SHORT_KERNEL, WITHOUT_HEADERS):
            (root.folder / "program.py").write_text(text, encoding="utf-8")
            root.run("/user/bin/python /program.py")
        root.run("/user/bin/usmq doctor")
        root.run("sh -e /fix.sh")
        (root.folder / "program.py").write_text(FIRST_STEPS, encoding="utf-8")
        root.run("/user/bin/python /program.py")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main() -> int:
    """Check each environment; the exit status says whether all of them work."""
    about = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about.add_argument("wheel", type=Path, nargs="?")
    names = [*ENVIRONMENTS, "builds", "slim", *rust_crate.CHECKS]
    about.add_argument("--only", nargs="+", choices=names, default=names)
    about.add_argument("--list", action="store_true", help="the names, and what is installed")
    given = about.parse_args()
    if given.list:
        for name, environment in ENVIRONMENTS.items():
            commands = "; ".join(f"pip install {' '.join(names)}" for names in environment.commands)
            commands = commands.replace(WHEEL, "usmq-*.whl").replace(SOURCE, ".")
            print(f"{name:<12} {commands}")
        print(f"{'builds':<12} package and Rust program, built with and run with each runtime")
        print(f"{'slim':<12} the wheel in a new Debian without compilers and headers (needs root)")
        for name, (_, what) in rust_crate.CHECKS.items():
            print(f"{name:<12} {what}")
        return 0
    wheels = (
        [given.wheel] if given.wheel else sorted((ROOT / "target" / "wheels").glob("usmq-*.whl"))
    )
    of_wheel = {name for name, made in ENVIRONMENTS.items() if WHEEL in sum(made.commands, ())}
    if not wheels and {*of_wheel, "slim"} & set(given.only):
        about.error("found no wheel in target/wheels; run `make wheel`")
    wheel = wheels[-1].resolve() if wheels else ROOT
    PLACE.mkdir(parents=True, exist_ok=True)
    failed = []
    missing = slim_root.missing()
    for name in given.only:
        if name == "slim" and missing:
            print(f"slim: skipped: {missing}", flush=True)
            continue
        begun = time.monotonic()
        print(f"{name} …", flush=True)
        try:
            if name in rust_crate.CHECKS:
                rust_crate.check(name)
            elif name == "builds":
                check_builds()
            elif name == "slim":
                check_slim(wheel)
            else:
                check(name, wheel)
        except (RuntimeError, rust_crate.Failed, subprocess.TimeoutExpired) as error:
            failed.append(name)
            print(f"{name}: FAILED: {error}", flush=True)
        else:
            print(f"{name}: works, {time.monotonic() - begun:.0f} s", flush=True)
    print("environments: " + (f"FAILED: {', '.join(failed)}" if failed else "all work"))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
