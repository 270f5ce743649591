"""Functions that are called at once: their order, their share of the workers, and how they end."""

from __future__ import annotations

import threading
import time

import pytest

from fairpremium.blocks import at_once, checkpoint, count_workers, has_share
from fairpremium.blocks._threads import thread_pools
from fairpremium.progress import listening, tell


@pytest.fixture(autouse=True)
def four_workers(monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_WORKERS", "4")


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in thread_pools().info() if pool["user_api"] == "blas"}


def test_results_come_in_order_from_functions_that_run_together():
    together = threading.Barrier(3)

    def number(i):
        together.wait(10)  # nobody passes alone
        time.sleep(0.02 * (3 - i))
        return i

    heard = []
    assert at_once([lambda i=i: number(i) for i in range(3)], heard.append) == [0, 1, 2]
    assert heard == [0, 1, 2]


@pytest.mark.parametrize(("functions", "share"), [(1, None), (2, 2), (3, 1), (9, 1)])
def test_each_has_its_share_of_the_workers_and_one_thread_of_linear_algebra(functions, share):
    found = at_once([lambda: (has_share(), count_workers(), blas_threads())] * functions)
    assert found == [(share is not None, share or 4, {1})] * functions
    assert not has_share()
    assert count_workers() == 4


def test_without_several_they_run_here_one_after_the_other():
    assert at_once([threading.get_ident] * 3, several=False) == [threading.get_ident()] * 3


@pytest.mark.parametrize("several", [True, False])
def test_what_they_tell_is_not_heard(several):
    heard = []
    with listening(lambda fraction, words: heard.append(words)):
        at_once([lambda: tell(0.5, "inside")] * 2, lambda i: tell(i / 2, f"part {i}"), several)
    assert heard == ["part 0", "part 1"]


def test_an_error_ends_those_that_run_and_those_that_wait():
    begun, ended = [], []

    def fails():
        raise ValueError("no such thing")

    def runs():
        begun.append(threading.get_ident())
        try:
            for _ in range(1000):
                time.sleep(0.01)
                checkpoint()
            ended.append("by itself")
        finally:
            ended.append("at a checkpoint")

    with pytest.raises(ValueError, match="no such thing"):
        at_once([fails, *[runs] * 20])
    assert len(begun) < 20
    assert ended == ["at a checkpoint"] * len(begun)
    assert at_once([lambda: checkpoint() or "goes on"] * 2) == ["goes on"] * 2  # later ones are not given up


def test_whoever_interrupts_does_not_wait_for_the_rest():
    def interrupt(i):
        raise KeyboardInterrupt

    def runs():
        while True:
            time.sleep(0.01)
            checkpoint()

    with pytest.raises(KeyboardInterrupt):
        at_once([runs] * 2, interrupt)
