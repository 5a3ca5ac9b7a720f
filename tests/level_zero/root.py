"""The root folder with Intel's GPU driver: Debian sid by debootstrap, kept in the user's cache.

The mounts of a run live in a mount namespace of its own, which ends with the run in any case.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

SUITE = "sid"
# Intel's driver and compiler, the compiler of OpenCL C, and the loader.
INTEL = (
    "libze-intel-gpu1",
    "libigc2",
    "libigdfcl2",
    "libigdgmm12",
    "intel-ocloc",
    "libze1",
    "libze-dev",
)
# The compiler of tests that build C and C++, with the headers that kernels include; python3 brings
# libraries that Python modules load.
OTHERS = ("python3", "g++")
RECORDED = Path(__file__).with_name("packages.txt")


def cache() -> Path:
    """Return the folder of what is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "usmq" / "level-zero"


def here() -> bool:
    """Return whether this is Debian sid itself, as in a container: then nothing is mounted."""
    try:
        return Path("/etc/debian_version").read_text().strip().endswith("/" + SUITE)
    except OSError:
        return False


def folder() -> Path:
    """Return the root in which the tests run."""
    return Path("/") if here() else cache() / "root"


def missing() -> str | None:
    """Return why no root can be made here, and the fix."""
    if os.geteuid():
        return "debootstrap, apt-get and mounts need root; run it with sudo"
    if not here() and not shutil.which("debootstrap"):
        return "debootstrap is missing; apt-get install debootstrap"
    return None


def mirror() -> str:
    """Return the mirror that this machine's own apt uses for Debian."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN)|$(REPO_URI)|$(COMPONENT)",
        "Created-By: Packages",
    ]
    for line in subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        origin, uri, component = line.split("|")
        if origin == "Debian" and component == "main" and "security" not in uri:
            return uri
    raise SystemExit("level-zero: apt has no mirror of Debian in its lists; run apt-get update")


def settings() -> str:
    """Return this machine's settings of apt's downloads: proxies, dates, certificates."""
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    kept = [
        x
        for x in dump.splitlines()
        if x.startswith("Acquire::") and "IndexTargets" not in x and "::Changelogs" not in x
    ]
    return "\n".join(kept) + "\n"


def install(root: Path) -> None:
    """Install the packages into a root."""
    env = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
    }
    inside = [] if root == Path("/") else ["chroot", str(root)]
    for command in (
        "update -qq",
        f"install -y -qq --no-install-recommends {' '.join(INTEL + OTHERS)}",
    ):
        result = subprocess.run(
            [*inside, "apt-get", *command.split()], env=env, capture_output=True, text=True
        )
        if result.returncode:
            raise SystemExit(
                f"level-zero: apt-get {command}:\n{result.stdout[-2000:]}{result.stderr[-2000:]}"
            )


def make() -> None:
    """Make the root unless it is there, and compare its driver with the recorded one."""
    if here():
        if not installed():
            install(Path("/"))
        return compare()
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        root = folder()
        if not root.exists():
            reason = missing()
            if reason:
                raise SystemExit(f"level-zero: no root with Intel's driver: {reason}")
            started = time.monotonic()
            print(
                f"==> level-zero: a root with Debian {SUITE} and Intel's driver (1.4 GB)",
                flush=True,
            )
            unfinished = cache() / "root.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            result = subprocess.run(
                [
                    "debootstrap",
                    "--variant=minbase",
                    "--include=ca-certificates",
                    SUITE,
                    str(unfinished),
                    mirror(),
                ],
                capture_output=True,
                text=True,
            )
            if result.returncode:
                raise SystemExit(
                    f"level-zero: debootstrap:\n{result.stdout[-3000:]}{result.stderr[-1000:]}"
                )
            shutil.copy("/etc/resolv.conf", unfinished / "etc" / "resolv.conf")
            (unfinished / "etc" / "apt" / "apt.conf.d" / "50machine").write_text(settings())
            # This machine's certificates, in place of those that debootstrap set up as links.
            certificates = unfinished / "etc" / "ssl" / "certs"
            shutil.rmtree(certificates, ignore_errors=True)
            shutil.copytree("/etc/ssl/certs", certificates, ignore_dangling_symlinks=True)
            install(unfinished)
            unfinished.rename(root)
            print(f"    made in {time.monotonic() - started:.0f} s", flush=True)
        elif not installed():
            install(root)
    compare()


def clean() -> None:
    """Remove the root and what else is kept."""
    shutil.rmtree(cache(), ignore_errors=True)


def installed() -> dict[str, str]:
    """Return the versions of the packages in the root; empty if one is missing."""
    inside = [] if here() else ["chroot", str(folder())]
    command = [*inside, "dpkg-query", "-W", "-f", "${Package} ${Version}\n", *INTEL, *OTHERS]
    result = subprocess.run(command, capture_output=True, text=True)
    return {} if result.returncode else dict(line.split() for line in result.stdout.splitlines())


def compare() -> None:
    """Warn if the driver is not the recorded one."""
    recorded = dict(
        line.split()
        for line in RECORDED.read_text().splitlines()
        if line and not line.startswith("#")
    )
    for name, version in installed().items():
        if name in INTEL and recorded.get(name) != version:
            print(
                f"level-zero: warning: {name} is {version}; tested with {recorded.get(name)}",
                file=sys.stderr,
            )


def python_places() -> list[Path]:
    """Return what the interpreter of the environment needs from this machine."""
    base = Path(sys.base_prefix)
    if base != Path("/usr"):
        return [base]
    return [Path(sysconfig.get_path("stdlib")), Path(os.path.realpath(sys.executable))]


def enter(command: list[str], env: dict[str, str], places: list[Path]) -> list[str]:
    """Return the command line of a command in the root, with these variables and places only."""
    variables = [f"{name}={value}" for name, value in env.items()]
    if here():
        return ["/usr/bin/env", "-i", *variables, *command]
    root = folder()
    lines = ["set -e"]
    lines += [
        f"mount --rbind /{name} {shlex.quote(str(root / name))}" for name in ("proc", "sys", "dev")
    ]
    for place in places:
        inside = root / place.relative_to("/")
        if place.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
        else:
            inside.parent.mkdir(parents=True, exist_ok=True)
            inside.touch()
        lines.append(f"mount --bind {shlex.quote(str(place))} {shlex.quote(str(inside))}")
    lines.append(f"cd {shlex.quote(str(root))}")
    lines.append(
        "exec chroot . "
        + shlex.join(["/usr/bin/env", "-i", "-C", os.getcwd(), *variables, *command])
    )
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", "\n".join(lines)]
