"""What a portfolio is: features, outcome, sensitive attribute, volume; a simulated one knows its truth."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

__all__ = ["Portfolio", "SimulatedPortfolio", "Truth"]


class Truth(Protocol):
    """The data-generating process behind a simulated portfolio."""

    @property
    def group_distribution(self) -> dict[str, float]:
        """P(D), one entry per group, in the order of the groups."""

    def means(self, X: Any) -> NDArray[np.float64]:
        """mu(x, d), shape (n_samples, n_groups)."""

    def propensities(self, X: Any) -> NDArray[np.float64]:
        """P(D = d given X = x), shape (n_samples, n_groups)."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Portfolio:
    """A portfolio of policies, one row each.

    Attributes
    ----------
    name : str
        Where it comes from.
    X : DataFrame of shape (n_samples, n_features)
        Non-sensitive features, without the sensitive column and without identifiers.
    y : ndarray of shape (n_samples,)
        Outcome per unit of volume: a cost, a claim frequency, or 0 and 1.
    sensitive : ndarray of shape (n_samples,), dtype object
        The true attribute D. Privatize it before it goes anywhere.
    groups : tuple of str
        The values of D.
    family : str
        The outcome family that suits y: "normal", "poisson" or "bernoulli".
    sample_weight : ndarray of shape (n_samples,) or None
        Volume (exposure for frequencies); None when every row counts once.
    dropped_rows : int
        Rows of the source that were left out because a value was missing.
    """

    name: str
    X: pd.DataFrame
    y: NDArray[np.float64]
    sensitive: NDArray[np.object_]
    groups: tuple[str, ...]
    family: str
    sample_weight: NDArray[np.float64] | None = None
    dropped_rows: int = 0

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name!r}, {len(self)} rows, groups {self.groups}, "
            f"family {self.family!r}, features {list(self.X.columns)})"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SimulatedPortfolio(Portfolio):
    """A portfolio whose true prices are known, for any X with the same columns.

    Attributes
    ----------
    truth : Truth
        The process it was drawn from; the methods below read it.
    """

    truth: Truth

    @property
    def group_distribution(self) -> dict[str, float]:
        """The true P(D)."""
        return self.truth.group_distribution

    def best_estimate(self, X: Any) -> pd.DataFrame:
        """Return the true mu(x, d) = E[Y given X = x, D = d], one column per group."""
        return self._frame(X, self.truth.means(X))

    def propensity(self, X: Any) -> pd.DataFrame:
        """Return the true P(D = d given X = x), one column per group."""
        return self._frame(X, self.truth.propensities(X))

    def unaware(self, X: Any) -> NDArray[np.float64]:
        """Return the true mu(x) = E[Y given X = x] = sum_d mu(x, d) P(D = d given X = x)."""
        price: NDArray[np.float64] = (self.truth.means(X) * self.truth.propensities(X)).sum(axis=1)
        return price

    def discrimination_free(self, X: Any, reference: Mapping[str, float] | None = None) -> NDArray[np.float64]:
        """Return the true h*(x) = sum_d mu(x, d) P*(d).

        Parameters
        ----------
        X : data frame
            Features, with the columns of `self.X`.
        reference : mapping of group to weight, optional
            P*. Default: the true P(D).
        """
        if reference is None:
            reference = self.group_distribution
        price: NDArray[np.float64] = self.truth.means(X) @ self._check_reference(reference)
        return price

    def _check_reference(self, reference: Mapping[str, float]) -> NDArray[np.float64]:
        if set(reference) != set(self.groups):
            raise ValueError(
                f"Got reference with groups {sorted(map(str, reference))}, but expected one weight "
                f"for each of {list(self.groups)}."
            )
        P = np.array([float(reference[group]) for group in self.groups])
        if not (P >= 0).all() or not np.isclose(P.sum(), 1.0, rtol=0, atol=1e-9):
            raise ValueError(
                f"Got reference={dict(reference)}, but expected weights that are not negative and sum to "
                "one. Divide them by their sum."
            )
        return P

    def _frame(self, X: Any, values: NDArray[np.float64]) -> pd.DataFrame:
        return pd.DataFrame(values, columns=list(self.groups), index=getattr(X, "index", None))


def check_rows(n: int) -> int:
    """Return `n` as an int, refusing everything that is not a positive whole number."""
    try:
        rows = operator.index(n)
    except TypeError:
        raise TypeError(f"Got n={n!r}, but expected a positive whole number of rows.") from None
    if rows < 1:
        raise ValueError(f"Got n={n}, but expected a positive whole number of rows.")
    return rows


def column(X: Any, name: str) -> NDArray[Any]:
    """Return the column `name` of the data frame `X` as an array."""
    columns = getattr(X, "columns", None)
    if columns is None:
        raise TypeError(
            f"Got X of type {type(X).__name__}, but expected a data frame with a column {name!r}, like `portfolio.X`."
        )
    if name not in columns:
        raise ValueError(f"Got X with columns {list(columns)}, but expected a column {name!r}, like `portfolio.X`.")
    return np.asarray(X[name])


def number_column(X: Any, name: str) -> NDArray[np.float64]:
    """Return a numeric column of `X` as floats."""
    try:
        return column(X, name).astype(np.float64)
    except (TypeError, ValueError) as error:
        if "expected" in str(error):
            raise
        raise ValueError(f"Got column {name!r} with values that are not numbers, but expected numbers.") from None


def draw_labels(
    groups: tuple[str, ...], probabilities: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.object_]]:
    """Draw one group per row of `probabilities`, shape (n_samples, n_groups); return positions and labels."""
    cumulative = np.cumsum(np.asarray(probabilities, dtype=np.float64), axis=1)
    u = rng.random(len(cumulative)) * cumulative[:, -1]  # in [0, total): the last position is never passed
    positions = (u[:, None] >= cumulative).sum(axis=1)
    return positions, np.array(groups, dtype=object)[positions]
