"""Premium against loss, by group and by premium decile."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairpremium.audit._book import Book, Rows, estimate_rows, mean_columns, premium_bins, volume_share, with_limits
from fairpremium.audit._sample import EVERYONE, REPORTED, effective_reports


def compute_calibration(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    bins: int = 10,
    sample_weight: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare premium and loss by premium decile, for everybody and for every true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, sample_weight, cluster, by, level
        As in `compute_group_means`.
    bins : int
        Number of bins of about equal volume; the premium is not private, so that its quantiles are known. Equal
        premiums stay together, so that a tariff with few prices may have fewer bins. With `by` the bins are those of
        the whole portfolio.

    Returns
    -------
    DataFrame
        One row per bin and group, everybody first (`group` is None, all rows, with or without a report):

        - `bin` (1 for the lowest premiums), `group`, `share`: of the bin's volume that reported;
        - `premium`, `loss`: means, each with `_low` and `_high`;
        - `difference`, `difference_low`, `difference_high`: mean loss minus mean premium;
        - `effective_reports`, `note`.

    Notes
    -----
    In bin B the ratio estimators of `compute_group_means` with a_ik 1{h_i in B} in the place of a_ik; the difference
    is that of v_i = y_i - h_i. A price is calibrated within groups (auto-calibrated, sufficient) if all differences
    vanish: the premium then costs what it promises, whoever pays it.
    """
    book = Book.read(
        {"premiums": premiums, "y": y}, sensitive=sensitive, channel=channel, sample_weight=sample_weight,
        cluster=cluster, by=by, level=level,
    )  # fmt: skip
    number = premium_bins(book["premiums"], book.sample.weight, bins).astype(float)
    book = book.with_columns(excess=book["y"] - book["premiums"], bin=number)

    def rows(part: Book) -> Rows:
        found: Rows = []
        for number in np.unique(part["bin"]):
            found += _bin(part.take(np.flatnonzero(part["bin"] == number)), int(number) + 1)
        return found

    return book.table(rows)


def _bin(book: Book, number: int) -> Rows:
    K = len(book.groups)
    totals = book.totals(["premiums", "y", "excess"], [EVERYONE, *range(K), REPORTED])
    volume = totals["volume"][: K + 1]
    difference = totals["excess"][: K + 1] / volume
    share = volume_share(volume, totals["volume"][[K + 1] * (K + 1)])
    share[0] = 1.0
    numbers = {
        "share": share,
        **mean_columns("premium", totals["premiums"][: K + 1], volume, book.level),
        **mean_columns("loss", totals["y"][: K + 1], volume, book.level),
        **with_limits("difference", difference, difference.interval(book.level)),
    }
    labels = [{"bin": number, "group": group} for group in (None, *book.groups)]
    return estimate_rows(labels, effective_reports(volume), numbers)
