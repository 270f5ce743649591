"""The fold over blocks equals a plain loop, whatever the number of rows and threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fairpremium.blocks import Block, Rows, _rows
from fairpremium.blocks._pool import WorkerPool

SIZES = [1, 2, 8191, 8192, 8193, 65_535, 65_536, 65_537, 150_001]


def portfolio(n: int, *, full: bool = True) -> Rows:
    rng = np.random.default_rng(n)
    return Rows(
        rng.normal(size=(n, 3)),
        rng.normal(size=n),
        rng.random(n) if full else None,
        rng.integers(3, size=n),
        rng.integers(4, size=n) if full else None,
    )


def count_and_sum(block: Block) -> tuple[np.ndarray, ...]:
    """Integers, whose sums are exact in any order, and one float sum."""
    size = np.array(len(block.y))
    return size, np.bincount(block.report, minlength=3), (block.X * block.y[:, None]).sum(axis=0)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("block_rows", [8192, 1000, 10**6])
def test_fold_equals_one_call_on_all_rows(n: int, block_rows: int) -> None:
    rows = portfolio(n)
    size, counts, sums = rows.reduce(count_and_sum, block_rows=block_rows)
    assert size == n == len(rows)
    np.testing.assert_array_equal(counts, np.bincount(rows.report, minlength=3))
    np.testing.assert_allclose(sums, rows.y @ rows.X, rtol=1e-9, atol=1e-9)


def test_every_row_is_seen_once_and_its_columns_stay_together() -> None:
    n = 150_001
    index = np.arange(n, dtype=float)
    rows = Rows(np.column_stack([index, -index]), index, index, np.arange(n))
    seen = np.zeros(n, dtype=int)
    lock = threading.Lock()

    def look(block: Block) -> tuple[np.ndarray, ...]:
        assert len(block.y) <= 8192
        for column in (block.X[:, 0], -block.X[:, 1], block.weight, block.report):
            np.testing.assert_array_equal(column, block.y)
        with lock:
            seen[block.report] += 1
        return (np.array(1),)

    rows.reduce(look)
    np.testing.assert_array_equal(seen, 1)


@pytest.mark.parametrize("n", [70_000, 300_001])
def test_the_result_is_bit_equal_for_any_number_of_threads(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = portfolio(n)

    def products(block: Block) -> tuple[np.ndarray, ...]:
        return block.X.T @ (block.X * block.weight[:, None]), block.X.T @ block.y

    results = []
    for workers in (1, 2, 5):
        monkeypatch.setattr(_rows, "count_workers", lambda workers=workers: workers)
        results.append(rows.reduce(products))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_task_does_not_depend_on_the_threads_of_the_linear_algebra_library() -> None:
    """ "The result does not depend on the number of threads" must hold for small portfolios too."""
    rows = portfolio(60_000)

    def products(block: Block) -> tuple[np.ndarray, ...]:
        return block.X.T @ block.X, block.X.T @ block.y, np.asarray(block.y @ block.y)

    with threadpool_limits(1, user_api="blas"):
        one = rows.reduce(products)
    with threadpool_limits(2, user_api="blas"):
        two = rows.reduce(products)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n", [10, 200_000])
def test_exceptions_reach_the_caller(n: int) -> None:
    def fail(block: Block) -> tuple[np.ndarray, ...]:
        if block.report[-1] == n - 1:  # only the last block
            raise ZeroDivisionError("the last block")
        return (np.zeros(1),)

    rows = Rows(np.zeros((n, 1)), np.zeros(n), None, np.arange(n))
    with pytest.raises(ZeroDivisionError, match="the last block"):
        rows.reduce(fail)


def test_functions_that_return_different_numbers_of_sums_are_refused() -> None:
    rows = portfolio(9000)

    def uneven(block: Block) -> tuple[np.ndarray, ...]:
        return (np.zeros(1),) * (1 if len(block.y) == 8192 else 2)

    with pytest.raises(ValueError, match="zip"):
        rows.reduce(uneven)


def test_take() -> None:
    rows = portfolio(100)
    mask = rows.report == 1
    for index in (mask, np.flatnonzero(mask)):
        taken = rows.take(index)
        np.testing.assert_array_equal(taken.X, rows.X[mask])
        np.testing.assert_array_equal(taken.y, rows.y[mask])
        np.testing.assert_array_equal(taken.weight, rows.weight[mask])
        np.testing.assert_array_equal(taken.report, 1)
    plain = portfolio(100, full=False)
    assert plain.take(mask).weight is None
    assert plain.block(0, 10).weight is None
    assert rows.n_features == 3


@pytest.mark.parametrize(("n", "size"), [(10, 10), (1000, 7), (150_001, 1000)])
def test_draw_takes_a_row_from_each_of_equally_long_parts(n: int, size: int) -> None:
    rows = Rows(np.arange(float(n))[:, None], np.zeros(n), None, np.zeros(n, dtype=int))
    places = rows.draw(size).X[:, 0]
    part = np.arange(size) * n / size
    assert len(places) == size
    assert (places >= np.floor(part)).all()
    assert (places < part + n / size).all()
    assert places.max() < n
    if n > 10:
        assert len(set(np.diff(places))) > 1  # not evenly spaced


def test_worker_processes_begin_with_the_library_loaded():
    """Otherwise each of them loads it during the first pass of every fit, for more than a second."""
    pool = WorkerPool()
    try:
        needed = ("sklearn.base", "fairpremium.corrections._choice", "fairpremium.models._linear")
        asked = f"[module in __import__('sys').modules for module in {needed}]"
        assert list(pool.map(eval, [(asked,)])) == [[True, True, True]]
    finally:
        pool.close()
