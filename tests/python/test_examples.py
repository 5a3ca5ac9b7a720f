"""The programs of examples/ run and print the expected output."""

import sys
from pathlib import Path

import usmq

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_axpy_runs_on_the_named_device_or_lists_the_visible_ones(run_python):
    done = run_python(None, str(EXAMPLES / "axpy.py"), "cpu")
    assert done.stdout.strip().endswith(": [1.0, 3.0, 5.0, 7.0, 9.0]")
    done = run_python(None, str(EXAMPLES / "axpy.py"), "accelerator:9", check=False)
    assert done.returncode == 1
    assert 'no device matches "accelerator:9"; visible devices: ' in done.stderr
    assert all((device.filter_string or "") in done.stderr for device in usmq.devices())


def test_tasks_combine_the_arrays_of_two_queues(run_python, sub_device):
    done = run_python(None, str(EXAMPLES / "tasks.py"))
    assert ("copy_direct" if sub_device.is_cpu else "copy_staged") in done.stdout
    assert done.stdout.endswith("3000.0\n")


def test_the_flights_on_dask_match_numpy(run_python, two_devices):
    done = run_python(None, str(EXAMPLES / "flights_dask.py"), "--workers", "2")
    assert "336,776 flights in 8 parts on 2 workers" in done.stdout
    assert "85 numbers agree with numpy's" in done.stdout


def test_two_gpus_are_emulated_if_there_are_none(run_python):
    script = str(EXAMPLES / "two_gpus.py")
    command = ("-m", "usmq", "emulate", "-n", "2", "--", sys.executable, script)
    opencl = {"USMQ_EMULATE_GPUS": None, "ONEAPI_DEVICE_SELECTOR": "opencl:*"}
    done = run_python(None, *command, **opencl)
    assert done.stderr == ""
    assert "copy_staged" in done.stdout
    assert done.stdout.endswith("opencl:gpu:1 [0.0, 2.0, 4.0, 6.0] [0.0, 10.0, 20.0, 30.0]\n")
    shown = (EXAMPLES / "two_gpus.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert shown in (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")


def test_every_python_example_is_run_here():
    here = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f'"{path.name}"' not in here] == []
