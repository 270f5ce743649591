"""The figures: which study each needs, the table behind it, and the function that draws that table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.paper import _synthetic
from fairpremium.paper._diagram import diagram_svg, diagram_table
from fairpremium.paper._draw_curves import Look, draw_curves
from fairpremium.paper._draw_prices import draw_indirect, draw_prices
from fairpremium.paper._draw_theory import draw_bounds, draw_estimates
from fairpremium.paper._real import EXACT, FULL_SAMPLE, HALF_SAMPLE, HIGH, LOW, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper._settings import KEEPS
from fairpremium.paper._synthetic import BEST, FREE, PERTURBED, TRUTH, UNAWARE
from fairpremium.paper._theory import THEORY_KEEPS

Tables = dict[str, pd.DataFrame]


@dataclass(frozen=True)
class Figure:
    """A figure of the reproduction.

    Parameters
    ----------
    id : str
    source : str
        The figure of the paper that it answers to.
    studies : tuple of str
        Whose tables it needs.
    tabulate : function of the studies' tables
        Returns the table that is drawn, which is also the CSV file.
    draw : function of that table
        Returns an Altair chart, or SVG text.
    """

    id: str
    source: str
    studies: tuple[str, ...]
    tabulate: Callable[[Tables], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Any]


# --- tables ---


def _complete(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep the seeds on which every method was run, so that the lines of a picture are means over the same seeds."""
    return runs[runs["seed"].isin(runs.loc[runs["method"] == OURS, "seed"])]


def price_table(tables: Tables, cases: list[tuple[float, float, str]], prices: tuple[str, ...]) -> pd.DataFrame:
    """Return mean and spread over the seeds of every price of some fits, beside its truth.

    Parameters
    ----------
    tables : dict
    cases : list of (keep, assumed, method)
    prices : tuple of str
    """
    runs = _complete(tables["synthetic"])
    runs = runs[runs["price"].isin(prices)]
    keys = ["price", "age", "smoker", "group"]
    truth = runs[(runs["method"] == TRUTH) & (runs["seed"] == runs["seed"].min())].set_index(keys)["value"]
    parts = []
    for keep, assumed, method in cases:
        rows = runs[(runs["method"] == method) & (runs["keep"] == keep) & (runs["assumed"] == assumed)]
        by = rows.groupby(keys, sort=False)["value"]
        spread = by.quantile([0.1, 0.9]).unstack()
        part = pd.DataFrame({"mean": by.mean(), "low": spread[0.1], "high": spread[0.9], "seeds": by.count()})
        part["error"] = np.sqrt(((rows["value"] - rows.set_index(keys).index.map(truth)) ** 2).groupby(
            [rows[key] for key in keys], sort=False).mean())  # fmt: skip
        parts.append(part.assign(keep=keep, assumed=assumed, method=method, truth=truth).reset_index())
    columns = ["keep", "assumed", "method", *keys, "mean", "low", "high", "error", "truth", "seeds"]
    return pd.concat(parts, ignore_index=True)[columns]


def _known(keeps: tuple[float, ...]) -> list[tuple[float, float, str]]:
    return [(0.0, 0.0, MPTP), *[(k, k, method) for k in keeps for method in (NAIVE, PAPER, OURS)]]


def _perturbed(keep: float) -> list[tuple[float, float, str]]:
    wrong = [(keep, assumed, method) for assumed in PERTURBED[keep] for method in (PAPER, OURS)]
    return [(0.0, 0.0, MPTP), (keep, keep, NAIVE), *wrong]


def curve_table(tables: Tables, study: str, lines: list[tuple[str, float, str, str]]) -> pd.DataFrame:
    """Return the mean test loss over the seeds after each epoch, for X and X~.

    Parameters
    ----------
    tables : dict
    study : str
    lines : list of (sample, keep, assumed, method)

    Returns
    -------
    DataFrame
        Epoch 0 stands for a fit without epochs. Squared loss is in thousands squared.
    """
    runs = _complete(tables[study])
    losses = runs[runs["quantity"] == "loss"]
    unit = 1e6 if study == "health" else 1.0
    keys = ["features", "sample", "keep", "assumed", "method"]
    by = losses.assign(value=losses["value"] / unit).groupby([*keys, "epoch"], sort=False)["value"]
    table = pd.DataFrame({"loss": by.mean(), "standard_error": by.sem(), "seeds": by.count()}).reset_index()
    wanted = pd.DataFrame(lines, columns=["sample", "keep", "assumed", "method"])
    wanted = wanted.merge(pd.DataFrame({"features": ["X", "X~"]}), how="cross")
    return wanted.merge(table, on=keys, how="left")[[*keys, "epoch", "loss", "standard_error", "seeds"]]


def _lines(keeps: tuple[float, ...], assumed: tuple[str, ...], samples: tuple[str, ...]) -> list[Any]:
    found: list[tuple[str, float, str, str]] = []
    for sample in samples:
        found.append((sample, 0.0, "", MPTP))
        for keep in keeps:
            found.append((sample, keep, "", NAIVE))
            found += [(sample, keep, a, method) for a in assumed for method in (PAPER, OURS)]
    return found


def estimate_table(tables: Tables) -> pd.DataFrame:
    """Return the anchor estimates of keep in the three portfolios, mean and standard deviation over the seeds."""
    synthetic = tables["synthetic"]
    rows = synthetic[synthetic["price"] == _synthetic.ESTIMATED_KEEP]
    parts = [rows[["seed", "keep", "value"]].assign(portfolio="synthetic", sample=FULL_SAMPLE, parts="n1 = 4")]
    for study in ("health", "auto"):
        rows = tables[study][tables[study]["quantity"] == "keep"]
        rows = rows.rename(columns={"assumed": "parts"})
        parts.append(rows[["seed", "keep", "value", "sample", "parts"]].assign(portfolio=study))
    by = pd.concat(parts).groupby(["portfolio", "sample", "parts", "keep"], sort=False)["value"]
    return pd.DataFrame({"estimate": by.mean(), "sd": by.std(), "seeds": by.count()}).reset_index()


def bound_table(tables: Tables) -> pd.DataFrame:
    """Return bounds and excess risks of both theorems, mean over the seeds."""
    rows = tables["theory"]
    rows = rows[rows["quantity"].str.match(r"4\.\d, (bound|excess)")]
    split = rows["quantity"].str.split(", ", expand=True)
    rows = rows.assign(theorem=split[0], what=split[1])
    by = rows.groupby(["theorem", "what", "groups", "keep", "n"], sort=False)["value"]
    return pd.DataFrame({"value": by.mean(), "standard_error": by.sem(), "seeds": by.count()}).reset_index()


# --- the list ---


def _real_figures(study: str) -> list[Figure]:
    title, unit = {
        "health": ("Health data", "test loss, (1,000 $)²"),
        "auto": ("Auto data", "test loss, cross-entropy"),
    }[study]
    where = {"health": "Section 6", "auto": "appendix"}[study]
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
            f"{study}-{name}",
            f"{where}: {source}",
            (study,),
            partial(curve_table, study=study, lines=_lines(keeps, assumed, samples)),
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
