"""The experiments of Section 6 and of the appendix: test loss against epochs on health and auto data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.errors import ChannelRefutedWarning, FairPremiumError
from fairpremium.models import Design, LinearModel, NeuralRepresentation
from fairpremium.noise import AnchorNoise
from fairpremium.paper._descent import LOSSES, descend, held_out_loss, record_epochs
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER, SEED, RunSize
from fairpremium.portfolios import Portfolio
from fairpremium.pricing import DiscriminationFreePricer, inverse_constants
from fairpremium.privacy import RandomizedResponse

Rows = npt.NDArray[np.intp]  # positions of rows, or a group for each
Assumption = tuple[float, str, float]  # true keep, name, assumed keep

RAW, LEARNED = "X", "X~"
FULL_SAMPLE, HALF_SAMPLE = "full", "half"
EXACT, LOW, HIGH = "exact", "-10 %", "+10 %"
SPLITS = {"n1 = 2": 2, "n1 = 4": 4}
COLUMNS = ["quantity", "features", "sample", "keep", "assumed", "method", "epoch", "value"]


@dataclass(frozen=True)
class Split:
    """One draw of training rows, test rows and luck."""

    train: Rows  # positions of rows
    half: Rows  # a half of `train`
    test: Rows
    luck: Array  # a uniform number for each row of the portfolio: the report is true where it is below keep

    @classmethod
    def draw(cls, n: int, rows: int | None, seed: int) -> Split:
        """Draw 80 % and 20 % of the rows."""
        rng = np.random.default_rng([SEED, 1, seed])
        order = rng.permutation(n)[:rows]
        cut = round(0.8 * len(order))
        train = np.sort(order[:cut])
        half = np.sort(rng.permutation(train)[: cut // 2])
        return cls(train, half, np.sort(order[cut:]), rng.random(n))

    def reports(self, group: Rows, keep: float) -> Rows:
        """Randomize the groups (two of them) of all rows."""
        return np.where(self.luck < keep, group, 1 - group)


@dataclass(frozen=True)
class Table:
    """Rows as a model sees them: standardised columns of training and test rows, outcomes and true groups."""

    train: Array
    test: Array
    y_train: Array
    y_test: Array
    group_train: Rows
    group_test: Rows
    family: str


def run_real(portfolio: Portfolio, size: RunSize, seed: int) -> pd.DataFrame:
    """Run all experiments on one split of a portfolio with two groups.

    The table is long: `quantity` is "loss" (test loss after an epoch; epoch 0 for ours, which has none) or "keep" (an
    estimate).
    """
    group = np.array([portfolio.groups.index(d) for d in portfolio.sensitive], dtype=np.intp)
    split = Split.draw(len(portfolio), size.real_rows, seed)
    tables = []
    for sample, rows in ((FULL_SAMPLE, split.train), (HALF_SAMPLE, split.half)):
        raw = raw_table(portfolio, group, rows, split.test)
        learned = learned_table(portfolio, raw, rows, split.test, size, seed)
        estimates = list(estimate_keeps(portfolio, group, split, rows, sample, seed))
        tables.append(pd.DataFrame(estimates, columns=COLUMNS))
        cases = list(assumptions(sample, estimates))
        reports = {keep: split.reports(group, keep)[rows] for keep in KEEPS}
        for features, table in ((RAW, raw), (LEARNED, learned)):
            found = [_curves(table, cases, reports, size.descent_epochs), _ours(table, cases, reports, seed)]
            tables += [losses.assign(quantity="loss", features=features, sample=sample) for losses in found]
    return pd.concat(tables, ignore_index=True)[COLUMNS]


def raw_table(portfolio: Portfolio, group: Rows, rows: Rows, test: Rows) -> Table:
    """Return the columns of a portfolio, one-hot and standardised with the training rows."""
    matrix = Design.learn(portfolio.X).transform(portfolio.X)
    y = portfolio.y
    scaled = _standardise(matrix[rows], matrix[test])
    return Table(*scaled, y[rows], y[test], group[rows], group[test], portfolio.family)


def learned_table(portfolio: Portfolio, raw: Table, rows: Rows, test: Rows, size: RunSize, seed: int) -> Table:
    """Return X~, learned from the training rows without any sensitive attribute."""
    net = NeuralRepresentation(
        portfolio.family, layers=(32, 8), max_epochs=size.representation_epochs, device="cpu", random_state=seed
    )
    net.fit(portfolio.X.iloc[rows], portfolio.y[rows])
    train, fresh = _standardise(*(net.transform(portfolio.X.iloc[i]).to_numpy() for i in (rows, test)))
    return replace(raw, train=train, test=fresh)


def _standardise(train: Array, test: Array) -> tuple[Array, Array]:
    center, scale = train.mean(axis=0), train.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return (train - center) / scale, (test - center) / scale


def estimate_keeps(
    portfolio: Portfolio, group: Rows, split: Split, rows: Rows, sample: str, seed: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the anchor estimates of keep (Procedure 4.5), as rows of the table."""
    for keep in KEEPS:
        reports = np.array(portfolio.groups, dtype=object)[split.reports(group, keep)[rows]]
        for assumed, n_splits in SPLITS.items():
            noise = AnchorNoise(n_splits, aggregate="keep", random_state=seed, groups=portfolio.groups)
            noise.fit(portfolio.X.iloc[rows], sensitive=reports)
            yield "keep", "", sample, keep, assumed, "", 0, noise.keep_


