"""What a portfolio is: features, outcome, sensitive attribute, volume; a simulated one knows its truth."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairpremium.arrays import Array


class Truth(Protocol):
    """The data-generating process behind a simulated portfolio."""

    @property
    def group_distribution(self) -> dict[str, float]:
        """P(D), one entry per group, in the order of the groups."""

    def means(self, X: Any) -> Array:
        """mu(x, d), shape (n_samples, n_groups)."""

    def propensities(self, X: Any) -> Array:
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
        The outcome family that suits y: "normal", "poisson", "gamma" or "bernoulli".
    sample_weight : ndarray of shape (n_samples,) or None
        Volume (exposure for frequencies); None when every row counts once.
    counts, amounts : ndarray of shape (n_samples,) or None
        Number and total amount of each row's claims, where they are known.
    dropped_rows : int
        Rows of the source that were left out because a value was missing.
    """

    name: str
    X: pd.DataFrame
    y: Array
    sensitive: NDArray[np.object_]
    groups: tuple[str, ...]
    family: str
    sample_weight: Array | None = None
    counts: Array | None = None
    amounts: Array | None = None
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
        The process that it was drawn from; the methods below use it.
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

    def unaware(self, X: Any) -> Array:
        """Return the true mu(x) = E[Y given X = x] = sum_d mu(x, d) P(D = d given X = x)."""
        return np.asarray((self.truth.means(X) * self.truth.propensities(X)).sum(axis=1))

    def discrimination_free(self, X: Any, reference: Mapping[str, float] | None = None) -> Array:
        """Return the true h*(x) = sum_d mu(x, d) P*(d).

        Parameters
        ----------
        X : data frame
            Features, with the columns of `self.X`.
        reference : mapping of group to weight, optional
            P*. Default: the true P(D).
        """
        reference = self.group_distribution if reference is None else reference
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
        return np.asarray(self.truth.means(X) @ P)

    def _frame(self, X: Any, values: Array) -> pd.DataFrame:
        return pd.DataFrame(values, columns=list(self.groups), index=getattr(X, "index", None))
