"""The workflows parse; their targets and files exist; actionlint checks the rest, in test.yml."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))


def parsed(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    workflow["on"] = workflow.pop(True)
    return workflow


def steps(path):
    return [step for job in parsed(path)["jobs"].values() for step in job["steps"]]


def commands(path):
    return "\n".join(step.get("run", "") for step in steps(path))


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def path(request):
    found = request.param
    return found


def test_each_build_and_publish_step_has_a_workflow():
    assert {path.stem for path in WORKFLOWS} >= {"test", "icpx", "wheels", "docs"}


def test_a_workflow_requests_minimal_permissions(path):
    workflow = parsed(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"].startswith(path.stem)
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 90, name
        assert set(job) & {"runs-on"}, name


def test_actions_are_pinned_to_a_major_version(path):
    for step in steps(path):
        if "uses" in step:
            held = r"[\w-]+/[\w-]+@v\d+|dtolnay/rust-toolchain@stable|docker://[\w./-]+:\d+[\d.]*"
            assert re.fullmatch(held, step["uses"]), step["uses"]


def test_make_targets_exist(path):
    for line in re.findall(r"(?:^|\s|&& )make ([^|&\n]*)", commands(path)):
        targets = {word for word in line.split() if "=" not in word and not word.startswith("-")}
        assert targets
        assert targets <= TARGETS, line


def test_named_files_exist(path):
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./$-])((?:tests|examples|requirements|\.ci)/[\w./*-]+)", text))
    for name in named:
        assert list(ROOT.glob(name.rstrip("/"))), name


def test_the_tested_python_versions_match_the_wheel():
    [wheels] = [path for path in WORKFLOWS if path.stem == "wheels"]
    tried = parsed(wheels)["jobs"]["try"]["strategy"]["matrix"]["python"]
    text = (ROOT / "tests" / "wheel.py").read_text(encoding="utf-8")
    known = re.search(r"^TESTED = \((.*)\)$", text, re.MULTILINE)
    assert known
    assert all(f'"{version}"' in known[1] for version in tried)
    lowest = re.search(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text())
    assert lowest
    assert tried[0] == lowest[1]


def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / "tests" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["release"] = module
    spec.loader.exec_module(module)
    return module


def test_the_release_notes_come_from_the_changelog(capsys):
    tool = release()
    changes = tool.sections()
    assert "Unreleased" in changes
    for body in changes.values():
        kinds = re.findall(r"^### (.*)$", body, re.MULTILINE)
        assert set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    # Before a release the section is missing, and the error names it.
    missing = [problem for problem in tool.problems() if "CHANGELOG" not in problem]
    assert missing == ([] if tool.repository() else [tool.NO_ADDRESS])
    assert tool.main(["notes", "v99.0.0"]) == 1
    assert "99.0.0" in capsys.readouterr().err


def test_the_links_of_the_readme_become_absolute_in_a_release(tmp_path, monkeypatch, capsys):
    tool = release()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    relative = [found["path"] for found in tool.LINK.finditer(text)]
    assert "docs/building.md" in relative
    assert "docs/images/demo-timeline.svg" in relative
    for path in relative:
        assert (ROOT / path.partition("#")[0]).exists(), path

    monkeypatch.setattr(tool, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text(text, encoding="utf-8")
    package = '[package]\nname = "usmq"\nversion = "1.2.3"\n'
    (tmp_path / "Cargo.toml").write_text(package)
    assert tool.main(["readme"]) == 1
    assert "no `repository`" in capsys.readouterr().err
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == text

    (tmp_path / "Cargo.toml").write_text(f'{package}repository = "https://example.org/a/usmq.git"')
    assert tool.main(["readme"]) == 0
    done = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert not tool.LINK.findall(done)
    assert "](https://example.org/a/usmq/blob/v1.2.3/docs/building.md)" in done
    assert "](https://example.org/a/usmq/raw/v1.2.3/docs/images/demo-timeline.svg)" in done
    assert tool.absolute_links(done, "https://other", "v9") == done
    assert tool.absolute_links("```\n[a](b)\n```\n[c](#d)", "https://x", "v1").count("https") == 0


def test_the_wheel_of_a_release_has_the_absolute_links():
    [wheels] = [path for path in WORKFLOWS if path.stem == "wheels"]
    build = [step.get("run", "") for step in parsed(wheels)["jobs"]["build"]["steps"]]
    readme = [place for place, command in enumerate(build) if "tests/release.py readme" in command]
    made = [place for place, command in enumerate(build) if "make wheel" in command]
    assert len(readme) == len(made) == 1
    assert readme < made
