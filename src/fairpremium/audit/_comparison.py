"""The three prices side by side, averaged over risk classes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.models import check_weight
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from ._audit_data import class_codes

BEST_ESTIMATE = "best_estimate"
UNAWARE = "unaware"
DISCRIMINATION_FREE = "discrimination_free"


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
        Confidence level of the interval of the discrimination-free price; ignored for a pricer without
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
        - `low`, `high`: confidence limits (discrimination-free price only, nan elsewhere);
        - `truth`: the true mean price, if `truth` is given.

    Notes
    -----
    `low` and `high` are the means of the rows' limits. The standard error of a mean is at most the mean of the
    standard errors, so that the interval covers with at least the level (large samples, identity link).

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
    limits = pricer.predict_interval(X, level) if pricer.intervals else (None, None)
    prices = [
        *((BEST_ESTIMATE, group, best[:, k], None, None) for k, group in enumerate(pricer.groups_)),
        (UNAWARE, None, pricer.predict_unaware(X), None, None),
        (DISCRIMINATION_FREE, None, pricer.predict(X), *limits),
    ]
    volumes = check_weight(sample_weight, len(best), exposure=exposure)
    weight = np.ones(len(best)) if volumes is None else volumes
    codes, classes = named_classes(X, by, len(best))
    true_prices = []
    if truth is not None:
        true_best = truth.best_estimate(X)
        true_prices = [*(true_best[g] for g in pricer.groups_), truth.unaware(X), truth.discrimination_free(X)]
    rows = []
    for k, risk_class in enumerate(classes):
        member = codes == k
        volume = np.where(member, weight, 0.0)
        for j, (price, group, values, low, high) in enumerate(prices):
            row = {
                "risk_class": risk_class,
                "rows": int(member.sum()),
                "share": float(volume.sum() / weight.sum()),
                "price": price,
                "group": group,
                "mean": _mean(values, volume),
                "low": _mean(low, volume),
                "high": _mean(high, volume),
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


def _mean(values: Array | None, weight: Array) -> float:
    total = float(weight.sum())
    return float("nan") if values is None or not total else float(values @ weight / total)
