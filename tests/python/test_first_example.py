"""README's first example runs after the commands above it, which install usmq and nothing else.

`tests/environments.py` runs it where that is so; here the packages of the tests are hidden.
"""

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import doc_blocks
from conftest import ENVIRONMENT

README = Path(__file__).parents[2] / "README.md"

# Only the standard library, usmq and its required packages can be imported.
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def hidden():
    """Every module of this environment that a plain installation of usmq does not bring."""
    required = {
        line.split(">")[0].split("<")[0] for line in requires("usmq") or [] if ";" not in line
    }
    brought = required | {"usmq"}
    found = packages_distributions().items()
    return {name for name, owners in found if not brought & set(owners)}


def test_the_first_example_runs_after_the_commands_above_it(tmp_path):
    names = hidden()
    assert {"numpy", "pyarrow", "pytest"} <= names
    assert "usmq" not in names
    example = doc_blocks.first_example(README)
    assert "pip install ." in example.commands
    for name, content in example.files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"HIDDEN = {names!r}\n{HIDE}\n{example.code}"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == example.output


def test_the_extras_of_the_project_are_listed():
    text = README.read_text(encoding="utf-8")
    for extra in ("demo", "dask", "test"):
        assert f"| `{extra}` |" in text
