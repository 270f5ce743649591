"""What privacy costs: how many rows, with which channel, for a group mean of a wanted precision."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairpremium.arrays import Array, plain_data
from fairpremium.labels import check_labels
from fairpremium.pricing._bounds import check_rows, resolve_inverse
from fairpremium.privacy import Channel, SubsetSelection

_KNOWN = ("keep", "epsilon")  # numbers that a channel may have
_WORTH_A_SUBSET = 0.95  # subset selection is recommended if it needs at most this share of the rows

Mechanism = Literal["randomized-response", "subset-selection"]


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What a channel tells about a person, and what it costs in rows.

    Attributes
    ----------
    table : DataFrame
        One row per group, see `plan`.
    keep : float
        P(S = D) of randomized response; nan for another channel.
    epsilon : float
        Privacy parameter of one report, the largest when people choose; inf when reports are the truth.
    rows : int or None
        The rows that were asked about.
    standard_error : float or None
        The standard error that was asked for.
    choices : DataFrame or None
        When people choose their epsilon: what each choice is worth, one row per choice and group, see `plan`.
    mechanisms : DataFrame or None
        With an epsilon: randomized response and subset selection side by side, and which one is recommended.
    """

    table: pd.DataFrame
    keep: float
    epsilon: float
    rows: int | None = None
    standard_error: float | None = None
    choices: pd.DataFrame | None = None
    mechanisms: pd.DataFrame | None = None

    @property
    def recommended(self) -> Mechanism | None:
        """The mechanism that needs fewer rows for the same epsilon; None without an epsilon to compare at."""
        if self.mechanisms is None:
            return None
        name: Mechanism = self.mechanisms.loc[self.mechanisms["recommended"], "mechanism"].iloc[0]
        return name

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python values, with None for what is not finite, ready for JSON."""
        return {
            "keep": plain_data(self.keep),
            "epsilon": plain_data(self.epsilon),
            "rows": self.rows,
            "standard_error": self.standard_error,
            "groups": plain_data(self.table.to_dict(orient="records")),
            **{
                name: None if table is None else plain_data(table.to_dict(orient="records"))
                for name, table in (("choices", self.choices), ("mechanisms", self.mechanisms))
            },
        }

    def __repr__(self) -> str:
        head = f"Plan(keep={self.keep:.4g}, epsilon={self.epsilon:.4g}"
        if self.rows is not None:
            head += f", rows={self.rows}"
        if self.standard_error is not None:
            head += f", standard_error={self.standard_error:g}"
        tables = [self.table] if self.choices is None else [self.table, self.choices]
        written = [table.to_string(index=False, float_format="{:.4g}".format) for table in tables]
        return "\n".join([f"{head})", *written])


def plan(
    groups: int | Sequence[Any] | None = None,
    *,
    epsilon: float | Sequence[float] | Mapping[float, float] | None = None,
    keep: float | None = None,
    channel: Any = None,
    mechanism: Mechanism = "randomized-response",
    shares: Sequence[float] | Mapping[Any, float] | None = None,
    rows: int | None = None,
    standard_error: float | None = None,
    outcome_sd: float | Sequence[float] | Mapping[Any, float] = 1.0,
    outcome_means: Sequence[float] | Mapping[Any, float] | None = None,
) -> Plan:
    """Compute what a channel costs before anybody is asked: precision, effective rows, rows needed.

    The yardstick is the mean outcome of each group, estimated from reports with the inverse channel.

    Parameters
    ----------
    groups : int or sequence of labels, optional
        K, or the K groups; left out when `channel` is given.
    epsilon, keep : float
        Exactly one of them. When people choose their epsilon from a short list: a mapping of each epsilon to the share
        of the people who choose it, or a sequence, with equal shares.
    channel : object with ``matrix``, ``inverse`` and ``groups``, optional
        Any other channel, instead of the three above.
    mechanism : {"randomized-response", "subset-selection"}
        How reports with an `epsilon` are drawn.
    shares : sequence or mapping, optional
        P(D), positive, with sum one. Default: equal shares.
    rows : int, optional
        Number of rows with a report; adds what they achieve.
    standard_error : float, optional
        Wanted standard error of a group mean; adds what it takes.
    outcome_sd : float, sequence or mapping, default 1
        Standard deviation of the outcome inside the groups, one for all or one per group.
    outcome_means : sequence or mapping, optional
        Mean outcome of each group. Default: equal. Differences between groups add to the cost.

    Returns
    -------
    Plan
        Its `table` has one row per group with the columns

        - `group`, `share`: P(D = k);
        - `posterior`: the largest P(D = k given S = s) over the reports s, what a report tells at most;
        - `c1`: the largest weight of a row in the group's sums, C1 for randomized response;
        - `inflation`: variance of the group mean, over its variance if D were known;

        with `rows` also

        - `effective_rows`: rows of this group with known D that would be as good;
        - `standard_error`: of the group mean;
        - `share_error`: standard error of the estimated share;

        and with a wanted `standard_error` also

        - `rows_needed`: total rows, all groups together, that reach it;
        - `rows_needed_known`: the same if D were known.

        When people choose, every number is of all rows together, and `inflation_inverse` beside `inflation` is that of
        the correction `inverse`, which gives all rows the same weight. `choices` then has the columns `epsilon`,
        `chosen` (the share of the people), `group`, `keep`, `inflation`, `worth` (rows with known D that one row is
        worth), `part` (of the information about the group that these rows bring) and, if everybody made this choice,
        `standard_error` and `rows_needed`.

        `mechanisms` compares the two mechanisms at a single `epsilon`: `size` (groups in a report), `reports` (how many
        there are), `inflation` (the largest of all groups) and `recommended`. Subset selection is recommended if the
        group that needs most rows needs at least 5 % fewer.

    Notes
    -----
    The estimate is a ratio of inverse-weighted sums::

        m_hat_k = sum_i T^-1[k, s_i] y_i / sum_i T^-1[k, s_i]

    Since S depends on D alone, T^-1 T = I makes sum_s T[s, j] T^-1[k, s] = 1{j = k}: the residuals
    T^-1[k, s] (y - m_k) have mean zero, rows of every group have a share in their variance, and as n grows

    ::

        var(m_hat_k)  = sum_j p_j C[j, k] (sd_j^2 + (m_j - m_k)^2) / (n p_k^2)
        C[j, k]       = sum_s T[s, j] T^-1[k, s]^2
        known D       : sd_k^2 / (n p_k)
        inflation_k   = sum_j p_j C[j, k] (sd_j^2 + (m_j - m_k)^2) / (p_k sd_k^2)
        share_error_k = sqrt((sum_j p_j C[j, k] - p_k^2) / n)
        posterior_k   = max_s T[s, k] p_k / sum_j T[s, j] p_j

    where p is `shares`, sd is `outcome_sd`, m is `outcome_means`, n is `rows`. With keep = 1 every inflation
    is one. For randomized response posterior_k = p_k e^eps / (p_k e^eps + 1 - p_k): one report multiplies the
    odds by e^eps at most, whatever else is known about the person.

    If the shares q_w of the people choose the channels T_w, with the inflation I_w each, the best combination of the
    estimates from each has the harmonic mean of the inflations, and summing the inverse weights of all rows has the
    arithmetic mean::

        inflation         = 1 / sum_w q_w / I_w
        inflation_inverse = sum_w q_w I_w
        rows_needed       = 1 / sum_w q_w / rows_needed_w

    Both are right if the choice does not depend on D and the outcome. If it does, the inverse weights still describe
    all people, while a combination by precision describes those who chose a large epsilon more than the others.

    These are large-sample figures. They fail when the denominator is close to zero: distrust a group whose
    `share_error` is not small against its `share`. Models of x cost more than means, and the corrections
    `score`, `posterior` and `likelihood` cost less than the inverse weights: read the table as an order of
    magnitude that is exact for group means.

    Examples
    --------
    Two equal groups, keep = 0.75, so T^-1 is 1.5 and -0.5. C[k, k] = 0.75 * 1.5^2 + 0.25 * 0.5^2 = 1.75 and,
    for the other group's rows, 0.25 * 1.5^2 + 0.75 * 0.5^2 = 0.75; the inflation is 1.75 + 0.75 = 2.5:

    >>> result = plan(["F", "M"], keep=0.75, rows=10_000, standard_error=0.01)
    >>> result.table[["group", "share", "posterior", "c1", "inflation", "effective_rows"]]
      group  share  posterior   c1  inflation  effective_rows
    0     F    0.5       0.75  1.5        2.5          2000.0
    1     M    0.5       0.75  1.5        2.5          2000.0
    >>> result.table["rows_needed"].tolist()       # 2.5 / (0.5 * 0.01^2)
    [50000, 50000]
    """
    sources = _sources(groups, keep, epsilon, channel, mechanism)
    labels = sources[0].labels
    K = len(labels)
    p = np.full(K, 1 / K) if shares is None else _per_group(shares, labels, "shares")
    if not (p > 0).all() or not math.isclose(p.sum(), 1.0, rel_tol=0, abs_tol=1e-9):
        raise ValueError(
            f"Got shares={shares}, but expected positive numbers that sum to one. Divide them by their sum, "
            "and leave out groups that do not occur."
        )
    one_sd = not isinstance(outcome_sd, Mapping) and np.ndim(outcome_sd) == 0
    sd = _per_group([outcome_sd] * K if one_sd else outcome_sd, labels, "outcome_sd")
    if not (np.isfinite(sd) & (sd > 0)).all():
        raise ValueError(f"Got outcome_sd={outcome_sd}, but expected positive finite numbers.")
    m = np.zeros(K) if outcome_means is None else _per_group(outcome_means, labels, "outcome_means")
    if not np.isfinite(m).all():
        raise ValueError(f"Got outcome_means={outcome_means}, but expected finite numbers.")
    rows = None if rows is None else check_rows(rows, "rows")
    if standard_error is not None and not (math.isfinite(standard_error) and standard_error > 0):
        raise ValueError(f"Got standard_error={standard_error}, but expected a positive finite number.")

    chosen = np.array([source.chosen for source in sources])
    variances, share_variances = (
        np.array(each) for each in zip(*(source.variances(p, sd, m) for source in sources), strict=True)
    )  # (sources, K): n times the variance of a group's mean and share, if everybody made this choice
    unit_variance, unit_known = 1 / (chosen @ (1 / variances)), sd**2 / p
    columns: dict[str, Any] = {
        "group": labels,
        "share": p,
        "posterior": np.max([source.posterior(p) for source in sources], axis=0),
        "c1": np.max([source.inverse.max(axis=1) for source in sources], axis=0),
        "inflation": unit_variance / unit_known,
    }
    if len(sources) > 1:
        columns["inflation_inverse"] = chosen @ variances / unit_known
    if rows is not None:
        columns["effective_rows"] = rows * p * unit_known / unit_variance
        columns["standard_error"] = np.sqrt(unit_variance / rows)
        with np.errstate(divide="ignore"):  # a share that is known has no variance
            columns["share_error"] = np.sqrt(1 / (chosen @ (1 / share_variances)) / rows)
    if standard_error is not None:
        columns["rows_needed"] = _ceil(unit_variance / standard_error**2)
        columns["rows_needed_known"] = _ceil(unit_known / standard_error**2)
    largest = max(sources, key=lambda source: source.epsilon)
    return Plan(
        pd.DataFrame(columns),
        keep=largest.keep if len(sources) == 1 else math.nan,
        epsilon=largest.epsilon,
        rows=rows,
        standard_error=standard_error,
        choices=_choices(sources, variances, unit_known, rows, standard_error) if len(sources) > 1 else None,
        mechanisms=_mechanisms(labels, epsilon, p, sd, m),
    )


@dataclass(frozen=True)
class _Source:
    """Reports through one channel, and the share of the people who send them."""

    labels: list[Any]
    T: Array  # (reports, groups)
    inverse: Array  # (groups, reports)
    keep: float
    epsilon: float
    chosen: float = 1.0

    def variances(self, p: Array, sd: Array, m: Array) -> tuple[Array, Array]:
        """Return n times the variance of every group's mean, and of its share."""
        C = (self.inverse**2 @ self.T).T  # (n_groups j, n_groups k): sum_s T[s, j] T^-1[k, s]^2
        residual = sd[:, None] ** 2 + (m[:, None] - m) ** 2  # (j, k): E[(y - m_k)^2 given D = j]
        return (p[:, None] * C * residual).sum(axis=0) / p**2, np.maximum(p @ C - p**2, 0.0)

    def posterior(self, p: Array) -> Array:
        """Return the largest P(D = k given S = s) over the reports that occur."""
        joint = (self.T * p)[self.T.any(axis=1)]  # P(S = s, D = k)
        return np.asarray((joint / joint.sum(axis=1, keepdims=True)).max(axis=0))


