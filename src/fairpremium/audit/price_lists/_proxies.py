"""Proxy discrimination of a price list of any origin, and what a discrimination-free list would charge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.families import Family
from fairpremium.models import check_volume, check_weight
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from .._audit_data import as_pandas, check_numbers, frame_like_source, n_rows
from .._discrimination import compute_discrimination, compute_propensities
from .._weighted_reports import read_channel
from ..drawing import DISCRIMINATION_FREE, UNAWARE


class FreePriceList(NamedTuple):
    """A discrimination-free list with the total of another one."""

    premiums: Array  # (n,), loading * h*(x)
    loading: float  # total of the other list over that of h*
    pricer: DiscriminationFreePricer | FrequencySeverityPricer


def discrimination_free_list(
    premiums: Any,
    X: Any,
    y: Any = None,
    *,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    pricer: DiscriminationFreePricer | FrequencySeverityPricer | None = None,
    family: str | Family = "normal",
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
) -> FreePriceList:
    r"""Compute what a discrimination-free list with the same total would charge.

    Parameters
    ----------
    premiums : array-like of shape (n,)
        The price list, per unit of volume; expenses and margins may be in it.
    X : data frame or array of shape (n, features)
        What a tariff may use.
    y : array-like of shape (n,), optional
        Losses, per unit of volume or with `exposure` totals over it; not needed with a `pricer`.
    sensitive, channel, channel_key
        Reports and their channel, as in `compute_group_means`; not needed with a `pricer`.
    pricer : DiscriminationFreePricer or FrequencySeverityPricer, optional
        A fitted pricer whose features are columns of X; by default one is fitted to these rows.
    family : str or Family
        Outcome distribution of that fit.
    sample_weight, exposure, cluster
        As for `certify`.

    Returns
    -------
    FreePriceList
        Named tuple of ``premiums``, ``loading`` and ``pricer``.

    Notes
    -----
    The premiums are c h*(x) with the loading c = sum_i w_i pi_i / sum_i w_i h*(x_i): the same proportional loading for
    everybody. Loadings of another form show up as differences between the lists.
    """
    n = n_rows(premiums, "premiums")
    prices = check_numbers(premiums, "premiums", n, "premiums")
    weight = check_weight(sample_weight, n, exposure=exposure, of="premiums")
    if pricer is None:
        if y is None:
            raise ValueError("Got y=None, but expected the losses, from which best estimates are learned, or a pricer.")
        losses, _ = check_volume(y, n, sample_weight, exposure, of="premiums")
        pricer = DiscriminationFreePricer(family, channel=channel, random_state=0)
        pricer.fit(X, losses, sensitive=sensitive, channel_key=channel_key, sample_weight=weight, cluster=cluster)
    free = pricer.predict(X)
    if len(free) != n:
        raise ValueError(f"Got X with {len(free)} rows, but premiums has {n}; expected the same number.")
    loading = _loading(prices, free, weight)
    return FreePriceList(free * loading, loading, pricer)


def compute_list_discrimination(
    premiums: Any,
    X: Any,
    y: Any = None,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    pricer: DiscriminationFreePricer | FrequencySeverityPricer | None = None,
    family: str | Family = "normal",
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Measure how far price lists of any origin depend on the attribute: as a whole, and through proxies.

    Parameters
    ----------
    premiums : array-like of shape (n,), or mapping of str to such
        A price list, or several by name.
    X, y, sensitive, channel, channel_key, pricer, family, sample_weight, exposure, cluster
        As in `discrimination_free_list`; the reports are needed in any case. The channel of a given pricer is that of
        the reports, unless another one is given.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        One row per price and measure: `price` (the name of the list, "premiums" if there is one, then for comparison
        "unaware" and "discrimination_free", both with the total of the first list); `measure`, `value`, `value_low`,
        `value_high` and `note` as in `compute_discrimination`.

    Notes
    -----
    A list is compared with best estimates mu(x, d) and h*(x) that carry its own loading, the total of the list over
    that of h*, so that the general level of prices does not count. PD is the distance to the nearest price that infers
    nothing: bands, expenses and market prices count too, so that it is an upper limit of what proxies do.
    `proxy_explained` is the part that goes with P(D given x). Best estimates are taken as given; those of a model that
    was fitted to the same rows are.
    """
    lists = dict(premiums) if isinstance(premiums, Mapping) else {"premiums": premiums}
    if not lists or set(lists) & {UNAWARE, DISCRIMINATION_FREE}:
        raise ValueError(
            f"Got premiums named {list(lists)}, but expected one or more lists with other names than {UNAWARE!r} and "
            f"{DISCRIMINATION_FREE!r}, which are added."
        )
    n = n_rows(next(iter(lists.values())), "premiums")
    settings = {"sample_weight": sample_weight, "exposure": exposure, "cluster": cluster}
    first = next(iter(lists.values()))
    free = discrimination_free_list(
        first, X, y, sensitive=sensitive, channel=channel, channel_key=channel_key, pricer=pricer, family=family,
        **settings,
    )  # fmt: skip
    channel = free.pricer.channel_ if channel is None else channel
    weight = check_weight(sample_weight, n, exposure=exposure, of="premiums")
    roles = {
        "sensitive": sensitive, "channel": channel, "channel_key": channel_key, "sample_weight": weight,
        "cluster": cluster, "level": level,
    }  # fmt: skip
    h = free.premiums / free.loading
    groups = read_channel(channel, sensitive).groups
    if set(groups) != set(free.pricer.groups_):
        raise ValueError(
            f"Got a pricer of the groups {list(free.pricer.groups_)}, but expected those of the reports, "
            f"{list(groups)}."
        )
    best = np.asarray(free.pricer.predict_best_estimate(X), dtype=np.float64)
    best = best[:, [free.pricer.groups_.index(group) for group in groups]]
    propensity = np.asarray(
        compute_propensities(X, sensitive=sensitive, channel=channel, channel_key=channel_key), dtype=np.float64
    )
    unaware = free.pricer.predict_unaware(X)
    prices = {
        **{name: check_numbers(values, name, n, "premiums") for name, values in lists.items()},
        UNAWARE: unaware * free.loading * _loading(h, unaware, weight),
        DISCRIMINATION_FREE: free.premiums,
    }
    tables = []
    for name, price in prices.items():
        loading = _loading(price, h, weight)
        table = compute_discrimination(
            price, best_estimate=best * loading, discrimination_free=h * loading, propensity=propensity, **roles
        )
        tables.append(as_pandas(table).assign(price=name))
    table = pd.concat(tables, ignore_index=True)
    return frame_like_source(first, table[["price", *[c for c in table.columns if c != "price"]]])


def _loading(price: Array, other: Array, weight: Array | None) -> float:
    """Divide the totals of two prices."""
    w = np.ones(len(price)) if weight is None else weight
    totals = float(w @ price), float(w @ other)
    if not (totals[0] > 0 and totals[1] > 0):
        raise ValueError(
            f"Got prices with totals {totals[0]:g} and {totals[1]:g}, but expected positive ones: a list is compared "
            "with h* at the same total."
        )
    return totals[0] / totals[1]
