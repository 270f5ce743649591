"""The three prices side by side, averaged over risk classes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri, stdtrit

from fairpremium.arrays import Array
from fairpremium.models import check_weight
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, check_level

from ._audit_data import class_codes
from .drawing import BEST_ESTIMATE, DISCRIMINATION_FREE, UNAWARE

_BLOCK_ROWS = 50_000


def compute_price_comparison(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    X: Any,
    *,
    by: Any = None,
    level: float = 0.95,
    truth: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
) -> pd.DataFrame:
    """Average the best estimates, the unaware and the discrimination-free price over risk classes.

    Within a class all prices are averaged over the same rows, so that differences between them come from the
    way of pricing and not from who is in the class.

    Parameters
    ----------
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
        Fitted.
    X : data frame or array of shape (n, features)
    by : str or array-like of shape (n,), optional
        The risk class of each row, or the name of a column of `X` that holds it. Default: one class, "all".
        Classes come in the order of their categories, or else of their first row.
    level : float
        Confidence level of the interval of the mean discrimination-free price; ignored for a pricer without
        intervals.
    truth : object with ``best_estimate``, ``unaware`` and ``discrimination_free``, optional
        A simulated portfolio; adds the column `truth`.
    sample_weight, exposure : array-like of shape (n,), optional
        Volumes, by which prices are averaged; one of the two.

    Returns
    -------
    DataFrame
        One row per class and price with the columns

        - `risk_class`, `rows`, `share`: the class, its rows, its share of the volume;
        - `price`: "best_estimate", "unaware" or "discrimination_free";
        - `group`: the group of a best estimate, missing otherwise;
        - `mean`: the mean price;
        - `low`, `high`: confidence limits of the mean (discrimination-free price only, nan elsewhere);
        - `truth`: the true mean price, if `truth` is given.

    Notes
    -----
    `low` and `high` are limits of the mean of h*(x) over the rows of the class, from the covariance of their premiums
    (`covariance_root`). They are narrower than the limits of single premiums, whose errors partly cancel in a mean.

    Examples
    --------
    >>> from fairpremium import RandomizedResponse
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=2000, rng=0)
    >>> pricer = DiscriminationFreePricer(pooling=0).fit(p.X, p.y, sensitive=p.sensitive)
    >>> table = compute_price_comparison(pricer, p.X, by="smoker", truth=p)
    >>> table.columns.tolist()
    ['risk_class', 'rows', 'share', 'price', 'group', 'mean', 'low', 'high', 'truth']
    >>> table["price"].unique().tolist()
    ['best_estimate', 'unaware', 'discrimination_free']
    """
    best = np.asarray(pricer.predict_best_estimate(X), dtype=np.float64)  # (n, n_groups)
    level = check_level(level)
    prices = [
        *((BEST_ESTIMATE, group, best[:, k]) for k, group in enumerate(pricer.groups_)),
        (UNAWARE, None, pricer.predict_unaware(X)),
        (DISCRIMINATION_FREE, None, pricer.predict(X)),
    ]
    given = check_weight(sample_weight, len(best), exposure=exposure)
    weight = np.ones(len(best)) if given is None else given
    codes, classes = named_classes(X, by, len(best))
    true_prices = []
    if truth is not None:
        true_best = truth.best_estimate(X)
        true_prices = [*(true_best[g] for g in pricer.groups_), truth.unaware(X), truth.discrimination_free(X)]
    volumes = [np.where(codes == k, weight, 0.0) for k in range(len(classes))]
    widths = _mean_widths(pricer, X, volumes, level)
    rows = []
    for k, risk_class in enumerate(classes):
        member, volume = codes == k, volumes[k]
        for j, (price, group, values) in enumerate(prices):
            mean = _mean(values, volume)
            width = widths[k] if price == DISCRIMINATION_FREE else np.nan
            row = {
                "risk_class": risk_class,
                "rows": int(member.sum()),
                "share": float(volume.sum() / weight.sum()),
                "price": price,
                "group": group,
                "mean": mean,
                "low": mean - width,
                "high": mean + width,
            }
            if truth is not None:
                row["truth"] = _mean(np.asarray(true_prices[j], dtype=np.float64), volume)
            rows.append(row)
    return pd.DataFrame(rows)


def named_classes(X: Any, by: Any, n: int) -> tuple[npt.NDArray[Any], list[Any]]:
    """Return the position of each row's class, and the classes in order."""
    if by is None:
        return np.zeros(n, dtype=np.intp), ["all"]
    if isinstance(by, str):
        if by not in getattr(X, "columns", []):
            raise ValueError(
                f"Got by={by!r}, but X has the columns {list(getattr(X, 'columns', []))}. Name one of them, or "
                "give one class per row."
            )
        by = X[by]
    return class_codes(by, n)


def _mean(values: Array, weight: Array) -> float:
    total = float(weight.sum())
    return float(values @ weight / total) if total else float("nan")


def _mean_widths(pricer: Any, X: Any, volumes: list[Array], level: float) -> list[float]:
    """Compute half the width of the interval of the mean premium over each class; nan without intervals."""
    totals = [float(volume.sum()) for volume in volumes]
    found = premium_errors(pricer, X, [v / total if total else v for v, total in zip(volumes, totals, strict=True)])
    if found is None:
        return [float("nan")] * len(volumes)
    errors, freedom = found
    x = float(ndtri(0.5 + level / 2) if np.isinf(freedom) else stdtrit(freedom, 0.5 + level / 2))
    return [x * error if total else float("nan") for error, total in zip(errors, totals, strict=True)]


def premium_errors(pricer: Any, X: Any, weights: list[Array]) -> tuple[list[float], float] | None:
    """Compute the standard errors of sums a'h*(X) of premiums, and their degrees of freedom.

    - `weights` (list of arrays of shape (n,)): One a for each sum.

    Returns None if the pricer has no intervals.
    """
    A = np.array(weights)  # (sums, n)
    total: Array | None = None
    freedom = np.inf
    for start in range(0, A.shape[1], _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        found = pricer.covariance_root(X.iloc[rows] if hasattr(X, "iloc") else X[rows])
        if found is None:
            return None
        part, freedom = A[:, rows] @ found[0], found[1]
        total = part if total is None else total + part
    return None if total is None else ([float(np.linalg.norm(row)) for row in total], freedom)
