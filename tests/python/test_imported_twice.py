"""One allocation behind several handles is ordered: readers after writers, writers after readers.

Another library's allocation is imported twice; usmq's own comes back by each protocol. The two
handles are on different queues.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from children import PRELUDE

Run = Callable[..., subprocess.CompletedProcess[str]]

SETUP = """
class Gives:
    "An object with one method of x, under its own name: so usmq does not see its own array."
    def __init__(self, **methods):
        for name, method in methods.items():
            setattr(type(self), name, method)

def suai(x):
    class Suai(Gives): pass
    return Suai(__sycl_usm_array_interface__=property(lambda _: x.__sycl_usm_array_interface__))

def by_suai(x, queue):
    return usmq.asarray(suai(x), queue=queue, copy=False)

def by_dlpack(x, queue):
    with usmq.use_queue(queue):
        return usmq.from_dlpack(x)

def by_legacy_dlpack(x, queue):
    class Legacy(Gives): pass
    legacy = Legacy(
        __dlpack__=lambda _, *, stream=None, **__: x.__dlpack__(stream=stream),
        __dlpack_device__=lambda _: x.__dlpack_device__(),
    )
    with usmq.use_queue(queue):
        return usmq.from_dlpack(legacy)

def by_arrow_array(x, queue):
    class Arrow(Gives): pass
    given = Arrow(__arrow_c_device_array__=lambda _, *a, **k: x.__arrow_c_device_array__(*a, **k))
    return usmq.from_arrow(given, queue=queue).values()

def by_arrow_stream(x, queue):
    class Arrow(Gives): pass
    stream = usmq.DeviceStream([usmq.Table({"x": x})])
    given = Arrow(__arrow_c_device_stream__=lambda _, *a, **k: stream.__arrow_c_device_stream__())
    return usmq.from_arrow(given, queue=queue).batches[0]["x"].values()

def theirs():
    "An allocation of dpnp, of two elements, with no work under way."
    import dpnp
    made = dpnp.zeros(2, dtype="u4")
    made.sycl_queue.wait()
    return made

take_first, take_second = (globals()["by_" + name] for name in sys.argv[1:3])
for in_order in (True, False):
    one = usmq.Queue(in_order=in_order)
    other = usmq.Queue(in_order=in_order, profiling=True)
    exec(sys.argv[3])
    print("in order" if in_order else "out of order")
"""

# `WRITES` and `READS` are the queues of the two handles.
BOTH = """
assert writer.ptr == reader.ptr
write_late(2, writer, 77, steps(0.4), queue=WRITES)
found = READ
assert (found == 77).all(), f"read {found} before the writer had ended"
out = usmq.zeros(1, "u4", queue=READS)
out.wait()
read_late(1, usmq.read(reader), out, steps(0.4), queue=READS)
write_late(2, writer, 99, 1, queue=WRITES)
found = int(out.to_numpy()[0])
assert found == 77, f"the reader found {found}, of the writer that came after it"
assert (writer.to_numpy() == 99).all()
"""

FOREIGN = """
memory = theirs()
writer, reader = take_first(memory, one), take_second(memory, other)
"""
OWN = """
MADE = usmq.zeros(2, "u4", queue=one)
MADE.wait()
BACK = take_second(MADE, other)
"""


def code(made: str, writes: str, reads: str, read: str = "reader.to_numpy()") -> str:
    return made + BOTH.replace("WRITES", writes).replace("READS", reads).replace("READ", read)


OWN_WRITTEN = OWN.replace("MADE", "writer").replace("BACK", "reader")
BACK_WRITTEN = OWN.replace("MADE", "reader").replace("BACK", "writer")
CODES = {
    "foreign": code(FOREIGN, "one", "other"),
    "the array handed out is written": code(
        OWN_WRITTEN, "one", "other", "reader.copy().to_numpy()"
    ),
    "the array that came back is written": code(BACK_WRITTEN, "other", "one"),
}

BACK = ["suai", "dlpack", "legacy_dlpack", "arrow_array", "arrow_stream"]
IMPORTS = BACK[:3]  # Arrow columns are not written to
CASES = [("foreign", first, second) for first in IMPORTS for second in IMPORTS]
CASES += [("the array handed out is written", "suai", back) for back in BACK]
CASES += [("the array that came back is written", "suai", back) for back in IMPORTS]


@pytest.mark.parametrize(("case", "first", "second"), CASES)
def test_two_handles_of_one_allocation_are_ordered(
    run_python: Run, case: str, first: str, second: str
) -> None:
    done = run_python(PRELUDE + SETUP, first, second, CODES[case], check=False)
    assert done.stdout.splitlines() == ["in order", "out of order"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")
