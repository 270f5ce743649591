"""Drawings of the spectrum: every ``plot_x`` takes the arguments of ``compute_x`` and draws its table."""

from typing import Any

import pandas as pd

from fairpremium.audit.drawing import import_altair, panel_title
from fairpremium.audit.tables import dots, estimates, name_of, plots, titled

from ._comparison import compute_spectrum
from ._multicalibration import compute_multicalibration
from ._parity_distance import compute_parity_distance

NAMES = {"best_estimate": "best estimate", "aware": "aware (h*)"}


@plots(compute_parity_distance, in_report=False)
def plot_parity_distance(table: pd.DataFrame, unit: str) -> Any:
    """Draw both distances of every pair of groups with their limits."""
    pairs = table[table["against"].notna()]
    lane = pairs["group"].map(name_of) + " against " + pairs["against"].map(name_of)
    return _side_by_side(
        {
            "Kolmogorov": _lanes(pairs, "kolmogorov", lane),
            "Wasserstein": _lanes(pairs, "wasserstein", lane),
        },
        ["largest difference of the shares", titled("mean distance of the prices", unit)],
    )


@plots(compute_spectrum, in_report=False)
def plot_spectrum(table: pd.DataFrame, unit: str) -> Any:
    """Draw what every price costs in accuracy beside its distance from parity."""
    lane = table["price"].map(lambda name: NAMES.get(name, name))
    return _side_by_side(
        {
            "Accuracy": _lanes(table, "excess", lane),
            "Distance between groups": _lanes(table, "kolmogorov", lane),
        },
        ["deviance above that of the best estimate", "Kolmogorov distance of the prices"],
    )


@plots(compute_multicalibration, in_report=False)
def plot_multicalibration(table: pd.DataFrame, unit: str) -> Any:
    """Draw loss minus premium in every bin and group with simultaneous limits, one panel per group."""
    found = estimates(table, "difference")
    lane = "bin " + table["bin"].astype(str)
    return dots(
        found.assign(lane=lane, kind=lane, risk_class=table["group"].map(name_of)),
        titled("mean loss minus mean premium", unit),
        reference=0.0,
    )


def _lanes(table: pd.DataFrame, name: str, lane: Any) -> pd.DataFrame:
    return estimates(table.assign(group=lane), name).reset_index(drop=True)


def _side_by_side(panels: dict[str, pd.DataFrame], titles: list[str]) -> Any:
    alt = import_altair()
    drawn = [
        dots(data, title, reference=0.0).properties(title=panel_title(name))
        for (name, data), title in zip(panels.items(), titles, strict=True)
    ]
    return alt.hconcat(*drawn, spacing=30)
