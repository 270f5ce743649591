"""Thresholds such as the four-fifths rule: within, beyond, or cannot tell, and how many rows would tell."""

from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array

from .._audit_data import as_pandas, frame_like_source

WITHIN, BEYOND, CANNOT_TELL = "within", "beyond", "cannot tell"
FOUR_FIFTHS = 0.8
_LABELS = ("risk_class", "quantity", "price", "group", "against", "factor", "level", "bin", "band")


def compute_threshold_check(
    table: Any,
    measure: str = "ratio",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    rows: int | None = None,
) -> Any:
    r"""Say whether a measure is within thresholds, beyond them, or whether these reports cannot tell.

    Parameters
    ----------
    table : DataFrame
        A table of the audit with limits, such as from `compute_adverse_impact`.
    measure : str
        The column to judge; the table has its limits in `<measure>_low` and `<measure>_high`.
    at_least, at_most : float, optional
        Thresholds, one or both. If none is given, a "ratio" is judged by the four-fifths rule, ``at_least=0.8``.
        One threshold judges one direction: a ratio of 1.5 is within ``at_least=0.8``. Where either group may be the
        one with less, as in `compute_demographic_disparity`, give ``at_most=1.25`` too.
    rows : int, optional
        Number of rows that the table was made from: adds how many would tell.

    Returns
    -------
    DataFrame
        In the library of `table`, one row for each of its rows:

        - the labels of the row, such as `group` and `against`; `measure`;
        - `value`, `value_low`, `value_high`; `at_least`, `at_most`;
        - `answer`: "within" if the whole interval keeps the thresholds, "beyond" if all of it breaks one of them,
          otherwise "cannot tell";
        - `times_rows`: how many times as many rows, at this epsilon, an interval on one side of the thresholds would
          take if the estimate stayed where it is; 1 if the answer is known, infinity on a threshold;
        - `rows_needed`: the same times `rows`; nan without them;
        - `note`: why there is no number.

    Notes
    -----
    The width of an interval goes with 1 over the root of the number of rows. With a threshold t at the distance
    d = abs(value - t), and the length c of the interval from the value towards t, (c / d)^2 times as many rows would
    tell; the larger of two such numbers counts if the value is within both thresholds.

    "Within" and "beyond" are wrong with a probability of at most (1 - level) / 2 per row and threshold, "cannot tell"
    is no acquittal.

    Examples
    --------
    >>> table = pd.DataFrame({"group": ["F", "G", "H"], "ratio": [0.95, 0.9, 0.6], "ratio_low": [0.9, 0.7, 0.5],
    ...                       "ratio_high": [1.0, 1.1, 0.7]})
    >>> compute_threshold_check(table, rows=1000)[["group", "answer", "times_rows", "rows_needed"]].round(3)
      group       answer  times_rows  rows_needed
    0     F       within         1.0       1000.0
    1     G  cannot tell         4.0       4000.0
    2     H       beyond         1.0       1000.0
    """
    frame = as_pandas(table)
    missing = [name for name in (measure, f"{measure}_low", f"{measure}_high") if name not in frame]
    if missing:
        found = [name for name in frame.columns if f"{name}_low" in frame]
        raise ValueError(f"Got measure={measure!r}, but expected an estimate of the table with limits: {found}.")
    least, most = _check_thresholds(measure, at_least, at_most)
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1):
        raise ValueError(f"Got rows={rows!r}, but expected the number of rows that the table was made from.")
    value, low, high = (frame[f"{measure}{end}"].to_numpy(dtype=np.float64) for end in ("", "_low", "_high"))
    answer, times = _answers(value, low, high, least, most)
    labels = [name for name in _LABELS if name in frame]
    found = frame[labels].assign(
        measure=measure, value=value, value_low=low, value_high=high,
        at_least=np.nan if at_least is None and least == -np.inf else least,
        at_most=np.nan if most == np.inf else most,
        answer=answer, times_rows=times, rows_needed=np.nan if rows is None else np.ceil(np.round(rows * times, 6)),
        note=frame.get("note", ""),
    )  # fmt: skip
    return frame_like_source(table, found)


def _check_thresholds(measure: str, at_least: float | None, at_most: float | None) -> tuple[float, float]:
    if at_least is None and at_most is None:
        if measure != "ratio":
            raise ValueError(
                f"Got measure={measure!r} without thresholds, but expected at_least, at_most or both. The four-fifths "
                'rule is about measure="ratio".'
            )
        at_least = FOUR_FIFTHS
    for name, value in (("at_least", at_least), ("at_most", at_most)):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if value is not None and not (is_number and np.isfinite(value)):
            raise ValueError(f"Got {name}={value!r}, but expected a number such as 0.8.")
    least, most = -np.inf if at_least is None else float(at_least), np.inf if at_most is None else float(at_most)
    if least >= most:
        raise ValueError(f"Got at_least={at_least} and at_most={at_most}, but expected at_least below at_most.")
    return least, most


def _answers(value: Array, low: Array, high: Array, least: float, most: float) -> tuple[list[str], Array]:
    """Return the answers, and how many times as many rows would give one."""
    within, beyond = (low >= least) & (high <= most), (high < least) | (low > most)
    answer = np.where(within, WITHIN, np.where(beyond, BEYOND, CANNOT_TELL))

    def times(threshold: float) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            towards = np.where(value > threshold, value - low, high - value)
            return np.asarray((towards / np.abs(value - threshold)) ** 2)

    inside = (value >= least) & (value <= most)
    needed = np.where(inside, np.fmax(times(least), times(most)), np.where(value < least, times(least), times(most)))
    needed = np.where(answer == CANNOT_TELL, np.maximum(needed, 1.0), 1.0)
    return answer.tolist(), np.where(np.isfinite(low + high), needed, np.nan)


def threshold_of(table: pd.DataFrame) -> list[float]:
    """Return the thresholds of a table that `compute_threshold_check` made."""
    return [float(v) for name in ("at_least", "at_most") for v in table[name].dropna().unique()]
