"""Verdicts follow from the interval alone, and statements are well formed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fairpremium.paper.statements import STATEMENTS, judge_errata
from fairpremium.paper.statements._statement import Case, combine


def test_mean_standard_error_and_interval_are_those_of_a_t_test():
    values = np.random.default_rng(0).normal(0.4, 1, size=20)
    judged = Case("", values).judge()
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert judged["low"] == pytest.approx(low)
    assert judged["high"] == pytest.approx(high)
    assert judged["standard_error"] == pytest.approx(stats.sem(values))
    assert judged["seeds_in_favour"] == (values > 0).sum()


@pytest.mark.parametrize(
    ("values", "margin", "expected"),
    [
        ([1, 2, 3, 2], None, "yes"),
        ([-1, -2, -3, -2], None, "no"),
        ([-1, 1, 2, -2], None, "open"),
        ([0.5, 0.5, 0.5], None, "yes"),
        ([0.1, -0.1, 0.05], 1.0, "yes"),
        ([5, 5.1, 4.9], 1.0, "no"),
        ([0.9, 1.1, 1.0], 1.0, "open"),
        ([1.0], None, "open"),
        ([math.nan, math.nan], None, "open"),
    ],
)
def test_the_verdict_of_a_case(values, margin, expected):
    assert Case("", values, margin).judge()["verdict"] == expected


def test_seeds_without_a_number_are_counted():
    judged = Case("", [1.0, 2.0, 3.0, math.nan]).judge()
    assert (judged["seeds"], judged["without_number"]) == (3, 1)
    assert judged["mean"] == 2


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        (["yes", "yes"], "holds"),
        (["no", "no"], "does not hold"),
        (["yes", "no"], "depends"),
        (["open"], "depends"),
        (["no", "open"], "depends"),
    ],
)
def test_the_verdict_of_a_statement(cases, expected):
    assert combine(cases) == expected


def test_statements_have_names_of_their_own():
    names = [statement.id for statement in STATEMENTS] + [erratum["id"] for erratum in judge_errata()]
    assert len(names) == len(set(names))


def test_the_errata_are_what_tests_of_the_errata_prove():
    verdicts = {erratum["id"]: erratum["verdict"] for erratum in judge_errata()}
    right = {name for name, verdict in verdicts.items() if verdict == "holds"}
    assert right == {"errata/pi-inverse-2", "errata/two-events"}
    assert len(verdicts) == 14
