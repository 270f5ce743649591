"""What a claim is: a statement, where it stands, and the cases that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fairpremium.paper._verdict import Case, combine

Cases = Iterator[Case]


class Row(NamedTuple):
    """A statement before it is bound to a study.

    Parameters
    ----------
    name : str
    source : str
        Where the statement stands: a section of the paper, or "ours" for what we add.
    statement : str
    criterion : str
        The number that must be positive (or within a margin), with its unit.
    cases : function of the study's measures
    """

    name: str
    source: str
    statement: str
    criterion: str
    cases: Callable[[Any], Cases]


@dataclass(frozen=True)
class Claim:
    """A statement and the study whose tables decide."""

    study: str
    row: Row

    @property
    def id(self) -> str:
        """Return its name, with that of the study."""
        return f"{self.study}/{self.row.name}"

    @property
    def source(self) -> str:
        """Return where the statement stands; the appendix says "similar patterns" of the auto data."""
        source = self.row.source
        return f"appendix, like {source}" if self.study == "auto" and source != "ours" else source

    def judge(self, measures: Any) -> dict[str, Any]:
        """Measure the statement: all cases and the verdict."""
        cases = [case.judge() for case in self.row.cases(measures)]
        return {
            "id": self.id,
            "source": self.source,
            "statement": self.row.statement,
            "criterion": self.row.criterion,
            "verdict": combine([case["verdict"] for case in cases]),
            "cases": cases,
        }
