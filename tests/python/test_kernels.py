"""Kernels: builds and their logs, argument checks against the signature, exact results."""

import asyncio
import time

import numpy as np
import pytest
import usmq

HEAD = """
#include <cstddef>
#include <sycl/sycl.hpp>
#include <type_traits>
namespace syclext = sycl::ext::oneapi;
namespace syclexp = sycl::ext::oneapi::experimental;
"""
KERNEL = """
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
"""
OPAQUE = f"""{HEAD}
// The signature parser cannot resolve this type.
using real = std::conditional_t<(sizeof(size_t) > 4), float, double>;
{KERNEL} scale(const real *x, real *y, real a, real b) {{
  size_t i = syclext::this_work_item::get_nd_item<1>().get_global_linear_id();
  y[i] = a * x[i] + b;
}}
"""
BROKEN = f"{HEAD}{KERNEL} broken(int *x) {{ x[0] = undeclared_name; }}"


@pytest.mark.parametrize("n", [1, 2, 31, 1000, 1_000_003])
def test_each_work_item_runs_exactly_once_for_any_global_size(kernels, n):
    x = usmq.zeros(n + 1, "u4")
    kernels.advance(n, x, 1)
    assert (x.to_numpy()[:n] == 1013904223).all()
    assert x.to_numpy()[n] == 0


def test_two_and_three_dimensions_are_in_c_order(kernels):
    for options in ({}, {"local_size": (2, 3)}):
        x = usmq.zeros((4, 6), "i4")
        kernels.index2((4, 6), x, **options)
        r, c = np.indices((4, 6))
        np.testing.assert_array_equal(x.to_numpy(), 100 * r + c)
    y = usmq.zeros((2, 3, 4), "i4")
    kernels.index3((2, 3, 4), y)
    p, r, c = np.indices((2, 3, 4))
    np.testing.assert_array_equal(y.to_numpy(), 10000 * p + 100 * r + c)


