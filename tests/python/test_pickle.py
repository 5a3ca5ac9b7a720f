"""Arrays, columns, tables, devices and queues are pickled, copied and sent to other processes."""

import copy
import gc
import io
import itertools
import multiprocessing
import pickle
import random
import sys
from concurrent.futures import ProcessPoolExecutor

import joblib
import joblib.externals.loky
import numpy as np
import pyarrow as pa
import pytest
import usmq

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
KINDS = ("device", "shared", "host")


def apart(value):
    buffers = []
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


def ways(value):
    """Yield the value from every protocol, with its buffers inside and apart."""
    for protocol in PROTOCOLS:
        yield pickle.loads(pickle.dumps(value, protocol=protocol))
    stream, buffers = apart(value)
    yield pickle.loads(stream, buffers=buffers)
    # As they arrive from a network: bytes at any address.
    shifted = [memoryview(b"x" + bytes(buffer))[1:] for buffer in buffers]
    yield pickle.loads(stream, buffers=shifted)


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_is_pickled_with_only_the_elements_of_its_view(kind):
    whole = usmq.asarray(np.arange(12.0).reshape(3, 4), usm_type=kind)
    for array in (whole, whole.T, whole[1:, ::2], whole[::-1], whole[1, 2], whole[:0]):
        for back in ways(array):
            assert (back.shape, back.dtype, back.usm_type) == (array.shape, array.dtype, kind)
            assert back.to_numpy().tolist() == array.to_numpy().tolist()
            assert not back.readonly
        _, buffers = apart(array)
        assert sum(len(bytes(buffer)) for buffer in buffers) == array.nbytes


FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
WHOLE = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def test_every_dtype_round_trips():
    for dtype in ("bool", *WHOLE, *FLOATS):
        array = usmq.arange(5, dtype="f4").astype(dtype)
        for back in ways(array):
            assert back.dtype == array.dtype
            assert back.astype("c16").tolist() == array.astype("c16").tolist()


def test_device_memory_is_copied_once_and_host_accessible_memory_is_its_own_buffer():
    seen = []
    usmq._core.observe_pickles(lambda *what: seen.append(what))
    copies = [("device-to-host", 8000), ("host-to-device", 8000)]
    try:
        array = usmq.arange(1000, dtype="f8")
        stream, buffers = apart(array)
        assert seen == copies[:1]
        pickle.loads(stream, buffers=buffers)
        assert seen == copies
        pickle.loads(pickle.dumps(usmq.Table({"x": array})))
        assert seen == 2 * copies
        for kind in ("shared", "host"):
            array = usmq.arange(1000, usm_type=kind)
            stream, buffers = apart(array)
            assert len(stream) < 200
            assert np.frombuffer(buffers[0], dtype="u1").ctypes.data == array.ptr
        assert seen == 2 * copies
    finally:
        usmq._core.observe_pickles(None)


def test_a_frame_includes_work_in_flight(kernels, advanced):
    for kind in KINDS:
        states = usmq.arange(1 << 16, dtype="u4", usm_type=kind)
        before = states.to_numpy()
        kernels.advance(states.size, states, 20_000)
        stream, buffers = apart(states)
        back = pickle.loads(stream, buffers=buffers)
        assert (back.to_numpy() == advanced(before, 20_000)).all()


def test_arrays_are_unpickled_on_the_current_queue(two_devices):
    first, second = two_devices
    array = usmq.arange(3, queue=first)
    table = usmq.Table({"x": array})
    stream = pickle.dumps([array, table, table["x"]])
    for device in first, second:
        with usmq.use_queue(device) as queue:
            assert [back.queue for back in pickle.loads(stream)] == [queue] * 3
    usmq.set_default_queue(second)
    assert pickle.loads(stream)[0].queue == usmq.Queue(second)


