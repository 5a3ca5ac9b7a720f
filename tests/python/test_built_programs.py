"""Builds of OpenCL C and SPIR-V in files, used by later processes."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
import usmq
from test_opencl_kernels import spirv

SOURCE = """
#ifdef OTHER
#include OTHER
#endif
#include "term.h"
kernel void add(global int *x) { x[get_global_id(0)] += TERM; }
kernel void sub(global int *x) { x[get_global_id(0)] -= TERM; }
"""
PROGRAM = """
import os, sys, usmq
source, module, *options = sys.argv[1:]
x = usmq.zeros(2, "i4")
usmq.Kernel.from_opencl(source, "add", options=options)(2, x)
y = usmq.zeros(2, "u4")
usmq.Kernel.from_spirv(bytes.fromhex(module), "add_one")(2, y)
print(x.tolist()[0], y.tolist()[0])
"""
PLAIN = "kernel void add(global int *x) { x[get_global_id(0)] += 7; }"


@pytest.fixture(autouse=True)
def opencl():
    backend = usmq.current_queue().device.backend
    if backend != "opencl":
        pytest.skip(f"the default device is of {backend}, not of OpenCL")


@pytest.fixture
def cache(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path / "cache"


@pytest.fixture
def run(run_python, cache):
    def run(source=PLAIN, *options, program=PROGRAM, warns="", **environment):
        settings = {"SYCL_CACHE_PERSISTENT": "1", "SYCL_CACHE_DIR": str(cache)} | environment
        done = run_python(program, source, spirv().hex(), *options, **settings)
        assert warns in done.stderr if warns else done.stderr == ""
        return [int(number) for number in done.stdout.split()]

    return run


def programs(cache):
    """Return the files with their inode, which changes when a file is replaced."""
    return {path: path.stat().st_ino for path in sorted((cache / "usmq-programs").glob("*"))}


def test_source_options_and_settings_of_the_compiler_have_programs_of_their_own(run, cache):
    source = PLAIN.replace("7", "TERM")
    assert run(source, "-DTERM=3")[0] == 3
    assert run(source, "-DTERM=4")[0] == 4
    assert run(source + " ", "-DTERM=3")[0] == 3
    assert len(programs(cache)) == 4
    run(source, "-DTERM=3", CL_CONFIG_USE_FAST_RELAXED_MATH="1")
    assert len(programs(cache)) == 6


def test_the_files_are_private(run, cache):
    before = os.umask(0)
    try:
        run()
    finally:
        os.umask(before)
    assert stat.S_IMODE((cache / "usmq-programs").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in programs(cache)} == {0o600}


DAMAGES = {
    "empty": lambda _: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "a changed byte": lambda whole: whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:],
    "foreign": lambda whole: b"\x7fELF" + bytes(len(whole)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_built_again(run, cache, damage):
    assert run() == [7, 1]
    whole = {path: path.read_bytes() for path in programs(cache)}
    for path, content in whole.items():
        path.write_bytes(damage(content))
    assert run() == [7, 1]
    kept = programs(cache)
    assert set(kept) == set(whole)
    # Apart from the driver's own differences, the files are as before.
    assert all(path.read_bytes()[:16] == whole[path][:16] for path in kept)
    assert run() == [7, 1]
    assert programs(cache) == kept


def test_a_program_that_the_driver_refuses_is_built_again(run, cache):
    # The file is valid for usmq, but has the program of the other kind.
    assert run() == [7, 1]
    one, two = (path.read_bytes() for path in programs(cache))
    for path in programs(cache):
        path.write_bytes(two if path.read_bytes() == one else one)
    assert run() == [7, 1]


def test_processes_at_the_same_time_and_later_ones_share_whole_programs(run, cache):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: run(), range(4))) == [[7, 1]] * 4
    assert len(programs(cache)) == 2
    kept = programs(cache)
    assert run() == [7, 1]
    assert programs(cache) == kept


def test_a_changed_included_file_is_built_again(run, tmp_path):
    header, inner = tmp_path / "term.h", tmp_path / "inner.h"
    header.write_text('#include "inner.h"\n')
    for term in (5, 6):
        inner.write_text(f"#define TERM {term}\n")
        assert run(SOURCE.replace("#include OTHER", ""), f"-I{tmp_path}")[0] == term


def test_a_source_whose_included_files_are_unknown_is_not_kept(run, cache, tmp_path):
    (tmp_path / "term.h").write_text("#define TERM 5\n")
    assert run(SOURCE, f"-I{tmp_path}")[0] == 5
    assert len(programs(cache)) == 1, "only the SPIR-V module"
    (tmp_path / "other.h").write_text("")
    flag = "-DOTHER=<other.h>"
    assert run(SOURCE, f"-I{tmp_path}", flag)[0] == 5


def test_a_changed_included_file_counts_within_a_process(tmp_path):
    for term in (5, 6):
        (tmp_path / "term.h").write_text(f"#define TERM {term}\n")
        x = usmq.zeros(2, "i4")
        usmq.Kernel.from_opencl(SOURCE, "add", options=[f"-I {tmp_path}"])(2, x)
        assert x.tolist() == [term] * 2


def test_the_switch_and_the_limit_of_the_runtime_apply(run, cache):
    assert run(SYCL_CACHE_PERSISTENT="0") == [7, 1]
    assert programs(cache) == {}
    assert run(SYCL_CACHE_MAX_SIZE="100") == [7, 1]
    assert programs(cache) == {}
    run()
    largest = max(path.stat().st_size for path in programs(cache))
    assert len(programs(cache)) == 2
    run(PLAIN + " ", SYCL_CACHE_MAX_SIZE=str(largest + 100))
    assert sum(path.stat().st_size for path in programs(cache)) <= largest + 100


def test_a_cache_that_cannot_be_written_is_ignored(run, cache, tmp_path):
    cache.mkdir(mode=0o700)
    (cache / "usmq-programs").write_text("a file in place of the folder")
    assert run() == [7, 1]
    missing = tmp_path / "file"
    missing.write_text("")
    assert run(SYCL_CACHE_DIR=str(missing / "below")) == [7, 1]


def test_a_folder_that_others_may_write_to_is_not_used(run, cache):
    cache.mkdir(mode=0o700)
    cache.chmod(0o777)
    assert run(warns="others may write") == [7, 1]
    assert not list(cache.iterdir())


def make_large(path):
    path.touch()
    os.truncate(path, 3 << 30)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), make_large])
def test_a_cache_file_that_is_no_file_of_usmq_is_ignored(run, cache, make):
    program = PROGRAM + (
        "\nk = usmq.Kernel.from_sycl('#include <usmq/kernel.h>\\n"
        "USMQ_KERNEL(1) void f(int *x) { x[0] = 9; }', 'f')\nk(1, x)\nprint(x.tolist()[0])"
    )
    assert run(program=program) == [7, 1, 9]
    files = programs(cache)
    assert len(files) == 2
    for file in files:
        file.unlink()
        make(file)
    assert run(program=program) == [7, 1, 9]


def test_a_fifo_as_an_included_file_is_an_error_that_names_it(tmp_path):
    os.mkfifo(tmp_path / "term.h")
    for source in (SOURCE, "#include <usmq/kernel.h>\n" + SOURCE):
        make = usmq.Kernel.from_sycl if "usmq/" in source else usmq.Kernel.from_opencl
        with pytest.raises(usmq.KernelBuildError, match=r"term\.h: it is not a regular file"):
            make(source, "add", options=[f"-I{tmp_path}"])
