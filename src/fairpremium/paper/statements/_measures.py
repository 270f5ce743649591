"""The numbers that statements are about, one for each seed, read off the tables of the experiments."""

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.paper import _synthetic
from fairpremium.paper._real import EXACT, FULL_SAMPLE, RAW
from fairpremium.paper._setup import MPTP, NAIVE, OURS, PAPER

CONVERGED = 0.05  # share of the last test loss


class Synthetic:
    """Prices of the synthetic portfolio."""

    def __init__(self, runs: pd.DataFrame):
        self.runs = runs
        self.errors = _synthetic.squared_errors(runs)

    def error(self, method: str, keep: float = 0.0, assumed: float | None = None) -> Array:
        """Return the root mean square error of mu(x, d) by seed."""
        rows = self._rows(method, keep, keep if assumed is None else assumed)
        return np.asarray(np.sqrt((rows["error"] * rows["share"]).groupby(rows["seed"]).sum(min_count=4)))

    def class_errors(self, method: str) -> dict[str, Array]:
        """Return the root mean square error by risk class and seed, with the true attribute."""
        rows = self._rows(method, 0.0, 0.0)
        return {
            str(name): np.sqrt(of_class["error"].to_numpy())
            for name, of_class in rows.groupby("risk_class", sort=False)
        }

    def class_means(self) -> dict[str, float]:
        """Return the true mean cost of each risk class."""
        first = self.runs[self.runs["seed"] == self.runs["seed"].min()]
        rows = first[(first["method"] == _synthetic.TRUTH) & (first["price"] == _synthetic.BEST)]
        means = rows.groupby(["group", "smoker"])["value"].mean()
        return {_synthetic.class_name(str(g), bool(s)): float(v) for (g, s), v in means.items()}

    def surcharge(self, method: str, smoker: bool) -> Array:
        """Return the unaware minus the discrimination-free price by seed, mean over ages."""
        rows = self.runs[(self.runs["method"] == method) & (self.runs["smoker"] == smoker)]
        mean = rows.groupby(["price", "seed"])["value"].mean()
        return np.asarray(mean[_synthetic.UNAWARE] - mean[_synthetic.FREE], dtype=np.float64)

    def estimated_keep(self, keep: float) -> Array:
        """Return the anchor estimates by seed."""
        rows = self.runs[(self.runs["price"] == _synthetic.ESTIMATED_KEEP) & (self.runs["keep"] == keep)]
        return np.asarray(rows.sort_values("seed")["value"])

    def _rows(self, method: str, keep: float, assumed: float) -> pd.DataFrame:
        table = self.errors
        return table[(table["method"] == method) & (table["keep"] == keep) & (table["assumed"] == assumed)]


class Real:
    """Test losses on a real portfolio."""

    def __init__(self, runs: pd.DataFrame):
        self.runs = runs
        self.losses = (
            runs[runs["quantity"] == "loss"].set_index(["method", "features", "sample", "keep", "assumed"]).sort_index()
        )
        self.last = int(self.losses["epoch"].max())

    def curve(
        self, features: str, method: str = PAPER, keep: float = 0.9, assumed: str = EXACT, sample: str = FULL_SAMPLE
    ) -> pd.DataFrame:
        """Return test losses, one row for each seed and one column for each recorded epoch."""
        if method in (MPTP, NAIVE):  # nothing is assumed, and the true attribute has no keep
            keep, assumed = 0.0 if method == MPTP else keep, ""
        key = (method, features, sample, keep, assumed)
        return self.losses.loc[[key]].pivot(index="seed", columns="epoch", values="value")

    def loss(
        self, features: str, method: str = PAPER, keep: float = 0.9, assumed: str = EXACT, sample: str = FULL_SAMPLE
    ) -> Array:
        """Return the test loss after the last epoch by seed."""
        table = self.curve(features, method, keep, assumed, sample)
        return np.asarray(table[0 if method == OURS else self.last])

    def epochs_to_converge(self, features: str, keep: float) -> Array:
        """Return the first recorded epoch from which on the test loss stays near its last value, by seed."""
        table = self.curve(features, keep=keep)
        last = table[self.last].to_numpy()[:, None]
        away = np.abs(table.to_numpy() - last) > CONVERGED * last
        epochs = np.asarray(table.columns)
        first = away.shape[1] - np.argmax(away[:, ::-1], axis=1)  # the one after the last that is away
        found = np.where(away.any(axis=1), epochs[np.minimum(first, len(epochs) - 1)], epochs[0])
        return np.asarray(found, dtype=float)

    def epochs_to_reach(self, features: str, keep: float) -> Array:
        """Return the first recorded epoch at which the test loss is near the last one of X or below it, by seed.

        Where that never happens it is the last epoch.
        """
        table = self.curve(features, keep=keep)
        there = table.to_numpy() <= (1 + CONVERGED) * self.loss(RAW, keep=keep)[:, None]
        first = np.asarray(table.columns)[there.argmax(axis=1)]
        return np.asarray(np.where(there.any(axis=1), first, self.last), dtype=float)

    def estimated_keep(self, keep: float, sample: str = FULL_SAMPLE) -> Array:
        """Return the anchor estimates from four splits by seed."""
        r = self.runs
        wanted = (r["quantity"] == "keep") & (r["keep"] == keep) & (r["assumed"] == "n1 = 4") & (r["sample"] == sample)
        return np.asarray(r[wanted].sort_values("seed")["value"])


def percent(worse: Array, better: Array) -> Array:
    """Return by how many per cent one loss is above another, on the scale of logarithms (100 log(a/b))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return 100 * np.log(worse / better)