def _sources(
    groups: int | Sequence[Any] | None, keep: float | None, epsilon: Any, channel: Any, mechanism: Mechanism
) -> list[_Source]:
    """Return one source, or one for each epsilon that people choose from."""
    if mechanism not in ("randomized-response", "subset-selection"):
        raise ValueError(f'Got mechanism={mechanism!r}, but expected "randomized-response" or "subset-selection".')
    by_subset = mechanism == "subset-selection"
    if by_subset and (channel is not None or keep is not None):
        raise ValueError('Got mechanism="subset-selection" with keep or channel, but expected it with epsilon.')
    if not isinstance(epsilon, Mapping) and np.ndim(epsilon) == 0:
        return [_subset_source(groups, epsilon) if by_subset else _channel(groups, keep, epsilon, channel)]
    if keep is not None or channel is not None:
        raise ValueError("Got several epsilons with keep or channel, but expected them alone.")
    chosen = dict(epsilon) if isinstance(epsilon, Mapping) else dict.fromkeys(epsilon, 1 / max(len(epsilon), 1))
    total = sum(chosen.values())
    if not chosen or not all(q > 0 for q in chosen.values()) or not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ValueError(
            f"Got epsilon={epsilon!r}, but expected the share of the people who choose each epsilon, positive numbers "
            "that sum to one, such as {1: 0.5, 2: 0.3, 4: 0.2}."
        )
    if not isinstance(epsilon, Mapping) and len(chosen) < len(epsilon):
        raise ValueError(f"Got epsilon={epsilon!r}, but expected every epsilon once.")
    make = _subset_source if by_subset else _channel
    return [replace(make(groups, epsilon=each), chosen=float(q)) for each, q in sorted(chosen.items())]


