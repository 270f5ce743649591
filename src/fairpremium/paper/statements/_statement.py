"""What a statement is: a sentence, where it stands, and the cases that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fairpremium.paper.statements._verdict import Case, combine

Cases = Iterator[Case]


class Statement(NamedTuple):
    """A statement about an experiment.

    Parameters
    ----------
    name : str
    source : str
        Where the statement stands: a section of the paper, or "ours" for what we add.
    text : str
    criterion : str
        The number that must be positive (or within a margin), with its unit.
    cases : function of the experiment's measures
    experiment : str
        The experiment whose tables decide.
    """

    name: str
    source: str
    text: str
    criterion: str
    cases: Callable[[Any], Cases]
    experiment: str = ""

    @property
    def id(self) -> str:
        """Its name, with that of the experiment."""
        return f"{self.experiment}/{self.name}"

    def judge(self, measures: Any) -> dict[str, Any]:
        """Measure the statement: all cases and the verdict."""
        cases = [case.judge() for case in self.cases(measures)]
        # the appendix says "similar patterns" of the auto data
        like = "appendix, like " if self.experiment == "auto" and self.source != "ours" else ""
        return {
            "id": self.id,
            "source": like + self.source,
            "statement": self.text,
            "criterion": self.criterion,
            "verdict": combine([case["verdict"] for case in cases]),
            "cases": cases,
        }


def state(statements: list[Statement], source: str, criterion: str, name: str = "") -> Callable[..., Any]:
    """Add a statement to a list: the decorated function yields its cases, its docstring is the sentence."""

    def add(cases: Callable[[Any], Cases]) -> Callable[[Any], Cases]:
        sentence = " ".join((cases.__doc__ or "").split())
        statements.append(Statement(name or cases.__name__.replace("_", "-"), source, sentence, criterion, cases))
        return cases

    return add
