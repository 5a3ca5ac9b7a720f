"""Run one case of the coexistence suite in its own process: `case.py SPECIFICATION`.

The specification is JSON: `cases`, the `seconds` of rounds for each, the `limit` in seconds after
which the stacks of all Python threads are printed, and the `progress` file, in which each thread
keeps one line. All cases of one process share `order` and `peer`. Every round compares its results
with numpy, element by element.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import json
import os
import sys
import threading
import time
import zlib
from typing import Any, NamedTuple

# Imported by `bring_up`, in the order of the case.
np = None
dpctl = None
usmq = None

SLOT = 160  # bytes of a thread's progress line

TEXT = """
kernel void advance(global uint *x, uint steps) {
    uint state = x[get_global_id(0)];
    for (uint k = 0; k < steps; ++k) state = state * 1664525u + 1013904223u;
    x[get_global_id(0)] = state;
}
kernel void add_to(global const uint *x, global uint *y, uint k) {
    y[get_global_id(0)] = x[get_global_id(0)] + k;
}
"""


class Progress:
    """The last action that each thread started, in a file that outlives the process."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.case = 0

    def __call__(self, thread, text):
        line = f"case {self.case}, thread {thread}, {text}".encode()[: SLOT - 1]
        os.pwrite(self.file, line.ljust(SLOT - 1) + b"\n", SLOT * thread)


def bring_up(order, peer):
    """Import both libraries and query devices in both, in the order of the case."""

    def load(name):
        return importlib.import_module(name)

    def ask_usmq():
        assert load("usmq").devices(), "usmq sees no device"

    def ask_peer():
        if peer == "dpnp":
            assert int(load("dpnp").zeros(3).sum()) == 0
        else:
            assert load("dpctl").get_devices(), "dpctl sees no device"

    steps = {
        "usmq first": [ask_usmq, ask_peer],
        "peer imported first": [lambda: load(peer), ask_usmq, ask_peer],
        "peer asks between": [lambda: load("usmq"), ask_peer, ask_usmq],
        "peer asks first": [ask_peer, ask_usmq],
    }
    for step in steps[order]:
        step()


def advanced(states, steps):
    """Return the result of the kernel `advance` for these states, in closed form."""
    factor, term, step_factor, step_term = 1, 0, 1664525, 1013904223
    while steps:
        if steps & 1:
            factor, term = factor * step_factor % 2**32, (term * step_factor + step_term) % 2**32
        step_factor, step_term = (
            step_factor * step_factor % 2**32,
            (step_term * step_factor + step_term) % 2**32,
        )
        steps >>= 1
    return states * np.uint32(factor) + np.uint32(term)


class Dpnp:
    """Arrays of dpnp. No method waits but `read`."""

    def __init__(self, size, queue):
        import dpnp

        self.dpnp, self.size, self.queue = dpnp, size, queue
        self.constants = {}
        self.base = dpnp.full(size, 3, dtype="u4", sycl_queue=queue)

    def constant(self, queue):
        """Return sevens on a queue: a plain 7 would be copied to the device, with a wait."""
        if queue not in self.constants:
            self.constants[queue] = self.dpnp.full(self.size, 7, dtype="u4", sycl_queue=queue)
        return self.constants[queue]

    def make(self):
        """Return 3 + 7 + 7 on the peer's queue, in flight."""
        array = self.dpnp.add(self.base, self.constant(self.queue))
        self.add(array)
        return array

    def add(self, array):
        """Add 7 in place."""
        self.dpnp.add(array, self.constant(array.sycl_queue), out=array)

    def result(self, array):
        """Return a new array, 14 more, on the peer's queue; half is computed on the array's."""
        here = self.dpnp.add(array, self.constant(array.sycl_queue))
        # `to_device` between queues of one context only changes the queue: order is the caller's.
        self.queue.submit_barrier([here.sycl_queue.submit_barrier()])
        there = here.to_device(self.queue)
        assert there.sycl_queue == self.queue
        self.add(there)
        return there

    def borrow(self, x):
        return self.dpnp.asarray(x)

    def borrow_dlpack(self, x):
        return self.dpnp.from_dlpack(x)

    def host_tasks(self):
        """Return the events of all host tasks that may be pending."""
        manager = importlib.import_module("dpctl.utils").SequentialOrderManager
        return [task for queue in self.constants for task in manager[queue].host_task_events]

    def read(self, array):
        return self.dpnp.asnumpy(array)


