"""The measures that a monitor watches: functions of group totals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array

VOLUME, PREMIUM, SQUARE, LOSS, FAVOURABLE, FREE = "volume", "premium", "square", "loss", "favourable", "free"

Complex = npt.NDArray[Any]  # real totals, or complex ones in the derivative
Totals = dict[str, Complex]  # of one group: by column


def _mean(totals: Totals, column: str) -> Complex:
    mean: Complex = totals[column] / totals[VOLUME]
    return mean


def _variance(totals: Totals) -> Complex:
    return np.asarray(_mean(totals, SQUARE) - _mean(totals, PREMIUM) ** 2)


def _premium_difference(k: Totals, other: Totals, center: float) -> Complex:
    return _mean(k, PREMIUM) - _mean(other, PREMIUM)


def _standardized_difference(k: Totals, other: Totals, center: float) -> Complex:
    return _premium_difference(k, other, center) / np.sqrt((_variance(k) + _variance(other)) / 2)


def _loss_ratio(k: Totals, other: Totals, center: float) -> Complex:
    mine, others = (_mean(group, LOSS) / (_mean(group, PREMIUM) + center) for group in (k, other))
    return np.log(mine / others)


def _adverse_impact_ratio(k: Totals, other: Totals, center: float) -> Complex:
    return np.log(_mean(k, FAVOURABLE) / _mean(other, FAVOURABLE))


def _proxy_effect(k: Totals, other: Totals, center: float) -> Complex:
    return _premium_difference(k, other, center) - _mean(k, FREE) + _mean(other, FREE)


@dataclass(frozen=True)
class Measure:
    """A comparison of a group with another one."""

    compare: Callable[[Totals, Totals, float], Complex]
    needs: str | None  # the column that the caller may leave out
    is_ratio: bool  # computed as a logarithm; a change of it is a factor
    words: str


MEASURES: dict[str, Measure] = {
    "premium_difference": Measure(_premium_difference, None, False, "difference of mean premiums"),
    "standardized_difference": Measure(
        _standardized_difference, None, False, "standardized mean difference of premiums"
    ),
    "loss_ratio": Measure(_loss_ratio, LOSS, True, "loss ratio over that of the other group"),
    "adverse_impact_ratio": Measure(_adverse_impact_ratio, FAVOURABLE, True, "adverse impact ratio of decisions"),
    "proxy_effect": Measure(_proxy_effect, FREE, False, "difference of mean proxy effects"),
}
REPORT_SHARE = "report_share"


@dataclass(frozen=True)
class Watched:
    """One number that is watched: a measure of a group against another, or the share of a report."""

    measure: str
    group: int  # position of the group, or of the report
    against: int | None

    @property
    def is_ratio(self) -> bool:
        """Whether it is computed as a logarithm."""
        return self.measure in MEASURES and MEASURES[self.measure].is_ratio


@dataclass(frozen=True)
class Layout:
    """Where the totals are: the columns of every group, then the volume of every report."""

    columns: tuple[str, ...]
    n_groups: int
    n_reports: int
    center: float  # subtracted from premiums and discrimination-free premiums, so that their squares keep their digits

    @property
    def size(self) -> int:
        """Number of totals."""
        return len(self.columns) * self.n_groups + self.n_reports

    def rows(self, columns: dict[str, Array], table: Array, code: npt.NDArray[Any], weight: Array) -> Array:
        """Return what each row adds to the totals: shape (n, size).

        - `table`, shape (>= groups, reports + 1): T^-1[k, s]; the last column is a missing report.
        """
        columns = {**columns, VOLUME: np.ones(len(code))}
        for name in (PREMIUM, FREE):
            if name in columns:
                columns[name] = columns[name] - self.center
        columns[SQUARE] = columns[PREMIUM] ** 2
        values = np.column_stack([columns[name] for name in self.columns]) * weight[:, None]
        signed = [table[k][code][:, None] * values for k in range(self.n_groups)]
        reports = (code[:, None] == np.arange(self.n_reports)) * weight[:, None]
        return np.hstack([*signed, reports])

    def group_volumes(self) -> list[int]:
        """Return where the volumes of the groups are."""
        return [k * len(self.columns) + self.columns.index(VOLUME) for k in range(self.n_groups)]

    def values(self, watched: Sequence[Watched], totals: Complex) -> Complex:
        """Compute watched numbers from totals, shape (..., watched); a ratio as its logarithm."""
        c, K = len(self.columns), self.n_groups
        groups = totals[..., : c * K].reshape(*totals.shape[:-1], K, c)
        reports = totals[..., c * K :]
        found: dict[tuple[str, int | None], Complex] = {}  # of all groups, or of all reports: (..., K or reports)
        with np.errstate(divide="ignore", invalid="ignore"):
            for w in watched:
                key, k = (w.measure, w.against), w.against
                if key in found:
                    continue
                if k is None:
                    found[key] = reports / reports.sum(axis=-1, keepdims=True)
                else:
                    every = {name: groups[..., j] for j, name in enumerate(self.columns)}
                    other = {name: groups[..., k : k + 1, j] for j, name in enumerate(self.columns)}
                    found[key] = MEASURES[w.measure].compare(every, other, self.center)
        return np.stack([found[w.measure, w.against][..., w.group] for w in watched], axis=-1)

    def values_and_gradients(self, watched: Sequence[Watched], totals: Array) -> tuple[Array, Array]:
        """Return watched numbers with their derivatives by the totals; nan where there is none.

        Shapes (watched,) and (watched, size). Derivatives are imaginary parts of values at complex totals. No
        difference of near numbers occurs in them, so that they are exact up to rounding (Squire and Trapp, 1998).
        """
        value = np.asarray(self.values(watched, totals))
        step = 1e-20 * np.maximum(np.abs(totals), 1.0)
        at = totals + 1j * np.diag(step)  # (size, size)
        gradient = self.values(watched, at).imag.T / step
        known = np.isfinite(value)
        return np.where(known, value, np.nan), np.where(known[:, None], gradient, np.nan)


def choose_watched(measures: Sequence[str], n_groups: int, against: int, n_reports: int) -> list[Watched]:
    """Return every number to watch; the share of the last report follows from the others."""
    found = [
        Watched(name, k, against) for name in measures if name in MEASURES for k in range(n_groups) if k != against
    ]
    reports = range(n_reports - 1) if REPORT_SHARE in measures else ()
    return found + [Watched(REPORT_SHARE, s, None) for s in reports]