def _subset_source(groups: int | Sequence[Any] | None, epsilon: Any) -> _Source:
    if groups is None or epsilon is None:
        raise ValueError('Got mechanism="subset-selection" without groups or epsilon, but expected both.')
    labels = list(range(1, groups + 1)) if isinstance(groups, int | np.integer) else list(check_labels(groups))
    return _of_channel(_best_subset(labels, epsilon) or SubsetSelection(labels, epsilon))


def _of_channel(channel: Channel) -> _Source:
    return _Source(list(channel.groups), channel.matrix, channel.inverse, channel.keep, channel.epsilon)


def _choices(
    sources: list[_Source], variances: Array, unit_known: Array, rows: int | None, standard_error: float | None
) -> pd.DataFrame:
    """Say what each choice is worth, one row per choice and group."""
    chosen = np.array([source.chosen for source in sources])
    precision = chosen[:, None] / variances
    tables = []
    for source, variance, own in zip(sources, variances, precision / precision.sum(axis=0), strict=True):
        columns: dict[str, Any] = {
            "epsilon": source.epsilon,
            "chosen": source.chosen,
            "group": source.labels,
            "keep": source.keep,
            "inflation": variance / unit_known,
            "worth": unit_known / variance,
            "part": own,
        }
        if rows is not None:
            columns["standard_error"] = np.sqrt(variance / rows)
        if standard_error is not None:
            columns["rows_needed"] = _ceil(variance / standard_error**2)
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _mechanisms(labels: list[Any], epsilon: Any, p: Array, sd: Array, m: Array) -> pd.DataFrame | None:
    """Compare randomized response with subset selection at one epsilon."""
    if epsilon is None or isinstance(epsilon, Mapping) or np.ndim(epsilon):
        return None
    channels = {"randomized-response": _channel(labels, epsilon=epsilon)}
    best = _best_subset(labels, epsilon)
    if best is not None:
        channels["subset-selection"] = _of_channel(best)
    costs = {name: source.variances(p, sd, m)[0] for name, source in channels.items()}
    needed = {name: cost.max() for name, cost in costs.items()}
    table = pd.DataFrame(
        {
            "mechanism": list(channels),
            "size": [1, *([] if best is None else [best.size])],
            "reports": [len(source.T) for source in channels.values()],
            "inflation": [float((cost * p / sd**2).max()) for cost in costs.values()],
        }
    )
    saves = best is not None and needed["subset-selection"] <= _WORTH_A_SUBSET * needed["randomized-response"]
    table["recommended"] = [name == ("subset-selection" if saves else "randomized-response") for name in channels]
    return table


