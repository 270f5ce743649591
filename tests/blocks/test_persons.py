"""Sums over persons equal a plain loop, however a person's rows are scattered over partitions and passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fairpremium.blocks import Block, Persons, Rows, Source, Stream, _persons, open_source, person_codes, person_totals

N = 3000


@dataclass(frozen=True)
class PlainReader:
    """Columns x, y, s and persons as they are."""

    cluster: str | None = None
    n_features: int = 2

    @property
    def columns(self) -> tuple[str, ...]:
        return ("x1", "x2", "y", "s") if self.cluster is None else ("x1", "x2", "y", "s", self.cluster)

    def with_persons(self, column: str) -> PlainReader:
        return replace(self, cluster=column)

    def __call__(self, table: pa.Table) -> Rows:
        x1, x2, y, s = (table.column(name).to_numpy() for name in ("x1", "x2", "y", "s"))
        codes = None if self.cluster is None else person_codes(table, self.cluster)
        return Rows(np.column_stack([x1, x2]), y, None, s, cluster=codes)


def contributions(block: Block) -> np.ndarray:
    """Three numbers of each row; they are not zero for any row."""
    share = 1.0 if block.share is None else block.share[:, 0]
    return np.column_stack([block.X * (block.y * share)[:, None], 1.0 + block.report])


def shares(block: Block) -> np.ndarray:
    return 2.0 + block.X[:, :1]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    person = rng.integers(0, 900, size=N)
    return pd.DataFrame(
        {
            "x1": rng.normal(size=N),
            "x2": rng.normal(size=N),
            "y": rng.normal(size=N),
            "s": rng.integers(0, 3, size=N),
            "number": 10 * person - 4000,
            "name": [f"person {p}" for p in person],
            "key": person + 0.5,
        }
    )


def by_loop(frame: pd.DataFrame, column: str, factor: np.ndarray | float = 1.0) -> np.ndarray:
    """Sum u u' over persons, one after the other."""
    share = np.broadcast_to(factor, N)
    u = np.column_stack(
        [frame["x1"] * frame["y"] * share, frame["x2"] * frame["y"] * share, 1.0 + frame["s"]],
    )
    total = np.zeros((3, 3))
    for rows in frame.groupby(column).indices.values():
        person = u[rows].sum(axis=0)
        total += np.outer(person, person)
    return total


@pytest.fixture(params=["scattered", "sorted"])
def source(frame: pd.DataFrame, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Source]:
    """Four files; sorted by person only those at the borders have rows in two of them."""
    ordered = frame.sort_values("number") if request.param == "sorted" else frame
    for i, rows in enumerate(np.array_split(np.arange(N), 4)):
        table = pa.Table.from_pandas(ordered.iloc[rows], preserve_index=False)
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=111)
    with open_source(tmp_path) as opened:
        yield opened


def stream_of(source: Source, column: str) -> Stream:
    return Stream(source, PlainReader(), source.counts, persons=Persons(source, column))


@pytest.mark.parametrize("column", ["number", "name", "key"])
def test_squares_of_totals_equal_a_loop(frame: pd.DataFrame, source: Source, column: str) -> None:
    stream = stream_of(source, column)
    np.testing.assert_allclose(stream.square_persons(contributions), by_loop(frame, column), rtol=1e-12)


def test_several_passes_give_the_same(frame: pd.DataFrame, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_persons, "_CODES", 500)
    monkeypatch.setattr(_persons, "_TOTALS", 600)
    monkeypatch.setattr(_persons, "_FEW", 0)
    stream = stream_of(source, "number")
    assert stream.persons is not None
    scattered = sum(map(len, stream.persons.scattered))
    assert stream.persons.passes(3) == max(1, -(-3 * scattered // 600))
    np.testing.assert_allclose(stream.square_persons(contributions), by_loop(frame, "number"), rtol=1e-12)


def test_scattered_are_those_with_rows_in_several_partitions(frame: pd.DataFrame, source: Source) -> None:
    stored = [piece.fragment.to_table(columns=["number"]).column("number").to_numpy() for piece in source.pieces]
    found = Persons(source, "number").scattered
    for i, own in enumerate(stored):
        others = np.concatenate([other for j, other in enumerate(stored) if j != i])
        assert set(found[i].view(np.int64)) == set(own) & set(others)


def test_rows_without_a_report_and_shares_are_respected(frame: pd.DataFrame, source: Source) -> None:
    stream = stream_of(source, "name").with_shares(shares)
    expected = by_loop(frame, "name", 2.0 + frame["x1"].to_numpy())
    np.testing.assert_allclose(stream.square_persons(contributions), expected, rtol=1e-12)
    some = stream_of(source, "name").reported(2)
    u = np.column_stack([frame["x1"] * frame["y"], frame["x2"] * frame["y"], 1.0 + frame["s"]])
    u = pd.DataFrame(u)[frame["s"] < 2].groupby(frame["name"]).sum().to_numpy()
    np.testing.assert_allclose(some.square_persons(contributions), u.T @ u, rtol=1e-12)


def test_rows_that_are_copied_know_their_persons(frame: pd.DataFrame, source: Source) -> None:
    stream = stream_of(source, "name")
    rows = stream.take(np.arange(0, N, 7))
    assert rows.cluster is not None
    stored = pd.concat([piece.fragment.to_table(columns=["name"]).to_pandas() for piece in source.pieces])["name"]
    np.testing.assert_array_equal(rows.cluster, pd.factorize(stored.iloc[::7])[0])
    assert stream.without_persons().take(np.arange(3)).cluster is None
    assert stream.glance(50).cluster is not None


def test_totals_in_memory_equal_a_loop(frame: pd.DataFrame) -> None:
    rows = PlainReader("number")(pa.Table.from_pandas(frame))
    found = {
        int(c): u for codes, totals in person_totals(rows, contributions) for c, u in zip(codes, totals, strict=True)
    }
    u = contributions(rows.block(0, N))
    for person, index in frame.groupby("number").indices.items():
        np.testing.assert_allclose(found[int(np.int64(person).view(np.uint64))], u[index].sum(axis=0), rtol=1e-9)
    assert len(found) == frame["number"].nunique()


def test_a_code_does_not_depend_on_how_a_value_is_stored() -> None:
    numbers = [3, -7, 2**40]
    stored = [pa.array(numbers, pa.int64()), pa.array(numbers, pa.float64()), pa.array(numbers).dictionary_encode()]
    codes = [person_codes(pa.table({"p": values}), "p") for values in stored]
    for each in codes:
        np.testing.assert_array_equal(each.view(np.int64), numbers)
    texts = pa.array(["a", "b", "a"])
    plain = person_codes(pa.table({"p": texts}), "p")
    assert plain[0] == plain[2] != plain[1]
    np.testing.assert_array_equal(plain, person_codes(pa.table({"p": texts.dictionary_encode()}), "p"))
    np.testing.assert_array_equal(plain, person_codes(pa.table({"p": texts.cast(pa.large_string())}), "p"))
    days = pa.array([10, 11, 10], pa.date32())
    assert len(set(person_codes(pa.table({"p": days}), "p").tolist())) == 2
    halves = person_codes(pa.table({"p": [0.5, 1.5, 0.5]}), "p")
    assert halves[0] == halves[2] != halves[1]


@pytest.mark.parametrize("values", [[1, None], ["a", None], [0.5, np.nan]])
def test_a_missing_person_is_an_error(values: list[object]) -> None:
    with pytest.raises(ValueError, match="cluster with missing values in column 'p'"):
        person_codes(pa.table({"p": pa.array(values)}), "p")
