"""The command ``usmq``, also ``python -m usmq``: list, doctor, demo, trace, emulate, pyarrow."""

from __future__ import annotations

import argparse
import math
import os
import sys

from usmq._command import program
from usmq._paths import FOLDERS
from usmq._paths import show as show_folders

_DETAILS = {
    "short": "filter strings only",
    "long": "a paragraph per device",
    "full": "everything, aspects included",
}
# The statuses that a shell reports when a closed pipe or Ctrl-C ends a process.
_BROKEN_PIPE, _INTERRUPTED = 141, 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = sys.argv[1:] if argv is None else [os.fspath(argument) for argument in argv]
    name, rest = (arguments or [""])[0], arguments[1:]
    if name == "demo" and not _has_no_output() and _can_load():
        from usmq.demo import main as demo

        return demo(rest)
    if name == "trace" and _can_load():
        from usmq._trace import main as trace

        return trace(rest)
    if name == "emulate" and _can_load():
        from usmq._emulate import main as emulate

        return emulate(rest)
    if name == "pyarrow" and not _has_no_output() and _can_load():
        from usmq.pyarrow._build import main as pyarrow

        return pyarrow(rest)
    if name in ("demo", "trace", "emulate", "pyarrow"):
        return 1
    parser, listing, doctor = _parsers()
    if name == "list":
        return _list(listing.parse_args(rest))
    if name == "doctor":
        return _doctor(doctor.parse_args(rest))
    options = parser.parse_args(arguments)
    if options.command is not None:
        parser.error(f"put options after the command: {program()} {options.command} ...")
    if options.folders:
        return 1 if _has_no_output() else show_folders(options.folders)
    parser.print_help(sys.stderr)
    return 2


def _parsers() -> tuple[argparse.ArgumentParser, ...]:
    parser = argparse.ArgumentParser(prog=program(), description="SYCL devices, seen by usmq.")
    parser.add_argument("-V", "--version", action="version", version=f"usmq {_version()}")
    for name, text in FOLDERS.items():
        parser.add_argument(
            f"--{name}-dir", action="append_const", const=name, dest="folders", help=text
        )
    commands = parser.add_subparsers(dest="command", metavar="command")
    listing = commands.add_parser("list", help="the visible devices")
    listing.set_defaults(detail="table")
    detail = listing.add_mutually_exclusive_group()
    for name, text in _DETAILS.items():
        detail.add_argument(
            f"-{name[0]}", f"--{name}", action="store_const", const=name, dest="detail", help=text
        )
    doctor = commands.add_parser(
        "doctor",
        help="why a device is visible or not, and how to fix it",
        description="Exit status: 0 without a problem, 1 with one.",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="how long a driver may take to answer, in seconds (60)",
    )
    # Listed for the help only; each command parses its own options.
    commands.add_parser("demo", help="a year of flights through kernels, checked", add_help=False)
    commands.add_parser("trace", help="profile an unmodified script", add_help=False)
    commands.add_parser("emulate", help="run a command that sees emulated GPUs", add_help=False)
    commands.add_parser("pyarrow", help="build what lets pyarrow hold USM", add_help=False)
    return parser, listing, doctor


def _list(options: argparse.Namespace) -> int:
    if _has_no_output() or not _can_load():
        return 1
    from usmq._list import show

    return show(options.detail)


def _doctor(options: argparse.Namespace) -> int:
    if _has_no_output():
        return 1
    from usmq._doctor import show

    return show(json=options.json, timeout=options.timeout)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds below 1e9")
    return value


def _version() -> str:
    import usmq

    try:
        return usmq.__version__
    except AttributeError:  # the extension cannot be loaded
        from importlib.metadata import version

        return version("usmq")


def _can_load() -> bool:
    """Return whether the extension can be loaded; if not, print why. `doctor` works without it."""
    try:
        import usmq._core  # noqa: F401
    except ImportError as missing:
        from usmq._import_error import explained

        print(f"usmq: {explained(missing)}", file=sys.stderr)
        return False
    return True


def _has_no_output() -> bool:
    """Return whether the shell has closed standard output; if so, print an error."""
    if sys.stdout is None:
        print("usmq: cannot write the output: standard output is closed", file=sys.stderr)
    return sys.stdout is None


def run() -> int:
    """Run the command of this process and return its exit status; never print a traceback."""
    if sys.stderr is None:  # closed by the shell; print() would use standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (to the end)
    try:
        try:
            status = main()
        except SystemExit as leaving:  # of argparse: help, version, or a wrong option
            status = leaving.code if isinstance(leaving.code, int) else 0
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader, as `head`, has closed the pipe
        _discard_output()
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        _discard_output()
        return _INTERRUPTED
    except OSError as problem:  # as a full disk
        _discard_output()
        what = problem if problem.filename else f"cannot write the output: {problem.strerror}"
        print(f"usmq: {what}", file=sys.stderr)
        return 1
    return status


def _discard_output() -> None:
    """Discard the rest of the buffer: Python would write it at exit and report a failure."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(run())
