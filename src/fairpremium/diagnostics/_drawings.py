"""Drawings of the diagnoses: every ``plot_x`` takes the arguments of ``compute_x`` and draws its table."""

from typing import Any

import pandas as pd

from fairpremium.audit.drawing import GREY, GROUP_SHAPES, import_altair, panel_title
from fairpremium.audit.tables import (
    MAX_CLASSES,
    TOOLTIP,
    by_kind,
    dots,
    estimates,
    name_of,
    number_axis,
    plots,
    titled,
    top_legend,
)

from ._lift import compute_double_lift, compute_lift
from ._observed_expected import compute_observed_expected

_HEIGHT = 210
_LOSS, _PREMIUM, _AGAINST = "#d55e00", "#0072b2", "#009e73"


@plots(compute_observed_expected, in_report=False)
def plot_observed_expected(table: pd.DataFrame, unit: str) -> Any:
    """Draw observed over expected losses by level, one panel per factor."""
    whole = _by_level(table, "ratio")
    return dots(whole, "observed losses for 1 expected", reference=1.0, own_lanes=True)


@plots(compute_lift, in_report=False)
def plot_lift(table: pd.DataFrame, unit: str) -> Any:
    """Draw the lift of every bin with its interval, and the expected one as a line; one panel per group."""
    alt = import_altair()
    groups = table["group"].map(name_of)
    x = alt.X("bin:O", axis=alt.Axis(title="premium, from the lowest to the highest", labelAngle=0))
    y = alt.Y("value:Q", axis=number_axis(alt, "mean of the bin for 1 overall", tickCount=5))
    panels = []
    for group in dict.fromkeys(groups):
        own = table[groups == group]
        data = pd.concat([
            _marks(own, "lift", "losses"), _marks(own, "expected_lift", "premiums"),
        ]).dropna(subset=["value"])  # fmt: skip
        panels.append(_curves(alt, data, x, y, {"losses": _LOSS, "premiums": _PREMIUM}, 1.0, title=group))
    if len(panels) == 1:
        return panels[0].properties(title="")
    return alt.concat(*panels, columns=2, spacing=24).resolve_scale(y="shared")


@plots(compute_double_lift, in_report=False)
def plot_double_lift(table: pd.DataFrame, unit: str) -> Any:
    """Draw mean losses and both prices over the bins of their quotient; one panel per group."""
    alt = import_altair()
    groups = table["group"].map(name_of)
    x = alt.X("bin:O", axis=alt.Axis(title="premium over the other price, from lowest to highest", labelAngle=0))
    y = alt.Y("value:Q", scale=alt.Scale(zero=False), axis=number_axis(alt, titled("mean", unit), tickCount=5))
    colours = {"losses": _LOSS, "premium": _PREMIUM, "other price": _AGAINST}
    panels = []
    for group in dict.fromkeys(groups):
        own = table[groups == group]
        kinds = zip(("loss", "premium", "against"), colours, strict=True)
        data = pd.concat([_marks(own, name, kind) for name, kind in kinds]).dropna(subset=["value"])
        panels.append(_curves(alt, data, x, y, colours, None, title=group))
    if len(panels) == 1:
        return panels[0].properties(title="")
    return alt.concat(*panels, columns=2, spacing=24).resolve_scale(y="shared")


def _by_level(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return one estimate in long form: a panel per factor, a lane per level, a mark per group."""
    found = estimates(table, name)
    factors = table["factor"].astype(str)
    if factors.nunique() > MAX_CLASSES:
        raise ValueError(f"Got X with {factors.nunique()} factors, but expected at most {MAX_CLASSES} in a drawing.")
    return found.assign(kind=found["lane"], lane=table["level"].astype(str), risk_class=factors)


def _marks(table: pd.DataFrame, name: str, kind: str) -> pd.DataFrame:
    limits = {side: table.get(f"{name}_{side}", float("nan")) for side in ("low", "high")}
    return pd.DataFrame({"bin": table["bin"], "lane": "", "kind": kind, "value": table[name], **limits})


def _curves(
    alt: Any, data: pd.DataFrame, x: Any, y: Any, colours: dict[str, str], reference: float | None, title: str
) -> Any:
    kinds = list(colours)
    base = alt.Chart(data).encode(
        x=x, color=by_kind(alt.Color, kinds, list(colours.values()), top_legend(alt)), tooltip=["bin:O", *TOOLTIP[1:]]
    )
    shape = by_kind(alt.Shape, kinds, GROUP_SHAPES, top_legend(alt))
    layers = [
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=2, opacity=0.45)
        .encode(y="low:Q", y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, shape=shape),
    ]
    if reference is not None:
        rule = alt.Chart(pd.DataFrame({"reference": [reference]}))
        layers.insert(0, rule.mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="reference:Q"))
    return alt.layer(*layers).properties(width=300, height=_HEIGHT, title=panel_title(title))
