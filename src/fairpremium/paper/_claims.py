"""Every empirical statement of the paper as data, judged by the tables of the studies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from fairpremium.paper._claim import Claim
from fairpremium.paper._claims_real import REAL
from fairpremium.paper._claims_synthetic import SYNTHETIC
from fairpremium.paper._claims_theory import THEORY
from fairpremium.paper._errata import compute_errata
from fairpremium.paper._measures import Real, Synthetic
from fairpremium.paper._verdict import FAILS, HOLDS

CLAIMS = [
    Claim(study, row)
    for study, rows in (("synthetic", SYNTHETIC), ("health", REAL), ("auto", REAL), ("theory", THEORY))
    for row in rows
]
_MEASURES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "synthetic": Synthetic,
    "health": Real,
    "auto": Real,
    "theory": lambda table: table,
}


def judge_claims(tables: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Judge every claim whose study has tables, and the errata, which need none."""
    measures = {study: _MEASURES[study](table) for study, table in tables.items()}
    return [claim.judge(measures[claim.study]) for claim in CLAIMS if claim.study in measures] + judge_errata()


def judge_errata() -> list[dict[str, Any]]:
    """Return the errata in the form of claims: the statement is what is printed."""
    return [
        {
            "id": f"errata/{e.id}",
            "source": e.place,
            "statement": e.printed,
            "criterion": e.criterion,
            "verdict": HOLDS if e.holds else FAILS,
            "measured": e.measured,
            "right": e.right,
            "cases": [],
        }
        for e in compute_errata()
    ]
