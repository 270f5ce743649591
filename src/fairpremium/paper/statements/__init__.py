"""Every empirical statement of the paper, judged by the tables of the experiments."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from fairpremium.paper.statements._errata import judge_errata
from fairpremium.paper.statements._measures import Real, Synthetic
from fairpremium.paper.statements._page import statements_page
from fairpremium.paper.statements._real import REAL
from fairpremium.paper.statements._synthetic import SYNTHETIC
from fairpremium.paper.statements._theory import THEORY

__all__ = ["STATEMENTS", "judge_errata", "judge_statements", "statements_page"]

STATEMENTS = [
    statement._replace(experiment=experiment)
    for experiment, statements in (("synthetic", SYNTHETIC), ("health", REAL), ("auto", REAL), ("theory", THEORY))
    for statement in statements
]
_MEASURES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "synthetic": Synthetic,
    "health": Real,
    "auto": Real,
    "theory": lambda table: table,
}


def judge_statements(tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Judge every statement whose experiment has tables, and the errata, which need none."""
    measures = {experiment: _MEASURES[experiment](table) for experiment, table in tables.items()}
    judged = [s.judge(measures[s.experiment]) for s in STATEMENTS if s.experiment in measures]
    return judged + judge_errata()
