"""Five packages of different styles, and one that uses only dpctl and dpnp, in one program."""

import ast
import asyncio
import importlib.util
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from pathlib import Path
from threading import Barrier

import doc_blocks
import dpctl
import dpctl.memory
import numpy as np
import pkg1
import pkg2
import pkg3
import pkg4
import pkg5
import plain_peer
import pytest
import usmq
from test_import import DRIVER

Places = dict[str, usmq.Queue]

PACKAGES = Path(__file__).parents[2] / "examples" / "packages"
NAMES = [f"pkg{number}" for number in range(1, 6)]
PLACES = ["first", "second", "left", "right"]

N = 1000
TONES = {3: 1.0, 40: 0.5}
TAPS = [0.25, 0.5, 0.25]


def is_emulated():
    return bool(os.environ.get("USMQ_EMULATE_GPUS"))


needs_transforms = pytest.mark.skipif(
    is_emulated(), reason="pkg5 uses oneMKL's transforms for GPUs, which emulated GPUs do not run"
)


@pytest.fixture(scope="module")
def places(two_devices):
    """Two root devices and two sub-devices of the first. Emulated root devices share a context."""
    first, second = two_devices
    if first.max_compute_units < 2:
        pytest.skip(f"{first.name} has one compute unit, so it cannot be partitioned")
    left, right = first.sub_devices(1)[:2]
    found = dict(zip(PLACES, map(usmq.Queue, (first, second, left, right)), strict=True))
    assert len({queue.context for queue in found.values()}) == 4 - is_emulated()
    return found


@pytest.fixture(autouse=True)
def no_default_of_pkg2():
    """A test that fails half-way must not leave it to the next one."""
    yield
    pkg2.set_default_queue(None)


def theirs(queue):
    """Return dpctl's view of a queue, which is independent of ours."""
    return dpctl.SyclQueue(queue._get_capsule())


def address(array):
    """Return the address of an array of any library."""
    interface = array.__sycl_usm_array_interface__
    offset = int(interface.get("offset", 0)) * np.dtype(interface["typestr"]).itemsize
    return int(interface["data"][0]) + offset


def at(x, queue):
    """Assert that an array is memory of a queue's device, by dpctl's word; return its address."""
    if isinstance(x, usmq.Array):
        assert x.queue == queue, f"on {x.queue}, not {queue}"
        assert x.ptr == address(x)
    memory = dpctl.memory.as_usm_memory(x)
    assert memory.sycl_queue == theirs(queue)
    assert memory.get_usm_type(theirs(queue).sycl_context) == "device"
    return address(x)


def is_unreachable_from(x, queue):
    """Return whether the memory is of another device, known to the queue or not."""
    memory = dpctl.memory.as_usm_memory(x)
    unknown = bool(memory.get_usm_type(theirs(queue).sycl_context) == "unknown")
    return x.device != queue.device and unknown == (x.queue.context != queue.context)


def tones():
    turns = np.arange(N) / N
    return sum(height * np.sin(2 * np.pi * k * turns) for k, height in TONES.items())


def samples(seed):
    """Return the expected samples of pkg2: MurmurHash3's finaliser, in numpy."""

    def mixed(h):
        h = h ^ (h >> 16)
        h = h * 0x85EBCA6B & 0xFFFFFFFF
        h = h ^ (h >> 13)
        h = h * 0xC2B2AE35 & 0xFFFFFFFF
        return h ^ (h >> 16)

    places = np.arange(N, dtype="u8")
    return (mixed(mixed(np.uint64(seed)) + places & 0xFFFFFFFF) >> 8) / 2.0**24


def filtered(x):
    return sum(tap * np.roll(x, k) for k, tap in enumerate(TAPS))


def assert_close(x, expected):
    np.testing.assert_allclose(x.to_numpy(), expected, rtol=0, atol=1e-5)


# --- results of each package on any queue


