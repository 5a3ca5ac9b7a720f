"""Objects shared by threads: single-use objects serve one thread, others stay consistent.

Python's lock (GIL) does most of that; `tests/run test-free-threaded` is for a Python that has none.
"""

import gc
import itertools
import operator
import sysconfig
import weakref

import numpy as np
import pyarrow as pa
import pytest
import usmq
from conftest import in_threads

THREADS = 8
TABLE = pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": ["x", None, "yz"]})


def at_once(*calls):
    """Return the result or the exception of each call, all started together."""

    def outcome(call):
        try:
            return call()
        except Exception as error:
            return error

    return in_threads(*[lambda call=call: outcome(call) for call in calls])


def live():
    gc.collect()
    return sum(kind["live"] for kind in usmq.memory_stats().values())


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has its lock (GIL)"
)
def test_the_import_keeps_the_gil_disabled(run_python):
    code = "import sys, usmq; usmq.zeros(3).to_numpy(); print(sys._is_gil_enabled())"
    assert run_python(code, PYTHON_GIL=None).stdout == "False\n"


class Gives:
    """Gives the same capsule, or pair, to every caller."""

    def __init__(self, given):
        self.given = given

    def __dlpack_device__(self):
        return (1, 0)

    def give(self, *_, **__):
        return self.given

    __dlpack__ = give


class GivesStream(Gives):
    __arrow_c_stream__ = Gives.give


class GivesDeviceStream(Gives):
    __arrow_c_device_stream__ = Gives.give


class GivesPair(Gives):
    __arrow_c_device_array__ = Gives.give


ONCE = {
    "DLPack": (
        lambda: np.arange(3.0).__dlpack__(max_version=(1, 0)),
        lambda given: usmq.from_dlpack(Gives(given)).tolist(),
        [0, 1, 2],
    ),
    "legacy DLPack": (
        lambda: usmq.arange(3, dtype="f8", usm_type="host").__dlpack__(dl_device=(1, 0)),
        lambda given: usmq.from_dlpack(Gives(given)).tolist(),
        [0, 1, 2],
    ),
    "Arrow array": (
        lambda: usmq.from_arrow(TABLE).__arrow_c_device_array__(),
        lambda given: usmq.from_arrow(GivesPair(given)).to_arrow(),
        TABLE,
    ),
    "Arrow stream": (
        TABLE.__arrow_c_stream__,
        lambda given: usmq.from_arrow(GivesStream(given)).to_arrow(),
        TABLE,
    ),
    "Arrow device stream": (
        lambda: usmq.from_arrow(TABLE).__arrow_c_device_stream__(),
        lambda given: usmq.from_arrow(GivesDeviceStream(given)).to_arrow(),
        TABLE,
    ),
    "SYCL queue": (
        lambda: usmq.current_queue()._get_capsule(),
        lambda given: usmq.Queue(given) == usmq.current_queue(),
        True,
    ),
}


@pytest.mark.parametrize("what", ONCE)
def test_only_one_of_many_threads_consumes_a_capsule(what):
    make, use, right = ONCE[what]
    before = live()
    for _ in range(100):
        given = make()
        outcomes = at_once(*[lambda given=given: use(given)] * THREADS)
        taken = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        assert taken == [right], outcomes
        refused = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        assert all(isinstance(error, (usmq.Error, TypeError)) for error in refused), refused
        del given, outcomes, taken, refused
    assert live() == before


def test_a_schema_capsule_can_be_read_by_many_threads():
    table = usmq.from_arrow(TABLE, usm_type="host")
    for _ in range(100):
        requested = TABLE.schema.__arrow_c_schema__()
        looks = [lambda requested=requested: table.__arrow_c_device_array__(requested)] * THREADS
        assert all(len(pair) == 2 for pair in in_threads(*looks))
        assert pa.schema(TABLE.schema).equals(pa.Schema._import_from_c_capsule(requested))


def test_one_array_supports_all_protocols_concurrently():
    before, right = live(), np.arange(24.0).reshape(4, 6)

    def use_in_many_ways(x):
        uses = [
            lambda: (np.asarray(x) == right).all(),
            lambda: (usmq.asarray(x, copy=True).T.to_numpy() == right.T).all(),
            lambda: (np.from_dlpack(x, device="cpu") == right).all(),
            lambda: (usmq.from_dlpack(x)[1].to_numpy() == right[1]).all(),
            lambda: x.__sycl_usm_array_interface__["shape"] == (4, 6),
            lambda: bytes(memoryview(x)) == right.tobytes(),
            lambda: weakref.ref(x)() is x and hash(x) == hash(x) and str(x.dtype) == "float64",
            lambda: sum(row[0].item() for row in x) == right[:, 0].sum(),
        ]
        for _ in range(100):
            assert all(in_threads(*uses))

    use_in_many_ways(usmq.asarray(right, usm_type="shared"))
    assert live() == before


