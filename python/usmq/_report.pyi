"""Types of the doctor's report in usmq._core; a stub without a module of this name."""

from collections.abc import Callable
from typing import Literal, TypeAlias, TypedDict, final

class _FindingDict(TypedDict):
    topic: str
    state: Literal["ok", "note", "problem"]
    what: str
    fix: str | None

class _ReportDict(TypedDict):
    ok: bool
    devices: int
    verdict: str
    findings: list[_FindingDict]

@final
class DoctorFinding:
    @property
    def topic(self) -> str: ...
    @property
    def state(self) -> Literal["ok", "note", "problem"]: ...
    @property
    def what(self) -> str: ...
    @property
    def fix(self) -> str | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class DoctorReport:
    @property
    def findings(self) -> list[DoctorFinding]: ...
    @property
    def ok(self) -> bool: ...
    @property
    def devices(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    def to_dict(self) -> _ReportDict: ...
    def _repr_html_(self) -> str: ...

_Fact: TypeAlias = tuple[str, str, str | None]

def examine(timeout: float, packages: Callable[[float], list[_Fact]], /) -> DoctorReport: ...