@needs_transforms
@pytest.mark.parametrize("place", [*PLACES, "a queue of dpctl"])
def test_all_packages_share_one_queue_without_copies(places, place):
    # Out of order, and made by dpctl: a queue that usmq has never seen.
    foreign = dpctl.SyclQueue(places["second"].device.filter_string)
    target = places.get(place, foreign)
    queue = usmq.Queue(target)
    assert (queue in places.values()) == (place in PLACES)
    elsewhere = places["first" if queue.device == places["second"].device else "second"]
    with usmq.use_queue(target), pkg2.use_queue(target):
        signal, edges = pkg4.tones(N, TONES), pkg4.grid(-2, 2, 9)
        noise = pkg2.samples(N, 7)
        noisy = pkg1.axpy(0.1, noise, signal, queue=target)
        smooth = pkg5.Filter(TAPS, N, *([] if place in PLACES else [target]))
        plan = usmq.explain(noisy, queue=smooth.queue)
        clean = smooth(noisy)
        half = plain_peer.halved(clean)
    # Neither the scope around the call nor pkg2's own matters: the data decides.
    with usmq.use_queue(elsewhere), pkg2.use_queue(elsewhere):
        counts = pkg3.histogram(clean, edges)
        of_half = pkg3.histogram(half, edges)
    assert smooth.queue == queue
    assert ([step.action for step in plan.steps], plan.bytes) == (["keep"], 0)
    made = [signal, edges, noise, noisy, clean, half, counts, of_half]
    assert len({at(x, queue) for x in made}) == len(made)
    assert all(is_unreachable_from(x, elsewhere) for x in made if x is not half)
    np.testing.assert_array_equal(noise.to_numpy(), samples(7))
    assert_close(signal, tones())
    assert_close(edges, np.linspace(-2, 2, 9))
    assert_close(noisy, 0.1 * samples(7) + tones())
    assert_close(clean, filtered(0.1 * samples(7) + tones()))
    assert_close(usmq.asarray(half, copy=False), filtered(0.1 * samples(7) + tones()) / 2)
    for x, found in ((clean, counts), (usmq.asarray(half, copy=False), of_half)):
        expected, _ = np.histogram(x.to_numpy(), edges.to_numpy())
        assert found.to_numpy().tolist() == expected.tolist()
        assert expected.sum() == N


def test_a_histogram_matches_numpy_at_and_beyond_the_edges():
    edges = np.array([-1, 0, 0.5, 4], "f4")
    x = np.array([-1, -2, 0, 0.5, 0.25, 4, np.nextafter(np.float32(4), np.float32(5))], "f4")
    expected, _ = np.histogram(x, edges)
    odd = np.append(x, [np.nan, np.inf, -np.inf]).astype("f4").reshape(2, 5)
    counts = pkg3.histogram(usmq.asarray(odd), usmq.asarray(edges))
    assert counts.to_numpy().tolist() == expected.tolist() == [1, 2, 2]
    none = pkg3.histogram(usmq.empty(0, "f4"), usmq.asarray(edges))
    assert none.to_numpy().tolist() == [0, 0, 0]


