"""Rows that a fit does not see, and how well its prices do on them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils import check_random_state

from fairpremium.arrays import Array
from fairpremium.audit import compute_gini
from fairpremium.audit.tables import EVERYONE, as_pandas, mean_columns
from fairpremium.families import Tweedie, get_family
from fairpremium.models import check_cluster
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from ._diagnosed import read_rows

_NONE = {name: float("nan") for name in ("gini", "gini_low", "gini_high")}


def hold_out(n: int, test: float, *, cluster: Any = None, random_state: Any = None) -> npt.NDArray[np.bool_]:
    """Choose rows at random that a fit is not to see.

    Parameters
    ----------
    n : int
        Number of rows.
    test : float
        Share of them to hold out, strictly between 0 and 1.
    cluster : array-like of shape (n,), optional
        Who a row belongs to; all rows of a person go to the same side.
    random_state : None, int, RandomState

    Returns
    -------
    bool array of shape (n,)
        True for the rows to hold out.

    Examples
    --------
    >>> int(hold_out(10, 0.2, random_state=0).sum())
    2
    """
    if isinstance(test, bool) or not isinstance(test, int | float) or not 0 < test < 1:
        raise ValueError(f"Got test={test!r}, but expected a share strictly between 0 and 1, such as 0.2.")
    person = check_cluster(cluster, n)
    person = np.arange(n) if person is None else person
    persons = int(person.max()) + 1
    size = round(test * persons)
    if not 0 < size < persons:
        raise ValueError(f"Got test={test!r}, which holds out {size} of {persons}; expected some rows on both sides.")
    chosen = np.zeros(persons, dtype=bool)
    chosen[check_random_state(random_state).permutation(persons)[:size]] = True
    return np.asarray(chosen[person])


def evaluate(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Measure the prices of a fitted pricer on rows, best on such as it has not seen.

    Parameters
    ----------
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
    X, y, sample_weight, exposure, cluster
        The rows, as for `fit`; y is a total over the exposure if there is one. For a `FrequencySeverityPricer` it is
        the total amount of all perils.
    sensitive : array-like of shape (n,), optional
        Reports, or the true attribute if the pricer was fitted on it: adds a row for the best estimates.
    channel_key : array-like of shape (n,), optional
        The source of each row, if the pricer was fitted on several.
    level : float
        Confidence level.

    Returns
    -------
    pandas.DataFrame
        One row per price, "discrimination_free", "unaware" and perhaps "best_estimate":

        - `price`; `deviance`: mean deviance of the pricer's family; that of claims is Tweedie with power 1.5;
        - `deviance_explained`: one minus it over that of the mean loss of these rows;
        - `gini`, `gini_low`, `gini_high`: see `fairpremium.audit.compute_gini`; nan for best estimates, which differ
          between people of unknown group;
        - `ratio`, `ratio_low`, `ratio_high`: observed over expected losses.

    Notes
    -----
    Deviance and ratio of the best estimates are estimated from the reports: with a_ik = w_i T^-1[k, s_i] they are
    sum_ik a_ik d(y_i, mu(x_i, k)) / sum_ik a_ik and sum_ik a_ik y_i / sum_ik a_ik mu(x_i, k).
    """
    prices = {"discrimination_free": pricer.predict(X), "unaware": pricer.predict_unaware(X)}
    data = read_rows(
        dict(prices), y, sensitive, None if sensitive is None else pricer.channel_, sample_weight, exposure, cluster,
        level, channel_key=channel_key,
    )  # fmt: skip
    claims = isinstance(pricer, FrequencySeverityPricer)
    family = Tweedie(1.5) if claims else get_family(pricer.family)
    losses, w = data["y"], data.reports.weight
    family.check_outcome(losses)
    mean = np.full(len(losses), w @ losses / w.sum())
    null = family.unit_deviance(losses, mean)

    def explained(deviance: float, weights: Array) -> float:
        return 1 - deviance / float(weights @ null / weights.sum())

    records = []
    for name, price in prices.items():
        totals = data.totals([name, "y"], [EVERYONE])
        gini = as_pandas(compute_gini(price, losses, sample_weight=w, cluster=cluster, level=level)).iloc[0]
        deviance = float(w @ family.unit_deviance(losses, price) / w.sum())
        ratio = mean_columns("ratio", totals["y"], totals[name], data.level)
        records.append({
            "price": name,
            "deviance": deviance,
            "deviance_explained": explained(deviance, w),
            **{key: float(gini[key]) for key in _NONE},
            **{key: float(value[0]) for key, value in ratio.items()},
        })  # fmt: skip
    if sensitive is not None:
        records.append(_best_estimates(pricer, X, data, family, explained))
    return pd.DataFrame(records)


def _best_estimates(pricer: Any, X: Any, data: Any, family: Any, explained: Any) -> dict[str, Any]:
    best = np.asarray(pricer.predict_best_estimate(X), dtype=np.float64)
    deviances = family.unit_deviance(data["y"][:, None], best)
    totals = data.with_columns(best=best, deviance=deviances).totals(["best", "y", "deviance"], range(len(data.groups)))
    sums = {name: total.sum() for name, total in totals.items()}
    deviance = float((sums["deviance"] / sums["volume"]).value[0])
    reported = data.reports.weight * (data.reports.code < data.reports.table.shape[1] - 1)
    ratio = mean_columns("ratio", sums["y"], sums["best"], data.level)
    return {
        "price": "best_estimate",
        "deviance": deviance,
        "deviance_explained": explained(deviance, reported),
        **_NONE,
        **{key: float(value[0]) for key, value in ratio.items()},
    }
