"""Prices against age by risk class: the truth as a broad line, the estimates on top of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.paper._setup import MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._synthetic import FREE, UNAWARE, class_name
from fairpremium.paper.figures._style import (
    COLOURS,
    axis,
    colour_scale,
    end_labels,
    finish,
    heading,
    import_altair,
    label,
)

_CLASSES = [("F", True), ("F", False), ("M", True), ("M", False)]
_METHODS = [NAIVE, PAPER, OURS, MPTP]
_WIDTH, _HEIGHT, _BIG = 205, 200, (330, 300)
_TRUTH = "#bbbbbb"


def draw_prices(table: pd.DataFrame, *, title: str) -> Any:
    """Draw best estimates: a row for each keep (as told), a column for each risk class."""
    alt = import_altair()
    told = table[table["method"] == PAPER][["keep", "assumed"]].drop_duplicates()
    rows: list[Any] = []
    for keep, assumed in told.itertuples(index=False):
        here = (table["keep"] == keep) & ((table["assumed"] == assumed) | (table["method"] == NAIVE))
        shown = table[here | (table["method"] == MPTP)]
        name = f"keep {keep}" if keep == assumed else f"told {assumed}"
        panels = [
            _panel(alt, shown[(shown["group"] == group) & (shown["smoker"] == smoker)],
                   class_name(group, smoker) if not rows else "", name if i == 0 else None,
                   last=len(rows) == len(told) - 1)
            for i, (group, smoker) in enumerate(_CLASSES)
        ]  # fmt: skip
        rows.append(alt.hconcat(*panels, spacing=22))
    subtitle = [
        f"Broad grey: the truth. Lines: mean of {int(table['seeds'].max())} portfolios; bands: 80 % of them.",
        "Numbers: root mean square error. All are nets with three hidden layers of five neurons.",
    ]
    return finish(alt.vconcat(*rows, spacing=18), title, subtitle)


def _panel(alt: Any, data: pd.DataFrame, title: str, row: str | None, *, last: bool) -> Any:
    x, y = _axes(f"{row}: cost" if row else None, [50, 800], last=last)
    truth = alt.Chart(data[data["method"] == MPTP]).mark_line(strokeWidth=7, color=_TRUTH).encode(x=x, y=y("truth"))
    colour = alt.Color("method:N", scale=colour_scale(alt, _METHODS), legend=None)
    banded = alt.Chart(data[data["method"].isin([PAPER, OURS])])
    layers = [
        truth,
        banded.mark_area(opacity=0.18, clip=True).encode(x=x, y=y("low"), y2="high:Q", color=colour),
        alt.Chart(data).mark_line(strokeWidth=2, clip=True).encode(x=x, y=y("mean"), color=colour),
        *_errors(alt, data),
    ]
    panel = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)
    return panel.properties(title=heading(title)) if title else panel


def _errors(alt: Any, data: pd.DataFrame) -> list[Any]:
    """Write the error of every method into the corner that no price reaches, in the method's colour."""
    found = []
    for i, method in enumerate(_METHODS):
        error = float(np.sqrt((data.loc[data["method"] == method, "error"] ** 2).mean()))
        y = _HEIGHT - 4 - 18 * (len(_METHODS) - 1 - i)
        found.append(
            label(alt, f"{method} {error:.0f}", _WIDTH - 2, y, COLOURS[method], align="right", baseline="bottom")
        )
    return found


def draw_indirect(table: pd.DataFrame) -> Any:
    """Draw the unaware and the discrimination-free price of smokers and of non-smokers."""
    alt = import_altair()
    width, height = _BIG
    seeds = int(table["seeds"].max())
    panels = []
    for smoker in (True, False):
        shown = table[table["smoker"] == smoker]
        lines = shown[(shown["price"] == FREE) | (shown["method"] == MPTP)]
        lines = lines.assign(kind=lines["method"].where(lines["price"] == FREE, UNAWARE))
        kinds = [UNAWARE, MPTP, PAPER, OURS, NAIVE]
        colours = {**COLOURS, UNAWARE: "#cc79a7"}
        domain = [150, 650]
        x, y = _axes("price" if smoker else None, domain)
        colour = alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=[colours[k] for k in kinds]), legend=None)
        layers = [
            alt.Chart(lines[lines["method"] == MPTP])
            .mark_line(strokeWidth=7, color=_TRUTH)
            .encode(x=x, y=y("truth"), detail="price:N"),
            alt.Chart(lines).mark_line(strokeWidth=2.2, clip=True).encode(x=x, y=y("mean"), color=colour),
        ]
        ends = lines[lines["age"] == lines["age"].max()].set_index("kind")["mean"]
        labels = [(f"{k} {ends[k]:.0f}", ends[k], colours[k]) for k in kinds]
        layers += end_labels(alt, labels, domain, width, height)
        title = heading("smokers (80 % women)" if smoker else "non-smokers (30 % women)")
        panels.append(alt.layer(*layers).properties(width=width, height=height, title=title))
    subtitle = [
        "Unaware (pink) charges smokers for being mostly women. The others are discrimination-free prices: with",
        f"the true D, and from reports with keep 0.8. Broad grey: both true prices. Mean of {seeds} portfolios.",
    ]
    return finish(alt.hconcat(*panels, spacing=24), "Leaving the attribute out is not enough", subtitle)


def _axes(title: str | None, domain: list[int], *, last: bool = True) -> tuple[Any, Callable[[str], Any]]:
    """Return the axis of ages, and the function that makes the axis of a price."""
    x = axis("X", "age", (18, 80), title="age" if last else None, values=[20, 40, 60, 80])
    return x, lambda field: axis("Y", field, domain, title=title, tickCount=4, minExtent=40)
