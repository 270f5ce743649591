"""Limits on the change of a premium: cap and floor, a total that stays, and the proxy effect that they give back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.families import Family
from fairpremium.models import check_weight
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from .._audit_data import as_pandas, check_numbers, frame_like_source, n_rows
from ._changes import check_positive
from ._proxies import compute_list_discrimination

_MOST = 10.0  # a cap above it is meant in per cent


class LimitedChange(NamedTuple):
    """New premiums whose change is limited."""

    premiums: Array  # (n,)
    multiplier: float  # of the new premiums before they are limited
    total: float  # that the premiums have
    at_cap: float  # share of the volume whose increase is limited
    at_floor: float  # share of the volume whose decrease is limited


def limit_changes(
    current: Any,
    new: Any,
    *,
    cap: float | None = None,
    floor: float | None = None,
    total: float | None = None,
    sample_weight: Any = None,
    exposure: Any = None,
) -> LimitedChange:
    r"""Limit how far premiums change, and multiply the new ones so that the total stays.

    Parameters
    ----------
    current, new : array-like of shape (n,)
        Premiums in force and new ones, above zero.
    cap, floor : float, optional
        Largest and smallest relative change: 0.2 is twenty per cent more, -0.1 ten per cent less. A cap above 10, which
        would be a percentage, is an error.
    total : float, optional
        What the limited premiums have to add up to (times volume); the total of `new` by default.
    sample_weight, exposure : array-like of shape (n,), optional
        Volumes, such as exposure.

    Returns
    -------
    LimitedChange
        Named tuple: ``premiums``, ``multiplier``, ``total``, and the shares of the volume ``at_cap`` and ``at_floor``.

    Raises
    ------
    ValueError
        No multiplier gives the total: the limits are too narrow for it. The message says what they allow.

    Notes
    -----
    The premiums are min(max(m new_i, (1 + floor) current_i), (1 + cap) current_i). Their total is a continuous function
    of m that never falls and is linear between the points where a premium meets a limit, so that m is found exactly. It
    is unique unless all premiums are at a limit.

    Examples
    --------
    >>> limited = limit_changes([100.0, 100.0, 100.0], [60.0, 100.0, 140.0], cap=0.2, floor=-0.2)
    >>> limited.premiums.round(6).tolist(), round(limited.multiplier, 6)
    ([80.0, 100.0, 120.0], 1.0)
    """
    n = n_rows(current, "current")
    old, price = (check_numbers(v, name, n, "current") for v, name in ((current, "current"), (new, "new")))
    check_positive(old, "current")
    check_positive(price, "new")
    weight = check_weight(sample_weight, n, exposure=exposure, of="current")
    w = np.ones(n) if weight is None else weight
    low, high = _limit(floor, "floor", -1.0, 0.0, 0.0) * old, _limit(cap, "cap", 0.0, _MOST, np.inf) * old
    wanted = float(w @ price) if total is None else float(total)
    least, most = float(w @ low), float(w[w > 0] @ high[w > 0])
    if not least * (1 - 1e-12) <= wanted <= most * (1 + 1e-12):
        raise ValueError(
            f"Got cap={cap} and floor={floor}, with which premiums add up to {least:.6g} at least and {most:.6g} at "
            f"most, but expected a total of {wanted:.6g}. Widen the limits, or give a total between these."
        )
    multiplier = _multiplier(low, high, price, w, wanted)
    found = np.clip(multiplier * price, low, high)
    volume = float(w.sum())
    at_cap, at_floor = (float(w @ at) / volume for at in (multiplier * price > high, multiplier * price < low))
    return LimitedChange(found, multiplier, float(w @ found), at_cap, at_floor)


def _limit(value: float | None, name: str, least: float, most: float, absent: float) -> float:
    """Return one plus a limit of the relative change, or what stands for none."""
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not least <= value <= most:
        example = "0.2 for twenty per cent more" if name == "cap" else "-0.2 for twenty per cent less"
        raise ValueError(f"Got {name}={value!r}, but expected a number such as {example}, from {least:g} to {most:g}.")
    return 1.0 + float(value)


def _multiplier(low: Array, high: Array, price: Array, w: Array, wanted: float) -> float:
    """Solve sum_i w_i min(max(m price_i, low_i), high_i) = wanted for m.

    Between two meetings of a premium with a limit the total is constant + slope m; both change at each meeting.
    """
    leaves, arrives = low / price, high / price  # from m = leaves on a premium moves, until m = arrives
    finite = np.isfinite(arrives)
    at = np.concatenate([leaves, arrives[finite]])
    constant = np.concatenate([-w * low, (w * np.where(finite, high, 0.0))[finite]])
    slope = np.concatenate([w * price, -(w * price)[finite]])
    order = np.argsort(at, kind="stable")
    at, constant, slope = at[order], w @ low + np.cumsum(constant[order]), np.cumsum(slope[order])
    reached = constant + slope * at  # the total at each meeting, which never falls
    segment = max(int(np.searchsorted(reached, wanted, side="right")) - 1, 0)
    if slope[segment] <= 1e-12 * (w @ price):
        return float(at[segment])
    return float((wanted - constant[segment]) / slope[segment])


def compute_limit_effect(
    current: Any,
    new: Any,
    X: Any,
    y: Any = None,
    *,
    cap: float | None = None,
    floor: float | None = None,
    total: float | None = None,
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
    r"""Measure how much of the proxy effect that a new list removes comes back when its change is limited.

    Parameters
    ----------
    current, new, cap, floor, total
        As in `limit_changes`.
    X, y, sensitive, channel, channel_key, pricer, family, sample_weight, exposure, cluster, level
        As in `compute_list_discrimination`.

    Returns
    -------
    DataFrame
        One row per price ("current", "new", "limited") and measure: `price`, `measure`, `value`, `value_low`,
        `value_high`, `note` as in `compute_list_discrimination`, without `direct_spread`, which is about the best
        estimates; and `given_back` for "limited".

    Notes
    -----
    With the value v of a measure, given back is (v_limited - v_new) / (v_current - v_new): 0 if the limits cost
    nothing, 1 if they leave everything as it is. It is nan where the new list does not improve the measure.
    """
    volume = {"sample_weight": sample_weight, "exposure": exposure}
    limited = limit_changes(current, new, cap=cap, floor=floor, total=total, **volume)
    lists = {"current": current, "new": new, "limited": limited.premiums}
    table = as_pandas(
        compute_list_discrimination(
            lists, X, y, sensitive=sensitive, channel=channel, channel_key=channel_key, pricer=pricer, family=family,
            cluster=cluster, level=level, **volume,
        )
    )  # fmt: skip
    table = table[table["price"].isin(list(lists)) & (table["measure"] != "direct_spread")].reset_index(drop=True)
    wide = table.pivot(index="measure", columns="price", values="value")
    removed = wide["current"] - wide["new"]
    share = ((wide["limited"] - wide["new"]) / removed).where(removed > 0)
    given_back = table["measure"].map(share).where(table["price"] == "limited")
    return frame_like_source(current, table.assign(given_back=given_back))
