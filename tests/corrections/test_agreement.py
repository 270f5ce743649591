"""Two consistent fits agree within sampling error; a biased one does not."""

import numpy as np
import pytest

from fairpremium import RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import ReportChannel, fit_inverse
from fairpremium.corrections._checks import agreement
from fairpremium.corrections._score import fit_score
from fairpremium.families import Normal
from fairpremium.models import LinearModel, prepare


def two_fits(seed, times=1):
    """The inverse and the score correction of the same rows, and the naive fit that takes S as D.

    With `times` each person has so many equal rows.
    """
    rng = np.random.default_rng(seed)
    n = 2000
    channel = RandomizedResponse(["F", "M"], keep=0.85)
    d = rng.choice(["F", "M"], n, p=[0.4, 0.6])
    x = rng.normal(size=n)
    y = np.where(d == "F", 1 + x, -x) + rng.normal(size=n)
    report = channel.encode(channel.privatize(d, rng=rng))
    person = np.repeat(np.arange(n), times)
    rows = Rows(x[person, None], y[person], None, report[person], cluster=person if times > 1 else None)
    problem = prepare(rows, 3, 1, Normal(), LinearModel(), ["x"])
    inverse = fit_inverse(problem, ReportChannel.of(channel), 0.0, rng)
    score = fit_score(problem, inverse, 0.0)
    naive = fit_inverse(problem, ReportChannel.of(None, channel.groups), 0.0, rng)
    return inverse, score, naive


def test_p_values_of_consistent_fits_are_uniform_and_those_of_a_biased_fit_vanish():
    p_values = []
    for seed in range(40):
        inverse, score, naive = two_fits([11, seed])
        p_values.append(agreement(score, inverse))
        assert agreement(naive, inverse) < 1e-6
    # 40 uniform numbers: the mean lies within 5 standard errors of 1/2, and none is below 1e-6 but once in 25,000 runs
    assert abs(np.mean(p_values) - 0.5) < 5 * np.sqrt(1 / 12 / 40)
    assert min(p_values) > 1e-6


def test_a_fit_agrees_with_itself():
    inverse, _, _ = two_fits([12, 0])
    assert agreement(inverse, inverse) > 0.99


def test_rows_of_one_person_count_once():
    """Three equal rows of each person agree as well as one does."""
    for seed in range(3):
        once, more = two_fits([13, seed]), two_fits([13, seed], times=3)
        assert agreement(more[1], more[0]) == pytest.approx(
            agreement(once[1], once[0]), rel=0.01
        )  # a ridge counts rows
