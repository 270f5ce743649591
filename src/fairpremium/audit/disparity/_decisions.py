"""Decisions by true group: adverse impact ratio and denial odds ratio."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array

from .._audit_data import AuditData, Records, estimate_records, mean_columns, n_rows, with_limits
from ._pairs import Pairs, read_pairs


def compute_adverse_impact(
    decisions: Any,
    *,
    favourable: Any,
    against: Any = None,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare how often groups get a favourable decision: adverse impact ratio and denial odds ratio.

    Parameters
    ----------
    decisions : array-like of shape (n,)
        What was decided about each row, such as "accepted" and "declined", a tier, or whether there is a discount.
    favourable : label, or list, tuple or set of labels
        The decisions that are good for the person. All others are unfavourable.
    against : label, optional
        The group that others are compared with; by default the largest, by estimated volume. The four-fifths rule
        compares with the group that is selected most often: name it.
    sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; without weights and exposure every row counts as one decision.

    Returns
    -------
    DataFrame
        One row for each group other than the one it is compared with:

        - `group`, `against`;
        - `rate`, `rate_low`, `rate_high`: share of favourable decisions in the group; `rate_against`: in the other;
        - `difference`, `difference_low`, `difference_high`: between these;
        - `ratio`, `ratio_low`, `ratio_high`: adverse impact ratio, the quotient of the rates; below one the group gets
          favourable decisions less often;
        - `denial_odds_ratio` with limits: quotient of the odds of an *unfavourable* decision; above one the group is
          turned down more often;
        - `p_value`: two-sided, of equal rates;
        - `effective_reports`: of the rarer of the two; `note`.

    Notes
    -----
    With f_i = 1 for a favourable decision and a_ik = w_i T^-1[k, s_i],

    .. math:: \hat p_k = \frac{\sum_i a_{ik} f_i}{\sum_i a_{ik}}, \qquad \mathrm{AIR}_k = \frac{\hat p_k}{\hat p_l},
              \qquad \mathrm{OR}_k = \frac{(1 - \hat p_k) / \hat p_k}{(1 - \hat p_l) / \hat p_l},

    standard errors from the joint covariance of all totals. Limits of both quotients are symmetric on the log scale
    (Katz and Woolf with the true attribute), those of a rate are Fieller's, and the p value is that of the difference.
    A rate may leave [0, 1] by chance when the noise is large; a quotient then has no limits.

    Examples
    --------
    >>> table = compute_adverse_impact(
    ...     ["yes", "no"] * 50 + ["yes", "yes", "yes", "no"] * 30, favourable="yes", sensitive=["F"] * 100 + ["M"] * 120
    ... )
    >>> table[["group", "against", "rate", "ratio", "denial_odds_ratio"]].round(3)
      group against  rate  ratio  denial_odds_ratio
    0     F       M   0.5  0.667                3.0
    """
    good = _is_favourable(decisions, favourable)
    data = AuditData.read(
        {"decisions": good}, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    pairs = read_pairs(data, against)
    return replace(data, source=decisions).table(lambda piece: _impact(piece, pairs))


def _is_favourable(decisions: Any, favourable: Any) -> Array:
    n = n_rows(decisions, "decisions")
    values = pd.Series(decisions.to_pandas() if hasattr(decisions, "to_pandas") else decisions).reset_index(drop=True)
    if values.isna().any():
        raise ValueError(
            f"Got decisions with {int(values.isna().sum())} of {n} missing; expected a decision for every row."
        )
    is_several = isinstance(favourable, Collection) and not isinstance(favourable, str | bytes)
    wanted = list(favourable) if is_several else [favourable]
    found = list(values.unique())
    unknown = [label for label in wanted if label not in found]
    if unknown or not wanted:
        shown = ", ".join(repr(label) for label in found[:10])
        raise ValueError(f"Got favourable={favourable!r}, but expected decisions that occur, such as {shown}.")
    return np.asarray(values.isin(wanted), dtype=np.float64)


def _impact(data: AuditData, pairs: Pairs) -> Records:
    data = data.with_columns(adverse=1 - data["decisions"])
    totals = data.totals(["decisions", "adverse"], range(len(data.groups)))
    good, bad, volume = totals["decisions"], totals["adverse"], totals["volume"]
    first, second = pairs
    rate, odds = good / volume, bad / good
    difference, ratio, odds_ratio = rate[first] - rate[second], rate[first] / rate[second], odds[first] / odds[second]
    numbers = {
        **mean_columns("rate", good[first], volume[first], data.level),
        "rate_against": rate[second].value,
        **with_limits("difference", difference, difference.interval(data.level)),
        **with_limits("ratio", ratio, ratio.ratio_interval(data.level)),
        **with_limits("denial_odds_ratio", odds_ratio, odds_ratio.ratio_interval(data.level)),
        "p_value": difference.p_value(),
    }
    return estimate_records(pairs.labels(data.groups), pairs.effective(volume), numbers)
