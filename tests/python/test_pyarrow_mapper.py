"""pyarrow batches in oneAPI memory: the command that builds the mapper, copies, lifetimes, errors.

Each test registers the mapper in a child process: a registration lasts as long as its process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import emulated
import pytest
import usmq.pyarrow
from children import PRELUDE
from usmq.pyarrow import _build

Run = Callable[..., subprocess.CompletedProcess[str]]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "pyarrow.md"

START = """
import numpy as np
import pyarrow as pa
import usmq.pyarrow
usmq.pyarrow.register()
cpu = pa.default_cpu_memory_manager()
"""

TYPES = """
source = pa.record_batch({
    "numbers": pa.array([1, None, 3, 4, 5]),
    "texts": pa.array(["a", None, "ccc", "dddd", ""]),
    "large": pa.array(["q", "", None, "r", "s"], pa.large_string()),
    "words": pa.array(["x", "y", "x", None, "y"]).dictionary_encode(),
    "lists": pa.array([[1], None, [2, 3], [], [4]]),
    "flags": pa.array([True, False, None, True, True]),
    "pairs": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": None}, {"a": 3, "b": ""}] + [None]),
    "times": pa.array([1, 2, 3, 4, None], pa.timestamp("us", "UTC")),
    "decimals": pa.array([1, 2, None, 3, 4], pa.decimal128(10, 2)),
    "halves": pa.array(np.arange(5, dtype="f2")),
    "nothing": pa.nulls(5),
})
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder with the mapper."""
    compilers = [os.environ.get("CXX", "c++").split()[0], "g++", "clang++"]
    if not any(shutil.which(name) for name in compilers):
        pytest.skip(f"no C++ compiler builds the mapper: none of {compilers} is in PATH")
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        path = usmq.pyarrow.build()
        made = path.stat()
        assert folder in path.parents
        assert usmq.pyarrow.build() == path, "the second call finds the library"
        assert path.stat().st_mtime_ns == made.st_mtime_ns, "and does not compile again"
        assert usmq.pyarrow.build(force=True) == path
        assert path.stat().st_mtime_ns != made.st_mtime_ns
    return folder


@pytest.fixture
def run(run_python: Run, cache: Path) -> Run:
    """Return a call that runs code in a child, with the mapper and its batch."""

    def run(code: str, before: str = "") -> Any:
        code = before + START + TYPES + code
        return run_python(code, XDG_CACHE_HOME=str(cache), USMQ_CHECKS="1")

    return run


def test_the_command_prints_the_file(run_python: Run, cache: Path) -> None:
    done = run_python(None, "-m", "usmq", "pyarrow", "build", XDG_CACHE_HOME=str(cache))
    assert Path(done.stdout.strip()).parent == cache / "usmq" / "pyarrow"
    assert done.stderr == ""


def test_batches_of_every_type_come_back_equal(run: Run) -> None:
    run("""
for name in source.schema.names:
    for part in (source.select([name]), source.select([name]).slice(1, 3)):
        batch = pa.record_batch(usmq.from_arrow(part))
        assert not batch.is_cpu, name
        assert batch.device_type == pa.DeviceAllocationType.ONEAPI, name
        copy = batch.copy_to(cpu)
        copy.validate(full=True)
        assert copy.equals(part), name
        assert batch.slice(1, 2).copy_to(cpu).equals(part.slice(1, 2)), name
        # Back in place. pyarrow alone crashes when it exports slices with nulls.
        moved = batch.copy_to(usmq.pyarrow.memory_manager())
        for some, same in ((batch, part), (batch.slice(1, 2), part.slice(1, 2)), (moved, part)):
            back = usmq.from_arrow(some).to_arrow().combine_chunks().to_batches()
            assert back[0].equals(same), name
        if name == "pairs":
            continue  # structs without nulls become tables
        column = usmq.from_arrow(batch.column(0).slice(1))
        assert column.to_arrow().to_pylist() == part.column(0).slice(1).to_pylist(), name
