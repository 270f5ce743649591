"""The frontier of alternatives as a drawing."""

import math
from typing import Any

import pandas as pd

from fairpremium.audit.drawing import GREY, INK, apply_style, import_altair, panel_title
from fairpremium.audit.tables import by_kind, number_axis, top_legend

from ._search import CURRENT, Alternatives

_KINDS = {
    "current price": INK,
    "all features": "#0072b2",
    "a feature dropped": "#d55e00",
    "a feature coarsened": "#009e73",
}
_SHAPES = ["diamond", "circle", "square", "triangle-up"]
_TOOLTIP = ["candidate:N", "deviance:Q", "deviance_change:Q", "disparity:Q", "disparity_change:Q", "answer:N"]


def plot_alternatives(alternatives: Alternatives) -> Any:
    """Draw disparity against accuracy, both as changes from the current price, with limits and the frontier as a line.

    Limits are drawn for the candidates on the frontier; they hold for all candidates together.

    Parameters
    ----------
    alternatives : Alternatives
        What `search_alternatives` returned.

    Returns
    -------
    altair.Chart
    """
    alt = import_altair()
    table = alternatives.table.assign(kind=alternatives.table.apply(_kind, axis=1))
    far = table["deviance_change"] > _reach(table)
    table = table[~far]
    measure = alternatives.disparity.replace("_", " ")
    x = alt.X("deviance_change:Q", axis=alt.Axis(title="deviance on held-out rows, change", tickCount=5))
    y = alt.Y("disparity_change:Q", axis=number_axis(alt, f"{measure}, change", tickCount=5))
    kinds = [kind for kind in _KINDS if (table["kind"] == kind).any()]
    shapes = dict(zip(_KINDS, _SHAPES, strict=True))
    colour = by_kind(alt.Color, kinds, [_KINDS[kind] for kind in kinds], top_legend(alt))
    shape = by_kind(alt.Shape, kinds, [shapes[kind] for kind in kinds], top_legend(alt))
    front = table[table["frontier"] & (table["kind"] != CURRENT)].sort_values("deviance")
    front = front.assign(features=[alternatives.candidates[name].features.words for name in front["candidate"]])
    base = alt.Chart(table).encode(x=x, y=y, color=colour, shape=shape, tooltip=_TOOLTIP)
    rule = {"strokeWidth": 1.5, "opacity": 0.5}
    best = alt.Chart(front).encode(color=colour)
    zero = alt.Chart(pd.DataFrame({"zero": [0.0]}))
    layers = [
        zero.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="zero:Q"),
        zero.mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="zero:Q"),
        best.mark_rule(**rule).encode(x=alt.X("deviance_change_low:Q"), x2="deviance_change_high:Q", y=y),
        best.mark_rule(**rule).encode(x=x, y=alt.Y("disparity_change_low:Q"), y2="disparity_change_high:Q"),
        alt.Chart(front).mark_line(color=GREY, strokeWidth=1.5).encode(x=x, y=y, order="deviance:Q"),
        base.transform_filter("!datum.frontier").mark_point(size=40, opacity=0.7),
        base.transform_filter("datum.frontier").mark_point(filled=True, size=90, opacity=1),
        base.transform_filter(f"datum.kind == '{CURRENT}'").mark_point(filled=True, size=110, opacity=1),
        alt.Chart(front[front["kind"] != "all features"].drop_duplicates("features"))
        .mark_text(align="left", dx=9, dy=-9, fontSize=12, color=INK)
        .encode(x=x, y=y, text="features:N"),
    ]
    title = panel_title("Accuracy and disparity of the alternatives; filled: the frontier", subtitle=_left_out(far))
    return apply_style(alt.layer(*layers).properties(width=460, height=320, title=title))


def _reach(table: pd.DataFrame) -> float:
    """Return how far from the current price the drawing goes, so that the frontier takes a good part of it."""
    reach = 3 * float(table.loc[table["frontier"], ["deviance_change", "deviance_change_high"]].max().max())
    return reach if reach > 0 else math.inf


def _left_out(far: pd.Series) -> str:
    return f"{far.sum()} with a still larger deviance are not drawn" if far.any() else ""


def _kind(row: pd.Series) -> str:
    if row["candidate"] == CURRENT:
        return CURRENT
    return "a feature dropped" if row["dropped"] else "a feature coarsened" if row["coarsened"] else "all features"
