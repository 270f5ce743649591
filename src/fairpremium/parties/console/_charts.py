"""Drawings of the console: points with their intervals, laid out here and drawn by a template as SVG.

They look like those of the audit report, in its colours; unlike those they follow the page into the dark and need no
inline style, which the console's content security policy forbids.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairpremium.audit.drawing import format_price

__all__ = ["Chart", "Lane", "Mark", "draw_group_means", "draw_prices"]

WIDTH = 430
_RIGHT, _TOP, _AXIS, _KIND, _PAD = 22, 10, 26, 20, 12
_LETTER, _LONGEST = 7.2, 20


@dataclass(frozen=True)
class Mark:
    """A point and its interval, in the units of the drawing."""

    x: float
    y: float
    low: float | None
    high: float | None
    kind: str
    shape: str
    label: str
    anchor: str
    words: str


@dataclass(frozen=True)
class Lane:
    """A row of the drawing. `note` stands where there is no number."""

    name: str
    full_name: str
    y: float
    note: str


@dataclass(frozen=True)
class Chart:
    """A drawing, ready for the template."""

    height: float
    left: float
    right: float
    ticks: tuple[tuple[float, str], ...]
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    legend: tuple[tuple[str, str, str], ...]
    bottom: float


@dataclass(frozen=True)
class _Point:
    lane: str
    row: int
    value: float
    low: float | None
    high: float | None
    kind: str
    shape: str
    label: str
    words: str


def draw_group_means(records: Iterable[Mapping[str, Any]]) -> Chart | None:
    """Draw premium and loss of every group, from the audit's table of the same name."""
    points, lanes, notes = [], [], {}
    for record in records:
        lane = _name(record.get("group"))
        lanes.append(lane)
        if record.get("note"):
            notes[lane] = str(record["note"]).split(" (")[0]
        for row, (kind, shape) in enumerate((("premium", "circle"), ("loss", "square"))):
            value, low, high = (_number(record.get(kind + end)) for end in ("", "_low", "_high"))
            if value is not None:
                words = f"{lane}, mean {kind} {format_price(value)}{_interval(low, high)}"
                points.append(_Point(lane, row, value, low, high, kind, shape, "", words))
    legend = (("premium", "circle", "premium"), ("loss", "square", "loss"))
    return _lay_out(lanes, 2, points, notes, legend)


def draw_prices(price_class: Mapping[str, Any]) -> Chart | None:
    """Draw the three prices of a class, from the audit's price comparison."""
    lanes = ["best estimate", "unaware", "discrimination-free"]
    points = []
    best = list(price_class.get("best_estimate") or ())
    shapes = ("circle", "square", "triangle", "cross", "diamond")
    for k, price in enumerate(best):
        value, group = _number(price.get("mean")), str(price.get("group"))
        if value is not None:
            label = f"{_short(group)} {format_price(value)}" if len(best) <= 3 else ""
            words = f"best estimate for {group}, {format_price(value)}"
            points.append(_Point(lanes[0], 0, value, None, None, f"group{k % 5}", shapes[k % 5], label, words))
    for lane, name, shape in ((lanes[1], "unaware", "diamond"), (lanes[2], "discrimination_free", "circle")):
        price = price_class.get(name) or {}
        value, low, high = (_number(price.get(key)) for key in ("mean", "low", "high"))
        if value is not None:
            words = f"{lane}, {format_price(value)}{_interval(low, high)}"
            kind = name.replace("_", "-")
            points.append(_Point(lane, 0, value, low, high, kind, shape, format_price(value), words))
    many = tuple((f"group{k % 5}", shapes[k % 5], str(p.get("group"))) for k, p in enumerate(best)) if best[3:] else ()
    return _lay_out(lanes, 1, points, {}, many, tall=True)


def _lay_out(
    lanes: Sequence[str],
    kinds: int,
    points: Sequence[_Point],
    notes: Mapping[str, str],
    legend: tuple[tuple[str, str, str], ...],
    *,
    tall: bool = False,
) -> Chart | None:
    """Place lanes from top to bottom and values from left to right."""
    if not points:
        return None
    step = (42 if tall else kinds * _KIND + _PAD) + 0.0
    left = 14 + _LETTER * max(len(_short(lane)) for lane in lanes)
    right = WIDTH - _RIGHT - 0.0
    ends = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    low, high = _room(min(ends), max(ends))

    def place(value: float) -> float:
        return round(left + (value - low) / (high - low) * (right - left), 1)

    tops = {lane: _TOP + i * step for i, lane in enumerate(lanes)}
    middle = step / 2 + (6 if tall else 0)
    marks = []
    for p in points:
        y = tops[p.lane] + (middle if kinds == 1 else _PAD / 2 + (p.row + 0.5) * _KIND)
        ends_ = tuple(None if v is None else place(v) for v in (p.low, p.high))
        marks.append(Mark(place(p.value), round(y, 1), ends_[0], ends_[1], p.kind, p.shape, p.label, "middle", p.words))
    shown = [Lane(_short(n), n, round(tops[n] + (middle if tall else step / 2), 1), notes.get(n, "")) for n in lanes]
    bottom = _TOP + step * len(lanes)
    ticks = tuple((place(v), _tick(v, low, high)) for v in _ticks(low, high))
    return Chart(bottom + _AXIS, left, right, ticks, tuple(shown), tuple(_untangle(marks)), legend, bottom)


def _untangle(marks: Sequence[Mark]) -> list[Mark]:
    """Turn labels that would run into each other outwards; those between the outermost two go."""
    found = []
    for y in dict.fromkeys(mark.y for mark in marks):
        row = sorted((mark for mark in marks if mark.y == y), key=lambda mark: mark.x)
        pairs = itertools.pairwise(row)
        if any(b.x - a.x < _LETTER * (len(a.label) + len(b.label)) / 2 + 6 for a, b in pairs if a.label and b.label):
            row = [
                replace(row[0], anchor="end"),
                *(replace(mark, label="") for mark in row[1:-1]),
                replace(row[-1], anchor="start"),
            ]
        found += row
    return found


def _room(low: float, high: float) -> tuple[float, float]:
    room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two values, at least three of them.

    Examples
    --------
    >>> _ticks(0.13, 0.42)
    [0.2, 0.3, 0.4]
    >>> _ticks(970.0, 2100.0)
    [1000.0, 1500.0, 2000.0]
    """
    unit = 10.0 ** math.floor(math.log10(high - low))
    steps = (m * unit for m in (1, 0.5, 0.2, 0.1))
    step = next(s for s in steps if math.floor(high / s) - math.ceil(low / s) >= 2)
    first = math.ceil(low / step)
    return [round(k * step, 12) for k in range(first, math.floor(high / step) + 1)]


def _tick(value: float, low: float, high: float) -> str:
    digits = max(0, 1 - math.floor(math.log10((high - low) / 2)))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({format_price(low)} to {format_price(high)})"


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def _name(group: Any) -> str:
    return "everyone" if group is None else str(group)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
