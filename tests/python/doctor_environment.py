"""Environments broken on purpose, and what the doctor says in them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import usmq
from usmq._core import runtime_libraries

Run = Callable[..., subprocess.CompletedProcess[str]]

CLEAN = {
    name: None
    for name in os.environ
    if name.startswith(
        ("ONEAPI_DEVICE_", "SYCL_", "ZE_", "UR_", "OCL_ICD_", "USMQ_", "CUDA_VISIBLE")
    )
}
FOLDER = Path(runtime_libraries("libsycl.so")[0]).parent


@dataclass
class Checked:
    """What the command said and how it ended."""

    status: int
    text: str
    findings: list[dict[str, Any]]

    def problem(self, *words: str, topic: str | None = None) -> str:
        """Return the fix of the one problem that has these words."""
        hits = [
            finding
            for finding in self.findings
            if finding["state"] == "problem"
            and all(word in finding["what"] for word in words)
            and topic in (None, finding["topic"])
        ]
        assert len(hits) == 1, f"{words}: {self.text}"
        assert self.status == 1
        assert hits[0]["fix"], "a problem without a fix"
        return str(hits[0]["fix"])

    def devices(self) -> list[str]:
        return [
            finding["what"].split()[0]
            for finding in self.findings
            if finding["topic"] == "devices" and finding["state"] == "ok"
        ]


@pytest.fixture(scope="session")
def doctor(run_python: Run) -> Callable[..., Checked]:
    """Return a call of ``python -m usmq doctor`` with variables changed; no others are set."""

    def doctor(*arguments: str, **environment: str | None) -> Checked:
        command = ("-m", "usmq", "doctor", "--json", *arguments)
        done = run_python(None, *command, check=False, **(CLEAN | environment))
        assert "Traceback" not in done.stderr, done.stderr
        report = json.loads(done.stdout)
        assert report["ok"] == (done.returncode == 0)
        for finding in report["findings"]:
            assert finding["state"] in ("ok", "note", "problem")
            assert finding["what"].strip()
            assert (finding["state"] == "problem") <= bool(finding["fix"])
        return Checked(done.returncode, done.stdout, report["findings"])

    return doctor


@pytest.fixture(scope="session")
def cpu_driver() -> str:
    path = FOLDER / "libintelocl.so"
    if not path.exists():
        pytest.skip(f"no OpenCL driver for CPUs beside libsycl in {FOLDER}")
    return str(path)


@pytest.fixture
def runtime_copy(tmp_path: Path) -> Callable[..., Path]:
    """Return a call that makes another folder of the runtime, without some of its libraries."""

    def runtime_copy(*without: str) -> Path:
        folder = tmp_path / "farm" / "lib"
        if folder.exists():
            return folder
        folder.mkdir(parents=True)
        for library in FOLDER.glob("lib*.so*"):
            if library.name.startswith(without or "none"):
                continue
            if library.name.startswith(("libsycl.so", "libur_")):
                second_name(library.resolve(), folder / library.name)
            else:
                (folder / library.name).symlink_to(library.resolve())
        for other in (*FOLDER.glob("*.rtl"), *FOLDER.glob("*.o"), *FOLDER.glob("cl.cfg")):
            (folder / other.name).symlink_to(other.resolve())
        return folder

    return runtime_copy


@pytest.fixture
def installed(runtime_copy: Callable[..., Path]) -> Callable[..., dict[str, str | None]]:
    """Return a call that makes an environment with usmq, without some libraries, and its variables.

    The run path of the extension leads to the runtime there, as in an environment that pip made.
    """

    def installed(*without: str) -> dict[str, str | None]:
        site = runtime_copy(*without) / "python3" / "site-packages"
        if not site.exists():
            site.mkdir(parents=True)
            package = Path(usmq.__file__).parent
            shutil.copytree(package, site / "usmq", copy_function=second_name)
        return {"PYTHONPATH": str(site), "LD_LIBRARY_PATH": None}

    return installed


def second_name(source: str | Path, target: str | Path) -> None:
    """A link would be followed back to where the rest is."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[..., str]:
    """Return a call that makes a library of some C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")

    def compiled(name: str, source: str, *options: str) -> str:
        path = tmp_path / name
        headers = f"-I{FOLDER.parent / 'include'}"
        command = [compiler, "-shared", "-fPIC", headers, *options, "-x", "c", "-", "-o", str(path)]
        subprocess.run(command, input=source, text=True, check=True)
        return str(path)

    return compiled