def _best_subset(labels: list[Any], epsilon: float) -> SubsetSelection | None:
    """Return subset selection with the best size, or the largest that does not make too many different reports."""
    for size in (None, *range(len(labels) // 2, 1, -1)):
        try:
            return SubsetSelection(labels, epsilon, size=size)
        except ValueError:
            continue
    return None


def _channel(
    groups: int | Sequence[Any] | None,
    keep: float | None = None,
    epsilon: float | None = None,
    channel: Any = None,
) -> _Source:
    """Return randomized response, or a given channel."""
    inverse, pi = resolve_inverse(groups, keep, epsilon, channel)
    if channel is None:
        K = len(inverse)
        labels = list(range(1, K + 1)) if isinstance(groups, int | np.integer) else list(check_labels(groups))
        T = np.where(np.eye(K, dtype=bool), pi, (1 - pi) / (K - 1))
        if epsilon is None:
            epsilon = math.inf if pi == 1 else math.log(pi * (K - 1) / (1 - pi))
        return _Source(labels, T, inverse, pi, float(epsilon))
    T = np.asarray(channel.matrix, dtype=np.float64)
    if T.shape != inverse.shape[::-1] or not np.allclose(inverse @ T, np.eye(len(inverse)), rtol=0, atol=1e-8):
        raise ValueError(
            f"Got channel.matrix of shape {T.shape} and channel.inverse of shape {inverse.shape}, but expected "
            "(reports, groups) and its left inverse."
        )
    known = [math.nan if getattr(channel, name, None) is None else float(getattr(channel, name)) for name in _KNOWN]
    return _Source(list(channel.groups), T, inverse, known[0], known[1])


def _per_group(given: Any, labels: list[Any], name: str) -> Array:
    """Return one float per group from a sequence in the order of the groups, or from a mapping."""
    if isinstance(given, Mapping):
        if set(given) != set(labels):
            raise ValueError(f"Got {name} for {list(given)}, but expected one number for each of {labels}.")
        given = [given[label] for label in labels]
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (len(labels),):
        raise ValueError(
            f"Got {name} of shape {values.shape}, but expected {len(labels)} numbers, one for each of {labels}."
        )
    return values


def _ceil(rows: Array) -> list[int]:
    # The relative error of a few roundings is below 1e-12: at a whole number do not add a row for it.
    return [math.ceil(float(value) * (1 - 1e-12)) for value in rows]
