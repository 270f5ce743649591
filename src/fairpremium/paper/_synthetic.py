"""The experiments of Section 5: prices by risk class on the synthetic portfolio."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.errors import ChannelRefutedWarning, FairPremiumError
from fairpremium.models import NeuralModel
from fairpremium.noise import AnchorNoise
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER, SEED, RunSize
from fairpremium.portfolios import SimulatedPortfolio, zhang_liu_shi_2025
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.privacy import RandomizedResponse

TRUTH = "truth"
BEST, UNAWARE, FREE, ESTIMATED_KEEP = "best estimate", "unaware", "discrimination-free", "estimated keep"
PERTURBED = {0.9: (0.85, 0.95), 0.8: (0.75, 0.85)}
AGES = np.arange(18, 81)
COLUMNS = ["price", "keep", "assumed", "method", "age", "smoker", "group", "value"]


def risk_grid() -> pd.DataFrame:
    """Return every (age, smoker) once."""
    return pd.DataFrame({"age": np.tile(AGES, 2), "smoker": np.repeat([True, False], len(AGES))})


def run_synthetic(size: RunSize, seed: int) -> pd.DataFrame:
    """Price the synthetic portfolio with the true attribute and with reports, by all methods.

    The table is long: one row for each price of a risk (and group, for best estimates), with its truth as a method.
    `keep` is 0 where no report is used; `assumed` is the keep that the method was told. The price "estimated keep" is
    no price but the anchor estimate from four splits.
    """
    portfolio = zhang_liu_shi_2025(size.synthetic_rows, rng=np.random.default_rng([SEED, 0, seed]))
    luck = np.random.default_rng([SEED, 2, seed]).random(len(portfolio))
    other = np.where(portfolio.sensitive == portfolio.groups[0], portfolio.groups[1], portfolio.groups[0])
    reports = {keep: np.where(luck < keep, portfolio.sensitive, other) for keep in KEEPS}
    tables = [_truth(portfolio), _estimates(portfolio, reports, seed)]
    for keep, assumed, method in FITS:
        sensitive = portfolio.sensitive if method == MPTP else reports[keep]
        pricer = _pricer(portfolio, method, assumed, size, seed)
        try:
            with warnings.catch_warnings():  # keep is wrong on purpose
                warnings.simplefilter("ignore", ChannelRefutedWarning)
                pricer.fit(portfolio.X, portfolio.y, sensitive=sensitive)
            prices = _prices(portfolio, pricer)
        except FairPremiumError:  # a refusal is a result: no price
            prices = tables[0].assign(value=np.nan)
        tables.append(prices.assign(keep=keep, assumed=assumed, method=method))
    return pd.concat(tables, ignore_index=True)[COLUMNS]


def _estimates(portfolio: SimulatedPortfolio, reports: dict[float, Any], seed: int) -> pd.DataFrame:
    """Estimate keep by the anchor method; this portfolio has no anchor."""
    found = []
    for keep, report in reports.items():
        noise = AnchorNoise(4, aggregate="keep", random_state=seed, groups=portfolio.groups)
        noise.fit(portfolio.X, sensitive=report)
        found.append((ESTIMATED_KEEP, keep, 0.0, "n1 = 4", 0, False, "", noise.keep_))
    return pd.DataFrame(found, columns=COLUMNS)


def _fits() -> Iterator[tuple[float, float, str]]:
    yield 0.0, 0.0, MPTP
    for keep in KEEPS:
        yield keep, keep, NAIVE
        for assumed in (keep, *PERTURBED.get(keep, ())):
            yield keep, assumed, PAPER
            yield keep, assumed, OURS


FITS = list(_fits())  # (keep, assumed keep, method) of every fit of a seed


def _pricer(
    portfolio: SimulatedPortfolio, method: str, assumed: float, size: RunSize, seed: int
) -> DiscriminationFreePricer:
    model = NeuralModel.paper(
        activation="tanh",
        learning_rate=0.05,
        batch_size=512,
        max_epochs=size.net_epochs,
        patience=size.net_epochs,
        device="cpu",
    )
    channel: Any = None
    how: dict[str, Any] = {"pooling": 0}
    if method in (PAPER, OURS):
        channel = RandomizedResponse(portfolio.groups, keep=assumed)
        how = {"correction": "inverse", "pooling": 0} if method == PAPER else {}
    return DiscriminationFreePricer(portfolio.family, model, channel=channel, intervals=False, random_state=seed, **how)


def _prices(portfolio: SimulatedPortfolio, pricer: DiscriminationFreePricer) -> pd.DataFrame:
    """Return the three prices of every risk."""
    grid = risk_grid()
    best = pricer.predict_best_estimate(grid)[list(portfolio.groups)].to_numpy()
    return _long(portfolio, grid, best, pricer.predict_unaware(grid), pricer.predict(grid))


def _truth(portfolio: SimulatedPortfolio) -> pd.DataFrame:
    grid = risk_grid()
    best = portfolio.best_estimate(grid).to_numpy()
    long = _long(portfolio, grid, best, portfolio.unaware(grid), portfolio.discrimination_free(grid))
    return long.assign(keep=0.0, assumed=0.0, method=TRUTH)


def _long(portfolio: SimulatedPortfolio, grid: pd.DataFrame, best: Array, unaware: Array, free: Array) -> pd.DataFrame:
    tables = [grid.assign(price=BEST, group=group, value=best[:, k]) for k, group in enumerate(portfolio.groups)]
    tables += [grid.assign(price=price, group="", value=value) for price, value in ((UNAWARE, unaware), (FREE, free))]
    return pd.concat(tables, ignore_index=True)


def squared_errors(runs: pd.DataFrame) -> pd.DataFrame:
    """Compute the mean squared error of each fit's best estimates over the true distribution of (x, d).

    `runs` are tables of `run_synthetic` with a column `seed`. The result has the columns seed, keep, assumed, method,
    risk_class, share (of the class) and error (mean square within it).
    """
    best = runs[runs["price"] == BEST]
    keys = ["seed", "age", "smoker", "group"]
    truth = best[best["method"] == TRUTH].set_index(keys)["value"].rename("true")
    data = best[best["method"] != TRUTH].join(truth, on=keys)
    data = data.assign(
        error=(data["value"] - data["true"]) ** 2,
        risk_class=[class_name(g, s) for g, s in zip(data["group"], data["smoker"], strict=True)],
    )
    by = ["seed", "keep", "assumed", "method", "risk_class"]
    found = data.groupby(by, as_index=False, sort=False)["error"].agg(lambda e: e.mean(skipna=False))
    return found.assign(share=found["risk_class"].map(class_shares()))


def class_name(group: str, smoker: bool) -> str:
    """Return the name of a risk class, such as "women, smokers"."""
    return f"{'women' if group == 'F' else 'men'}, {'smokers' if smoker else 'non-smokers'}"


def class_shares() -> dict[str, float]:
    """Return P(D = d, smoker) of the four risk classes; age is independent of both."""
    grid = risk_grid().drop_duplicates("smoker")
    q = zhang_liu_shi_2025(2, rng=0).propensity(grid)
    return {
        class_name(group, smoker): float(q[group].iloc[i]) * (0.3 if smoker else 0.7)
        for i, smoker in enumerate(grid["smoker"])
        for group in q.columns
    }
