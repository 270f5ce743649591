"""Parquet files: rows come in the order of the file, however its row groups are combined."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fairpremium import DiscriminationFreePricer
from fairpremium.blocks import Rows, Stream, open_source
from fairpremium.blocks._rows import draw_places


@dataclass(frozen=True)
class NumberReader:
    """Rows whose only feature is the position that the column `i` tells."""

    columns: tuple[str, ...] = ("i",)
    n_features: int = 1

    def __call__(self, table: pa.Table) -> Rows:
        i = table["i"].to_numpy().astype(np.float64)
        return Rows(i[:, None], i, None, np.zeros(len(i), dtype=int))


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    """Ten row groups of which several make a partition."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"i": np.arange(1_000_000)}), path, row_group_size=100_000)
    return path


@pytest.mark.parametrize("chosen", [None, [9, 6, 7, 8, 2]], ids=["file", "some row groups"])
def test_rows_come_in_the_order_of_the_file(numbered: Path, chosen: list[int] | None) -> None:
    """BUG: Arrow lists the row groups 6, 7, 8 of a fragment as 8, 6, 7, so that premiums were written in that order."""
    given, expected = ds.dataset(numbered), np.arange(1_000_000)
    if chosen is not None:
        (fragment,) = given.get_fragments()
        given = ds.FileSystemDataset([fragment.subset(row_group_ids=chosen)], given.schema, given.format)
        expected = np.concatenate([np.arange(100_000) + 100_000 * group for group in sorted(chosen)])
    with open_source(given) as source:
        stream = Stream(source, NumberReader(), source.counts)
        n = len(expected)
        np.testing.assert_array_equal(stream.spaced(n).y, expected)
        np.testing.assert_array_equal(stream.spaced(4096).y, expected[:: n // 4096])
        np.testing.assert_array_equal(stream.draw(1000).y, expected[draw_places(n, 1000)])


def test_premiums_of_many_row_groups_are_written_in_the_order_of_the_rows(tmp_path: Path) -> None:
    x = np.arange(1_000_000) + 0.25
    pq.write_table(pa.table({"x": x}), tmp_path / "rows.parquet", row_group_size=100_000)
    some, S = x[::1000], np.tile(["A", "B"], 500)
    pricer = DiscriminationFreePricer(pooling=0, correction="inverse", intervals=False)
    pricer.fit(pd.DataFrame({"x": some}), some + (S == "B"), sensitive=S)
    pricer.predict_to(tmp_path / "rows.parquet", tmp_path / "premiums.parquet")
    premiums = pq.read_table(tmp_path / "premiums.parquet")["premium"].to_numpy()
    np.testing.assert_allclose(premiums, x + 0.5, rtol=1e-9, atol=1e-6)
