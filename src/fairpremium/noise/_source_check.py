"""Whether the source that a row came through depends on the outcome or on the attribute beyond the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import chdtrc

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections import GroupPropensity, ReportChannel
from fairpremium.families import Normal
from fairpremium.models import Design, LinearModel, check_cluster, check_volume, prepare
from fairpremium.noise._base import check_level
from fairpremium.privacy import Channel

_MIN_ROWS = 50  # of a source that takes part
NO_REPORT = "no report"


@dataclass(frozen=True)
class SourceCheck:
    """What `check_sources` found.

    Attributes
    ----------
    rejected : bool
        Whether the source depends on the outcome or on the attribute beyond the features.
    p_value : float
        Of both tests together (Bonferroni).
    table : pandas.DataFrame
        One row per test: ``test`` ("outcome" or "attribute"), ``statistic``, ``degrees_of_freedom``, ``p_value``.
    level : float
        Confidence level; 1 - level is about the probability of a false alarm.
    message : str
        The finding in words.
    """

    rejected: bool
    p_value: float
    table: pd.DataFrame
    level: float
    message: str

    def __str__(self) -> str:
        return self.message


def check_sources(
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Channel | Mapping[Any, Channel | None],
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> SourceCheck:
    r"""Test the assumption behind a fit to several sources: given the features, the source says nothing more.

    Parameters
    ----------
    X, y, sensitive, channel_key, sample_weight, exposure, cluster
        As for `DiscriminationFreePricer.fit`; tables in memory.
    channel : Channel or mapping of keys to channels
        As for the pricer. Rows without a report are a source of their own, so that with one channel the test is
        whether *reporting* depends on the outcome.
    level : float
        Confidence level.

    Returns
    -------
    SourceCheck

    Notes
    -----
    With :math:`\pi_w(x)` a logit of the source w, :math:`e = y - E[y | x]` and :math:`a_k = T_w^{-1}[k, s]`, the sums

    .. math:: \sum_i (1\{w_i = w\} - \pi_w(x_i)) e_i, \qquad
              \sum_i (1\{w_i = w\} - \pi_w(x_i)) (a_{ik} - P(D = k | x_i))

    have mean zero if the source depends on neither the outcome nor the attribute beyond the features, and if
    *either* :math:`\pi` or the mean that is subtracted is right. Both are models in the features, their squares and
    products. The squares of the terms give the covariance, a person's rows together, and a chi-squared distribution
    the p-value.

    What a rejection means depends on the correction; see the guide to several sources. A source that depends on the
    outcome *given the attribute* makes every correction wrong. One that depends on the attribute alone leaves
    `inverse` and `score` right.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> from fairpremium.privacy import KeyedChannels, RandomizedResponse
    >>> p = zhang_liu_shi_2025(n=3000, rng=0)
    >>> channels = KeyedChannels({"app": RandomizedResponse(["F", "M"], epsilon=1.0), "staff": None})
    >>> dearest = np.where(p.y > np.median(p.y), "app", "staff")  # the source depends on the loss
    >>> reports = channels.privatize(p.sensitive, dearest, rng=0)
    >>> check_sources(p.X, p.y, sensitive=reports, channel=channels, channel_key=dearest).rejected
    True
    """
    _, matrix = Design.learn_transform(X, least_rows=2)
    n = len(matrix)
    coded = ReportChannel.of(channel)
    outcome, weight = check_volume(y, n, sample_weight, exposure)
    report = coded.encode(sensitive, channel_key)
    if len(report) != n:
        raise ValueError(f"Got sensitive with {len(report)} rows, but X has {n}; expected the same number.")
    rows = Rows(matrix, outcome, weight, report, cluster=check_cluster(cluster, n))
    found = check_coded_sources(rows, coded, check_level(level))
    if found is None:
        raise ValueError(
            f"Got fewer than two sources with at least {_MIN_ROWS} rows each; there is nothing to compare."
        )
    return found


def check_coded_sources(
    rows: Rows, channel: ReportChannel, level: float, *, missing: bool = True
) -> SourceCheck | None:
    """Check rows that are numbers already; None if there are not two sources with enough rows.

    `missing` says whether rows without a report are a source of their own.
    """
    names, source = _sources(channel)
    own = source[rows.report]
    counts = np.bincount(own, minlength=len(names))
    large = np.flatnonzero(counts >= _MIN_ROWS)
    large = large[large < len(names) - (not missing)]
    if len(large) < 2:
        return None
    rows = rows.take(np.isin(own, large))
    place = np.searchsorted(large, source[rows.report])  # which of the large sources
    silent = len(large) - (len(names) - 1 in large)  # its place, the last if it is there
    w = np.ones(len(rows)) if rows.weight is None else rows.weight
    outcome = _test(rows, place, (w * rows.y)[:, None], len(large))
    tests = {"outcome": outcome}
    reported = place != silent
    if silent >= 2:  # sources with reports
        a = channel.table.T[rows.report][reported, 1:]
        tests["attribute"] = _test(rows.take(reported), place[reported], a, silent)
    table = pd.DataFrame(
        [(name, *each) for name, each in tests.items()],
        columns=["test", "statistic", "degrees_of_freedom", "p_value"],
    )
    p = min(1.0, len(table) * float(table["p_value"].min()))
    rejected = p < 1 - level
    worst = table.loc[table["p_value"].idxmin(), "test"]
    known = [names[i] for i in large]
    message = f"Nothing speaks against it that the source ({known}) depends on the features alone (p = {p:.2g})."
    if rejected:
        message = (
            f"The source of the rows ({known}) depends on the {worst} beyond the features (p = {p:.1g}), so that "
            "evidence of several sources does not say the same; or a source's channel is not the declared one. What "
            "helps: a feature that tells why people came through a source. "
            'correction="inverse" stays right if it depends on the attribute, but not on the outcome '
            "of people with the same attribute and features."
        )
    return SourceCheck(rejected, p, table, level, message)


def _sources(channel: ReportChannel) -> tuple[list[Any], npt.NDArray[np.intp]]:
    """Return the names of the sources, a last one for no report, and that of each code."""
    names = [each.name for each in channel.sources]
    position = np.full(channel.n_codes, len(names))
    for w, each in enumerate(channel.sources):
        position[each.codes] = w
    return [*names, NO_REPORT], position


def _test(rows: Rows, source: npt.NDArray[np.intp], values: Array, n_sources: int) -> tuple[float, int, float]:
    """Test whether the mean of values (n, m) given x is the same in all sources: statistic, degrees, p-value."""
    coded = replace(rows, report=source.astype(np.uint16))
    channel = ReportChannel.of(None, tuple(range(n_sources)))
    names = [f"x{j}" for j in range(rows.n_features)]
    problem = prepare(coded, channel.n_codes, Normal(), LinearModel(ridge=1.0), names, redundant_told=False)
    learned = GroupPropensity.learn(problem, channel, always=True)
    assert learned.latent is not None
    F, pi = coded.map(learned.latent.features), coded.map(learned.propensity)
    residual = values - F @ np.linalg.lstsq(F, values, rcond=1e-10)[0]
    apart = (source[:, None] == np.arange(n_sources)) - pi
    terms = (apart[:, 1:, None] * residual[:, None, :]).reshape(len(rows), -1)
    if rows.cluster is not None:
        terms = np.array([np.bincount(rows.cluster, weights=column) for column in terms.T]).T
    total = terms.sum(axis=0)
    solved, _, rank, _ = np.linalg.lstsq(terms.T @ terms, total, rcond=1e-10)
    statistic = float(total @ solved)
    return statistic, int(rank), float(chdtrc(max(rank, 1), max(statistic, 0.0)))