def assumptions(sample: str, estimates: list[tuple[Any, ...]]) -> Iterator[Assumption]:
    """Yield (true keep, name, assumed keep): the experiments of a sample size."""
    found = {(row[3], row[4]): row[7] for row in estimates if row[0] == "keep"}
    if sample == HALF_SAMPLE:
        yield 0.9, EXACT, 0.9
        yield 0.9, "n1 = 4", found[0.9, "n1 = 4"]
        return
    for keep in KEEPS:
        yield keep, EXACT, keep
        yield keep, LOW, 0.9 * keep
        yield keep, HIGH, 1.1 * keep
        for assumed in SPLITS:
            yield keep, assumed, found[keep, assumed]


def _curves(table: Table, cases: list[Assumption], reports: dict[float, Rows], epochs: int) -> pd.DataFrame:
    """Descend with the true groups, with the reports taken for them, and with the corrected risk of every case."""
    labels: list[tuple[float, str, str]] = [(0.0, "", MPTP)]
    weights = [np.eye(2)[table.group_train]]
    for keep in sorted({keep for keep, _, _ in cases}, reverse=True):
        labels.append((keep, "", NAIVE))
        weights.append(np.eye(2)[reports[keep]])
    for keep, assumed, value in cases:
        labels.append((keep, assumed, PAPER))
        weights.append(inverse_weights(reports[keep], value))
    squared = table.family == "normal"  # descent takes mean and standard deviation out
    center, scale = (float(table.y_train.mean()), float(table.y_train.std())) if squared else (0.0, 1.0)
    X, fresh = (np.column_stack([np.ones(len(Z)), Z]) for Z in (table.train, table.test))
    beta = descend(X, (table.y_train - center) / scale, np.hstack(weights), family=table.family, epochs=epochs)
    beta = beta.reshape(*beta.shape[:2], len(labels), 2).swapaxes(1, 2)  # (epochs, cases, p, K)
    loss = held_out_loss(fresh, (table.y_test - center) / scale, table.group_test, beta, family=table.family)
    return pd.DataFrame(
        [
            (keep, assumed, method, epoch, value)
            for (keep, assumed, method), column in zip(labels, loss.T * scale**2, strict=True)
            for epoch, value in zip(record_epochs(epochs), column, strict=True)
        ],
        columns=COLUMNS[3:],
    )


def _ours(table: Table, cases: list[Assumption], reports: dict[float, Rows], seed: int) -> pd.DataFrame:
    """Fit `correction="auto"` in every case; a fit that the library refuses has no loss (nan)."""
    found = []
    ridge = 1.0 if table.family == "bernoulli" else 0.0
    for keep, assumed, value in cases:
        pricer = DiscriminationFreePricer(
            table.family,
            LinearModel(ridge=ridge),
            channel=RandomizedResponse([0, 1], keep=value) if value < 1 else None,
            intervals=False,
            random_state=seed,
        )
        try:
            with warnings.catch_warnings():  # keep is wrong on purpose
                warnings.simplefilter("ignore", ChannelRefutedWarning)
                pricer.fit(table.train, table.y_train, sensitive=reports[keep])
            price = pricer.predict_best_estimate(table.test).to_numpy()
            own = price[np.arange(len(price)), table.group_test]
            if table.family == "bernoulli":
                own = np.log(own) - np.log1p(-own)
            loss = float(LOSSES[table.family](table.y_test, own).mean())
        except FairPremiumError:
            loss = float("nan")
        found.append((keep, assumed, OURS, 0, loss))
    return pd.DataFrame(found, columns=COLUMNS[3:])


def inverse_weights(reports: Rows, keep: float) -> Array:
    """Return T^-1[k, s_i], shape (n, 2)."""
    C1, C2 = inverse_constants(2, keep)
    return np.array([[C1, C2], [C2, C1]])[reports]
