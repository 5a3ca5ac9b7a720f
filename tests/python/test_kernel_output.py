"""The output of kernels beside that of Python, if stdout is a pipe."""

import os
import subprocess
import sys
import textwrap

import pytest

START = """
import asyncio, os, sys, threading, time
import numpy as np
import usmq

if usmq.current_queue().device.device_type != "cpu":
    print("not a CPU device", flush=True)
    os._exit(77)
SOURCE = '#include <usmq/kernel.h>\\nUSMQ_KERNEL(1) void f(int n, int *x) '
SOURCE += '{ USMQ_PRINTF("kernel %d\\\\n", n); x[0] = n; }'
k = usmq.Kernel.from_sycl(SOURCE, "f")
x = usmq.zeros(1, "i4")
say = lambda text: print(text, flush=True)
"""


# Without this variable, with which Python sets up C's stdout without a buffer, too.
BUFFERED = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}


def run(program, timeout=100):
    """Return the lines that the program has written to a pipe."""
    command = [sys.executable, "-c", START + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=BUFFERED)
    if done.returncode == 77:
        pytest.skip("the default device is no CPU, whose driver prints by itself")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LAUNCH = "e = k(1, NUM, x)\n"
POLLS = LAUNCH + "while not e.done(): pass\n"
OTHER = "q = usmq.Queue('cpu', profiling=True)\ny = usmq.zeros(1, 'i4', queue=q)\n"
CALLED = "add_done_callback(lambda _: (say('called'), called.set()))\n"
TEXT = "text = 'x[i] = 1; USMQ_PRINTF(\"kernel %d\\\\n\", NUM)'\n"
WAITS = {
    "event": LAUNCH + "e.wait()",
    "event after polls": POLLS + "e.wait()",
    "queue": LAUNCH + "x.queue.wait()",
    "array": LAUNCH + "x.wait()",
    "array after polls": POLLS + "x.wait()",
    "numbers": LAUNCH + "assert x.tolist() == [NUM]",
    "numpy": LAUNCH + "x.to_numpy()",
    "numpy after polls": POLLS + "x.to_numpy()",
    "later copy": LAUNCH + "x.copy().to_numpy()",
    "other queue": LAUNCH + OTHER + "y.copy_from(x)\nq.wait()",
    "other queue after the end": POLLS + OTHER + "y.copy_from(x)\nq.wait()",
    "await": "async def main(): await k(1, NUM, x)\nasyncio.run(main())",
    "await after the end": POLLS + "async def main(): await e\nasyncio.run(main())",
    "callback": "called = threading.Event()\n" + LAUNCH + "e." + CALLED + "called.wait()",
    "callback after the end": "called = threading.Event()\n" + POLLS + "e." + CALLED,
    "replay": "with usmq.capture() as g: k(1, NUM, x)\ng.replay().wait()",
    "first queue of a replay": OTHER
    + "with usmq.capture() as g: k(1, NUM, x); y.copy_from(x)\ng.replay()\nx.queue.wait()",
    "host array": "k(1, NUM, np.zeros(1, 'i4'))",
    "out-of-order queue": "q = usmq.Queue('cpu', in_order=False)\n"
    "k(1, NUM, usmq.zeros(1, 'i4', queue=q)).wait()",
    "one-line kernel": TEXT + "usmq.elementwise('int *x', text)(x)\nx.wait()",
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_output_comes_before_that_after_the_wait(wait):
    program = "say('before')\n" + wait.replace("NUM", "1")
    program += "\nsay('between')\n" + wait.replace("NUM", "2") + "\nsay('after')\nos._exit(0)"
    called = ["called"] if "called" in wait else []
    expected = ["before", "kernel 1", *called, "between", "kernel 2", *called, "after"]
    assert run(program) == expected


def test_other_languages_print_in_order():
    program = """
        a = usmq.Kernel.from_opencl('kernel void f(int n) { printf("kernel %d\\\\n", n); }', "f")
        source = '#include <sycl/sycl.hpp>\\nnamespace e = sycl::ext::oneapi::experimental;\\n'
        source += 'extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((e::nd_range_kernel<1>)) '
        source += 'void f(int n) { e::printf("kernel %d\\\\n", n); }'
        b = usmq.Kernel.from_sycl(source, "f")
        for kernel in (a, b):
            kernel(1, np.int32(1)).wait()
            say("between")
        os._exit(0)
    """
    assert run(program) == ["kernel 1", "between"] * 2


def test_a_full_pipe_does_not_block_other_waits():
    program = START + textwrap.dedent("""
        def prints():
            for number in range(100_000):
                k(1, number, x).wait()
        threading.Thread(target=prints, daemon=True).start()
        add = usmq.elementwise("int *y", "y[i] += 1")
        queue = usmq.Queue("cpu", profiling=True)
        y = usmq.zeros(200_000, "i4", queue=queue)
        time.sleep(3)
        for number in range(100):
            add(y).wait()
            queue.wait()
        sys.stderr.write(f"waited {y.to_numpy()[0]}")
        sys.stderr.flush()
        os._exit(0)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=(pipe := os.pipe())[1],
        stderr=subprocess.PIPE,
        env=BUFFERED,
        text=True,
    )
    try:
        _, errors = child.communicate(timeout=100)
    finally:
        child.kill()
        os.close(pipe[0])
        os.close(pipe[1])
    if child.returncode == 77:
        pytest.skip("the default device is no CPU, whose driver prints by itself")
    assert errors == "waited 100"
