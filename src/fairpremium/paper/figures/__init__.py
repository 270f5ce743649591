"""The figures: which experiments each needs, the table behind it, and the function that draws that table."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.paper._real import EXACT, FULL_SAMPLE, HALF_SAMPLE, HIGH, LOW
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._synthetic import BEST, FREE, PERTURBED, UNAWARE
from fairpremium.paper._theory import THEORY_KEEPS
from fairpremium.paper.figures._curves import draw_curves
from fairpremium.paper.figures._prices import draw_indirect, draw_prices
from fairpremium.paper.figures._style import import_altair, import_vl_convert, to_png, to_svg
from fairpremium.paper.figures._tables import Tables, bound_table, curve_table, estimate_table, price_table
from fairpremium.paper.figures._theory import draw_bounds, draw_estimates

Cases = list[tuple[float, float, str]]  # keep, assumed keep, method

_DIAGRAM = Path(__file__).with_name("parties.svg")  # who sends what; the table beside it says the same in words

__all__ = ["FIGURES", "Figure", "import_altair", "import_vl_convert", "to_png", "to_svg"]


@dataclass(frozen=True)
class Figure:
    """A figure of the reproduction."""

    id: str
    source: str  # the figure of the paper that it answers to
    experiments: tuple[str, ...]  # whose tables it needs
    tabulate: Callable[[Tables], pd.DataFrame]  # from the experiments' tables to the one that is drawn, the CSV file
    draw: Callable[[pd.DataFrame], Any]  # from that table to an Altair chart, or SVG text


def _known(keeps: tuple[float, ...]) -> Cases:
    return [(0.0, 0.0, MPTP), *[(k, k, method) for k in keeps for method in (NAIVE, PAPER, OURS)]]


def _perturbed(keep: float) -> Cases:
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


def _synthetic_figure(name: str, source: str, cases: Cases, title: str) -> Figure:
    tabulate = partial(price_table, cases=cases, prices=(BEST,))
    return Figure(f"synthetic-{name}", source, ("synthetic",), tabulate, partial(draw_prices, title=title))


def _real_figures(experiment: str, where: str, title: str, unit: str) -> list[Figure]:
    one, sizes = (FULL_SAMPLE,), (FULL_SAMPLE, HALF_SAMPLE)
    kinds: list[tuple[str, str, str, tuple[float, ...], tuple[str, ...], tuple[str, ...]]] = [
        ("by-keep", "keep known", "by noise rate, known", KEEPS, (EXACT,), one),
        ("by-size", "keep 0.9, known", "by sample size, known", (0.9,), (EXACT,), sizes),
        ("perturbed", "keep wrong by 10 %", "error of 10 % in the noise rate", KEEPS, (LOW, HIGH), one),
        ("estimated", "keep estimated, n1 = 4", "by noise rate, estimated", KEEPS, ("n1 = 4",), one),
        ("estimated-by-size", "keep 0.9, estimated, n1 = 4", "by sample size, estimated", (0.9,), ("n1 = 4",), sizes),
        ("splits", "keep estimated from 2 or 4 splits", "effect of n1", KEEPS, ("n1 = 2", "n1 = 4"), one),
    ]
    return [
        Figure(
            f"{experiment}-{name}",
            f"{where}: {source}",
            (experiment,),
            partial(curve_table, experiment=experiment, lines=_lines(keeps, assumed, samples)),
            partial(draw_curves, title=f"{title}: {what}", unit=unit, columns="sample" if samples == sizes else "keep"),
        )
        for name, what, source, keeps, assumed, samples in kinds
    ]


FIGURES = {
    figure.id: figure
    for figure in [
        Figure(
            "parties",
            "Section 3: insurer-third-party diagram",
            (),
            lambda tables: pd.read_csv(_DIAGRAM.with_suffix(".csv")),
            lambda table: _DIAGRAM.read_text(encoding="utf-8"),
        ),
        _synthetic_figure(
            "direct",
            "Section 5.1 (a): best estimate against the true means",
            _known((0.8,)),
            "Best estimates with the true attribute, and from reports with keep 0.8",
        ),
        Figure(
            "synthetic-indirect",
            "Section 5.1 (b): unaware against discrimination-free",
            ("synthetic",),
            partial(price_table, cases=_known((0.8,)), prices=(UNAWARE, FREE)),
            draw_indirect,
        ),
        _synthetic_figure(
            "known",
            "Section 5.2: known noise, keep 0.9, 0.8, 0.7",
            _known(KEEPS),
            "Best estimates from reports, keep known",
        ),
        *[
            _synthetic_figure(
                f"perturbed-{keep}",
                f"Section 5.3: keep {keep} taken for {low} and {high}",
                _perturbed(keep),
                f"Best estimates from reports with keep {keep}, told a wrong keep",
            )
            for keep, (low, high) in PERTURBED.items()
        ],
        *_real_figures("health", "Section 6", "Health data", "test loss, (1,000 $)²"),
        *_real_figures("auto", "appendix", "Auto data", "test loss, cross-entropy"),
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