TABLE = pa.table(
    {
        "number": pa.array([1, None, 3, 4, 5, 6, 7, 8, 9, None, 11]),
        "flag": pa.array([True, None, False] * 3 + [True, True]),
        "text": pa.array(["a", None, "ccc", "", "e"] * 2 + ["z"]),
        "long": pa.array(["a", None, "ccc", "", "e"] * 2 + ["z"], pa.large_string()),
        "view": pa.array(
            ["short", "long enough for a buffer of its own", None] * 3 + ["", "x"]
        ).cast(pa.string_view()),
        "list": pa.array([[1, 2], None, [], [3]] * 2 + [[9], [8], [7]]),
        "fixed": pa.array([[1, 2], None] * 5 + [[3, 4]], pa.list_(pa.int32(), 2)),
        "struct": pa.array([{"a": 1, "b": "x"}, None] * 5 + [{"a": 2, "b": None}]),
        "code": pa.array(["x", "y", "x", None] * 2 + ["z", "z", "x"]).dictionary_encode(),
        "decimal": pa.array(range(11), pa.decimal256(40, 2)),
        "nothing": pa.nulls(11),
    }
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_round_trips_with_its_schema_and_values(kind):
    metadata = {b"where": b"here"}
    source = TABLE.replace_schema_metadata(metadata)
    table = usmq.from_arrow(source, usm_type=kind)
    for back in ways(table):
        assert back.schema == table.schema
        assert back.to_arrow().equals(source, check_metadata=True)
        assert back["number"].usm_type == kind


@pytest.mark.parametrize("name", TABLE.column_names)
def test_a_slice_of_a_column_round_trips(name):
    for cut in (slice(0, 4), slice(9, 11), slice(3, 10), slice(4, 4)):
        column = usmq.from_arrow(TABLE)[name][cut]
        for back in ways(column):
            assert back.field == column.field
            back.to_arrow().validate(full=True)
            assert back.to_arrow().to_pylist() == TABLE[name].to_pylist()[cut]
    column = usmq.from_arrow(pa.array(np.arange(100_000.0)))
    _, buffers = apart(column[50_000:50_010])
    assert sum(len(bytes(buffer)) for buffer in buffers) < 200, "without the other rows"


def test_strings_at_unaligned_addresses_are_unpickled():
    # Like pyarrow's own pickles in a message of dask.
    whole = pa.array(["a", None, "ccc"])
    odd = [pa.py_buffer(b"x" + buffer.to_pybytes()).slice(1) for buffer in whole.buffers()]
    array = pa.Array.from_buffers(pa.string(), 3, odd)
    assert any(buffer.address % 4 for buffer in odd)
    assert usmq.from_arrow(array).to_arrow() == whole


def test_batches_stay_separate():
    schema = pa.schema({"x": pa.dictionary(pa.int8(), pa.string())})
    batches = [
        pa.record_batch({"x": pa.array(text).cast(schema.field(0).type)})
        for text in (["a", "b"], ["c"])
    ]
    table = usmq.from_arrow(pa.Table.from_batches(batches))
    for back in ways(table):
        assert back.to_arrow() == table.to_arrow()
        assert len(back.batches) == len(table.batches)


def test_devices_queues_and_dtypes_round_trip(two_devices):
    for device in two_devices:
        things = [device, usmq.DType("f4"), usmq.Table({"x": usmq.zeros(2)}).schema]
        for in_order, profiling in itertools.product((True, False), repeat=2):
            things.append(usmq.Queue(device, in_order=in_order, profiling=profiling))
        for thing in things:
            assert all(back == thing for back in ways(thing))


def test_objects_without_a_portable_name_are_refused(sub_device):
    for thing in sub_device, usmq.Queue(sub_device):
        with pytest.raises(TypeError, match="no filter string names a sub-device"):
            pickle.dumps(thing)
    device = usmq.current_queue().device
    queue = usmq.Queue(device, context=usmq.Context([device]))
    with pytest.raises(TypeError, match="its context is not the default context"):
        pickle.dumps(queue)
    # Its arrays have no need of that name.
    array = usmq.arange(3, queue=usmq.Queue(sub_device))
    assert pickle.loads(pickle.dumps(array)).to_numpy().tolist() == [0, 1, 2]


def test_copies_stay_on_their_queue(other_queue):
    array = usmq.arange(4, queue=other_queue)
    table = usmq.Table({"x": usmq.arange(4)})
    for copied in copy.copy(array), copy.deepcopy({"deep": [array]})["deep"][0]:
        assert copied.queue == other_queue
        array.fill(7)
        assert copied.to_numpy().tolist() == [0, 1, 2, 3]
        array.copy_from([0, 1, 2, 3])
    for unchanging in table, table["x"], array.queue, array.device:
        assert copy.copy(unchanging) is unchanging
        assert copy.deepcopy([unchanging])[0] is unchanging


def test_the_read_only_flag_and_the_identity_are_kept():
    array = usmq.from_arrow(pa.table({"x": np.arange(3.0)}))["x"].values()
    assert array.readonly
    for back in ways({"a": array, "b": [array]}):
        assert back["a"] is back["b"][0]
        assert back["a"].readonly
        with pytest.raises(ValueError, match="read-only"):
            back["a"].fill(1)


def test_the_size_counts_the_elements():
    sizeof = pytest.importorskip("dask.sizeof").sizeof
    array = usmq.zeros((1000, 100))
    for thing in array, usmq.Table({"x": array}), usmq.Table({"x": array})["x"]:
        assert 400_000 <= sys.getsizeof(thing) < 401_000
        assert 400_000 <= sizeof(thing) < 401_000
    assert sizeof(array[:10]) < 5_000
    assert sizeof({"a": [array, array]}) > 800_000


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({0: 2}, "the same usmq on both sides"),
        ({1: "float33"}, "float33"),
        ({3: "nowhere"}, "nowhere"),
        ({2: (4,)}, "does not have 12 bytes"),
        ({2: (2**62, 8)}, "does not have 12 bytes"),
        ({2: (-1,)}, r"from 0 to .*, not \(-1,\)"),
        ({2: 3}, "sequence"),
        ({5: 12}, "buffer protocol"),
        ({5: np.arange(6.0, dtype="f4")[::2]}, "contiguous"),
    ],
)
def test_an_inconsistent_array_is_refused(changed, message):
    arguments = dict(enumerate((1, "float32", (3,), "device", False, b"x" * 12))) | changed
    with pytest.raises((ValueError, TypeError, usmq.Error), match=message):
        usmq._core.restore_array(*arguments.values())