@needs_transforms
def test_invalid_arguments_are_refused():
    two, three = usmq.zeros(2, "f4"), usmq.zeros(3, "f4")
    with pytest.raises(ValueError, match=r"one shape: \(2,\) and \(3,\)"):
        pkg1.axpy(1.0, two, three, queue=two.queue)
    with pytest.raises(TypeError, match="queue"):
        pkg1.axpy(1.0, two, two)
    for edges in (usmq.zeros(1, "f4"), usmq.zeros((2, 2), "f4")):
        with pytest.raises(ValueError, match="two or more, in one dimension"):
            pkg3.histogram(two, edges)
    with pytest.raises(usmq.LaunchError, match="contiguous copy"):
        pkg3.histogram(usmq.zeros(4, "f4")[::2], two)
    with pytest.raises(usmq.LaunchError, match="float64"):
        pkg3.histogram(usmq.zeros(4, "f8"), two)
    with pytest.raises(ValueError, match="two or more: 1"):
        pkg4.grid(0, 1, 1)
    for taps in ([], [1.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="takes 1 to 2 taps"):
            pkg5.Filter(taps, 2)
    with pytest.raises(ValueError, match="takes 3 elements"):
        pkg5.Filter([1.0], 3)(two)
    for target in ("accelerator:9", "nonsense"):
        with pytest.raises((usmq.DeviceNotFoundError, usmq.SelectorError), match=target):
            pkg1.constant(1, 1.0, queue=target)
        with pytest.raises((usmq.DeviceNotFoundError, usmq.SelectorError), match=target):
            pkg2.set_default_queue(target)
        with pytest.raises((usmq.DeviceNotFoundError, usmq.SelectorError), match=target):
            pkg5.Filter([1.0], 1, target)
    assert pkg2.current_queue() == usmq.current_queue()


# --- scopes and devices, mixed


@needs_transforms
def test_packages_on_different_devices_combine_by_collocate(places):
    first, second, left, right = places.values()
    pkg2.set_default_queue(left)
    smooth = pkg5.Filter(TAPS, N, right)
    with usmq.use_queue(first):
        signal, edges = pkg4.tones(N, TONES), pkg4.grid(-2, 2, 9)
        noise = pkg2.samples(N, 7)
    on_first, on_left = at(signal, first), at(noise, left)

    with pytest.raises(usmq.PlacementError, match="collocate"):
        pkg1.axpy(0.1, noise, signal, queue=second)
    noise2, signal2 = usmq.collocate(noise, signal, queue=second)
    noisy = pkg1.axpy(0.1, noise2, signal2, queue=second)
    assert {at(noise2, second), at(signal2, second)}.isdisjoint({on_first, on_left})
    assert is_unreachable_from(noise2, left)
    assert is_unreachable_from(signal2, first)
    on_second = at(noisy, second)

    plan = usmq.explain(noisy, queue=smooth.queue)
    assert plan.bytes == noisy.nbytes
    clean = smooth(noisy)
    assert at(clean, right) not in (on_first, on_left, on_second)

    with pytest.raises(usmq.PlacementError) as mismatch:
        pkg3.histogram(clean, edges)
    assert "sub-device 1" in str(mismatch.value)
    assert "collocate" in str(mismatch.value)
    counts = pkg3.histogram(clean, usmq.collocate(edges, like=clean))
    at(counts, right)

    assert_close(clean, filtered(0.1 * samples(7) + tones()))
    expected, _ = np.histogram(clean.to_numpy(), edges.to_numpy())
    assert counts.to_numpy().tolist() == expected.tolist()
    # The sources are unchanged.
    assert (at(signal, first), at(noise, left), at(noisy, second)) == (on_first, on_left, on_second)
    np.testing.assert_array_equal(noise.to_numpy(), samples(7))


def test_scopes_nest_across_packages_and_end_on_errors(places):
    first, second, left, right = places.values()

    def made_on(own, shared):
        assert (pkg2.current_queue(), usmq.current_queue()) == (own, shared)
        at(pkg2.samples(10, 1), own)
        at(pkg4.grid(0, 1, 10), shared)

    with usmq.use_queue(first):
        made_on(first, first)
        with pkg2.use_queue(second):
            made_on(second, first)
            with usmq.use_queue(left):
                made_on(second, left)
                with pkg2.use_queue(None), usmq.use_queue(None):
                    made_on(second, left)
                with pkg2.use_queue(right), usmq.use_queue(second):
                    made_on(right, second)
                with (
                    pytest.raises(ValueError, match="n must be two or more"),
                    pkg2.use_queue(left),
                    usmq.use_queue(right),
                ):
                    pkg4.grid(0, 1, 1)
                made_on(second, left)
            made_on(second, first)
        made_on(first, first)
        pkg2.set_default_queue(right)
        made_on(right, first)
        usmq.set_default_queue(second)
        made_on(right, first)
        pkg2.set_default_queue(None)
        made_on(first, first)
    made_on(second, second)


def test_the_explicit_queue_of_pkg1_wins_over_every_scope(places):
    first, second, left, right = places.values()
    usmq.set_default_queue(second)
    pkg2.set_default_queue(left)
    with usmq.use_queue(right), pkg2.use_queue(second):
        for target in (first, first.device, first.device.filter_string, theirs(first)):
            x = pkg1.constant(4, 3.0, queue=target)
            y = pkg1.axpy(2.0, x, x, queue=target)
            assert at(x, first) != at(y, first)
            assert y.to_numpy().tolist() == [9] * 4
        assert (usmq.current_queue(), pkg2.current_queue()) == (right, second)


@needs_transforms
def test_another_queue_of_the_same_context_needs_no_copy(places):
    plain = places["second"]
    timed = usmq.Queue(plain.device, profiling=True)
    assert timed != plain
    with usmq.use_queue(plain):
        x = pkg4.grid(0, 3, 4)
    # An explicit queue wins, since it can use the memory; the data alone would not decide.
    y = pkg1.axpy(1.0, x, x, queue=timed)
    assert at(y, timed) != at(x, plain)
    with pytest.raises(usmq.PlacementError, match="collocate"):
        pkg3.histogram(y, x)
    moved = usmq.collocate(x, like=y)
    assert at(moved, timed) == at(x, plain), "the same memory, on the other queue"
    assert pkg3.histogram(y, moved).to_numpy().tolist() == [1, 0, 1]
    only = pkg5.Filter([1.0], 4, timed)(x)
    assert_close(only, [0, 1, 2, 3])
    assert at(only, timed) != at(x, plain)


MISMATCHES = {
    "pkg2's default and the user's scope": lambda places: (
        pkg2.samples(10, 1),
        pkg4.grid(0, 1, 10),
    ),
    "an explicit queue and the user's scope": lambda places: (
        pkg1.constant(10, 0.5, queue=places["second"]),
        pkg4.grid(0, 1, 10),
    ),
    "an object's queue and pkg2's default": lambda places: (
        pkg5.Filter([1.0], 10, places["right"])(pkg4.grid(0, 1, 10)),
        pkg2.samples(10, 1),
    ),
}


@pytest.mark.parametrize("mismatch", MISMATCHES)
def test_a_queue_mismatch_names_both_queues_and_its_fix_works(places, mismatch):
    if is_emulated() and mismatch.startswith("an object"):
        pytest.skip("pkg5 uses oneMKL's transforms for GPUs, which emulated GPUs do not run")
    pkg2.set_default_queue(places["left"])
    with usmq.use_queue(places["first"]):
        x, y = MISMATCHES[mismatch](places)
        assert x.queue != y.queue
        before = at(x, x.queue), at(y, y.queue)
        for call in (
            lambda: pkg3.histogram(x, y),
            lambda: pkg1.axpy(1.0, x, y, queue=x.queue),
            lambda: pkg1.axpy(1.0, x, y, queue=y.queue),
        ):
            with pytest.raises(usmq.PlacementError, match=r"collocate\(") as caught:
                call()
            assert "array 0" in str(caught.value) or "array 1" in str(caught.value)
        with pytest.raises(usmq.PlacementError) as both:
            pkg3.histogram(x, y)
        for array in (x, y):
            where = f"sub-device {array.device.ordinal} of" if array.device.parent else ""
            root = array.device.parent or array.device
            assert f"{where} {root.filter_string}".strip() in str(both.value)
        for queue in places.values():
            x2, y2 = usmq.collocate(x, y, queue=queue)
            assert (at(x2, queue) == before[0]) == (queue == x.queue)
            assert (at(y2, queue) == before[1]) == (queue == y.queue)
            total = pkg1.axpy(1.0, x2, y2, queue=queue)
            at(total, queue)
            assert_close(total, x.to_numpy() + y.to_numpy())
        with usmq.use_queue(places["second"]):
            x2, y2 = usmq.collocate(x, y)
        assert x2.queue == y2.queue in (x.queue, y.queue), "one array is not copied"


# --- threads and tasks


def test_a_thread_has_the_default_and_a_copied_context_the_scope(places):
    first, second, left, right = places.values()
    usmq.set_default_queue(second)
    pkg2.set_default_queue(right)

    def work():
        return pkg4.grid(0, 1, 10), pkg2.samples(10, 1)

    with ThreadPoolExecutor(1) as pool, usmq.use_queue(first), pkg2.use_queue(left):
        bare = pool.submit(work).result()
        carried = pool.submit(copy_context().run, work).result()
        again = pool.submit(work).result()
    for (x, y), (shared, own) in zip(
        (bare, carried, again), ((second, right), (first, left), (second, right)), strict=True
    ):
        at(x, shared)
        at(y, own)


def test_concurrent_threads_have_separate_scopes(places):
    start = Barrier(len(places))

    def work(queue):
        start.wait(timeout=60)
        made = []
        for turn in range(20):
            with usmq.use_queue(queue):
                x = pkg4.tones(N, {turn + 1: 1.0})
            made.append(pkg1.axpy(1.0, x, x, queue=x.queue))
        return made

    with ThreadPoolExecutor(len(places)) as pool:
        results = list(pool.map(work, places.values()))
    for queue, made in zip(places.values(), results, strict=True):
        assert len({at(x, queue) for x in made}) == 20
        for turn, x in enumerate(made):
            assert_close(x, 2 * np.sin(2 * np.pi * (turn + 1) * np.arange(N) / N))


@needs_transforms
def test_tasks_keep_their_scopes_and_to_thread_copies_them(places):
    async def work(shared, own, smooth):
        with usmq.use_queue(shared), pkg2.use_queue(own):
            for turn in range(5):
                await asyncio.sleep(0)
                at(pkg2.samples(N, turn), own)
                signal = await asyncio.to_thread(pkg4.tones, N, TONES)
                at(signal, shared)
                clean = smooth(signal)
                at(clean, smooth.queue)
                assert_close(clean, filtered(tones()))

    async def main():
        queues = list(places.values())
        await asyncio.gather(
            *(
                work(queues[i], queues[i - 1], pkg5.Filter(TAPS, N, queues[i - 2]))
                for i in range(len(queues))
            )
        )

    before = usmq.current_queue()
    asyncio.run(main())
    assert usmq.current_queue() == pkg2.current_queue() == before


# --- an object with a queue


@needs_transforms
def test_a_filter_keeps_its_construction_queue_in_any_scope(places):
    first, second, left, right = places.values()
    with usmq.use_queue(left):
        scoped, named = pkg5.Filter(TAPS, N), pkg5.Filter(TAPS, N, "cpu:1")
    usmq.set_default_queue(right)
    default = pkg5.Filter(TAPS, N)
    usmq.set_default_queue(first)
    assert [f.queue for f in (scoped, named, default)] == [left, second, right]
    with usmq.use_queue(second):
        x = pkg4.tones(N, TONES)
        before = at(x, second)
        chain = [scoped(x)]
        chain.append(named(chain[-1]))
        with ThreadPoolExecutor(1) as pool:
            chain.append(pool.submit(default, chain[-1]).result())
        assert usmq.current_queue() == second
    found = [at(y, queue) for y, queue in zip(chain, (left, second, right), strict=True)]
    assert len({before, *found}) == 4
    expected = tones()
    for y in chain:
        expected = filtered(expected)
        assert_close(y, expected)
    assert at(x, second) == before
    assert_close(x, tones())


# --- a package that does not use usmq


@needs_transforms
@pytest.mark.parametrize("place", PLACES)
def test_arrays_of_dpnp_are_imported_and_exported_in_place(places, place):
    queue = places[place]
    elsewhere = places["second" if place == "first" else "first"]
    x = plain_peer.ramp(N, theirs(queue))
    before = at(x, queue)
    with usmq.use_queue(elsewhere), pkg2.use_queue(elsewhere):
        edges = pkg1.constant(2, 0.0, queue=queue)
        edges[1] = 99.0
        counts = pkg3.histogram(x, edges)
        clean = pkg5.Filter(TAPS, N, queue)(x)
    assert at(usmq.asarray(x, copy=False), queue) == at(x, queue) == before
    assert counts.to_numpy().tolist() == [100]
    np.testing.assert_allclose(clean.to_numpy(), filtered(np.arange(N)), rtol=1e-4, atol=1e-3)

    # Export: the peer writes to our memory; its results are on our queue and are imported again.
    on_clean = at(clean, queue)
    host = clean.to_numpy()
    plain_peer.double(clean)
    plain_peer.double(counts)
    assert at(clean, queue) == on_clean
    np.testing.assert_array_equal(clean.to_numpy(), 2 * host)
    assert counts.to_numpy().tolist() == [200]
    half = plain_peer.halved(clean)
    assert at(half, queue) != on_clean
    both = pkg1.axpy(1.0, usmq.asarray(half, copy=False), clean, queue=queue)
    at(both, queue)
    np.testing.assert_array_equal(both.to_numpy(), 3 * host)


def test_work_of_both_libraries_on_one_array_is_ordered(places):
    queue = places["second"]
    x = pkg1.constant(N, 1.0, queue=queue)
    before = at(x, queue)
    for _ in range(10):
        plain_peer.double(x)
        x.copy_from(pkg1.axpy(1.0, x, x, queue=queue))
    assert at(x, queue) == before
    assert set(x.to_numpy().tolist()) == {4.0**10}


# --- any order of them


@needs_transforms
@pytest.mark.parametrize("seed", range(4))
def test_random_scopes_and_calls_follow_the_precedence_rules(places, seed):
    chance = random.Random(seed)
    sycl = usmq.current_queue()
    pick = list(places.values())
    filters = [pkg5.Filter([1.0], 16, queue) for queue in pick]
    made = []

    def step(shared, own, default, requested):
        here = shared[-1] if shared else default or sycl
        mine = own[-1] if own else requested or here
        queue = chance.choice(pick)
        call = chance.randrange(5)
        if call == 0 or not made:
            host = np.full(16, call + 1.0)
            made.append((pkg1.constant(16, call + 1.0, queue=queue), host))
            at(made[-1][0], queue)
        elif call == 1:
            x = pkg2.samples(N, 5)[:16]
            made.append((x, samples(5)[:16]))
            at(x, mine)
        elif call == 2:
            x = pkg4.grid(0, 15, 16)
            made.append((x, np.arange(16.0)))
            at(x, here)
        elif call == 3:
            (x, a), (y, b) = chance.choice(made), chance.choice(made)
            if x.queue != y.queue:
                with pytest.raises(usmq.PlacementError):
                    pkg3.histogram(x, y)
                y = usmq.collocate(y, like=x)
            made.append((pkg1.axpy(0.5, x, y, queue=x.queue), 0.5 * a + b))
            at(made[-1][0], x.queue)
        else:
            (x, a), smooth = chance.choice(made), chance.choice(filters)
            made.append((smooth(x), a))
            at(made[-1][0], smooth.queue)

    for _ in range(12):
        default, requested = (chance.choice([None, *pick]) for _ in range(2))
        usmq.set_default_queue(default)
        pkg2.set_default_queue(requested)
        with ExitStack() as scopes:
            shared = []
            own = []
            for _ in range(8):
                enter = chance.randrange(3)
                if enter == 0:
                    shared.append(scopes.enter_context(usmq.use_queue(chance.choice(pick))))
                elif enter == 1:
                    own.append(scopes.enter_context(pkg2.use_queue(chance.choice(pick))))
                step(shared, own, default, requested)
    for x, expected in made:
        np.testing.assert_allclose(x.to_numpy(), expected, rtol=1e-4, atol=1e-4)


# --- as packages


def imported(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names)


def test_no_package_imports_another():
    known = {
        name: set.union(*(imported(path) for path in (PACKAGES / name).rglob("*.py")))
        for name in NAMES
    }
    assert known == {name: {"usmq"} for name in NAMES} | {"pkg5": {"usmq", "dpnp"}}
    assert imported(Path(plain_peer.__file__)) == {"dpctl", "dpnp"}


def test_importing_the_packages_queries_no_device(run_python):
    code = f"import {', '.join(NAMES)}; print(open('/proc/self/maps').read())"
    maps = run_python(code, PYTHONPATH=python_path(*sources())).stdout
    assert "_core" in maps
    assert set(DRIVER.findall(maps)) == set()


def test_the_example_of_the_packages_page_runs(run_python):
    [block] = [b for b in doc_blocks.blocks(PACKAGES / "README.md") if b.language == "python"]
    done = run_python(block.code, PYTHONPATH=python_path(*sources()))
    assert done.stdout == block.output


@pytest.mark.parametrize("name", NAMES)
def test_pip_installs_it_with_all_of_its_files(run_python, tmp_path, name):
    for needed in ("pip", "flit_core"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed, and nothing may be downloaded here")
    project = PACKAGES / name
    before = sorted(project.rglob("*"))
    options = "--no-deps --no-index --no-build-isolation --disable-pip-version-check --quiet"
    run_python(
        None, "-m", "pip", "install", *options.split(), "--target", str(tmp_path), str(project)
    )
    assert sorted(project.rglob("*")) == before, "the build writes nothing beside the sources"
    files = {path.name for path in (project / "src" / name).iterdir() if path.is_file()}
    assert {path.name for path in (tmp_path / name).iterdir() if path.is_file()} == files
    assert {"__init__.py", "py.typed"} <= files
    # From the installed files, kernels included, in a process without the checkout on its path.
    code = f"import sys, {name} as p, usmq; print(p.__file__); usmq.set_default_queue('cpu:0')\n"
    code += {
        "pkg1": "print(p.axpy(2.0, *[p.constant(2, 1.0, queue='cpu:0')] * 2, queue='cpu:0').size)",
        "pkg2": "print(p.samples(2, 1).size)",
        "pkg3": "print(p.histogram(*[usmq.arange(3, dtype='f4')] * 2).size)",
        "pkg4": "print(p.grid(0, 1, 2).size)",
        "pkg5": "print(p.Filter([1.0], 2)(usmq.zeros(2, 'f4')).size)",
    }[name]
    done = run_python(code, PYTHONPATH=python_path(tmp_path), cwd=tmp_path)
    assert done.stdout == f"{tmp_path / name / '__init__.py'}\n2\n"


def sources():
    return [PACKAGES / name / "src" for name in NAMES]


def python_path(*folders):
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
