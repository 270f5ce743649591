"""What the drawings of the reproduction share: the audit's style, colours of methods, labels that do not collide."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from fairpremium.audit.drawing import GREY, INK, apply_style, import_altair, import_vl_convert, panel_title
from fairpremium.audit.drawing import to_svg as chart_to_svg
from fairpremium.paper._setup import MPTP, NAIVE, OURS, PAPER

__all__ = ["COLOURS", "GREY", "INK", "import_altair", "import_vl_convert"]

# Okabe and Ito, as in the audit: told apart by all common kinds of colour vision.
COLOURS = {MPTP: INK, PAPER: "#0072b2", OURS: "#009e73", NAIVE: "#d55e00"}
FONT_SIZE = 15
heading = partial(panel_title, size=16)


def finish(chart: Any, title: str, subtitle: Sequence[str]) -> Any:
    """Give a drawing its title and the style of the audit report, with letters that stay readable at half size."""
    alt = import_altair()
    heading = alt.Title(
        title, subtitle=list(subtitle), anchor="start", fontSize=19, subtitleFontSize=FONT_SIZE, subtitleColor=INK,
        color=INK, offset=14, subtitlePadding=6, subtitleLineHeight=20,
    )  # fmt: skip
    return apply_style(chart.properties(title=heading), FONT_SIZE)


def colour_scale(alt: Any, methods: Sequence[str]) -> Any:
    """Return the colours of some methods, in their order."""
    return alt.Scale(domain=list(methods), range=[COLOURS[m] for m in methods])


def axis(kind: str, field: str, domain: Sequence[float], *, scale: str = "linear", **axis: Any) -> Any:
    """Return the axis of a number, "X" or "Y", over exactly the given domain."""
    alt = import_altair()
    exact = alt.Scale(type=scale, domain=list(domain), nice=False, zero=False)
    return getattr(alt, kind)(f"{field}:Q", scale=exact, axis=alt.Axis(**axis))


def label(
    alt: Any, words: str, x: float, y: float, colour: str, *, align: str = "left", baseline: str = "middle"
) -> Any:
    """Write words at a place of the panel, in pixels from its upper left corner."""
    mark = alt.Chart(pd.DataFrame({"text": [words]})).mark_text(
        align=align, baseline=baseline, fontSize=FONT_SIZE, color=colour
    )
    return mark.encode(x=alt.value(x), y=alt.value(y), text="text:N")


def end_labels(
    alt: Any, labels: Sequence[tuple[str, float, str]], domain: Sequence[float], width: float, height: float
) -> list[Any]:
    """Write (words, value, colour) beside the ends of lines, at the value or moved apart where they would touch."""
    low, high = domain
    pixels = [height * (high - value) / (high - low) for _, value, _ in labels]  # from the top
    places = spread_labels([max(pixel, 0) for pixel in pixels], 18, 9, height - 2)
    return [
        label(alt, words, width + 6, place, colour) for (words, _, colour), place in zip(labels, places, strict=True)
    ]


def spread_labels(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels from their wanted positions, in pixels from the top, apart as little as needed.

    Two labels are at least `gap` apart, and all stay between `low` and `high` if there is room. The places are in the
    order of `positions`.

    Examples
    --------
    >>> spread_labels([50, 52, 10], gap=10, low=0, high=100)
    [46.0, 56.0, 10.0]
    >>> spread_labels([99, 99], gap=10, low=0, high=100)
    [90.0, 100.0]
    """
    order = np.argsort(positions, kind="stable")
    steps = gap * np.arange(len(positions))
    # without the steps the labels need not touch, only stay in order: the nearest such places are a monotone regression
    free = isotonic_regression(np.asarray(positions, dtype=np.float64)[order] - steps).x
    placed = np.empty(len(positions))
    placed[order] = np.clip(free, low, high - steps[-1]) + steps
    return placed.tolist()


def to_svg(chart: Any) -> str:
    """Return a chart as SVG text that does not depend on what was drawn before."""
    return _with_stable_names(chart_to_svg(chart))


def _with_stable_names(svg: str) -> str:
    """Number the clip paths of a drawing from one; the converter counts over all drawings of a process.

    Examples
    --------
    >>> _with_stable_names('<g clip-path="url(#clip45)"/><clipPath id="clip45"/><clipPath id="clip7"/>')
    '<g clip-path="url(#clip1)"/><clipPath id="clip1"/><clipPath id="clip2"/>'
    """
    found = list(dict.fromkeys(re.findall(r"\bclip\d+\b", svg)))
    return re.sub(r"\bclip\d+\b", lambda match: f"clip{found.index(match[0]) + 1}", svg)


def to_png(svg: str, scale: float = 1.5) -> bytes:
    """Return SVG text as PNG."""
    return bytes(import_vl_convert().svg_to_png(svg, scale=scale))
