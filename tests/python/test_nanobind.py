"""The extensions of examples/nanobind, built with g++ and the headers of the wheels."""

import gc
import importlib.util
import subprocess
import sysconfig
from pathlib import Path

import dpnp
import nanobind
import numpy as np
import pytest
import usmq

EXAMPLES = Path(__file__).parents[2] / "examples" / "nanobind"
PREFIX = Path(sysconfig.get_path("data"))


def built(folder, name, *libraries):
    """Compile an example and import it."""
    library = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    own = Path(nanobind.__file__).parent
    command = ["g++", "-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden"]
    command += ["-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING", "-DNB_COMPACT_ASSERTIONS", "-DMKL_ILP64"]
    command += ["-Wall", "-Wextra", "-Werror"]
    command += [f"-I{Path(usmq.__file__).parent / 'include'}", f"-I{own / 'include'}"]
    command += [f"-isystem{own / 'ext' / 'robin_map' / 'include'}", f"-isystem{PREFIX / 'include'}"]
    command += [f"-isystem{sysconfig.get_path('include')}"]
    command += [str(EXAMPLES / f"{name}.cpp"), str(own / "src" / "nb_combined.cpp")]
    command += [f"-L{PREFIX / 'lib'}", "-lsycl", "-ldl", "-Wl,--no-as-needed"]
    command += [str(PREFIX / "lib" / library) for library in libraries]
    command += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{PREFIX / 'lib'}", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    spec = importlib.util.spec_from_file_location(name, library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return built(tmp_path_factory.mktemp("nanobind"), "filled").Filled


@pytest.fixture(scope="module")
def cholesky(tmp_path_factory):
    libraries = (
        "libmkl_sycl_lapack.so.6",
        "libmkl_sycl_blas.so.6",
        "libmkl_intel_ilp64.so.3",
        "libmkl_tbb_thread.so.3",
        "libmkl_core.so.3",
    )
    return built(tmp_path_factory.mktemp("onemkl"), "cholesky", *libraries).cholesky


@pytest.mark.parametrize("n", [1, 5, 200])
@pytest.mark.parametrize("properties", [{}, {"in_order": False}], ids=["in order", "loose"])
def test_onemkl_factors_a_matrix_in_place_on_the_current_queue(cholesky, n, properties):
    random = np.random.default_rng(n)
    half = random.random((n, n))
    matrix = half @ half.T + n * np.eye(n)
    queue = usmq.Queue("cpu", **properties)
    with usmq.use_queue(queue):
        x = usmq.zeros((n, n), "f8")
        x.copy_from(matrix)
        cholesky(x)
        lower = np.tril(x.copy().to_numpy())
    np.testing.assert_allclose(lower @ lower.T, matrix, rtol=1e-12)
    np.testing.assert_allclose(lower, np.linalg.cholesky(matrix), rtol=1e-10)


def test_onemkl_takes_an_array_of_dpnp(cholesky):
    theirs = dpnp.asarray([[4.0, 2.0], [2.0, 5.0]])
    with usmq.use_queue(theirs.sycl_queue):
        cholesky(theirs)
    assert np.tril(dpnp.asnumpy(theirs)).tolist() == [[2.0, 0.0], [1.0, 2.0]]


def test_onemkl_refuses_other_matrices(cholesky):
    for matrix, error, text in (
        (usmq.asarray([[1.0, 2.0], [2.0, 1.0]]), RuntimeError, "potrf"),
        (usmq.zeros((2, 2), "f4"), TypeError, "float64"),
        (usmq.zeros((2, 3), "f8"), ValueError, "square"),
        (usmq.zeros((4, 4), "f8")[::2, ::2], ValueError, "contiguous"),
    ):
        with pytest.raises(error, match=text):
            cholesky(matrix)


def test_the_extension_works_on_the_queue_of_its_caller(filled):
    queue = usmq.Queue("cpu", in_order=False)
    with usmq.use_queue(queue):
        made = filled([2, 3], 1.5)
    x = usmq.from_dlpack(made)
    assert (x.shape, str(x.dtype), x.usm_type) == ((2, 3), "float32", "shared")
    assert x.tolist() == [[1.5] * 3] * 2
    assert made.__dlpack_device__() == (14, queue.device.ordinal)
    assert usmq.from_dlpack(made).ptr == x.ptr
    x.fill(2)
    assert usmq.from_dlpack(made).tolist() == [[2.0] * 3] * 2


def test_other_libraries_take_the_memory_without_a_copy(filled):
    made = filled([4], 3.0)
    theirs = dpnp.from_dlpack(made)
    assert float(theirs.sum()) == 12
    assert usmq.asarray(theirs).ptr == usmq.from_dlpack(made).ptr


def test_the_memory_lives_as_long_as_its_last_user(filled):
    usmq.from_dlpack(filled([1000], 7.0)).wait()
    x = usmq.from_dlpack(filled([1000], 7.0))
    for _ in range(3):
        gc.collect()
        filled([1000], 8.0)
    assert x.tolist() == [7.0] * 1000
    for _ in range(100):
        filled([1000], 1.0).__dlpack__(max_version=(1, 0))  # never consumed


@pytest.mark.parametrize("shape", [[], [0], [0, 3], [1, 1, 1]])
def test_shapes_without_elements_or_axes_are_exported(filled, shape):
    x = usmq.from_dlpack(filled(shape, 1.0))
    assert x.shape == tuple(shape)


@pytest.mark.parametrize(
    "shape", [[2**32, 2**32], [2**63 - 1, 2], [2**61, 1], [2**40, 2**40, 0], [3, 2**62, 3]], ids=str
)
def test_extents_beyond_an_address_space_are_refused(filled, shape):
    with pytest.raises(ValueError, match="more bytes than an address space"):
        filled(shape, 1.0)


def test_what_dlpack_cannot_name_is_an_error(filled):
    with usmq.use_queue(usmq.Device("cpu").sub_devices(1)[0]):
        made = filled([3], 1.0)
    with pytest.raises(ValueError, match="default context"):
        usmq.from_dlpack(made)
    with pytest.raises(BufferError, match=r"DLPack 1\.0"):
        filled([3], 1.0).__dlpack__()
    with pytest.raises(ValueError, match="negative"):
        filled([-1], 1.0)
