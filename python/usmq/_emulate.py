"""``python -m usmq emulate``: run a command that sees emulated GPUs."""

from __future__ import annotations

import argparse
import os
import sys

import usmq
from usmq._command import program
from usmq._core import prepare_emulation

# The exit statuses of a shell for a missing command, and for one that cannot be run.
_NOT_FOUND, _NOT_RUN = 127, 126


def main(argv: list[str]) -> int:
    """Set the variables and replace this process by the command; return only on failure."""
    parser = _parser()
    options = parser.parse_args(argv)
    command = options.command
    if command[:1] == ["--"]:
        del command[0]
    if not command:
        parser.error(f"no command given; usage: {program()} emulate -n 2 -- pytest")
    for name, value in {
        "USMQ_EMULATE_GPUS": options.number,
        "USMQ_EMULATE_GPU_MEMORY": options.memory,
        "USMQ_EMULATE_SYSTEM_USM": "1" if options.system_usm else None,
        "USMQ_EMULATE_FAULTS": options.faults,
    }.items():
        if value is not None:
            os.environ[name] = value
    try:
        prepare_emulation()
    except ValueError as problem:  # one of these variables
        parser.error(str(problem))
    except usmq.Error as problem:
        print(f"usmq emulate: {problem}", file=sys.stderr)
        return 1
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        print(f"usmq emulate: cannot run {command[0]}: {problem.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(problem, FileNotFoundError) else _NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"{program()} emulate",
        usage="%(prog)s [-n N] [--memory SIZE] [--system-usm] [--faults FAULTS] [--] "
        "COMMAND [ARGUMENT ...]",
        description="Run a command that sees emulated GPUs, made of the CPU device. The page "
        "docs/emulated-gpus.md says what they show and what they do not.",
    )
    parser.add_argument("-n", dest="number", default="2", metavar="N", help="1 to 64 GPUs (2)")
    parser.add_argument(
        "--memory", metavar="SIZE", help="of each GPU, as 4GiB (half of the host's, shared out)"
    )
    parser.add_argument(
        "--system-usm", action="store_true", help="the GPUs read memory of the host in place"
    )
    parser.add_argument(
        "--faults", metavar="FAULTS", help="what fails, as gpu:1=lost@10,gpu:0=slow:50us"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, its arguments")
    return parser
