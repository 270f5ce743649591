"""What each of the five prices costs in accuracy, and how far it is from parity."""

from typing import Any

import numpy as np
import pandas as pd

from fairpremium.audit.tables import AuditData, as_pandas, frame_like_source
from fairpremium.families import Tweedie, get_family
from fairpremium.pricing import FrequencySeverityPricer

from ._parity_distance import compute_parity_distance
from ._price_spectrum import PriceSpectrum

_DISTANCE = ["kolmogorov", "kolmogorov_low", "kolmogorov_high", "wasserstein", "wasserstein_low", "wasserstein_high"]


def compute_spectrum(
    spectrum: PriceSpectrum,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare the five prices of a spectrum: accuracy and distance from demographic parity, best on held-out rows.

    Parameters
    ----------
    spectrum : PriceSpectrum
        Fitted.
    X, y, sample_weight, exposure, cluster
        The rows, as for the pricer's `fit`; y is a total over the exposure if there is one. For a
        `FrequencySeverityPricer` it is the total amount.
    sensitive : array-like of shape (n,)
        Reports, or the true attribute if the pricer was fitted on it.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        One row per price, from the most accurate to the one that is closest to parity:

        - `price`: "best_estimate", "unaware", "aware" (h*), "hyperaware", "corrective";
        - `needs_attribute`: whether quoting it takes the attribute of the person;
        - `premium`: mean, estimated from the reports where the price depends on the group;
        - `deviance`: mean deviance of the pricer's family (Tweedie with power 1.5 for claims); `excess`, `excess_low`,
          `excess_high`: less that of the best estimate, paired;
        - `kolmogorov`, `wasserstein` with limits, `p_value`, `note`: largest of all pairs of groups, see
          `compute_parity_distance`.

    Notes
    -----
    Means and deviances are sum_ik a_ik v_ik / sum_ik a_ik with a_ik = w_i T^-1[k, s_i]: those of all rows that
    reported, for prices that differ between groups too. Limits hold the chance of losses and reports; the prices are
    taken as given.
    """
    prices = spectrum.by_price(X)
    tables = {name: p if p.ndim == 2 else np.repeat(p[:, None], len(spectrum.groups_), 1) for name, p in prices.items()}
    channel = spectrum.pricer.channel_
    roles = (sensitive, channel, sample_weight, cluster, None, level, exposure)
    data = AuditData.read({**tables, "y": y}, *roles, tables=list(tables))
    claims = isinstance(spectrum.pricer, FrequencySeverityPricer)
    family = Tweedie(1.5) if claims else get_family(spectrum.pricer.family)
    family.check_outcome(data["y"])
    deviances = {f"deviance_{name}": family.unit_deviance(data["y"][:, None], data[name]) for name in prices}
    totals = data.with_columns(**deviances).totals([*prices, *deviances], range(len(data.groups)))
    sums = {name: total.sum() for name, total in totals.items()}
    best = sums["deviance_best_estimate"] / sums["volume"]
    volume = {"sample_weight": data.reports.weight}
    records = []
    for name, price in prices.items():
        deviance = sums[f"deviance_{name}"] / sums["volume"]
        excess = deviance - best
        low, high = excess.interval(data.level)
        distance = compute_parity_distance(
            price, sensitive=sensitive, channel=channel, cluster=cluster, level=level, **volume
        )
        first = as_pandas(distance).iloc[0]
        records.append(
            {
                "price": name,
                "needs_attribute": price.ndim == 2,
                "premium": float((sums[name] / sums["volume"]).value[0]),
                "deviance": float(deviance.value[0]),
                "excess": float(excess.value[0]),
                "excess_low": float(low[0]),
                "excess_high": float(high[0]),
                **{column: float(first[column]) for column in (*_DISTANCE, "p_value")},
                "note": first["note"],
            }
        )
    return frame_like_source(X, pd.DataFrame(records))
