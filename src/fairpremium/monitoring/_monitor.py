"""A monitor: periods in, intervals that hold at every look and alarms out, its state in a JSON file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData
from fairpremium.documents import read_document, write_document
from fairpremium.errors import ModelFileError
from fairpremium.labels import label_from_json, label_to_json
from fairpremium.pricing import check_level
from fairpremium.privacy import Channel

from ._confidence_sequence import critical_value
from ._measures import (
    FAVOURABLE,
    FREE,
    LOSS,
    MEASURES,
    PREMIUM,
    REPORT_SHARE,
    SQUARE,
    VOLUME,
    Layout,
    Watched,
    choose_watched,
)
from ._person_signs import SIGNS, Persons, from_text, to_text

FORMAT, VERSION, NOUN = "fairpremium-monitor", 1, "state of a fairpremium monitor"
FOUR_FIFTHS = (0.8, 1.25)
_START = 200.0
_ROUNDING = 1e-9  # a change smaller than this, relative to the measure, is rounding
COLUMNS = [
    "period", "measure", "group", "against", "this_period", "value", "low", "high", "limit_low", "limit_high",
    "change", "change_low", "change_high", "alarm", "note",
]  # fmt: skip


@dataclass
class _Stretch:
    """Sums over some periods."""

    total: Array  # (size,)
    signed: Array  # (SIGNS, size), see `Persons.total`
    volume: float  # of all rows

    @classmethod
    def empty(cls, size: int) -> _Stretch:
        return cls(np.zeros(size), np.zeros((SIGNS, size)), 0.0)

    def __add__(self, other: _Stretch) -> _Stretch:
        return _Stretch(self.total + other.total, self.signed + other.signed, self.volume + other.volume)

    def effective_reports(self, layout: Layout) -> Array:
        """Return (sum of a)^2 / sum of a^2 over persons for every group."""
        volume = self.total[layout.group_volumes()]
        square = np.mean(self.signed[:, layout.group_volumes()] ** 2, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where((volume > 0) & (square > 0), volume**2 / square, 0.0)


class Monitor:
    r"""Watch the prices of groups over renewals, from reports, with few false alarms however often one looks.

    Parameters
    ----------
    channel : Channel or None
        What the reports of all periods went through; None if they are the true attribute.
    level : float
        Probability that all intervals, of all measures and at all looks, hold the truth.
    against : label, optional
        The group that the others are compared with; the largest of the first periods if left out.
    measures : list of str, optional
        Some of `premium_difference`, `standardized_difference`, `loss_ratio`, `adverse_impact_ratio`, `proxy_effect`
        and `report_share`; all that the columns of the first period allow if left out. Fewer measures have narrower
        intervals.
    limits : dict of str to (low, high), optional
        Limits of a measure: an interval beyond them is an alarm. None stands for no limit on a side. The
        adverse impact ratio has the four-fifths rule, (0.8, 1.25), unless it is given others; (None, None) for none.
    baseline : int
        Number of first periods that later ones are compared with. More of them find a change sooner: the comparison is
        never more precise than the baseline.
    start : float
        Number of effective reports that every compared group must have before intervals begin.

    Notes
    -----
    **Two intervals for each measure.** `value` is the measure over all periods so far, `change` compares all periods
    since the baseline with the baseline, which is longer if it takes more periods to have `start` effective reports.
    An alarm is a value beyond its limits, or a change whose interval excludes "none".

    **Every look.** Both are sums of persons' contributions up to a linear term (delta method; ratios as logarithms).
    The limits are the boundary of a Gaussian mixture at the level (1 - level) / (2 x number of watched measures), see
    the guide. They hold at all looks at once, by a union bound for all measures, as the number of persons at the first
    look grows: they are asymptotic, and `start` says from where.

    **Renewals.** A person who renews sends the same report, which is no new information. Standard errors are of sums
    per person over all periods. Between looks the errors are then positively correlated, and by Slepian's inequality a
    process with such errors leaves the limits less often than the Brownian motion that they were computed for.

    References
    ----------
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), Time-uniform central limit theory and asymptotic confidence
    sequences, Annals of Statistics 52(6).
    Slepian (1962), The one-sided barrier problem for Gaussian noise, Bell System Technical Journal 41(2).

    Examples
    --------
    >>> import numpy as np
    >>> from fairpremium import RandomizedResponse
    >>> rng, channel = np.random.default_rng(0), RandomizedResponse(["F", "M"], keep=0.8)
    >>> sex = rng.choice(["F", "M"], 4000)
    >>> report, persons = channel.privatize(sex, rng=1), np.arange(4000)
    >>> premium = 300 + 20.0 * (sex == "M") + rng.normal(0, 30, 4000)
    >>> monitor = Monitor(channel=channel, against="M", measures=["premium_difference"])
    >>> for quarter in ("2026-Q1", "2026-Q2"):
    ...     look = monitor.append(quarter, premium, sensitive=report, person=persons)
    >>> look[["measure", "group", "against", "alarm"]].values.tolist()
    [['premium_difference', 'F', 'M', '']]
    >>> bool(look["low"][0] < -20 < look["high"][0])
    True
    """

    def __init__(
        self,
        *,
        channel: Channel | None,
        level: float = 0.95,
        against: Any = None,
        measures: Sequence[str] | None = None,
        limits: Mapping[str, tuple[float | None, float | None]] | None = None,
        baseline: int = 1,
        start: float = _START,
    ) -> None:
        if channel is not None and not isinstance(channel, Channel):
            raise TypeError(f"Got channel of type {type(channel).__name__}, but expected a Channel, or None.")
        if not start >= 50:
            raise ValueError(f"Got start={start!r}, but expected at least 50 effective reports.")
        if isinstance(baseline, bool) or not isinstance(baseline, int) or baseline < 1:
            raise ValueError(f"Got baseline={baseline!r}, but expected a number of periods, at least 1.")
        self.channel = channel
        self.level = check_level(level)
        self.against = against
        self.measures = None if measures is None else _check_measures(measures)
        self.limits = _check_limits({"adverse_impact_ratio": FOUR_FIFTHS, **(limits or {})})
        self.baseline = baseline
        self.start = float(start)
        self._groups: tuple[Any, ...] = ()
        self._layout: Layout | None = None
        self._watched: list[Watched] = []
        self._baseline = self._since = _Stretch.empty(0)
        self._first: dict[str, list[float]] = {}  # standard deviation of the sum of errors where intervals began
        self._looks: list[dict[str, Any]] = []

    @property
    def periods(self) -> list[str]:
        """The periods so far."""
        return [look["period"] for look in self._looks]

    def append(
        self,
        period: Any,
        premiums: Any,
        y: Any = None,
        *,
        sensitive: Any,
        person: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        favourable: Any = None,
        free: Any = None,
    ) -> pd.DataFrame:
        """Add a period and look.

        Parameters
        ----------
        period : str or int
            Its name. Names are in order: "2026-Q1" before "2026-Q2", 9 before 10.
        premiums : array-like of shape (n,)
            Premiums of the period, per unit of volume.
        y : array-like of shape (n,), optional
            Losses per unit of volume, or with `exposure` totals over it; for `loss_ratio`.
        sensitive : array-like of shape (n,)
            Reports; None and NaN stand for "not reported". Who renews has the same report as before.
        person : array-like of shape (n,)
            Whose row it is. The same person has the same key in every period.
        sample_weight, exposure : array-like of shape (n,), optional
            Volumes, as in `fairpremium.audit.compute_group_means`.
        favourable : array-like of shape (n,), optional
            Whether the decision was favourable, 1 or 0; for `adverse_impact_ratio`.
        free : array-like of shape (n,), optional
            Discrimination-free premiums; for `proxy_effect`, premium minus discrimination-free premium.

        Returns
        -------
        DataFrame
            The look, one row for each watched number: `period`, `measure`, `group`, `against`; `this_period`, the
            estimate from this period alone; `value`, `low`, `high` over all periods; `limit_low`, `limit_high`;
            `change`, `change_low`, `change_high` since the baseline (a factor for ratios, else a difference);
            `alarm`: "beyond limit", "changed", both, or empty; `note`.

        Raises
        ------
        ValueError
            If the period is before the last one, or a known period with other rows. The same period with
            the same rows changes nothing and returns its look again.
        """
        name = _period_name(period)
        given = {"premiums": premiums, "y": y, FAVOURABLE: favourable, FREE: free}
        found = {key: values for key, values in given.items() if values is not None}
        data = AuditData.read(found, sensitive, self.channel, sample_weight, None, None, self.level, exposure)
        reports = data.reports
        persons = Persons.read(person, len(reports))
        columns = {
            key: data[where]
            for key, where in ((PREMIUM, "premiums"), (LOSS, "y"), (FAVOURABLE, FAVOURABLE), (FREE, FREE))
            if where in found
        }
        if FAVOURABLE in columns and not np.isin(columns[FAVOURABLE], (0.0, 1.0)).all():
            raise ValueError("Got favourable with values other than 0 and 1; expected 1 for a favourable decision.")
        sha256 = persons.digest({**columns, "code": reports.code, "weight": reports.weight})
        known = {look["period"]: look for look in self._looks}
        if name in known:
            if known[name]["sha256"] != sha256:
                raise ValueError(
                    f"Got period {name!r} with other rows than before, but a period that was looked at is final. "
                    "Give the rows a new period, or start a new monitor."
                )
            return self._frame([known[name]])
        if self._looks and not _is_after(name, self.periods[-1]):
            raise ValueError(
                f"Got period {name!r} after {self.periods[-1]!r}, but expected a later one: names are compared as "
                "numbers if both are, else as text."
            )
        self._begin(data, columns)
        assert self._layout is not None
        rows = self._layout.rows(columns, reports.table, reports.code, reports.weight)
        added = _Stretch(*persons.total(rows), float(reports.weight.sum()))
        look = self._look(added)
        self._looks.append({"period": name, "sha256": sha256, "rows": len(reports), "measures": look})
        return self._frame(self._looks[-1:])

    def history(self) -> pd.DataFrame:
        """Return all looks, with the columns of `append`."""
        return self._frame(self._looks)

    def alarms(self) -> pd.DataFrame:
        """Return the rows of the last look that are alarms."""
        last = self._frame(self._looks[-1:])
        return last[last["alarm"] != ""].reset_index(drop=True)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state as JSON; the layout is documented in the guide. Treat the file like the reports."""
        layout = self._layout
        if layout is None:
            raise ValueError("The monitor has seen no period yet, so that there is no state to save.")
        body = {
            "format": FORMAT,
            "version": VERSION,
            "channel": None if self.channel is None else self.channel.descriptor(),
            "groups": [label_to_json(group) for group in self._groups],
            "level": self.level,
            "against": label_to_json(self.against),
            "measures": self.measures,
            "limits": {name: list(pair) for name, pair in self.limits.items()},
            "baseline": self.baseline,
            "start": self.start,
            "columns": list(layout.columns),
            "reports": layout.n_reports,
            "center": layout.center,
            "sums": {
                name: {"total": to_text(s.total), "signed": to_text(s.signed), "volume": s.volume}
                for name, s in (("baseline", self._baseline), ("since", self._since))
            },
            "first": self._first,
            "looks": self._looks,
        }
        write_document(body, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Monitor:
        """Read a state that `save` wrote."""
        body = read_document(path, FORMAT, VERSION, NOUN)
        try:
            return cls._build(body)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{path} is not a valid {NOUN}: {type(error).__name__}: {error}") from error

    @classmethod
    def _build(cls, body: dict[str, Any]) -> Monitor:
        channel = None if body["channel"] is None else Channel.from_descriptor(body["channel"])
        found = cls(
            channel=channel,
            level=body["level"],
            against=label_from_json(body["against"]),
            measures=body["measures"],
            limits={name: (low, high) for name, (low, high) in body["limits"].items()},
            baseline=body["baseline"],
            start=body["start"],
        )
        found.limits = _check_limits(body["limits"])  # those that it began with
        found._groups = tuple(label_from_json(group) for group in body["groups"])
        layout = Layout(tuple(body["columns"]), len(found._groups), int(body["reports"]), float(body["center"]))
        found._layout = layout
        found._watch()
        found._baseline, found._since = (
            _Stretch(
                from_text(s["total"], (layout.size,)), from_text(s["signed"], (SIGNS, layout.size)), float(s["volume"])
            )
            for s in (body["sums"]["baseline"], body["sums"]["since"])
        )
        found._first = {name: [float(v) for v in values] for name, values in body["first"].items()}
        found._looks = list(body["looks"])
        return found

    def _begin(self, data: AuditData, columns: dict[str, Array]) -> None:
        """Decide at the first period what is watched, and check at later ones that it is the same."""
        present = (VOLUME, PREMIUM, SQUARE, *(name for name in (LOSS, FAVOURABLE, FREE) if name in columns))
        if self._layout is not None:
            if present != self._layout.columns:
                raise ValueError(
                    f"Got the columns {_names(present)}, but the monitor began with {_names(self._layout.columns)}; "
                    "expected the same in every period."
                )
            if data.groups != self._groups:
                raise ValueError(
                    f"Got the groups {list(data.groups)}, but the monitor began with {list(self._groups)}."
                )
            return
        self._groups = data.groups
        if len(self._groups) < 2:
            raise ValueError(f"Got the groups {list(self._groups)}, but expected at least two to compare.")
        possible = [name for name, measure in MEASURES.items() if measure.needs is None or measure.needs in present]
        if self.measures is None:
            self.measures = [*possible, REPORT_SHARE]
        for name in self.measures:
            if name not in (*possible, REPORT_SHARE):
                needed = {LOSS: "y"}.get(str(MEASURES[name].needs), MEASURES[name].needs)
                raise ValueError(f"The measure {name!r} needs {needed}, which is missing.")
        weight = data.reports.weight
        center = float(np.average(columns[PREMIUM], weights=weight))
        layout = Layout(present, len(self._groups), data.reports.table.shape[1] - 1, center)
        if self.against is None:
            volumes = [data.reports.signed_weight(k).sum() for k in range(len(self._groups))]
            self.against = self._groups[int(np.argmax(volumes))]
        elif self.against not in self._groups:
            raise ValueError(f"Got against={self.against!r}, but expected one of the groups {list(self._groups)}.")
        self._layout = layout
        self._watch()
        self._baseline, self._since = _Stretch.empty(layout.size), _Stretch.empty(layout.size)

    def _watch(self) -> None:
        """List what is watched."""
        assert self._layout is not None
        assert self.measures is not None
        against = self._groups.index(self.against)
        self._watched = choose_watched(self.measures, len(self._groups), against, self._layout.n_reports)

    def _look(self, added: _Stretch) -> list[dict[str, Any]]:
        """Add the sums of a period, and compute its look."""
        layout = self._layout
        assert layout is not None
        is_baseline = len(self._looks) < self.baseline or "value" not in self._first
        if is_baseline:
            self._baseline = self._baseline + added
        else:
            self._since = self._since + added
        everything = self._baseline + self._since
        rows: list[dict[str, Any]] = []
        for w, this in zip(self._watched, layout.values(self._watched, added.total).tolist(), strict=True):
            label: dict[str, Any] = {"measure": w.measure, "group": w.group, "against": w.against}
            rows.append({**label, "this_period": _report(math.exp(this) if w.is_ratio else this)})
        self._intervals(rows, "value", [(everything, 1.0)])
        if not is_baseline:
            self._intervals(rows, "change", [(self._since, 1.0), (self._baseline, -1.0)])
        for row in rows:
            row["alarm"] = self._alarm(row)
        return rows

    def _intervals(self, rows: list[dict[str, Any]], name: str, parts: list[tuple[_Stretch, float]]) -> None:
        """Add a number with its limits to each row: the measure of one stretch, or the difference of two.

        The error of the first stretch's measure, times its volume, is the sum whose variance is the information.
        """
        layout = self._layout
        assert layout is not None
        effective = min(float(part.effective_reports(layout).min()) for part, _ in parts)
        if effective < self.start:
            for row in rows:
                row["note"] = f"no intervals yet: {effective:.0f} of {self.start:.0f} effective reports"
            return
        alpha = (1 - self.level) / (2 * len(self._watched))
        values, scales = np.zeros(len(rows)), np.zeros(len(rows))
        signed = np.zeros((SIGNS, len(rows)))
        for part, sign in parts:
            found, gradient = layout.values_and_gradients(self._watched, part.total)
            signed += sign * (part.signed @ gradient.T)
            values += sign * found
            scales = np.maximum(scales, np.abs(found))
        errors = np.sqrt(np.mean(signed**2, axis=0))
        volume = parts[0][0].volume
        first = self._first.setdefault(name, [volume * error if error > 0 else 0.0 for error in np.nan_to_num(errors)])
        for j, (w, row) in enumerate(zip(self._watched, rows, strict=True)):
            value, error = float(values[j]), float(errors[j])
            if not (math.isfinite(value) and math.isfinite(error)):
                row["note"] = "no number: a mean of a group is not positive by chance"
                continue
            sum_error = volume * error
            if first[j] == 0:  # nothing varied where intervals began
                first[j] = sum_error
            information = (sum_error / first[j]) ** 2 if first[j] > 0 and sum_error > 0 else 1.0
            width = critical_value(alpha, information, SIGNS) * error if error > 0 else 0.0
            width = max(width, _ROUNDING * max(1.0 if w.is_ratio else 0.0, scales[j]))
            limits = [value, value - width, value + width]
            if w.is_ratio:
                limits = [math.exp(x) if x < 700 else math.inf for x in limits]
            for key, number in zip((name, f"{name}_low", f"{name}_high"), limits, strict=True):
                row[key] = _report(number)

    def _alarm(self, row: dict[str, Any]) -> str:
        found = []
        low, high = self.limits.get(row["measure"], (None, None))
        if row.get("value_low") is not None and (
            (low is not None and row["value_high"] is not None and row["value_high"] < low)
            or (high is not None and row["value_low"] > high)
        ):
            found.append("beyond limit")
        none = 1.0 if row["measure"] in MEASURES and MEASURES[row["measure"]].is_ratio else 0.0
        if row.get("change_low") is not None and (
            row["change_low"] > none or (row["change_high"] is not None and row["change_high"] < none)
        ):
            found.append("changed")
        return " and ".join(found)

    def _frame(self, looks: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Return looks as a table."""
        labels = self.channel.reports if self.channel is not None else self._groups
        rows = []
        for look in looks:
            for row in look["measures"]:
                low, high = self.limits.get(row["measure"], (None, None))
                compares = row["against"] is not None
                rows.append(
                    {
                        "period": look["period"],
                        "measure": row["measure"],
                        "group": self._groups[row["group"]] if compares else labels[row["group"]],
                        "against": self._groups[row["against"]] if compares else None,
                        **{key: row.get(key) for key in ("this_period", "value")},
                        "low": row.get("value_low"),
                        "high": row.get("value_high"),
                        "limit_low": low,
                        "limit_high": high,
                        **{key: row.get(key) for key in ("change", "change_low", "change_high")},
                        "alarm": row["alarm"],
                        "note": row.get("note", ""),
                    }
                )
        numbers = COLUMNS[COLUMNS.index("this_period") : COLUMNS.index("alarm")]
        types = {name: np.float64 if name in numbers else object for name in COLUMNS}
        return pd.DataFrame({name: np.array([row[name] for row in rows], dtype=types[name]) for name in COLUMNS})

    def __repr__(self) -> str:
        last = f", last {self.periods[-1]!r}" if self._looks else ""
        return f"Monitor({self.channel!r}, {len(self._looks)} periods{last})"


def _check_measures(measures: Sequence[str]) -> list[str]:
    known = [*MEASURES, REPORT_SHARE]
    wrong = [name for name in measures if name not in known]
    if wrong or not len(measures) or len(set(measures)) < len(measures):
        raise ValueError(f"Got measures={list(measures)}, but expected some of {known}, each once.")
    return list(measures)


def _check_limits(limits: Mapping[str, Any]) -> dict[str, tuple[float | None, float | None]]:
    found = {}
    known = [*MEASURES, REPORT_SHARE]
    for name, pair in limits.items():
        if name not in known:
            raise ValueError(f"Got limits of {name!r}, but expected some of {known}.")
        try:
            low, high = (None if number is None else float(number) for number in pair)
        except (TypeError, ValueError):
            raise ValueError(f"Got the limits {pair!r} of {name}, but expected a pair (low, high).") from None
        if low is not None and high is not None and not low < high:
            raise ValueError(f"Got the limits ({low:g}, {high:g}) of {name}, but expected the lower one first.")
        found[name] = (low, high)
    return found


def _names(columns: Sequence[str]) -> str:
    shown = [{LOSS: "y"}.get(name, name) for name in columns if name not in (VOLUME, SQUARE)]
    return ", ".join(shown)


def _period_name(period: Any) -> str:
    if isinstance(period, bool) or not isinstance(period, str | int | np.integer) or not str(period).strip():
        raise TypeError(f"Got period={period!r}, but expected a name such as '2026-Q1', or a whole number.")
    return str(period).strip()


def _is_after(name: str, last: str) -> bool:
    if name.isdecimal() and last.isdecimal():
        return int(name) > int(last)
    return name > last


def _report(number: float) -> float | None:
    """Return a number as JSON has it."""
    return float(number) if math.isfinite(number) else None
