"""From the list in force to a new one: how many prices move how far, by factor and by group."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array

from .._audit_data import AuditData, Records, as_pandas, estimate_records, frame_like_source, mean_columns
from .._price_changes import change_records
from .._weighted_reports import EVERYONE, effective_reports
from ..tables import read_factors

BANDS = (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2)
_PLACES = 9  # a change that was limited to 20 per cent is 20 per cent


def compute_dislocation(
    current: Any,
    new: Any,
    *,
    bands: Sequence[float] = BANDS,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Count whose price changes by how much, in bands of the relative change, for everybody and for every true group.

    Parameters
    ----------
    current, new : array-like of shape (n,)
        Premiums in force and new ones, above zero.
    bands : sequence of float
        Limits of the bands, ascending, in parts of the current premium: -0.2 is twenty per cent less. A change that is
        a limit belongs to the band nearer to zero; no change to that above zero.
    sensitive, channel, channel_key : optional
        As in `compute_group_means`: adds rows for the true groups.
    sample_weight, exposure, cluster, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per band and group, everybody first (`group` is None): `band`, such as "-10 % to -5 %"; `group`;
        `share`, `share_low`, `share_high` of the volume of the group; `effective_reports`, `note`.

    Notes
    -----
    Ratio estimators of `compute_group_means` with the indicator of the band as the value of a row.
    """
    edges = _check_bands(bands)
    data = _read(current, new, sensitive, channel, sample_weight, exposure, cluster, level, channel_key=channel_key)
    code = _band(data["new"] / data["current"] - 1, edges)
    labels = _labels(edges)
    inside = {f"band {b}": (code == b).astype(float) for b in range(len(labels))}
    data = data.with_columns(**inside)

    def shares(whole: AuditData) -> Records:
        totals = whole.totals(list(inside), [EVERYONE, *range(len(whole.groups))])
        volume, records = totals["volume"], []
        for label, name in zip(labels, inside, strict=True):
            names = {"band": [label] * len(volume), "group": (None, *whole.groups)}
            numbers = mean_columns("share", totals[name], volume, whole.level)
            records += estimate_records(names, effective_reports(volume), numbers)
        return records

    return data.table(shares)


def compute_change_by_factor(
    current: Any,
    new: Any,
    X: Any,
    *,
    factors: Sequence[str] | None = None,
    bands: int = 10,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate who pays how much more, by rating factor, for everybody and for every true group.

    Parameters
    ----------
    current, new, sensitive, channel, channel_key, sample_weight, exposure, cluster, level
        As in `compute_dislocation`.
    X : data frame or array of shape (n, factors)
        Rating factors.
    factors : sequence of str, optional
        Columns of X to look at; all by default.
    bands : int
        A column of numbers with more values than this is divided into so many bands of about equal volume.

    Returns
    -------
    DataFrame
        One row per factor, level and group, everybody first: `factor`, `level`, and the columns of
        `compute_premium_change`, where `old` is the current premium.
    """
    data = _read(current, new, sensitive, channel, sample_weight, exposure, cluster, level, channel_key=channel_key)
    change = data["new"] - data["current"]
    data = data.with_columns(old=data["current"], change=change, up=(change > 0).astype(float))
    tables = [
        as_pandas(factor.divide(data).table(change_records))
        for factor in read_factors(X, factors, bands, data.reports.weight)
    ]
    return frame_like_source(current, pd.concat(tables, ignore_index=True))


def _read(
    current: Any,
    new: Any,
    sensitive: Any,
    channel: Any,
    sample_weight: Any,
    exposure: Any,
    cluster: Any,
    level: float,
    *,
    channel_key: Any = None,
) -> AuditData:
    columns = {"current": current, "new": new}
    roles = (sensitive, channel, sample_weight, cluster, None, level, exposure)
    data = AuditData.read(columns, *roles, need_groups=False, channel_key=channel_key)
    for name in columns:
        check_positive(data[name], name)
    return data


def check_positive(values: Array, name: str) -> None:
    """Raise if a premium is not above zero: a relative change of it has no meaning."""
    bad = int(np.count_nonzero(values <= 0))
    if bad:
        raise ValueError(f"Got {name} with {bad} of {len(values)} values not above zero; expected premiums.")


def _check_bands(bands: Sequence[float]) -> Array:
    edges = np.asarray(bands, dtype=np.float64)
    if edges.ndim != 1 or not len(edges) or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
        raise ValueError(f"Got bands={list(bands)}, but expected ascending numbers, such as {list(BANDS)}.")
    return edges


def _band(change: Array, edges: Array) -> npt.NDArray[np.intp]:
    """Return the band of each change; one that is a limit belongs to the band nearer to zero."""
    change = np.round(change, _PLACES)
    return np.where(change > 0, np.searchsorted(edges, change, "left"), np.searchsorted(edges, change, "right"))


def _labels(edges: Array) -> list[str]:
    texts = [f"{100 * edge:+.4g} %" if edge else "0 %" for edge in edges]
    between = [f"{low} to {high}" for low, high in itertools.pairwise(texts)]
    return [f"below {texts[0]}", *between, f"above {texts[-1]}"]