class ForeignArray:
    """USM of dpctl as an array of u4, and the event of its last use."""

    def __init__(self, memory, size, event=None):
        self.memory, self.event = memory, event
        self.__sycl_usm_array_interface__ = {
            "version": 1,
            "data": (memory._pointer, False),
            "shape": (size,),
            "typestr": "<u4",
            "strides": None,
            "offset": 0,
            "syclobj": memory.sycl_queue,
        }


def pending(tasks):
    """Return the events that are not complete."""
    complete = dpctl.event_status_type.complete
    return [task for task in tasks if task.execution_status != complete]


class Dpctl:
    """Memory and kernels of dpctl. No method waits but `read`."""

    def __init__(self, size, queue):
        import dpctl.memory
        import dpctl.program

        self.dpctl, self.size, self.queue = dpctl, size, queue
        self.tasks = []
        program = dpctl.program.create_program_from_source(queue, TEXT)
        self.kernel = program.get_sycl_kernel("add_to")
        self.base = self.new()
        self.base.memory.copy_from_host(np.full(size, 3, "u4").view("u1"))

    def new(self):
        memory = self.dpctl.memory.MemoryUSMDevice(4 * self.size, queue=self.queue)
        return ForeignArray(memory, self.size)

    def submit(self, source, target, queue):
        """Write source + 7 to target; as in dpctl, a host task keeps the arguments alive."""
        after = [event for event in (source.event, target.event) if event is not None]
        arguments = [source.memory, target.memory, ctypes.c_uint32(7)]
        # `submit` would wait inside libsycl, for this command and for the host task.
        target.event = queue.submit_async(self.kernel, arguments, [self.size], dEvents=after)
        task = queue._submit_keep_args_alive(arguments, [target.event])
        self.tasks = [*pending(self.tasks), task]

    def make(self):
        made = self.new()
        self.submit(self.base, made, self.queue)
        self.add(made)
        return made

    def add(self, foreign):
        self.submit(foreign, foreign, foreign.memory.sycl_queue)

    def result(self, foreign):
        """Return new memory, 14 more, on the peer's queue; half is computed on `foreign`'s."""
        made = self.new()
        self.submit(foreign, made, foreign.memory.sycl_queue)
        if not self.queue.is_in_order:  # see NOT_TRIED
            self.queue.submit_barrier([made.event])
        self.add(made)
        return made

    def host_tasks(self):
        """Return the events of all host tasks that may be pending."""
        return self.tasks

    def borrow(self, x):
        return ForeignArray(self.dpctl.memory.as_usm_memory(x), self.size)

    def read(self, foreign):
        foreign.memory.sycl_queue.wait()
        return foreign.memory.copy_to_host().view("u4")


class Legacy:
    """An object that supports only DLPack's legacy capsules."""

    def __init__(self, array):
        self.array = array
        if hasattr(array, "sycl_queue"):
            self.sycl_queue = array.sycl_queue

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream=None, **_):
        return self.array.__dlpack__(stream=stream)


class Gives:
    """An object with one method of the Arrow PyCapsule interface."""

    def __init__(self, name, capsule):
        self.capsule = capsule
        setattr(type(self), name, lambda self, *_, **__: self.capsule())


class GivesArray(Gives):
    """One with `__arrow_c_device_array__`."""


class GivesStream(Gives):
    """One with `__arrow_c_device_stream__`."""


def through_arrow(x, protocol):
    """Return the array on the other side of an Arrow device capsule, at the same address."""
    if protocol == "export Arrow array":
        given = usmq.from_arrow(GivesArray("__arrow_c_device_array__", x.__arrow_c_device_array__))
        back = given.values()
    else:
        stream = usmq.DeviceStream([usmq.Table({"x": x})])
        given = usmq.from_arrow(
            GivesStream("__arrow_c_device_stream__", stream.__arrow_c_device_stream__)
        )
        back = given.batches[0]["x"].values()
    assert back.ptr == x.ptr, "Arrow capsules copy nothing"
    return back


