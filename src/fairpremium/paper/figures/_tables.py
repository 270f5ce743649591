"""The tables behind the figures: means over the seeds, and their spread."""

import numpy as np
import pandas as pd

from fairpremium.paper._real import FULL_SAMPLE
from fairpremium.paper._synthetic import ESTIMATED_KEEP, TRUTH

Tables = dict[str, pd.DataFrame]


def price_table(tables: Tables, cases: list[tuple[float, float, str]], prices: tuple[str, ...]) -> pd.DataFrame:
    """Return mean and spread over the seeds of every price of some fits (keep, assumed, method), beside its truth."""
    runs = tables["synthetic"]
    runs = runs[runs["price"].isin(prices)]
    keys = ["price", "age", "smoker", "group"]
    truth = runs[(runs["method"] == TRUTH) & (runs["seed"] == runs["seed"].min())].set_index(keys)["value"]
    fits = []
    for keep, assumed, method in cases:
        rows = runs[(runs["method"] == method) & (runs["keep"] == keep) & (runs["assumed"] == assumed)]
        by = rows.groupby(keys, sort=False)["value"]
        spread = by.quantile([0.1, 0.9]).unstack()
        fit = pd.DataFrame({"mean": by.mean(), "low": spread[0.1], "high": spread[0.9], "seeds": by.count()})
        fit["error"] = np.sqrt(((rows["value"] - rows.set_index(keys).index.map(truth)) ** 2).groupby(
            [rows[key] for key in keys], sort=False).mean())  # fmt: skip
        fits.append(fit.assign(keep=keep, assumed=assumed, method=method, truth=truth).reset_index())
    columns = ["keep", "assumed", "method", *keys, "mean", "low", "high", "error", "truth", "seeds"]
    return pd.concat(fits, ignore_index=True)[columns]


def curve_table(tables: Tables, experiment: str, lines: list[tuple[str, float, str, str]]) -> pd.DataFrame:
    """Return the mean test loss over the seeds after each epoch, for X and X~.

    Lines are (sample, keep, assumed, method). Epoch 0 stands for a fit without epochs. Squared loss is in thousands
    squared.
    """
    runs = tables[experiment]
    losses = runs[runs["quantity"] == "loss"]
    unit = 1e6 if experiment == "health" else 1.0
    keys = ["features", "sample", "keep", "assumed", "method"]
    by = losses.assign(value=losses["value"] / unit).groupby([*keys, "epoch"], sort=False)["value"]
    table = pd.DataFrame({"loss": by.mean(), "standard_error": by.sem(), "seeds": by.count()}).reset_index()
    wanted = pd.DataFrame(lines, columns=["sample", "keep", "assumed", "method"])
    wanted = wanted.merge(pd.DataFrame({"features": ["X", "X~"]}), how="cross")
    return wanted.merge(table, on=keys, how="left")[[*keys, "epoch", "loss", "standard_error", "seeds"]]


def estimate_table(tables: Tables) -> pd.DataFrame:
    """Return the anchor estimates of keep in the three portfolios, mean and standard deviation over the seeds."""
    synthetic = tables["synthetic"]
    rows = synthetic[synthetic["price"] == ESTIMATED_KEEP]
    found = [rows[["seed", "keep", "value"]].assign(portfolio="synthetic", sample=FULL_SAMPLE, parts="n1 = 4")]
    for experiment in ("health", "auto"):
        rows = tables[experiment][tables[experiment]["quantity"] == "keep"]
        rows = rows.rename(columns={"assumed": "parts"})
        found.append(rows[["seed", "keep", "value", "sample", "parts"]].assign(portfolio=experiment))
    by = pd.concat(found).groupby(["portfolio", "sample", "parts", "keep"], sort=False)["value"]
    return pd.DataFrame({"estimate": by.mean(), "sd": by.std(), "seeds": by.count()}).reset_index()


def bound_table(tables: Tables) -> pd.DataFrame:
    """Return bounds and excess risks of both theorems, mean over the seeds."""
    rows = tables["theory"]
    rows = rows[rows["quantity"].str.match(r"4\.\d, (bound|excess)")]
    split = rows["quantity"].str.split(", ", expand=True)
    rows = rows.assign(theorem=split[0], what=split[1])
    by = rows.groupby(["theorem", "what", "groups", "keep", "n"], sort=False)["value"]
    return pd.DataFrame({"value": by.mean(), "standard_error": by.sem(), "seeds": by.count()}).reset_index()
