"""Test loss against epochs: a row of panels for X, one for X~, and a name at the end of every curve."""

from typing import Any

import numpy as np
import pandas as pd

from fairpremium.paper._real import EXACT, FULL_SAMPLE, HALF_SAMPLE, LEARNED, RAW
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper.figures._style import COLOURS, axis, colour_scale, end_labels, finish, heading, import_altair

_WIDTH, _HEIGHT = 230, 220
_DASHES = {"": [1, 0], EXACT: [1, 0], "-10 %": [7, 3], "+10 %": [2, 3], "n1 = 2": [7, 3], "n1 = 4": [1, 0]}


def draw_curves(table: pd.DataFrame, *, title: str, unit: str, columns: str) -> Any:
    """Draw a table of test losses in this unit, with one column of panels for each "keep" or "sample"."""
    alt = import_altair()
    data = table.dropna(subset=["loss"])
    by_keep = columns == "keep"
    panels = KEEPS if by_keep else (FULL_SAMPLE, HALF_SAMPLE)
    named = "keep {}".format if by_keep else "{} sample".format
    last = int(table["epoch"].max())
    rows = []
    for features in (RAW, LEARNED):
        of_features = data[data["features"] == features]
        domain = _domain(of_features, last)
        charts = [
            _panel(alt, _of_panel(of_features, columns, value), domain, last, f"{features}, {named(value)}",
                   unit if i == 0 else None)
            for i, value in enumerate(panels)
        ]  # fmt: skip
        rows.append(alt.hconcat(*charts, spacing=20))
    seeds = int(table["seeds"].max())
    subtitle = [
        f"Mean of {seeds} splits. Curves: linear prices by gradient descent; numbers: loss at the end.",
        "Paper: corrected risk. True D: the attribute is known. Naive: reports taken for the truth. "
        "Ours: pooled, no epochs.",
    ]
    return finish(alt.vconcat(*rows, spacing=26), title, subtitle)


def _of_panel(data: pd.DataFrame, columns: str, value: Any) -> pd.DataFrame:
    """Return the lines of a panel; the fit with the true attribute belongs to every keep."""
    here = data[columns] == value
    return data[here | (data["method"] == MPTP)] if columns == "keep" else data[here]


def _domain(data: pd.DataFrame, last: int) -> tuple[float, float]:
    """Return the range of the losses at the end, with room above; curves come in from the top.

    A line that ends far above the others leaves the picture, and its label says where it went.
    """
    finals = data.loc[data["epoch"].isin([0, last]), "loss"].to_numpy()
    low = float(data["loss"].min())
    high = min(float(finals.max()), low + 6.0 * float(np.quantile(finals, 0.8) - low))
    room = (high - low) or 0.1 * abs(high)
    return low - 0.08 * room, high + 0.35 * room


def _panel(alt: Any, data: pd.DataFrame, domain: tuple[float, float], last: int, title: str, unit: str | None) -> Any:
    """Draw the lines of a panel and their names."""
    data = data.assign(line=_names(data))
    flat = data[data["method"] == OURS]
    ends = pd.concat([flat.assign(epoch=1), flat.assign(epoch=last)])
    lines = pd.concat([data[data["method"] != OURS], ends])
    ticks = [v for v in (1, 10, 100) if v <= last]
    x = axis("X", "epoch", (1, last), scale="log", title="epoch", values=ticks, format="d")
    y = axis("Y", "loss", domain, title=unit, tickCount=5, minExtent=54)
    methods = [m for m in (MPTP, PAPER, OURS, NAIVE) if m in set(lines["method"])]
    dashes = list(dict.fromkeys(lines["assumed"]))
    dashing = alt.Scale(domain=dashes, range=[_DASHES[d] for d in dashes])
    drawn = alt.Chart(lines).mark_line(strokeWidth=2.4, clip=True)
    drawn = drawn.encode(
        x=x,
        y=y,
        detail="line:N",
        color=alt.Color("method:N", scale=colour_scale(alt, methods), legend=None),
        strokeDash=alt.StrokeDash("assumed:N", scale=dashing, legend=None),
    )
    named = alt.layer(drawn, *_labels(alt, data[data["epoch"].isin([0, last])], domain))
    return named.properties(width=_WIDTH, height=_HEIGHT, title=heading(title, offset=8))


def _names(data: pd.DataFrame) -> pd.Series:
    assumed = data["assumed"].where(~data["assumed"].isin(["", EXACT]), "").str.replace("n1 = ", "n1=")
    return (data["method"] + " " + assumed).str.strip().str.replace("-10 %", "−10 %")


def _labels(alt: Any, finals: pd.DataFrame, domain: tuple[float, float]) -> list[Any]:
    """Write name and last loss of every line at its end; an arrow says that the line leaves the picture."""
    labels = [
        (f"{'↑ ' if loss > domain[1] else ''}{line} {_digits(loss)}", loss, COLOURS[method])
        for line, method, loss in zip(finals["line"], finals["method"], finals["loss"], strict=True)
    ]
    return end_labels(alt, labels, domain, _WIDTH, _HEIGHT)


def _digits(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.4f}"