""")


def test_batches_of_pyarrow_are_copied_to_a_device(run: Run, cache: Path) -> None:
    code = """
for target in usmq.devices():
    manager = usmq.pyarrow.memory_manager(target)
    assert not manager.is_cpu
    batch = source.copy_to(manager)
    table = usmq.from_arrow(batch)
    assert table["numbers"].values().queue.device == target
    assert table["numbers"].values().usm_type == "device"
    assert table.to_arrow().combine_chunks().to_batches()[0].equals(source)
    # Between two devices, and between two buffers of one.
    for other in usmq.devices():
        again = batch.copy_to(usmq.pyarrow.memory_manager(other))
        assert usmq.from_arrow(again)["numbers"].values().queue.device == other
        assert again.copy_to(cpu).equals(source)
    empty = source.slice(0, 0).copy_to(manager)
    assert empty.copy_to(cpu).num_rows == 0
print(len(usmq.devices()))
"""
    seen = run(code).stdout.split()
    assert seen == [str(len(usmq.devices()))]
    assert emulated.result(START + TYPES + code, XDG_CACHE_HOME=str(cache)) == ["3"]


def test_memory_is_shared_and_lives_as_long_as_the_batch(run: Run) -> None:
    done = run("""
import gc
before = usmq.memory_stats()
x = usmq.arange(100_000)
array = pa.array(usmq.Column(x))
address = x.ptr
assert array.buffers()[1].address == address
assert usmq.asarray(array).ptr == address
assert usmq.from_arrow(array).values().ptr == address
del x
gc.collect()
others = [usmq.full(100_000, 7, "i8") for _ in range(4)]
assert all(other.ptr != address for other in others)
assert array.copy_to(cpu).to_numpy().tolist() == list(range(100_000))
batch = source.copy_to(usmq.pyarrow.memory_manager())
table = usmq.from_arrow(batch)
del batch, array
gc.collect()
assert table["texts"].to_arrow().to_pylist() == source["texts"].to_pylist()
del table, others
gc.collect()
again = [usmq.empty(100_000, "i8") for _ in range(8)]
print(address in [x.ptr for x in again])
""")
    assert done.stdout.split() == ["True"], "the memory is reused after the last reader"


def test_an_import_waits_for_the_kernel_that_writes(run: Run) -> None:
    code = """
for order in ("in order", "out of order"):
    queue = usmq.Queue(in_order=order == "in order")
    with usmq.use_queue(queue):
        x = usmq.zeros(8, "u4")
        event = write_late(8, x, 7, steps(0.05))
        assert not event.done()
        array = pa.array(usmq.Column(x))
    assert event.done()
    assert array.copy_to(cpu).to_pylist() == [7] * 8, order
    # A later write by usmq comes after a copy, and the next copy after this write.
    write_late(8, x, 9, steps(0.05))
    assert array.copy_to(cpu).to_pylist() == [9] * 8, order
"""
    run(code, PRELUDE)


def test_buffers_may_be_released_while_other_threads_work(run: Run) -> None:
    run("""
from concurrent.futures import ThreadPoolExecutor

def work(number):
    manager = usmq.pyarrow.memory_manager()
    for turn in range(30):
        part = pa.record_batch({"x": pa.array(range(number, number + 1000))})
        batch = part.copy_to(manager)
        assert batch.slice(turn).copy_to(cpu).equals(part.slice(turn))

with ThreadPoolExecutor(4) as pool:
    list(pool.map(work, range(4)))
# This batch is destroyed at the end of the process.
last = source.copy_to(usmq.pyarrow.memory_manager())
""")


def test_devices_that_do_not_exist_and_subdevices_are_errors(run: Run) -> None:
    lines = run("""
import ctypes
manager = usmq.pyarrow.memory_manager
try:
    manager(usmq.Queue(usmq.devices()[0], context=usmq.Context(usmq.devices()[:1])))