@pytest.mark.parametrize("name", TABLE.column_names)
def test_a_column_with_a_truncated_buffer_is_refused(name):
    stream, buffers = apart(usmq.from_arrow(TABLE)[name])
    frames = [bytes(buffer) for buffer in buffers]
    for cut in range(len(frames)):
        short = [frame[:-1] if cut == at else frame for at, frame in enumerate(frames)]
        with pytest.raises(usmq.InteropError, match="too short"):
            pickle.loads(stream, buffers=short)
    if frames:
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(stream, buffers=frames[:-1])


def test_an_invalid_description_is_an_error_not_a_crash():
    chance = random.Random(7)
    _, (_, header, *frames) = usmq.from_arrow(TABLE).__reduce_ex__(4)
    _, (_, field) = usmq.from_arrow(TABLE).schema.__reduce__()
    for length in range(0, len(header), 7):
        with pytest.raises(usmq.InteropError):
            usmq._core.restore_table(header[:length], *frames)
    refused = 0
    for _ in range(1500):
        bad = bytearray(header)
        for _ in range(chance.randint(1, 3)):
            bad[chance.randrange(len(bad))] = chance.choice((0, 1, 2, 7, 127, 255))
        for restore in (
            lambda bad=bad: usmq._core.restore_table(bytes(bad), *frames).to_arrow(),
            lambda bad=bad: usmq._core.restore_field(bytes(bad[: len(field)])),
        ):
            try:
                restore()
            except (usmq.Error, pa.ArrowException, ValueError):
                refused += 1
    assert refused > 300
    for text, arguments in (
        ("the same usmq on both sides", (bytes([9]) + header[1:], *frames)),
        ("left over", (header, *frames, b"more")),
    ):
        with pytest.raises(usmq.InteropError, match=text):
            usmq._core.restore_table(*arguments)


def test_invalid_offsets_and_type_ids_are_refused():
    # Only indices: offsets, sizes, type ids, run ends.
    for array in (
        pa.array(["ab", "c"]),
        pa.array([[1], [2, 3]]),
        pa.array([[1], [2, 3]], pa.list_view(pa.int64())),
        pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]),
    ):
        stream, buffers = apart(usmq.from_arrow(array))
        frames = [bytearray(bytes(buffer)) for buffer in buffers]
        frames[0][-1] = 127
        with pytest.raises(usmq.InteropError):
            pickle.loads(stream, buffers=frames)


def test_frames_are_released():
    gc.collect()  # arrays of other tests
    live = usmq.memory_stats()["host"]["live"]
    stream, buffers = apart([usmq.zeros(1000), usmq.from_arrow(TABLE)])
    assert usmq.memory_stats()["host"]["live"] > live
    back = pickle.loads(stream, buffers=buffers)
    del buffers, back
    gc.collect()
    usmq.current_queue().wait()
    usmq.trim_memory()
    assert usmq.memory_stats()["host"]["live"] == live


def doubled(array):
    numbers = array.to_numpy() * 2
    return usmq.asarray(numbers), usmq.current_queue().device.filter_string or ""


def test_errors_round_trip():
    for name in usmq.__all__:
        kind = getattr(usmq, name)
        if isinstance(kind, type) and issubclass(kind, usmq.Error):
            error = kind.__new__(kind, "what")
            assert str(error) == "what"
            back = pickle.loads(pickle.dumps(kind("what")))
            assert type(back) is kind
            assert back.args == ("what",)


def test_joblib_and_spawned_processes_receive_arrays_and_tables():
    calls = (joblib.delayed(doubled)(usmq.arange(4) if n else usmq.zeros(4)) for n in range(2))
    results = joblib.Parallel(n_jobs=2, timeout=50)(calls)
    assert [numbers.tolist() for numbers, _ in results] == [[0.0] * 4, [0, 2, 4, 6]]
    # Held by loky for a while otherwise.
    joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
    file = io.BytesIO()
    joblib.dump({"x": usmq.arange(4)}, file)
    file.seek(0)
    assert joblib.load(file)["x"].tolist() == [0, 1, 2, 3]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        array, where = pool.submit(doubled, usmq.arange(4)).result(timeout=50)
        table = pool.submit(copy.copy, usmq.from_arrow(TABLE)).result(timeout=50)
    assert array.tolist() == [0, 2, 4, 6]
    assert where
    assert table.to_arrow().equals(TABLE)