@pytest.mark.parametrize("local", [1, 8, 64, (16,), [32]])
def test_a_local_size_gives_work_groups_of_that_size(kernels, local):
    size, group, place = (usmq.empty(128, "i4") for _ in range(3))
    kernels.groups(128, size, group, place, local_size=local)
    length = local if isinstance(local, int) else local[0]
    i = np.arange(128)
    assert (size.to_numpy() == length).all()
    np.testing.assert_array_equal(group.to_numpy(), i // length)
    np.testing.assert_array_equal(place.to_numpy(), i % length)


@pytest.mark.parametrize("kind", ["device", "shared", "host"])
def test_a_kernel_accepts_every_usm_kind_and_gets_the_first_element_of_a_view(kernels, kind):
    x = usmq.zeros(10, "f4", usm_type=kind)
    kernels.fill(4, x[3:7], 1.5)
    assert x.tolist() == [0] * 3 + [1.5] * 4 + [0] * 3


def test_data_on_two_queues_needs_an_explicit_queue(queue, kernels):
    other = usmq.Queue(queue.device, profiling=True)
    x, y = usmq.zeros(4), usmq.full(4, 1.0, "f4", queue=other)
    with pytest.raises(usmq.PlacementError, match="collocate"):
        kernels.axpy(4, 1.0, x, y, 4)
    event = kernels.axpy(4, 1.0, x, y, 4, queue=other)
    submit, start, end = event.timestamps
    assert 0 < submit <= start <= end
    assert y.tolist() == [1] * 4
    assert x.queue == queue, "the array is not moved"


def test_a_kernel_follows_its_data_to_another_context_and_refuses_a_mixture(
    queue, other_queue, kernels
):
    here, there = usmq.zeros(4), usmq.zeros(4, queue=other_queue)
    for q in (None, queue, other_queue):
        with pytest.raises(usmq.PlacementError, match="collocate"):
            kernels.axpy(4, 1.0, here, there, 4, queue=q)
    kernels.fill(4, there, 2.5)
    assert there.tolist() == [2.5] * 4


def test_a_kernel_computes_the_result_of_its_source(kernels):
    for mark_read, mark_write in ((lambda x: x, lambda x: x), (usmq.read, usmq.write)):
        x, y = usmq.arange(0, 1000, 1, dtype="f4"), usmq.empty(1000, "f4")
        kernels.fill(1000, mark_write(y), 3.0)
        event = kernels.axpy(1000, 2.5, mark_read(x), y, 990)
        assert isinstance(event, usmq.Event)
        event.wait()
        expected = np.full(1000, 3, "f4")
        expected[:990] += 2.5 * np.arange(990, dtype="f4")
        np.testing.assert_array_equal(y.to_numpy(), expected)
        np.testing.assert_array_equal(x.to_numpy(), np.arange(1000))


def test_a_build_error_has_the_compiler_log_and_is_not_cached():
    for _ in range(2):
        with pytest.raises(usmq.KernelBuildError, match="broken") as caught:
            usmq.Kernel.from_sycl(BROKEN, "broken")
        assert "error:" in caught.value.log
        assert "undeclared_name" in caught.value.log
    fixed = BROKEN.replace("undeclared_name", "42")
    x = usmq.zeros(1, "i4")
    usmq.Kernel.from_sycl(fixed, "broken")(1, x)
    assert x.tolist() == [42]


def test_kernels_that_cannot_be_built_are_errors(source):
    for name in ("nosuch", "", "adv", "advance\0", "main"):
        with pytest.raises((usmq.Error, ValueError)):
            usmq.Kernel.from_sycl(source, name)
    for text in ("", " \n", "// f", "no C++ at all", '#error "stop"', "int x;", "\0"):
        with pytest.raises((usmq.KernelBuildError, ValueError)):
            usmq.Kernel.from_sycl(text, "f")


def test_options_reach_the_compiler_and_distinguish_kernels():
    text = f"{HEAD}{KERNEL} put(int *x) {{ x[0] = VALUE; }}"
    x = usmq.zeros(1, "i4")
    for value in (3, 4, 3):
        usmq.Kernel.from_sycl(text, "put", options=(f"-DVALUE={value}",))(1, x)
        assert x.to_numpy().tolist() == [value]
    with pytest.raises(usmq.KernelBuildError) as caught:
        usmq.Kernel.from_sycl(text, "put")
    assert "VALUE" in caught.value.log


def test_types_not_readable_from_the_source_need_params_or_numpy_scalars():
    x, y = usmq.arange(0, 4, 1, dtype="f4"), usmq.zeros(4, "f4")
    unknown = usmq.Kernel.from_sycl(OPAQUE, "scale")
    with pytest.raises((usmq.Error, TypeError)):
        unknown(4, x, y, 2, 1)
    unknown(4, x, y, np.float32(2), np.float32(1))
    assert y.to_numpy().tolist() == [1, 3, 5, 7]
    params = (usmq.read("f4"), usmq.write("f4"), "f4", "f4")
    known = usmq.Kernel.from_sycl(OPAQUE, "scale", params=params)
    known(4, x, y, 3, 0.5)
    assert y.to_numpy().tolist() == [0.5, 3.5, 6.5, 9.5]
    with pytest.raises((usmq.LaunchError, TypeError)):
        known(4, x, usmq.zeros(4, "i4"), 3, 0.5)
    with pytest.raises((usmq.LaunchError, TypeError)):
        known(4, x, y, 3)


def test_params_that_contradict_the_source_are_refused_at_build():
    text = f"{HEAD}{KERNEL} scale(float a, const float *x, float *y, size_t n) {{ }}"
    # Others are in src/kernel/signature_tests.rs.
    for params, message in [
        (("f8", usmq.read("f4"), usmq.write("f4"), "u8"), "parameter 0 is float32 .* float64 in"),
        ((usmq.read("f4"), usmq.write("f4"), "u8"), "params has 3 .* source has 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            usmq.Kernel.from_sycl(text, "scale", params=params)


def test_params_refine_types_read_from_the_source():
    text = f"""{HEAD}using number = float;
    {KERNEL} widen(unsigned short *x, float *z, number a) {{ z[1] = x[0] * a; }}"""
    params = (usmq.read("bfloat16"), usmq.write("c8"), "f4")
    x, z = usmq.asarray([1.0], "bfloat16"), usmq.zeros(1, "c8")
    usmq.Kernel.from_sycl(text, "widen", params=params)(1, x, z, 2)
    assert z.to_numpy().tolist() == [2j * 0x3F80]


@pytest.mark.parametrize("place", range(3), ids=["source", "name", "option"])
def test_a_nul_character_in_a_string_is_a_value_error(place):
    texts = [f"{HEAD}{KERNEL} put(int *x) {{ x[0] = 1; }}", "put", "-DA"]
    texts[place] += "\0x"
    for build in (usmq.Kernel.from_sycl, usmq.Kernel.from_opencl):
        with pytest.raises(ValueError, match="NUL"):
            build(*texts[:2], options=[texts[2]])


def test_compiled_kernels_are_cached_in_a_folder_of_usmq(run_python, tmp_path):
    code = f"""
import usmq
x = usmq.zeros(1, "i4")
usmq.Kernel.from_sycl({HEAD + KERNEL + "kept(int *x) { x[0] = 11; }"!r}, "kept")(1, x)
print(x.to_numpy())
"""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "SYCL_CACHE_DIR": None}
    for _ in range(2):
        done = run_python(code, SYCL_CACHE_PERSISTENT=None, **environment)
        assert done.stdout.split() == ["[11]"]
    # Intel's GPU driver keeps a cache of its own beside.
    of_driver = tmp_path / "neo_compiler_cache"
    kept = [
        path for path in tmp_path.rglob("*") if path.is_file() and of_driver not in path.parents
    ]
    assert kept
    assert all("usmq" in str(path.relative_to(tmp_path)) for path in kept)


def test_an_event_loop_runs_while_a_thread_builds(queue):
    async def build():
        source = "#include <usmq/kernel.h>\nUSMQ_KERNEL(1) void fresh(int *x) { x[0] = %d; }"
        building = asyncio.create_task(
            asyncio.to_thread(usmq.Kernel.from_sycl, source % (time.time_ns() % 10**9), "fresh")
        )
        turns = 0
        while not building.done():
            await asyncio.sleep(0.001)
            turns += 1
        await building
        return turns

    # If the build held the GIL, the loop would turn a few times only.
    assert asyncio.run(build()) > 50
