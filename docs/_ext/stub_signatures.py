"""Signatures of the reference, from the type stubs: the compiled module knows no types."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import usmq
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

STUBS = Path(__file__).parents[2] / "python" / "usmq"
# As users write them; the others lose their underscore and are explained in reference/index.md.
SPELLED = {
    "npt.NDArray[Any]": "numpy.ndarray",
    "np.dtype[Any]": "numpy.dtype",
    "npt.DTypeLike": "DTypeLike",
    "CapsuleType": "capsule",
    "builtins.": "",
}

Function = ast.FunctionDef


class Stubs:
    """What the stubs say, by the public name: ``asarray``, ``Array.reshape``, ``Array.shape``."""

    def __init__(self) -> None:
        self.functions: dict[str, list[Function]] = {}
        self.types: dict[str, str] = {}
        self.classes: set[str] = set()
        for file in sorted(STUBS.glob("*.pyi")):
            self._read(ast.parse(file.read_text(encoding="utf-8")).body, "")

    def _read(self, body: list[ast.stmt], prefix: str) -> None:
        for item in body:
            if isinstance(item, ast.ClassDef):
                self.classes.add(prefix + item.name)
                self._read(item.body, f"{prefix}{item.name}.")
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self.types[prefix + item.target.id] = spelled(item.annotation)
            elif isinstance(item, ast.FunctionDef):
                name = prefix + item.name
                if any(ast.unparse(mark) == "property" for mark in item.decorator_list):
                    self.types[name] = spelled(item.returns)
                else:
                    self.functions.setdefault(name, []).append(item)

    def signature(self, name: str) -> tuple[str, str | None] | None:
        """Return the arguments and the result of a function or, for a class, of its constructor."""
        if name in self.classes:
            made = self.functions.get(f"{name}.__new__")
            return (arguments(made[0], bound=True), None) if made else ("", None)
        found = self.functions.get(name)
        if not found:
            return None
        results = list(dict.fromkeys(spelled(one.returns) for one in found))
        is_static = any(ast.unparse(mark) == "staticmethod" for mark in found[0].decorator_list)
        return arguments(found[0], bound="." in name and not is_static), " | ".join(results)


def spelled(annotation: ast.expr | None) -> str:
    """Return an annotation without the stubs' own private names."""
    if annotation is None:
        return ""
    text = ast.unparse(annotation)
    for private, public in SPELLED.items():
        text = text.replace(private, public)
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    for name in names:
        if name.startswith("_"):
            text = text.replace(name, name.lstrip("_"))
    return text


def arguments(function: Function, *, bound: bool) -> str:
    """Return the arguments as Sphinx takes them, without self."""
    args = function.args
    for one in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]:
        if one is not None and one.annotation is not None:
            one.annotation = ast.parse(spelled(one.annotation), mode="eval").body
    if bound:
        (args.posonlyargs or args.args).pop(0)
    text = ast.unparse(args).replace("=...", "=()").removeprefix("/, ")
    return f"({'' if text == '/' else text})"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    stubs = Stubs()
    shown: dict[str, tuple[str, str | None] | None] = {}

    def signature(
        app: Sphinx, what: str, name: str, obj: Any, options: Any, args: str, result: str
    ) -> tuple[str, str | None] | None:
        short = name.removeprefix("usmq.")
        if short not in shown:
            shown[short] = stubs.signature(short)
        if what == "exception":
            return None
        if (
            short == "collocate"
        ):  # Its overloads differ in the result only, as far as a reader cares.
            return str(inspect.signature(obj)), "Array | tuple[Array, ...]"
        return shown[short]

    def docstring(
        app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
    ) -> None:
        kind = stubs.types.get(name.removeprefix("usmq."))
        if kind and lines and inspect.isdatadescriptor(obj):
            lines[0] = f"``{kind}``: {lines[0]}"

    def unlink(app: Sphinx, doctree: nodes.document) -> None:
        # Sphinx would lead from the type `bytes` to `Plan.bytes`, from `dtype` to `Array.dtype`.
        for link in list(doctree.findall(addnodes.pending_xref)):
            is_type = link.get("refdomain") == "py" and link.get("reftype") in ("class", "obj")
            if is_type and link["reftarget"].removeprefix("usmq.") not in usmq.__all__:
                link.replace_self(link.children)

    app.connect("autodoc-process-signature", signature)
    app.connect("doctree-read", unlink)
    app.connect("autodoc-process-docstring", docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
