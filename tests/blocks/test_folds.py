"""Cross-validation folds: balanced, random, and decided by the position of a row alone."""

from __future__ import annotations

import numpy as np
import pytest
from fairpremium.blocks._folds import Folds
from scipy.stats import chi2

from fairpremium.blocks import _folds

N = 300_007


@pytest.fixture(params=["stored", "hashed"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "hashed":
        monkeypatch.setattr(_folds, "_STORED_ROWS", 0)
    return str(request.param)


@pytest.mark.parametrize("n_folds", [2, 5, 10])
def test_parts_have_equal_size(kind: str, n_folds: int) -> None:
    fold = Folds.draw(N, n_folds, np.random.default_rng(0)).of(0, N)
    counts = np.bincount(fold, minlength=n_folds)
    assert len(counts) == n_folds
    assert counts.max() - counts.min() <= 1


def test_any_cut_gives_the_same_folds(kind: str) -> None:
    folds = Folds.draw(N, 5, np.random.default_rng(1))
    assert (folds.stored is None) == (kind == "hashed")
    whole = folds.of(0, N)
    for start, stop in [(0, 1), (3, 17), (99_998, 250_003), (N - 2, N), (7, 7)]:
        np.testing.assert_array_equal(folds.of(start, stop), whole[start:stop])
        piece = folds.cut(start, stop)
        np.testing.assert_array_equal(piece.of(start, stop), whole[start:stop])
        assert piece.stored is None or len(piece.stored) == stop - start


def test_neighbours_are_in_unrelated_folds(kind: str) -> None:
    """Pairs of rows that lie a run or more apart fall into all pairs of folds equally often."""
    fold = Folds.draw(N, 5, np.random.default_rng(2)).of(0, N)
    for gap in (5, 7, 10, 4096 * 5):
        table = np.zeros((5, 5))
        np.add.at(table, (fold[:-gap], fold[gap:]), 1)
        expected = (N - gap) / 25
        statistic = ((table - expected) ** 2 / expected).sum()
        assert chi2.sf(statistic, 16) > 1e-4


def test_a_seed_gives_the_same_parts_and_another_seed_others(kind: str) -> None:
    draw = [Folds.draw(N, 5, np.random.default_rng(seed)).of(0, N) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(draw[0], draw[1])
    assert np.mean(draw[0] == draw[2]) == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / N))


def test_more_than_a_million_rows_are_not_permuted() -> None:
    rng = np.random.default_rng(5)
    assert Folds.draw(1_000_000, 5, rng).stored is not None
    assert Folds.draw(1_000_001, 5, rng).stored is None
