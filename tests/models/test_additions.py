"""Training on some rows, judging on others: nothing that is said about a row comes from a fit that saw it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError
from fairpremium.families import Normal
from fairpremium.models import AddedPrices, Design, GroupModel, GroupPrices, Trainer, TrainingData, TrainingTask


@dataclass(frozen=True)
class MeanPrices(GroupPrices):
    """The mean outcome of the training rows, after as many rounds as rows were held out."""

    mean: float
    rounds: int

    def predictor(self, X: np.ndarray, start: np.ndarray) -> np.ndarray:
        return start + self.mean

    def to_dict(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MeanPrices:
        raise NotImplementedError


@dataclass(frozen=True)
class Outcomes:
    """Features by which each row is known: its outcome."""

    y: np.ndarray

    def take(self, index: np.ndarray) -> Outcomes:
        return Outcomes(self.y[index])


class MeanModel(GroupModel):
    adds: ClassVar[str] = "means"
    folds: ClassVar[int] = 4
    refit: ClassVar[bool] = True

    def check(self) -> None:
        pass

    def several_at_once(self, rows: int) -> bool:
        return True

    def train(self, data: TrainingData, rng: np.random.Generator, like: GroupPrices | None = None) -> MeanPrices:
        assert (data.held is None) == (like is not None)
        assert data.objective == (len(data.train), 0 if data.held is None else len(data.held))
        for rows, features in ((data.train, data.features), (data.held, data.held_features)):
            if rows is not None and features is not None:
                np.testing.assert_array_equal(rows.y, features.y)
        rounds = len(data.held) if data.held is not None else like.rounds
        return MeanPrices(float(data.train.y.mean()), rounds)


def make(n: int = 11, cluster: np.ndarray | None = None) -> tuple[Trainer, TrainingTask]:
    y = 2.0 ** np.arange(n)  # every mean tells which rows are in it
    rows = Rows(np.zeros((n, 1)), y, None, np.zeros(n, dtype=int), cluster=cluster)
    task = TrainingTask(rows, np.tile([[1.0, 2.0]], (n, 1)), lambda t, h: (len(t), len(h)), Outcomes(y))
    return Trainer(MeanModel(), Design.learn(np.zeros((2, 1))), Normal(), np.random.default_rng(0)), task


@pytest.mark.parametrize("clustered", [False, True])
def test_no_row_is_priced_by_a_fit_that_saw_it_or_another_row_of_its_person(clustered: bool) -> None:
    person = np.arange(11) // 2 if clustered else None
    trainer, task = make(cluster=person)
    typical, eta, seen = trainer.cross_fit(task)
    assert seen.all()
    np.testing.assert_array_equal(eta[:, 1], eta[:, 0] + 1)
    for i, mean in enumerate(eta[:, 0] - 1):
        fits = [n for n in range(1, 11) if (mean * n) % 1 == 0 and int(mean * n).bit_count() == n]
        (n,) = fits
        own = np.arange(11) == i if person is None else person == person[i]
        assert not any(int(mean * n) >> j & 1 for j in np.flatnonzero(own))
        assert n >= 7  # three of four folds
    assert typical.rounds in (2, 3, 4)


@pytest.mark.parametrize("gain", [-1.0, 0.0, 0.1])
def test_prices_that_improve_nothing_after_two_folds_are_given_up(gain: float) -> None:
    trainer, task = make()
    asked = []

    def measure(seen: np.ndarray, eta: np.ndarray) -> float:
        asked.append(seen.copy())
        np.testing.assert_array_equal(eta[~seen], task.start[~seen])
        assert (eta[seen] != task.start[seen]).all()
        return gain

    _, _, seen = trainer.cross_fit(task, None, measure)
    assert [one.sum() for one in asked] in ([5], [6])  # two of four folds of eleven rows
    assert seen.all() == (gain > 0)
    if gain <= 0:
        np.testing.assert_array_equal(seen, asked[0])


def test_training_holds_some_rows_out_and_then_takes_all() -> None:
    trainer, task = make()
    prices = trainer.train(task)
    assert prices == MeanPrices(task.rows.y.mean(), 3)  # a fifth of eleven rows decided
    assert trainer.train(task, MeanPrices(0.0, 7)) == MeanPrices(task.rows.y.mean(), 7)
    alone = replace(trainer, model=type("Once", (MeanModel,), {"refit": False})())
    once = alone.train(task)
    assert once.rounds == 3
    assert once.mean != prices.mean


def test_one_person_is_too_few() -> None:
    trainer, task = make(cluster=np.zeros(11, dtype=int))
    with pytest.raises(ConvergenceError, match="fewer than two persons"):
        trainer.cross_fit(task)


def test_prices_are_start_addition_and_shift() -> None:
    added = AddedPrices(np.array([[1.0, 2.0], [0.5, 0.0]]), MeanPrices(10.0, 1), 0.25)
    np.testing.assert_allclose(
        added.predictor(np.zeros((2, 3)), np.array([[2.0], [4.0]])), [[12.25] * 2, [13.25, 12.25]]
    )
    plain = replace(added, prices=None)
    np.testing.assert_allclose(plain.predictor(np.zeros((1, 3)), np.array([[2.0]])), [[2.25, 2.25]])
