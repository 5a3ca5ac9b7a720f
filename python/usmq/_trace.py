"""``python -m usmq trace``: profile an unmodified script or module.

The process restarts itself, because the SYCL runtime reads only at its start whether to report
the work of other libraries.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import runpy
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

import usmq
from usmq import _core
from usmq._command import cannot_write, check_file, program

# Set in the process that is traced.
_STARTED = "USMQ_TRACE_STARTED"
_ENDINGS = (".json", ".svg", ".html", ".txt")


def main(argv: list[str]) -> int:
    """Run the script under a profile, write the files, and return the script's exit status."""
    options = _options(argv)
    if options.module and not sys.flags.safe_path:
        # As for `python -m`; for the command `usmq` it is the folder of the command.
        sys.path[0] = os.getcwd()
    if os.environ.pop(_STARTED, None) is None:
        if (problem := _cannot_run(options)) is not None:
            print(f"usmq trace: {problem}", file=sys.stderr)
            return 2
        _start_again()
    try:
        _core.watch_calls()
    except usmq.Error as problem:
        print(f"usmq trace: {problem}", file=sys.stderr)
    profile, own = usmq.profile(), os.getpid()
    with ExitStack() as closing:
        closing.enter_context(profile)
        status = _run(options.module, options.command)
        if os.getpid() != own:
            # This is a child that the script has forked: the profile belongs to its parent.
            closing.pop_all()
            return status
    if not _flushed():
        status = status or 1
    print(f"\n{profile}\n", file=sys.stderr)
    for path in options.output:
        try:
            profile.save(path)
        except OSError as problem:
            print(f"usmq trace: {cannot_write(path, problem)}", file=sys.stderr)
            status = status or 1
        else:
            print(f"usmq trace: written to {path}", file=sys.stderr)
    return status


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"{program()} trace",
        usage="%(prog)s [-o FILE ...] [--] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description="Profile an unmodified Python script: what usmq runs and copies, "
        "and the work of other libraries, as the SYCL runtime reports it.",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        action="append",
        help="a file to write, by its ending .json, .svg, .html or .txt; may be given more than "
        "once (default: usmq-trace.svg and usmq-trace.json)",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="run a module")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the script and its arguments")
    options = parser.parse_args(argv)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if options.command[:1] == ["-m"]:
        options.module = True
        del options.command[0]
    if not options.command:
        parser.error(f"no script given; usage: {program()} trace -- script.py arguments")
    options.output = options.output or ["usmq-trace.svg", "usmq-trace.json"]
    for path in options.output:
        if Path(path).suffix.lower() not in _ENDINGS:
            parser.error(f"{path}: a profile is saved as {', '.join(_ENDINGS)}")
    return options


def _cannot_run(options: argparse.Namespace) -> str | None:
    """Return the problem with the script or the output files, before anything runs."""
    script = options.command[0]
    if options.module:
        if importlib.util.find_spec(script.partition(".")[0]) is None:
            return f"no module named {script}"
    else:
        try:
            Path(script).open("rb").close()
        except OSError as problem:
            return f"cannot open {script}: {problem.strerror}"
    for path in options.output:
        try:
            check_file(path)
        except OSError as problem:
            return cannot_write(path, problem)
    return None


def _flushed() -> bool:
    """Flush the script's output; after a failure, keep Python from flushing it again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as problem:
        if not isinstance(problem, BrokenPipeError):
            print(f"usmq trace: cannot write the output: {problem.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _start_again() -> None:
    """Restart this command in an environment in which the runtime reports calls."""
    environment = {_STARTED: "1", "USMQ_PROFILING": os.environ.get("USMQ_PROFILING", "1")}
    libraries = _core.runtime_libraries("libsycl.so")
    folder = Path(libraries[0]).parent if libraries else Path()
    framework = folder / "libxptifw.so"
    subscriber = folder / "libsycl_ur_trace_collector.so"
    if framework.exists() and subscriber.exists():
        environment |= {"XPTI_TRACE_ENABLE": "1", "XPTI_FRAMEWORK_DISPATCHER": str(framework)}
        # The runtime's subscriber prints only on request; without a subscriber nothing is traced.
        environment["XPTI_SUBSCRIBERS"] = _with("XPTI_SUBSCRIBERS", str(subscriber))
        environment["UR_ENABLE_LAYERS"] = _with("UR_ENABLE_LAYERS", "UR_LAYER_TRACING")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # orig_argv includes the interpreter's own options, as -X or -W.
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | environment)


def _with(name: str, value: str) -> str:
    known = [part for part in os.environ.get(name, "").split(",") if part]
    return ",".join([*known, *([] if value in known else [value])])


def _run(is_module: bool, command: list[str]) -> int:
    """Run as Python would, and return its exit status."""
    try:
        if is_module:
            sys.argv[:] = command
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        else:
            _run_script(command)
    except SystemExit as leaving:
        return _status(leaving.code)
    except KeyboardInterrupt as interrupt:
        _show(interrupt)
        return 130
    except BaseException as problem:
        _show(problem)
        return 1
    return 0


def _run_script(command: list[str]) -> None:
    path = command[0]
    code: CodeType = compile(Path(path).read_bytes(), path, "exec")
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None)
    sys.argv[:] = command
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(path).resolve().parent)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    print(code, file=sys.stderr)
    return 1


def _show(problem: BaseException) -> None:
    """Print the traceback, starting at the script."""
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    frames: TracebackType | None = problem.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in own:
        frames = frames.tb_next
    traceback.print_exception(type(problem), problem, frames)
