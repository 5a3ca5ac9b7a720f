"""Files that another user of the machine may have prepared: kernel caches, lock folders, links."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doctor_environment import Checked

Run = Callable[..., subprocess.CompletedProcess[str]]

# The kernel has a unique name, so that no other test has cached it.
BUILD = '''
import os, sys
import usmq
SOURCE = """
#include <sycl/sycl.hpp>
namespace syclexp = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXTERNAL SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) void
nine(int *x) { x[0] = 9; }
"""
x = usmq.zeros(1, "i4")
usmq.Kernel.from_sycl(SOURCE, "nine")(1, x)
print(x.to_numpy()[0])
'''


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def unset(**more: str | None) -> dict[str, str | None]:
    return {"SYCL_CACHE_PERSISTENT": None, "SYCL_CACHE_DIR": None, "XDG_CACHE_HOME": None} | more


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("variable", ["SYCL_CACHE_DIR", "XDG_CACHE_HOME"])
def test_the_kernel_cache_folder_is_created_for_its_owner_only(
    run_python: Run, tmp_path: Path, variable: str
) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "usmq"
    where = folder if variable == "SYCL_CACHE_DIR" else tmp_path
    done = run_python(BUILD, **unset(**{variable: str(where)}))
    assert (done.stdout, done.stderr) == ("9\n", "")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert files(folder), "no kernel was cached"
    # A folder of an older usmq.
    folder.chmod(0o755)
    run_python(BUILD, **unset(XDG_CACHE_HOME=str(tmp_path)))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# The variable that names a folder, the folder, and other variables.
WAYS: dict[str, tuple[str, str, dict[str, str]]] = {
    "our own folder, open": ("XDG_CACHE_HOME", ".", {}),
    "named by the user": ("SYCL_CACHE_DIR", "usmq", {}),
    "asked for by the user": ("SYCL_CACHE_DIR", "usmq", {"SYCL_CACHE_PERSISTENT": "1"}),
    "through a link": ("SYCL_CACHE_DIR", "link", {}),
    "below an open one": ("SYCL_CACHE_DIR", "usmq/deeper", {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_writable_by_others_is_not_used(run_python: Run, tmp_path: Path, way: str) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "usmq"
    folder.mkdir()
    folder.chmod(0o777)
    (tmp_path / "link").symlink_to(folder)
    variable, name, more = WAYS[way]
    done = run_python(BUILD, **unset(**{variable: str(tmp_path / name)}, **more))
    assert done.stdout == "9\n"
    assert files(folder) == []
    # It may contain files of others, so it stays as it is.
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    (line,) = done.stderr.splitlines()
    assert line.startswith("usmq: kernels are not kept in ")
    assert f"others may write to {folder}" in line
    assert "chmod 700" in line


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder that belongs to others")
def test_a_folder_of_another_user_is_not_used(run_python: Run, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = tmp_path / "usmq"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    done = run_python(BUILD, **unset(XDG_CACHE_HOME=str(tmp_path)))
    assert done.stdout == "9\n"
    assert files(folder) == []
    assert "belongs to another user" in done.stderr


def test_the_doctor_reports_the_folder(doctor: Callable[..., Checked], tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    found = doctor(SYCL_CACHE_PERSISTENT="1", SYCL_CACHE_DIR=str(folder))
    fix = found.problem(f"others may write to {folder}", topic="settings")
    found.applied(fix, broken=False)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


# --- the locks of dask workers, in a folder that another user may have created


@pytest.fixture
def claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Callable[[], object]]:
    pytest.importorskip("distributed")
    from usmq.dask._device_lock import DeviceLock

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"usmq-{os.getuid()}", lambda: DeviceLock("a device", "a worker")


def test_a_device_lock_is_kept_in_a_folder_of_its_owner(
    claims: tuple[Path, Callable[[], object]],
) -> None:
    folder, claim = claims
    before = os.umask(0)
    first = claim()
    os.umask(before)
    assert (first.holder, first.fault) == (None, None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "a worker" in claim().holder
    first.release()
    again = claim()
    assert again.holder is None
    again.release()


def test_a_symbolic_link_in_place_of_the_lock_is_not_followed(
    claims: tuple[Path, Callable[[], object]], tmp_path: Path
) -> None:
    folder, claim = claims
    claim().release()
    (file,) = folder.iterdir()
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    file.unlink()
    file.symlink_to(precious)
    refused = claim()
    assert refused.fault
    assert refused.holder is None
    assert precious.read_text() == "do not touch"


@pytest.mark.parametrize("trap", ["a link", "open to others", "a file", "another user's"])
def test_a_folder_created_by_another_user_is_not_used(
    claims: tuple[Path, Callable[[], object]], tmp_path: Path, trap: str
) -> None:
    folder, claim = claims
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    if trap == "a link":
        folder.symlink_to(target)
    elif trap == "a file":
        folder.write_text("")
    else:
        folder.mkdir(mode=0o700)
        if trap == "open to others":
            folder.chmod(0o777)
        elif os.getuid() == 0:
            os.chown(folder, 12345, 12345)
        else:
            pytest.skip("only root can create a folder of another owner")
    refused = claim()
    assert refused.fault
    assert refused.holder is None
    assert list(target.iterdir()) == []


def test_a_worker_without_a_device_lock_runs_and_reports_the_reason(
    claims: tuple[Path, Callable[[], object]], caplog: pytest.LogCaptureFixture
) -> None:
    import distributed
    from usmq.dask import QueuePlugin

    folder, _ = claims
    folder.mkdir()
    folder.chmod(0o777)
    with (
        caplog.at_level(logging.WARNING, "usmq.dask"),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.register_plugin(QueuePlugin())
    assert "could not check whether another worker uses this device" in caplog.text
