"""Statements of the lemma and the theorems, and how they are measured in simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fairpremium.paper._claim import Cases, Row
from fairpremium.paper._theory import DELTA, GROUPS, ROWS, THEORY_KEEPS
from fairpremium.paper._verdict import Case


def _quantity(table: pd.DataFrame, quantity: str, K: int, keep: float, n: int | None = None) -> pd.Series:
    rows = table[(table["quantity"] == quantity) & (table["groups"] == K) & (table["keep"] == keep)]
    if n is not None:
        rows = rows[rows["n"] == n]
    return rows.set_index(["n", "seed"])["value"]


def _lemma(form: str) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            yield Case(f"K = {K}", 100 * _quantity(table, f"lemma, {form}", K, 0.7).to_numpy(), 1.0)

    return cases


def _within(theorem: str, promised: float) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            for keep in THEORY_KEEPS:
                least = _quantity(table, f"{theorem}, within", K, keep).groupby("seed").min()
                yield Case(f"K = {K}, keep {keep}", 100 * (least.to_numpy() - promised))

    return cases


def _sharp(theorem: str) -> Callable[[pd.DataFrame], Cases]:
    def cases(table: pd.DataFrame) -> Cases:
        for K in GROUPS:
            for keep in THEORY_KEEPS:
                bound, excess = (
                    _quantity(table, f"{theorem}, {what}", K, keep, ROWS[0]).to_numpy() for what in ("bound", "excess")
                )
                with np.errstate(divide="ignore"):
                    yield Case(f"K = {K}, keep {keep}", 1 - np.log10(bound / excess))

    return cases


THEORY = [
    Row(
        "lemma-corrected",
        "Lemma 4.2",
        "The corrected risk equals the risk with the true attribute (inverse as corrected).",
        "difference in per cent of the risk, margin 1 %",
        _lemma("corrected"),
    ),
    Row(
        "lemma-printed",
        "Lemma 4.2",
        "The same with the inverse as printed.",
        "difference in per cent of the risk, margin 1 %",
        _lemma("printed"),
    ),
    Row(
        "bound-4.3",
        "Theorem 4.3",
        "The bound holds in simulation (delta = 0.05).",
        "share of samples within the bound minus 95 %, in percentage points, the least over n = 2,000 to 128,000",
        _within("4.3", 1 - DELTA),
    ),
    Row(
        "bound-4.6",
        "Theorem 4.6",
        "The bound holds in simulation, with an anchor, n1 = 4 and eps~ as large as the error of C1 is.",
        "share of samples within the bound minus 85 %, in percentage points, the least over n = 2,000 to 128,000",
        _within("4.6", 1 - 3 * DELTA),
    ),
    Row(
        "sharp-4.3",
        "ours",
        "The bound of Theorem 4.3 is sharp within a factor of ten.",
        "1 - log10(bound / 95 % quantile of the excess risk), n = 2,000: -0.5 means loose by a factor of 32",
        _sharp("4.3"),
    ),
    Row(
        "sharp-4.6",
        "ours",
        "The bound of Theorem 4.6 is sharp within a factor of ten.",
        "1 - log10(bound / 95 % quantile of the excess risk), n = 2,000",
        _sharp("4.6"),
    ),
]
