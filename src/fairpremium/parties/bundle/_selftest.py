"""Rows that nobody has, with the prices that a model must give them wherever it is loaded."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fairpremium.errors import OutOfRangeError
from fairpremium.models import Design

ROWS = 64
TOLERANCE = 1e-9
_FEATURE = "feature "
_SHRINK = 12  # how often the ranges are halved until all rows have a price

Ranges = Mapping[str, tuple[float, float]]


def price_columns(pricer: Any) -> list[str]:
    """Return the names of the columns of prices: premium, low and high if there are intervals, unaware, each group."""
    names = ["premium", *(["low", "high"] if pricer.has_intervals_ else []), "unaware"]
    names += [f"group {group}" for group in pricer.groups_]
    if len(set(names)) != len(names):
        raise ValueError("Got groups that read the same as text, but expected names that tell them apart.")
    return names


def compute_prices(pricer: Any, X: Any, level: float) -> dict[str, npt.NDArray[np.float64]]:
    """Compute the columns of prices of some rows."""
    best = np.asarray(pricer.predict_best_estimate(X), dtype=np.float64)
    interval = list(pricer.predict_interval(X, level)) if pricer.has_intervals_ else []
    columns = [pricer.predict(X), *interval, pricer.predict_unaware(X), *best.T]
    return dict(zip(price_columns(pricer), map(np.asarray, columns), strict=True))


def feature_ranges(paths: Iterable[Any], names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest value of the numeric ones among some columns of Parquet files."""
    found: dict[str, tuple[float, float]] = {}
    for path in paths:
        file = pq.ParquetFile(path)
        columns = [field.name for field in file.schema_arrow if field.name in names and _is_number(field.type)]
        for batch in file.iter_batches(columns=columns) if columns else ():
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                ends = pc.min_max(column).as_py()
                if ends["min"] is not None:
                    low, high = found.get(name, (math.inf, -math.inf))
                    found[name] = min(low, float(ends["min"])), max(high, float(ends["max"]))
    return found


def draw_selftest(pricer: Any, ranges: Ranges | None, level: float) -> pa.Table:
    """Draw rows from the levels and ranges of the columns, each by itself, and price them.

    - `pricer` (DiscriminationFreePricer)
    - `ranges`: Smallest and largest value of numeric columns; they are rounded outwards to one digit of their distance,
      so that they are nobody's. A column that is not named ranges from 0 to 1.
    - `level`: Of the intervals.
    """
    design: Design = pricer.design_
    rng = np.random.default_rng(_seed(design))
    places = {c.name: rng.random(ROWS) for c in design.columns}
    for shrink in range(_SHRINK + 1):
        columns = {c.name: _values(c, places[c.name], (ranges or {}).get(c.name, (0.0, 1.0)), shrink)
                   for c in design.columns}  # fmt: skip
        try:
            prices = compute_prices(pricer, _rows(design, columns), level)
        except (OutOfRangeError, OverflowError):  # a corner where no row is; go nearer to the middle
            continue
        if all(np.isfinite(column).all() for column in prices.values()):
            named = {f"{_FEATURE}{name}": pa.array(values.tolist()) for name, values in columns.items()}
            return pa.table({**named, **{name: pa.array(column, pa.float64()) for name, column in prices.items()}})
    raise ValueError(
        "The model has no finite price in the middle of its features' ranges; expected ranges like those of the rows "
        "that it was fitted to. Give them as ranges."
    )


def run_selftest(pricer: Any, table: pa.Table, level: float) -> str | None:
    """Price the rows of a self-test; return what is wrong, or None."""
    design: Design = pricer.design_
    features, prices = [f"{_FEATURE}{name}" for name in design.names], price_columns(pricer)
    if table.column_names != [*features, *prices] or not 1 <= len(table) <= 10_000:
        return "the columns of the self-test are not those of the model"
    columns = {c.name: _column(c, table.column(f"{_FEATURE}{c.name}").to_pylist()) for c in design.columns}
    found = compute_prices(pricer, _rows(design, columns), level)
    for name in prices:
        expected = table.column(name).to_numpy().astype(np.float64)
        scale = np.maximum(np.abs(expected), np.mean(np.abs(expected)))
        if not (np.abs(found[name] - expected) <= TOLERANCE * scale).all():  # also where one is NaN
            return f"the model does not give the expected numbers in column {name!r}"
    return None


def _seed(design: Design) -> int:
    text = json.dumps(design.to_dict(), sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _values(column: Any, places: npt.NDArray[np.float64], ends: tuple[float, float], shrink: int) -> Any:
    """Return values of a column: all levels in turn, or numbers between the rounded ends."""
    if column.levels is not None:
        order = np.argsort(places) % len(column.levels)
        return _column(column, [column.levels[code] for code in order])
    low, high = _coarse(*ends)
    return low + (high - low) * (0.5 + (places - 0.5) / 2.0**shrink)


def _coarse(low: float, high: float) -> tuple[float, float]:
    """Round a range outwards to one digit of its length."""
    low, high = float(low), float(high)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError("Got a range of another form, but expected two finite numbers, the smaller first.")
    width = high - low
    if not 1e-300 < width < 1e300:
        return low, high
    step = 10.0 ** math.floor(math.log10(width))
    return math.floor(low / step) * step, math.ceil(high / step) * step


def _column(column: Any, values: list[Any]) -> Any:
    """Return values in the type by which a design knows numbers from levels."""
    if column.levels is None:
        return np.asarray(values, dtype=np.float64)
    return pd.Series(values, dtype=object if not isinstance(column.levels[0], bool) else bool)


def _rows(design: Design, columns: dict[str, Any]) -> Any:
    if design.named:
        return pd.DataFrame(columns)
    return np.column_stack(list(columns.values()))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))