except usmq.InteropError as problem:
    print("context", "default context" in str(problem))
schema, capsule = usmq.Column(usmq.arange(3)).__arrow_c_device_array__()
pointer = ctypes.pythonapi.PyCapsule_GetPointer
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
# device_id follows the 80 bytes of ArrowArray.
ctypes.c_int64.from_address(pointer(capsule, b"arrow_device_array") + 80).value = 99
try:
    pa.Array._import_from_c_device_capsule(schema, capsule)
except OSError as problem:
    print("device", "99" in str(problem))
array = pa.array(usmq.Column(usmq.arange(3)))
for call in (array.to_pylist, lambda: array.cast("f8"), lambda: array.equals(array)):
    try:
        call()
    except NotImplementedError:
        print("refused")
print(array)
""").stdout.splitlines()
    assert lines[:5] == ["context True", "device True", "refused", "refused", "refused"]
    assert [line.strip(" ,") for line in lines[6:9]] == ["0", "1", "2"]


def test_the_page_about_pyarrow_runs(run_python: Run, cache: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    expected = text.split("```text\n")[1].partition("```")[0]
    done = run_python("\n".join(blocks), XDG_CACHE_HOME=str(cache))
    assert done.stdout == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"CXX": "no-such-compiler"},
            "CXX names the compiler 'no-such-compiler', which was not found",
        ),
        ({"PATH": "/nowhere", "CXX": ""}, "none of c++, g++, clang++ is in PATH"),
        ({"CXX": "false"}, "the compiler failed with status 1"),
        ({"XDG_CACHE_HOME": "", "HOME": "relative"}, "set one of them"),
    ],
)
def test_a_build_that_cannot_work_says_why(
    run_python: Run, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    variables: dict[str, Any] = {"XDG_CACHE_HOME": str(tmp_path)} | change
    done = run_python(None, "-m", "usmq", "pyarrow", "build", check=False, **variables)
    assert done.returncode == 1
    assert done.stderr.startswith("usmq pyarrow: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.rglob("*.so")) == []


def test_a_pyarrow_without_headers_or_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pyarrow.get_include", lambda: str(tmp_path))
    with pytest.raises(usmq.InteropError, match=r"has no C\+\+ headers"):
        usmq.pyarrow.build()
    (tmp_path / "arrow").mkdir()
    (tmp_path / "arrow" / "device.h").write_text("class Device;")
    with pytest.raises(usmq.InteropError, match="cannot hold memory of other devices"):
        usmq.pyarrow.build()
    (tmp_path / "arrow" / "device.h").write_text("Status RegisterDeviceMapper();")
    monkeypatch.setattr("pyarrow.get_library_dirs", lambda: [str(tmp_path)])
    with pytest.raises(usmq.InteropError, match="has no shared libarrow in"):
        usmq.pyarrow.build()


def test_each_version_has_its_own_library(monkeypatch: pytest.MonkeyPatch) -> None:
    here = _build._path().name
    for module, version in (("pyarrow", "99.0"), ("usmq", "9.9")):
        with monkeypatch.context() as patch:
            patch.setattr(f"{module}.__version__", version)
            assert f"{module}-{version}" in _build._path().name != here


def test_register_needs_a_build_in_a_folder_that_others_may_not_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(usmq.InteropError, match="`python -m usmq pyarrow build`"):
        usmq.pyarrow.register()
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "usmq" / "pyarrow"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(usmq.InteropError, match="other users may write to"):
        usmq.pyarrow.build()
    _build._path().write_bytes(b"not a library")
    with pytest.raises(usmq.InteropError, match="other users may write to"):
        usmq.pyarrow.register()
    folder.chmod(0o700)
    _build._path().chmod(0o700)
    with pytest.raises(usmq.InteropError, match=r"cannot load .*build it again"):
        usmq.pyarrow.register()
