"""A process whose current folder was deleted gets an error, not a crash of the runtime's loader."""

import pytest

DELETED = """
import os, tempfile
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
"""


@pytest.mark.parametrize(
    "use",
    [
        "usmq.devices()",
        "usmq.zeros(2)",
        "usmq.Device('cpu')",
        "usmq.current_queue()",
        "usmq.layers()",
    ],
)
@pytest.mark.parametrize("order", ["{deleted}import usmq\n", "import usmq\n{deleted}"])
def test_the_first_query_is_an_error_that_names_it(run_python, use, order):
    run_python(
        order.format(deleted=DELETED)
        + f"""
try:
    {use}
except usmq.RuntimeNotFoundError as error:
    assert "current folder" in str(error) and "os.chdir" in str(error), error
else:
    raise SystemExit("no error")
os.chdir("/")
assert usmq.zeros(2).tolist() == [0, 0], "it works in an existing folder"
"""
    )


def test_work_goes_on_in_a_folder_that_is_deleted_later(run_python):
    run_python(
        """
import usmq
twice = usmq.elementwise("float *x", "x[i] *= 2")
x = usmq.asarray([1.0, 2.0], "f4")
twice(x)
"""
        + DELETED
        + """
twice(x)
y = usmq.concatenate([x, usmq.ones(1, "f4")])
assert y.tolist() == [4, 8, 1]
"""
    )


def test_a_build_that_needs_the_folder_names_it(run_python):
    run_python(
        "import usmq\nassert usmq.devices()\n"
        + DELETED
        + """
SOURCE = '''#include <usmq/kernel.h>
USMQ_KERNEL(1) void twice(float *x) { x[global_id(0)] *= 2; }'''
try:
    usmq.Kernel.from_sycl(SOURCE, "twice")
except usmq.KernelBuildError as error:
    assert "current folder" in str(error) and "os.chdir" in str(error), error
os.chdir("/")
x = usmq.asarray([1.0, 2.0], "f4")
usmq.Kernel.from_sycl(SOURCE, "twice")(2, x)
assert x.tolist() == [2, 4]
""",
        SYCL_CACHE_PERSISTENT="0",
    )


@pytest.mark.parametrize("state", ["renamed", "unreadable", "replaced"])
def test_other_states_of_the_folder_are_no_error(run_python, tmp_path, state):
    folder = tmp_path / "here"
    folder.mkdir()
    here = repr(str(folder))
    rename = f"os.rename({here}, {str(tmp_path / 'there')!r})"
    change = {
        "renamed": rename,
        "unreadable": f"os.chmod({here}, 0)",
        "replaced": f"{rename}; os.mkdir({here})",
    }[state]
    use = "import usmq\nassert usmq.zeros(2).tolist() == [0, 0]"
    run_python(f"import os\n{change}\n{use}", cwd=folder)
