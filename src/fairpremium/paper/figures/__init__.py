"""The figures: which experiments each needs, the table behind it, and the function that draws that table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from fairpremium.paper._real import EXACT, FULL_SAMPLE, HALF_SAMPLE, HIGH, LOW
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._synthetic import BEST, FREE, PERTURBED, UNAWARE
from fairpremium.paper._theory import THEORY_KEEPS
from fairpremium.paper.figures._curves import Look, draw_curves
from fairpremium.paper.figures._diagram import diagram_svg, diagram_table
from fairpremium.paper.figures._prices import draw_indirect, draw_prices
from fairpremium.paper.figures._style import import_altair, import_vl_convert, to_png, to_svg
from fairpremium.paper.figures._tables import Tables, bound_table, curve_table, estimate_table, price_table
from fairpremium.paper.figures._theory import draw_bounds, draw_estimates

__all__ = ["FIGURES", "Figure", "import_altair", "import_vl_convert", "to_png", "to_svg"]


@dataclass(frozen=True)
class Figure:
    """A figure of the reproduction.

    Parameters
    ----------
    id : str
    source : str
        The figure of the paper that it answers to.
    experiments : tuple of str
        Whose tables it needs.
    tabulate : function of the experiments' tables
        Returns the table that is drawn, which is also the CSV file.
    draw : function of that table
        Returns an Altair chart, or SVG text.
    """

    id: str
    source: str
    experiments: tuple[str, ...]
    tabulate: Callable[[Tables], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Any]


def _known(keeps: tuple[float, ...]) -> list[tuple[float, float, str]]:
    return [(0.0, 0.0, MPTP), *[(k, k, method) for k in keeps for method in (NAIVE, PAPER, OURS)]]


def _perturbed(keep: float) -> list[tuple[float, float, str]]:
    wrong = [(keep, assumed, method) for assumed in PERTURBED[keep] for method in (PAPER, OURS)]
    return [(0.0, 0.0, MPTP), (keep, keep, NAIVE), *wrong]


def _lines(keeps: tuple[float, ...], assumed: tuple[str, ...], samples: tuple[str, ...]) -> list[Any]:
    found: list[tuple[str, float, str, str]] = []
    for sample in samples:
        found.append((sample, 0.0, "", MPTP))
        for keep in keeps:
            found.append((sample, keep, "", NAIVE))
            found += [(sample, keep, a, method) for a in assumed for method in (PAPER, OURS)]
    return found


def _real_figures(experiment: str) -> list[Figure]:
    title, unit = {
        "health": ("Health data", "test loss, (1,000 $)²"),
        "auto": ("Auto data", "test loss, cross-entropy"),
    }[experiment]
    where = {"health": "Section 6", "auto": "appendix"}[experiment]
    sizes = (FULL_SAMPLE, HALF_SAMPLE)
    kinds: list[tuple[str, str, str, tuple[float, ...], tuple[str, ...], tuple[str, ...]]] = [
        ("by-keep", "keep known", "by noise rate, known", KEEPS, (EXACT,), (FULL_SAMPLE,)),
        ("by-size", "keep 0.9, known", "by sample size, known", (0.9,), (EXACT,), sizes),
        ("perturbed", "keep wrong by 10 %", "error of 10 % in the noise rate", KEEPS, (LOW, HIGH), (FULL_SAMPLE,)),
        ("estimated", "keep estimated, n1 = 4", "by noise rate, estimated", KEEPS, ("n1 = 4",), (FULL_SAMPLE,)),
        ("estimated-by-size", "keep 0.9, estimated, n1 = 4", "by sample size, estimated", (0.9,), ("n1 = 4",), sizes),
        ("splits", "keep estimated from 2 or 4 parts", "effect of n1", KEEPS, ("n1 = 2", "n1 = 4"), (FULL_SAMPLE,)),
    ]  # fmt: skip
    return [
        Figure(
            f"{experiment}-{name}",
            f"{where}: {source}",
            (experiment,),
            partial(curve_table, experiment=experiment, lines=_lines(keeps, assumed, samples)),
            partial(draw_curves, look=Look(f"{title}: {what}", unit, "sample" if samples == sizes else "keep")),
        )
        for name, what, source, keeps, assumed, samples in kinds
    ]


FIGURES = {
    figure.id: figure
    for figure in [
        Figure("parties", "Section 3: insurer-third-party diagram", (), lambda tables: diagram_table(), diagram_svg),
        Figure(
            "synthetic-direct",
            "Section 5.1 (a): best estimate against the true means",
            ("synthetic",),
            partial(price_table, cases=_known((0.8,)), prices=(BEST,)),
            partial(draw_prices, title="Best estimates with the true attribute, and from reports with keep 0.8"),
        ),
        Figure(
            "synthetic-indirect",
            "Section 5.1 (b): unaware against discrimination-free",
            ("synthetic",),
            partial(price_table, cases=_known((0.8,)), prices=(UNAWARE, FREE)),
            draw_indirect,
        ),
        Figure(
            "synthetic-known",
            "Section 5.2: known noise, keep 0.9, 0.8, 0.7",
            ("synthetic",),
            partial(price_table, cases=_known(KEEPS), prices=(BEST,)),
            partial(draw_prices, title="Best estimates from reports, keep known"),
        ),
        *[
            Figure(
                f"synthetic-perturbed-{keep}",
                f"Section 5.3: keep {keep} taken for {PERTURBED[keep][0]} and {PERTURBED[keep][1]}",
                ("synthetic",),
                partial(price_table, cases=_perturbed(keep), prices=(BEST,)),
                partial(draw_prices, title=f"Best estimates from reports with keep {keep}, told a wrong keep"),
            )
            for keep in PERTURBED
        ],
        *_real_figures("health"),
        *_real_figures("auto"),
        Figure(
            "estimated-keep",
            "Section 6.2: estimates of keep (in the text)",
            ("synthetic", "health", "auto"),
            estimate_table,
            draw_estimates,
        ),
        Figure(
            "theory-bounds",
            "Theorems 4.3 and 4.6 (no figure in the paper)",
            ("theory",),
            bound_table,
            partial(draw_bounds, keeps=THEORY_KEEPS),
        ),
    ]
}
