"""Reports with their channel and volumes, and the group totals that every measure is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.corrections import ReportChannel
from fairpremium.labels import infer_labels
from fairpremium.models import check_cluster, check_weight
from fairpremium.privacy import Channel

from ._estimate import Contributions, Estimate

REPORTED, EVERYONE = -2, -1  # "groups" beside the groups: all rows with a report, all rows

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class WeightedReports:
    """Reports, the channel that they went through, and the volumes of their rows."""

    groups: tuple[Any, ...]
    # (K + 2, reports + 1): what a row with report s counts for group k, T^-1[k, s], zero for a missing report (the last
    # column). The last two rows count for all rows with a report, and for all rows.
    table: Array
    code: Codes  # (n,), codes of the reports; the number of reports stands for a missing one
    weight: Array  # (n,)
    cluster: Codes | None  # (n,), who a row belongs to

    @classmethod
    def read(
        cls,
        n: int,
        sensitive: Any,
        channel: Any,
        sample_weight: Any,
        cluster: Any,
        of: str,
        *,
        channel_key: Any = None,
    ) -> WeightedReports:
        """Check the caller's columns, which must have n rows like the argument `of`."""
        if channel is not None and not isinstance(channel, Channel | Mapping):
            raise TypeError(
                f"Got channel of type {type(channel).__name__}, but expected None (sensitive is the true attribute), "
                "a Channel such as RandomizedResponse, or a mapping of keys to these; a fitted noise estimator has one "
                "in channel_."
            )
        if sensitive is None:
            raise ValueError("Got sensitive=None, but expected the reports, or the true attribute with channel=None.")
        reports = read_channel(channel, sensitive)
        code = reports.encode(sensitive, channel_key)
        if len(code) != n:
            raise ValueError(f"Got sensitive with {len(code)} rows, but {of} has {n}; expected the same number.")
        if (code == reports.n_codes - 1).all():
            raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
        everyone = np.ones(reports.n_codes)
        reported = np.append(everyone[:-1], 0.0)
        weight = check_weight(sample_weight, n, of=of)
        return cls(
            reports.groups,
            np.vstack([reports.table, reported, everyone]),
            code.astype(np.intp),
            np.ones(n) if weight is None else weight,
            check_cluster(cluster, n, of=of),
        )

    @classmethod
    def of_everybody(cls, n: int, sample_weight: Any, cluster: Any, of: str) -> WeightedReports:
        """Return rows without any report, for tables that have no groups."""
        weight = check_weight(sample_weight, n, of=of)
        weight = np.ones(n) if weight is None else weight
        return cls((), np.array([[0.0], [1.0]]), np.zeros(n, dtype=np.intp), weight, check_cluster(cluster, n, of=of))

    def __len__(self) -> int:
        return len(self.code)

    @property
    def n_missing(self) -> int:
        """Number of rows without a report."""
        return int(np.count_nonzero(self.code == self.table.shape[1] - 1))

    def take(self, rows: Any) -> WeightedReports:
        """Return some of the rows."""
        cluster = None if self.cluster is None else np.unique(self.cluster[rows], return_inverse=True)[1]
        return replace(self, code=self.code[rows], weight=self.weight[rows], cluster=cluster)

    @cached_property
    def _rows_by_code(self) -> list[npt.NDArray[np.intp]]:
        return [np.flatnonzero(self.code == s) for s in range(self.table.shape[1])]

    def signed_weight(self, group: int) -> Array:
        """Return a_ik = w_i T^-1[k, s_i], what row i counts for a group: shape (n,)."""
        return np.asarray(self.table[group][self.code] * self.weight)

    def totals(self, columns: Mapping[str, Array], groups: Sequence[int]) -> dict[str, Estimate]:
        """Sum columns over groups, with the joint covariance of the sums.

        - `columns`, shape (n,) or (n, K): The values v_j. A column of shape (n, K) has a value for each group, and
          counts for its own.
        - `groups`: Positions of groups, REPORTED or EVERYONE.

        Returns the sums N_kj = sum_i a_ik v_ij with a_ik = w_i T^-1[k, s_i], one per group; "volume" stands for v = 1.

        Notes
        -----
        E[T^-1[k, S] given D] = 1{D = k}, so that N_kj is unbiased for the sum of w v_j over the rows of group k. Rows
        are independent, or clusters are, and

            Cov(N_kj, N_lm) = sum_c (sum_{i in c} a_ik v_ij) (sum_{i in c} a_il v_im)

        about zero (see `Estimate`). Without clusters this needs the second moments of w v by report only, one pass
        whatever the number of groups.
        """
        named = {**columns, "volume": np.ones(len(self))}
        U = np.column_stack(list(named.values())) * self.weight[:, None]
        column, first = [], 0  # the position in U of every sum's column
        for values in named.values():
            column += [first + (k if values.ndim == 2 else 0) for k in groups]
            first += 1 if values.ndim == 1 else values.shape[1]
        factor = np.tile(self.table[list(groups)], (len(named), 1))  # (m, codes)
        pick = np.eye(U.shape[1])[:, column]  # (columns, m)
        if self.cluster is None:
            rows = Contributions([(U[rows], pick * factor[:, s]) for s, rows in enumerate(self._rows_by_code)])
        else:
            pairs = zip(factor, column, strict=True)
            Z = [np.bincount(self.cluster, weights=f[self.code] * U[:, j]) for f, j in pairs]
            rows = Contributions([(np.column_stack(Z), np.eye(len(column)))])
        found, K = Estimate(rows.sums, np.eye(len(column)), rows), len(groups)
        return {name: found[i * K : (i + 1) * K] for i, name in enumerate(named)}

    def from_influence(self, value: Array, influence: Array) -> Estimate:
        """Return estimates whose error is the sum of the rows' influences, shape (n, p)."""
        if self.cluster is not None:
            influence = np.column_stack([np.bincount(self.cluster, weights=column) for column in influence.T])
        return Estimate(value, np.eye(len(value)), Contributions([(influence, np.eye(len(value)))]))


def read_channel(channel: Any, sensitive: Any) -> ReportChannel:
    """Return the channel, or those of several sources; the groups of the true attribute are those that occur."""
    known = channel is None or (isinstance(channel, Mapping) and all(each is None for each in channel.values()))
    return ReportChannel.of(channel, infer_labels(sensitive, "sensitive") if known else None)


def effective_reports(volume: Estimate) -> Array:
    """Return (sum of a)^2 / sum of a^2 of the signed weights a, zero where their sum is not positive: shape (p,).

    It is the number of rows with a known attribute and equal volumes whose total would be as precise. With the true
    attribute and without weights it is the number of rows of the group.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = volume.value**2 / volume.variance
    return np.where((volume.value > 0) & (volume.variance > 0), effective, 0.0)
