"""``python -m usmq``: list, doctor, demo, trace."""

from __future__ import annotations

import argparse
import os
import sys

from usmq._folders import FOLDERS
from usmq._folders import show as show_folders

_DETAILS = {
    "short": "filter strings only",
    "long": "a paragraph per device",
    "full": "everything, aspects included",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m usmq", description="Where offloaded work runs."
    )
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
        help="why a device is visible or not, and how to mend it",
        description="Exit status: 0 when all is well, 1 with a problem.",
    )
    doctor.add_argument("--json", action="store_true", help="the same for programs")
    doctor.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="S",
        help="how long a driver may take to answer, in seconds (60)",
    )
    commands.add_parser("demo", help="a year of flights through kernels, checked", add_help=False)
    commands.add_parser("trace", help="profile a script that knows nothing of it", add_help=False)
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["trace"]:  # what follows may be options of the script
        from usmq._trace import main as trace

        return trace(argv[1:])
    options, rest = parser.parse_known_args(argv)
    if options.folders and options.command is None and not rest:
        return show_folders(options.folders)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    if options.command == "demo":
        from usmq.demo import main as demo

        return demo(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if options.command == "list":
        from usmq._list import show as show_list

        return show_list(options.detail)
    from usmq._doctor import show

    if not 0 < options.timeout < float("inf"):
        doctor.error(f"--timeout takes a positive number of seconds, not {options.timeout}")
    return show(json=options.json, timeout=options.timeout)


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