def test_threads_share_kernels_queues_columns_and_devices(kernels, advanced):
    column = usmq.from_arrow(TABLE)["a"]
    x = usmq.full(8, 5, "u4")

    def launch():
        own = usmq.full(8, 5, "u4", queue=x.queue)
        kernels.advance(8, own, 7).wait()
        kernels.advance(8, x, 1)
        return bool((own.to_numpy() == advanced([5] * 8, 7)).all())

    def look():
        device = usmq.current_queue().device
        return column.to_arrow().to_pylist() == [1, None, 3] and device in usmq.devices()

    for _ in range(50):
        assert all(in_threads(*[launch] * 4, *[look] * 4))
    assert (x.to_numpy() == advanced([5] * 8, 200)).all()


def test_each_row_of_a_shared_iterator_is_returned_once():
    before = live()
    x = usmq.arange(200)
    assert operator.length_hint(iter(x)) == 200
    for _ in range(20):
        rows = iter(x)
        taken = in_threads(*[lambda rows=rows: [row.item() for row in rows]] * THREADS)
        assert sorted(itertools.chain(*taken)) == list(range(200))
        assert next(rows, None) is None
        assert operator.length_hint(rows) == 0
    del x, rows
    assert live() == before


def test_threads_of_a_task_get_separate_arguments():
    def work(task):
        return in_threads(*[lambda: task.arg(int)] * THREADS)

    for _ in range(50):
        assert sorted(usmq.run_task(work, *range(THREADS))) == list(range(THREADS))


def test_the_default_queue_is_one_that_a_thread_set():
    device = usmq.current_queue().device
    queues = [usmq.Queue(device), usmq.Queue(device, profiling=True)]
    for number in range(50):
        usmq.set_default_queue(queues[number % 2])
        seen = in_threads(*[usmq.current_queue] * THREADS)
        assert all(queue is seen[0] for queue in seen)

    def change(queue):
        for _ in range(200):
            usmq.set_default_queue(queue)
        return True

    def look():
        return all(usmq.current_queue() in queues for _ in range(200))

    changes = [lambda queue=queue: change(queue) for queue in queues]
    assert all(in_threads(*changes, *[look] * 6))


def test_one_profile_is_started_and_ended_once():
    for _ in range(50):
        profile = usmq.profile()
        begun = at_once(*[profile.__enter__] * THREADS)
        assert sum(outcome is profile for outcome in begun) == 1
        usmq.zeros(3)
        leave = [lambda profile=profile: profile.__exit__(None, None, None)] * (THREADS // 2)
        ended = at_once(*leave, *[profile.__enter__] * (THREADS // 2))
        assert sum(outcome is False for outcome in ended) == 1
        refused = [outcome for outcome in begun + ended if isinstance(outcome, Exception)]
        assert len(refused) == 2 * (THREADS - 1)
        assert all(isinstance(error, RuntimeError) for error in refused), refused
        # Memory that an earlier test shared with another library is allocated behind a barrier.
        assert [event.kind for event in profile.events].count("fill") == 1


def test_a_list_that_changes_while_it_is_read_gives_an_array_or_an_error():
    numbers = [[float(number)] * 3 for number in range(50)]

    def change():
        for number in range(300):
            numbers.append([float(number)] * 3)
            numbers.pop(0)
            numbers[number % 50] = [float(number)] * 3
        return True

    def read():
        for _ in range(60):
            try:
                shape = usmq.asarray(numbers).shape
            except (usmq.Error, ValueError, TypeError, IndexError, RuntimeError):
                continue  # like numpy, which refuses concurrent changes
            assert shape[1] == 3
        return True

    assert all(in_threads(*[change] * 2, *[read] * 4))


def test_a_dict_that_changes_while_it_is_read_gives_a_table_or_an_error():
    columns = {str(number): usmq.zeros(3) for number in range(20)}
    extra = usmq.zeros(3)

    def change(name):
        for _ in range(2000):
            columns[name] = extra
            del columns[name]
        return True

    def make():
        return all(len(usmq.Table(columns).column_names) >= 20 for _ in range(50))

    changes = [lambda: change("one more"), lambda: change("another")]
    assert at_once(*changes, *[make] * 4) == [True] * 6


def test_arrays_dropped_by_one_thread_are_valid_or_gone_for_others():
    before = live()
    shelf = {}

    def put(seed):
        for number in range(100):
            shelf[(seed + number) % 8] = usmq.full(64, number, "i4")
        return True

    def take():
        for number in range(100):
            array = shelf.get(number % 8)
            if array is not None:
                found = array[::2].to_numpy()
                assert (found == found[0]).all()
        return True

    puts = [lambda seed=seed: put(seed) for seed in range(4)]
    assert all(in_threads(*puts, *[take] * 4))
    shelf.clear()
    assert live() == before
