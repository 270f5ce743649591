"""Decisions by true group: adverse impact ratio and denial odds ratio."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array

from .._audit_data import AuditData, Records, estimate_records, n_rows, with_limits
from .._estimate import fieller
from .._weighted_reports import effective_reports
from ._edge_rates import EdgeRates
from ._pairs import Pairs, all_pairs, read_pairs


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

    standard errors from the joint covariance of all totals. With the true attribute those of the logarithms of both
    quotients are Katz's and Woolf's; limits, which are symmetric on the log scale, and p values differ from theirs,
    because they use Student's t with degrees of freedom from the rows. The limits of a rate are Fieller's, and the p
    value is that of the difference.

    A rate within two standard errors of 0 or 1 (at 95 %) has Wilson's limits instead, from the effective reports, and
    differences with it have Newcombe's. Within four, ratios with it have Fieller's limits for Wilson's centres, which
    need no logarithm: a group without any favourable decision has the ratio 0, with an upper limit. A limit may be
    infinite. A rate may leave [0, 1] by chance when the noise is large.

    References
    ----------
    Wilson (1927), Probable inference, the law of succession, and statistical inference, Journal of the American
    Statistical Association 22(158), 209-212. Newcombe (1998), Interval estimation for the difference between
    independent proportions, Statistics in Medicine 17(8), 873-890.

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


def impact_of_pairs(decisions: Any, favourable: Any, **roles: Any) -> pd.DataFrame:
    """Return the table of `compute_adverse_impact` for all pairs of groups, the one with the lower rate first."""
    data = AuditData.read({"decisions": _is_favourable(decisions, favourable)}, by=None, **roles)
    totals = data.totals(["decisions"], range(len(data.groups)))
    rates = (totals["decisions"] / totals["volume"]).value
    return pd.DataFrame(_impact(data, all_pairs(rates)))


def _impact(data: AuditData, pairs: Pairs) -> Records:
    data = data.with_columns(adverse=1 - data["decisions"])
    totals = data.totals(["decisions", "adverse"], range(len(data.groups)))
    good, bad, volume = totals["decisions"], totals["adverse"], totals["volume"]
    first, second = pairs
    rate, odds = good / volume, bad / good
    difference, ratio, odds_ratio = rate[first] - rate[second], rate[first] / rate[second], odds[first] / odds[second]
    plain = fieller(good, volume, data.level)
    edge = EdgeRates.of(rate, effective_reports(volume), data.level)
    is_near, is_at = (which[first] | which[second] for which in (edge.is_near, edge.is_at))
    p_value = np.where((difference.value == 0) & (difference.standard_error == 0), 1.0, difference.p_value())
    numbers = {
        **with_limits("rate", rate[first], edge.choose(edge.is_at, plain, (edge.low, edge.high))[:, first]),
        "rate_against": rate[second].value,
        **with_limits(
            "difference", difference, edge.choose(is_at, difference.interval(data.level), edge.difference(pairs))
        ),
        **with_limits("ratio", ratio, edge.choose(is_near, ratio.ratio_interval(data.level), edge.ratio(pairs))),
        **with_limits(
            "denial_odds_ratio",
            odds_ratio,
            edge.choose(is_at, odds_ratio.ratio_interval(data.level), edge.odds_ratio(pairs)),
        ),
        "p_value": p_value,
    }
    numbers["ratio"] = edge.value(pairs, ratio.value)
    numbers["denial_odds_ratio"] = edge.odds_value(pairs, odds_ratio.value)
    notes = [_note(data.groups[k], data.groups[j], edge, k, j) for k, j in zip(first, second, strict=True)]
    return estimate_records(pairs.labels(data.groups), pairs.effective(volume), numbers, notes)


def _note(group: Any, against: Any, edge: EdgeRates, k: int, other: int) -> str:
    """Say why a quotient is zero, infinite or unknown."""
    without = [str(name) for name, j in ((group, k), (against, other)) if edge.value_of(j) <= 0]
    all_get = [str(name) for name, j in ((group, k), (against, other)) if edge.value_of(j) >= 1]
    said = [f"no favourable decision is seen in {' or '.join(without)}"] if without else []
    said += [f"no unfavourable decision is seen in {' or '.join(all_get)}"] if all_get else []
    return "; ".join(said)
