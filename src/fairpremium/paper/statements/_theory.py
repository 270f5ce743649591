"""Statements of the lemma and the theorems, and how they are measured in simulation."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from fairpremium.paper._theory import DELTA, GROUPS, ROWS, THEORY_KEEPS
from fairpremium.paper.statements._statement import Case, Cases, Statement, state

DIFFERENCE = "difference in per cent of the risk, margin 1 %"
LOOSE = "1 - log10(bound / 95 % quantile of the excess risk), n = 2,000"
LEAST = "in percentage points, the least over n = 2,000 to 128,000"
THEORY: list[Statement] = []
_state = partial(state, THEORY)


def _quantity(table: pd.DataFrame, quantity: str, K: int, keep: float) -> pd.Series:
    rows = table[(table["quantity"] == quantity) & (table["groups"] == K) & (table["keep"] == keep)]
    return rows.set_index(["n", "seed"])["value"]


def _lemma(table: pd.DataFrame, form: str) -> Cases:
    for K in GROUPS:
        yield Case(f"K = {K}", 100 * _quantity(table, f"lemma, {form}", K, 0.7).to_numpy(), 1.0)


@_state("Lemma 4.2", DIFFERENCE)
def lemma_corrected(table: pd.DataFrame) -> Cases:
    """The corrected risk equals the risk with the true attribute (inverse as corrected)."""
    return _lemma(table, "corrected")


@_state("Lemma 4.2", DIFFERENCE)
def lemma_printed(table: pd.DataFrame) -> Cases:
    """The same with the inverse as printed."""
    return _lemma(table, "printed")


def _within(table: pd.DataFrame, theorem: str, promised: float) -> Cases:
    for K, keep in product(GROUPS, THEORY_KEEPS):
        least = _quantity(table, f"{theorem}, within", K, keep).groupby("seed").min()
        yield Case(f"K = {K}, keep {keep}", 100 * (least.to_numpy() - promised))


@_state("Theorem 4.3", f"share of samples within the bound minus 95 %, {LEAST}", "bound-4.3")
def bound_known(table: pd.DataFrame) -> Cases:
    """The bound holds in simulation (delta = 0.05)."""
    return _within(table, "4.3", 1 - DELTA)


@_state("Theorem 4.6", f"share of samples within the bound minus 85 %, {LEAST}", "bound-4.6")
def bound_estimated(table: pd.DataFrame) -> Cases:
    """The bound holds in simulation, with an anchor, n1 = 4 and eps~ as large as the error of C1 is."""
    return _within(table, "4.6", 1 - 3 * DELTA)


def _sharp(table: pd.DataFrame, theorem: str) -> Cases:
    for K, keep in product(GROUPS, THEORY_KEEPS):
        found = (_quantity(table, f"{theorem}, {what}", K, keep).loc[ROWS[0]] for what in ("bound", "excess"))
        bound, excess = (values.to_numpy() for values in found)
        with np.errstate(divide="ignore"):
            yield Case(f"K = {K}, keep {keep}", 1 - np.log10(bound / excess))


@_state("ours", f"{LOOSE}: -0.5 means loose by a factor of 32", "sharp-4.3")
def sharp_known(table: pd.DataFrame) -> Cases:
    """The bound of Theorem 4.3 is sharp within a factor of ten."""
    return _sharp(table, "4.3")


@_state("ours", LOOSE, "sharp-4.6")
def sharp_estimated(table: pd.DataFrame) -> Cases:
    """The bound of Theorem 4.6 is sharp within a factor of ten."""
    return _sharp(table, "4.6")