class Worker:
    """The objects of one thread: a device, a context, a queue of usmq and one of the peer."""

    def __init__(self, case, number, progress):
        self.case, self.number, self.progress = case, number, progress
        self.size = 40_000 if zlib.crc32(json.dumps(case).encode()) % 2 else 2_000
        root, *others = usmq.devices()
        device = root if case["device"] == "root" else root.sub_devices(1)[0]
        context = usmq.Context([device]) if case["context"] == "own" else None
        in_order = case["ours"] == "in order"
        self.ours = usmq.Queue(device, context=context, in_order=in_order)
        theirs = dpctl.SyclQueue(self.ours._get_capsule())

        def another(in_order):
            options = {"property": "in_order"} if in_order else {}
            return dpctl.SyclQueue(theirs.sycl_context, theirs.sycl_device, **options)

        if number:  # the same arguments would give the same queue of usmq, and peers use it, too
            self.ours = usmq.Queue(another(in_order))
        self.theirs = another(case["theirs"] == "in order")
        # A device of another context, or on emulated GPUs the second one of the same context.
        away = root
        if device is root and context is None:
            away = others[0] if os.environ.get("USMQ_EMULATE_GPUS") else root.sub_devices(1)[1]
        self.away = usmq.Queue(away)
        make_peer = Dpnp if case["peer"] == "dpnp" else Dpctl
        self.peer = make_peer(self.size, self.theirs)
        self.advance = usmq.Kernel.from_opencl(TEXT, "advance")
        self.random = np.random.default_rng(number)
        self.rounds = 0

    def say(self, text):
        self.progress(self.number, f"round {self.rounds}, {text}")

    def check(self, name, found, expected):
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            at = wrong[:5]
            raise AssertionError(
                f"{name}: {len(wrong)} of {self.size} elements are wrong in round {self.rounds} of "
                f"thread {self.number}: at {at.tolist()} {found[at].tolist()}, "
                f"not {np.broadcast_to(expected, found.shape)[at].tolist()}"
            )

    def result_protocol(self):
        """Return how the peer's result is returned; None if every way makes the peer wait."""
        if self.case["peer"] == "dpctl":
            return "SUAI"
        if self.case["device"] == "root" and self.case["context"] == "default":
            lone = self.case["threads"] == "1" and "DLPack" not in self.case["protocol"]
            return "SUAI" if lone else "DLPack"
        # dpnp waits when its array interface is read: for single threads only.
        return "SUAI" if self.case["threads"] == "1" else None

    def steps(self):
        """Return a length for a kernel: microseconds or milliseconds of work in flight."""
        return int(self.random.choice([1, 30, 1000, 20_000]) * 2000 // self.size) + 1

    def lend(self, x):
        """Export an array to the peer, by the protocol of the case."""
        match self.case["protocol"]:
            case "export SUAI":
                return self.peer.borrow(x)
            case "export DLPack":
                return self.peer.borrow_dlpack(x)
            case "export legacy DLPack":
                return self.peer.borrow_dlpack(Legacy(x))
            case protocol:
                return self.peer.borrow(through_arrow(x, protocol))

    def exported(self):
        """Export an array to the peer, which works on it, and import the result."""
        value, steps = int(self.random.integers(1000)), self.steps()
        self.say("full, launch")
        x = usmq.full(self.size, value, "u4", queue=self.ours)
        self.advance(self.size, x, steps, queue=self.ours)
        expected = advanced(np.full(1, value, "u4"), steps)
        self.say("export")
        foreign = self.lend(x)
        if self.case["protocol"] == "export SUAI":
            self.say("work of the peer in place")
            self.peer.add(foreign)
            expected = expected + np.uint32(7)
            if (
                self.rounds % 2 or self.result_protocol() is None
            ):  # every other round continues at once, so handles are dropped as early as possible
                copy = x.copy()
                return Begun(copy, expected, [], {"ours": [x], "theirs": [foreign]})
        self.say("work of the peer")
        result = self.peer.result(foreign)
        self.say("import of the result")
        if self.result_protocol() == "DLPack":
            with usmq.use_queue(self.ours):
                back = usmq.from_dlpack(result)
        else:
            back = usmq.asarray(result, copy=False)
        self.say("copies")
        copy, result_copy = x.copy(), back.copy()
        handles = {"ours": [x, back], "theirs": [foreign, result]}
        return Begun(copy, expected, [(result_copy, expected + np.uint32(14))], handles)

    def imported(self):
        """Import an array of the peer, with work in flight, and work on it."""
        steps = self.steps()
        self.say("work of the peer")
        theirs = self.peer.make()
        self.say("import")
        if self.case["protocol"] == "import SUAI":
            x = usmq.asarray(theirs, copy=False)
        else:
            legacy = self.case["protocol"] == "import legacy DLPack"
            with usmq.use_queue(self.ours):
                x = usmq.from_dlpack(Legacy(theirs) if legacy else theirs)
        self.say("launch")
        self.advance(self.size, x, steps, queue=self.ours)
        self.say("copy")
        expected = advanced(np.full(1, 17, "u4"), steps)
        return Begun(x.copy(), expected, [], {"ours": [x], "theirs": [theirs]})

    def begin(self):
        """Run the first part of a round, and drop the handles of the case with work in flight."""
        begun = self.imported() if "import" in self.case["protocol"] else self.exported()
        for who in [] if self.case["dropped"] == "none" else self.case["dropped"].split(", "):
            self.say(f"drop {who}")
            begun.handles[who].clear()
        return begun

    def round(self):
        """Run one round to its end."""
        begun, what = self.begin(), self.case["next"]
        self.say(what)
        z, expected = begun.copy, np.repeat(begun.expected, self.size)
        match what:
            case "collocate":
                z = usmq.collocate(z, queue=self.away)
            case "launch":
                self.advance(self.size, z, 5, queue=self.ours)
                expected = advanced(expected, 5)
            case "fill":
                z[: self.size // 2] = 9
                expected[: self.size // 2] = 9
            case "Event.wait":
                self.advance(self.size, z, 5, queue=self.ours).wait()
                expected = advanced(expected, 5)
            case "Queue.wait":
                self.ours.wait()
        self.say(f"to_numpy after {what}")
        self.check(what, z.to_numpy(), expected)
        for array, values in begun.others:
            self.say("to_numpy of the peer's result")
            self.check("the peer's result", array.to_numpy(), values)
        # The peer sees the writes of usmq. It waits inside libsycl: for single threads only.
        theirs = begun.handles["theirs"]
        if self.case["threads"] == "1" and theirs and "SUAI" in self.case["protocol"]:
            self.say("read by the peer")
            self.check("the peer's view", self.peer.read(theirs[0]), begun.expected)
        self.rounds += 1

    def leave(self):
        """Begin a round and leave work of usmq in flight, but no host task of the peer's."""
        begun = self.begin()
        self.say("host tasks of the peer")
        while pending(self.peer.host_tasks()):
            time.sleep(1e-3)
        self.advance(1, begun.copy[:1], 50_000_000, queue=self.ours)
        return begun


class Begun(NamedTuple):
    """A round with work in flight: a running copy, its memory, and the handles."""

    copy: Any
    expected: Any
    others: list[tuple[Any, Any]]
    handles: dict[str, list[Any]]


# The work that a case leaves in flight at process exit.
LEFT = []


def run(case, seconds, progress):
    """Run the rounds of one case, in all its threads, and return how many there were."""
    workers = [Worker(case, number, progress) for number in range(int(case["threads"]))]
    for worker in workers:  # the first calls, one thread at a time: see NOT_TRIED
        worker.round()
    end, failed = time.monotonic() + seconds, []

    def work(worker):
        try:
            while time.monotonic() < end and not failed:
                worker.round()
            if case["next"] == "exit":
                LEFT.append(worker.leave())
        except BaseException as error:
            failed.append(error)

    if len(workers) == 1:
        work(workers[0])
    else:
        threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failed:
        raise failed[0]
    if case["next"] == "exit":
        LEFT.append(workers)
    for worker in workers:
        worker.say("end")
    return sum(worker.rounds for worker in workers)


def main():
    """Run all cases of the specification; print a line for each that is done."""
    spec = json.loads(sys.argv[1])
    cases, limit = spec["cases"], spec["limit"]
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit)
    progress = Progress(spec["progress"])
    progress(0, "imports and first queries")
    bring_up(cases[0]["order"], cases[0]["peer"])
    for name in ("numpy", "dpctl", "usmq"):
        globals()["np" if name == "numpy" else name] = importlib.import_module(name)
    if cases[0]["threads"] != "1":
        sys.setswitchinterval(5e-4)
    for number, case in enumerate(cases):
        faulthandler.dump_traceback_later(limit)
        progress.case = number
        rounds = run(case, spec["seconds"], progress)
        print(json.dumps({"case": number, "rounds": rounds}), flush=True)
    progress(0, "exit of the process")
    if cases[-1]["next"] != "exit":
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
