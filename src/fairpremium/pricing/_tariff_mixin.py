"""What every pricer can do with its premiums as a whole: how they vary together, and the closest tariff."""

from collections.abc import Mapping
from typing import Any

from fairpremium.arrays import Array
from fairpremium.pricing._level import check_level
from fairpremium.pricing._prices import Prices
from fairpremium.tariffs import Tariff, fit_tariff


class TariffMixin:
    """Methods of a pricer that has `_fitted()`, its `Prices`, and `_matrix(X)`, the features of a table."""

    def covariance_root(self: Any, X: Any) -> tuple[Array, float] | None:
        """Compute how the premiums of several risks vary together.

        Parameters
        ----------
        X : data frame or array of shape (n, features)

        Returns
        -------
        tuple of an array and a float, or None
            A matrix R of shape (n, m) with R R' the estimated covariance of the premiums of these risks, and the
            degrees of freedom of that estimate (infinite for the linear model). None if the model has no intervals.
            The variance of a sum of premiums ``a @ predict(X)`` is ``((a @ R) ** 2).sum()``.
        """
        prices: Prices = self._fitted()
        matrix = self._matrix(X)
        return prices.covariance_root(matrix) if prices.has_intervals else None

    def to_tariff(
        self: Any,
        X: Any,
        exposure: Any = None,
        bands: Any = None,
        *,
        monotone: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Mapping[Any, float]] | None = None,
        rounding: float | None = None,
        minimum_premium: float | None = None,
        tolerance: float = 0.05,
        level: float = 0.95,
    ) -> Tariff:
        """Find the multiplicative tariff that is closest to the premium h* over a portfolio.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
            The portfolio.
        exposure : array of shape (n,), optional
            Exposure of each row; by default one.
        bands : dict, int, "bands" or "formula", optional
            How numeric columns enter: by column the edges of bands (``[25, 40, 65]``), the largest number of bands,
            "bands" for as few as `tolerance` needs, or "formula" for relativity ** x. A value that is not a dict is for
            all numeric columns. How other columns enter is chosen, see Notes.
        monotone : dict, optional
            Order of relativities: "up" or "down" for a numeric column, all levels in rising order for another one.
        fixed : dict, optional
            Given relativities: by factor a dict from level (or band, as in `Tariff.relativities`) to relativity.
        rounding : float, optional
            Round the relativities of tables to multiples of it, such as 0.01. The base is balanced again afterwards.
        minimum_premium : float, optional
            Smallest premium per unit of exposure. The base is balanced again, so that the total stays.
        tolerance : float
            Largest relative deviation from h* that chosen bands aim at.
        level : float
            Confidence level of the relativities' limits.

        Returns
        -------
        Tariff
            It prices, saves, and writes Excel, CSV and SQL. `Tariff.deviation` says how far it is from h*, measured
            after all constraints.

        Notes
        -----
        The tariff is a log-linear model with h* as its response and the exposure as weight, fitted by the
        quasi-likelihood of a Poisson mean: without constraints it has the total of h* in every level. If groups differ
        by a factor only (``LinearModel(slopes="common")`` and a log link), h* is multiplicative and the tariff is h*.

        A column along which h* has a few steps gets a band for each. Other numeric columns stay formulas if the largest
        deviation is then within `tolerance`. If it is not, those stay formulas that add at most a tenth of `tolerance`
        to the deviation of the finest bands, and the others get the fewest bands with which the largest deviation is
        within `tolerance`. Where bands cannot reach it, they add at most a tenth to the deviation of the finest ones,
        and `Tariff.notes` says so; formulas are used instead if they are closer.

        Limits of relativities come from the joint uncertainty of the premiums by the delta method. They leave
        constraints aside, and take the portfolio as given.
        """
        self._fitted()
        return fit_tariff(
            self,
            X,
            exposure,
            bands,
            monotone=monotone,
            fixed=fixed,
            rounding=rounding,
            minimum_premium=minimum_premium,
            tolerance=tolerance,
            level=check_level(level),
        )
