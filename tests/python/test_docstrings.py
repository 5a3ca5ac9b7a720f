"""Docstrings: every public name has one, and the examples give the shown output.

Python's own text for a special member says nothing of the class ("Call self as a function."), and
an extension cannot replace it. So the class says it, and no page shows the member.
"""

import doctest
import inspect
import re
from pathlib import Path
from types import WrapperDescriptorType

import pytest
import usmq


def members(cls):
    for name in sorted(vars(cls)):
        if not name.startswith("_"):
            yield f"{cls.__name__}.{name}", getattr(cls, name)


def public():
    yield "usmq", usmq
    for name in sorted(usmq.__all__):
        value = getattr(usmq, name)
        if inspect.ismodule(value) or name.startswith("__"):
            continue
        yield name, value
        if inspect.isclass(value):
            yield from members(value)


PUBLIC = dict(public())
# Modules, classes and functions, but not plain values such as constants.
DOCUMENTED = {
    name: value
    for name, value in PUBLIC.items()
    if callable(value)
    or inspect.ismodule(value)
    or inspect.isdatadescriptor(value)
    or isinstance(value, (classmethod, staticmethod, property))
}
EXAMPLES = {
    name: test
    for name, value in PUBLIC.items()
    if (doc := inspect.getdoc(value))
    and (test := doctest.DocTestParser().get_doctest(doc, {"usmq": usmq}, name, name, 0)).examples
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_the_public_name_has_a_docstring(name):
    doc = inspect.getdoc(DOCUMENTED[name])
    assert doc, f"{name} has no docstring"
    opening = doc.partition("\n\n")[0].rstrip()
    assert opening.endswith((".", ":")), f"it does not start with a sentence: {opening}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_give_the_shown_output(name):
    report = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    failed = runner.run(EXAMPLES[name], out=report.append).failed
    assert failed == 0, "".join(report)


# How the use of a special member is written in the docstring of its class.
USES = {
    "__call__": r"``\w+\([^`]+\)``",
    "__getitem__": r"``\w+\[[^`]+\]``",
    "__setitem__": r"``\w+\[[^`]+\] = \w+``",
    "__len__": r"``len\(\w+\)``",
    "__iter__": r"``for \w+ in \w+``",
    "__contains__": r"``\S+ in \w+``",
}
USED = [
    f"{name}.{member}"
    for name, cls in PUBLIC.items()
    if inspect.isclass(cls)
    for member in USES.keys() & vars(cls).keys()
    if isinstance(vars(cls)[member], WrapperDescriptorType)
]


@pytest.mark.parametrize("name", sorted(USED))
def test_the_class_documents_its_special_members(name):
    cls, _, member = name.partition(".")
    doc = inspect.getdoc(PUBLIC[cls]) or ""
    assert re.search(USES[member], doc), f"{cls} does not document {member}: {USES[member]}"


def test_no_page_shows_a_default_docstring_of_a_special_member():
    shown = []
    for page in sorted((Path(__file__).parents[2] / "docs" / "reference").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        shown += re.findall(r"autom\w+:: (\w+)\.(__\w+__)", text)
        for cls, options in re.findall(r"autoclass:: (\w+)\n((?: +:.*\n)*)", text):
            for members in re.findall(r":special-members:(.*)", options):
                shown += [(cls, member.strip()) for member in members.split(",")]
    assert ("Array", "__dlpack__") in shown
    default = [
        f"{cls}.{member}"
        for cls, member in shown
        if not member or isinstance(vars(getattr(usmq, cls))[member], WrapperDescriptorType)
    ]
    assert not default, f"document these with their classes: {default}"


# The entry points; the other classes are their results.
ENTRIES = [name for name in sorted(usmq.__all__) if inspect.isroutine(getattr(usmq, name))]
ENTRIES += ["Array", "DType", "Device", "Kernel", "Queue", "QueueManager"]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_entry_or_one_of_its_methods_has_an_example(name):
    assert any(key == name or key.startswith(f"{name}.") for key in EXAMPLES)


def test_the_package_docstring_starts_with_an_example():
    assert "usmq" in EXAMPLES
