"""The steps that lead to a logical table, as text: printed before they run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One step: its text, the number of its tasks, and the steps before it."""

    text: str
    tasks: int
    npartitions: int
    inputs: tuple[Step, ...] = field(default=())

    def steps(self) -> Iterator[Step]:
        """Yield this step and all before it, each once."""
        yield from dict.fromkeys(self._walk())

    def _walk(self) -> Iterator[Step]:
        yield self
        for before in self.inputs:
            yield from before._walk()

    def lines(self, started: Iterable[Step]) -> list[str]:
        """Return a line for each step, the last step first and the steps before it indented."""
        done = set(started)
        return list(self._lines(0, done))

    def _lines(self, depth: int, done: set[Step]) -> Iterator[str]:
        state = "submitted" if self in done else "planned"
        yield (
            f"{'  ' * depth}{self.text}: {_count(self.tasks, 'task')}, "
            f"{_count(self.npartitions, 'partition')}, {state}"
        )
        for before in self.inputs:
            yield from before._lines(depth + 1, done)


def tree_tasks(parts: int, split: int) -> int:
    """Return the number of tasks that combine so many parts, at most `split` in each."""
    tasks = 0
    while parts > split:
        parts = -(-parts // split)
        tasks += parts
    return tasks + 1


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
