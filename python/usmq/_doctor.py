"""``usmq.doctor()`` and ``python -m usmq doctor``: why a device is visible or not."""

from __future__ import annotations

import sys

# As in typing, whose import takes a third of that of usmq.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from usmq._core import DoctorReport

_COLOURS = {"ok": "32", "note": "33", "problem": "31;1"}


def doctor(*, timeout: float = 60.0) -> DoctorReport:
    """Report why each device is visible or not, and how to fix problems.

    The doctor checks the SYCL runtime and its adapters, the drivers, device nodes and their
    permissions, environment variables, and the packages of this environment that also use SYCL.
    Checks that may crash or hang run in child processes; this process does not start the runtime.
    Problems of the environment are findings, not exceptions.

    Parameters
    ----------
    timeout : float
        Time limit for the answer of a driver, in seconds; 60 by default.

    Returns
    -------
    DoctorReport
        The findings; ``str(report)`` is the text of ``python -m usmq doctor``.

    Raises
    ------
    ValueError
        The timeout is not a positive number of seconds.

    Examples
    --------
    >>> import usmq
    >>> report = usmq.doctor()
    >>> report.devices == len(usmq.devices())
    True
    >>> "visible" in report.verdict
    True
    """
    from usmq._core import examine
    from usmq._packages import facts

    return examine(timeout, facts)


def show(*, json: bool, timeout: float) -> int:
    """Print the report; return 0 without a problem, else 1."""
    try:
        import usmq._core  # noqa: F401
    except ImportError as missing:
        return _show_unloadable(missing, json=json)
    report = doctor(timeout=timeout)
    _print(str(report), report.to_dict(), json=json)
    return 0 if report.ok else 1


def _show_unloadable(missing: ImportError, *, json: bool) -> int:
    """Print a report with one finding: the extension itself cannot be loaded."""
    from usmq._import_error import reason

    what, fix = reason(missing)
    verdict = "1 problem; no device is visible."
    finding = {"topic": "runtime", "state": "problem", "what": what, "fix": fix}
    what, fix = what.replace("\n", "\n" + " " * 11), fix.replace("\n", "\n" + " " * 16)
    text = f"SYCL runtime\n  problem  {what}\n           fix: {fix}\n\n{verdict}"
    report = {"ok": False, "devices": 0, "verdict": verdict, "findings": [finding]}
    _print(text, report, json=json)
    return 1


def _print(text: str, report: object, *, json: bool) -> None:
    if json:
        from json import dumps

        print(dumps(report, indent=2))
    else:
        print(_coloured(text) if _wants_colour() else text)


def _wants_colour() -> bool:
    import os

    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _coloured(text: str) -> str:
    lines = []
    for line in text.splitlines():
        mark = line[2:11].strip()
        if line.startswith("  ") and mark in _COLOURS:
            line = f"  \033[{_COLOURS[mark]}m{line[2:11]}\033[0m{line[11:]}"
        elif line and not line.startswith(" "):
            line = f"\033[1m{line}\033[0m"
        lines.append(line)
    return "\n".join(lines)
