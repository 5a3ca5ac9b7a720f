"""Every way to start another process, before and after the first use of a device, idle and at work.

test_runtime.py has the error of each call in a forked child.
"""

import pytest
from children import KERNEL, SPIN_SOURCE

# A module, so that spawned children can import it.
MODULE = (
    """
import os, subprocess, sys, threading, time
import multiprocessing
import usmq

SOURCE = '''"""
    + SPIN_SOURCE
    + """'''

def use():
    "What a process can do with a device: a number, or the name of the error."
    try:
        return int(usmq.arange(0, 10, 1, dtype="i4").to_numpy().sum())
    except usmq.Error as error:
        return type(error).__name__

def report(connection):
    connection.send(use())
    connection.close()

def by_process(method):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=report, args=(theirs,))
    process.start()
    theirs.close()
    result = ours.recv()
    process.join(60)
    return result, process.exitcode

def by_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        (result,) = {each.get() for each in [pool.apply_async(use) for _ in range(4)]}
        pool.close()
        pool.join()
    return result, 0

def by_executor(method):
    from concurrent.futures import ProcessPoolExecutor
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return pool.submit(use).result(60), 0

def by_fork(end):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        result = use()
        os.write(write, f"{type(result).__name__} {result}".encode())
        os.close(write)
        end()
    os.close(write)
    with os.fdopen(read) as pipe:
        kind, _, text = pipe.read().partition(" ")
    result = int(text) if kind == "int" else text
    return result, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def by_fork_in_a_thread(end):
    results = []
    thread = threading.Thread(target=lambda: results.append(by_fork(end)))
    thread.start()
    thread.join()
    return results[0]

COMMAND = [sys.executable, "-c", "import module; assert module.use() == 45"]

def by_subprocess():
    return 45, subprocess.run(COMMAND, timeout=60).returncode

def by_spawn():
    pid = os.posix_spawn(sys.executable, COMMAND, os.environ)
    return 45, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

WAYS = {
    "fork, os._exit": lambda: by_fork(lambda: os._exit(0)),
    "fork, sys.exit": lambda: by_fork(sys.exit),
    "fork in a thread": lambda: by_fork_in_a_thread(lambda: os._exit(0)),
    "subprocess": by_subprocess,
    "posix_spawn": by_spawn,
}

def start(way):
    "A name in WAYS, or a class and a method of multiprocessing."
    if way in WAYS:
        return WAYS[way]()
    kind, method = way.split()
    return {"Process": by_process, "Pool": by_pool, "executor": by_executor}[kind](method)

def main(way, when):
    if when != "before the first use":
        spin = usmq.Kernel.from_sycl(SOURCE, "spin")
        x = usmq.zeros(1, "u4")
        spin(1, x, 3).wait()
    if when == "in flight":
        event = spin(1, x, 100_000_000)
    elif when == "under a waiting thread":
        event = spin(1, x, 100_000_000)
        waits = threading.Thread(target=event.wait)
        waits.start()
        time.sleep(0.05)
    print(*start(way))
    if when in ("in flight", "under a waiting thread"):
        again = usmq.zeros(1, "u4")
        spin(1, again, 100_000_003)
        assert again.to_numpy()[0] == x.to_numpy()[0]
    print(use())

if __name__ == "__main__":
    # The name under which children import it, so that functions can be unpickled.
    import module
    module.main(*sys.argv[1:])
"""
)

FORKS = ["fork, os._exit", "fork, sys.exit", "fork in a thread", "Process fork", "Pool fork"]
FORKS += ["executor fork"]
OTHERS = ["Process spawn", "Process forkserver", "Pool spawn", "Pool forkserver", "executor spawn"]
OTHERS += ["subprocess", "posix_spawn"]
AT_WORK = ["in flight", "under a waiting thread"]

CASES = [(way, when) for way in FORKS for when in ["before the first use", "after", *AT_WORK]]
# The driver's own end waits in such a child for threads that only its parent has, with or without
# usmq. Python's multiprocessing ends its children by os._exit.
CASES = [case for case in CASES if case not in [("fork, sys.exit", when) for when in AT_WORK]]
CASES += [(way, when) for way in OTHERS for when in ["before the first use", "in flight"]]


@pytest.mark.parametrize(("way", "when"), CASES)
def test_a_child_works_or_gets_an_error_and_its_parent_is_unaffected(
    run_python, tmp_path, way, when
):
    (tmp_path / "module.py").write_text(MODULE)
    done = run_python(None, "module.py", way, when, cwd=tmp_path, timeout=120)
    refused = way in FORKS and when != "before the first use"
    assert done.stdout.splitlines() == ["ForkError 0" if refused else "45 0", "45"]
    assert [line for line in done.stderr.splitlines() if "DeprecationWarning" not in line] == []


HANDLER = f"""{KERNEL}
import os, signal
def forks(*_):
    global child
    child = os.fork()

signal.signal(signal.SIGALRM, forks)
event = spin(1, x, 400_000_000)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    event.wait()
except usmq.ForkError:
    os._exit(3)
print(child != 0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_child_forked_by_a_signal_handler_in_a_wait_gets_an_error(run_python):
    assert run_python(HANDLER, timeout=60).stdout == "True 3\n"
