"""The range that prices cannot plausibly leave: wide enough for every estimate, and no wider than it says."""

import numpy as np
import pytest

from fairpremium.families import Bernoulli, Normal, Poisson
from fairpremium.models import plausible_bounds


def test_the_range_of_each_link():
    y = np.array([0.0, 1.0, 4.0])
    assert plausible_bounds(Normal(), y, 2.0) == (-4.0, 8.0)  # once the width of the outcomes' range on either side
    low, high = plausible_bounds(Poisson(), y, np.log(5 / 3))
    assert np.exp(high) == pytest.approx(40.0)  # ten times the largest outcome
    assert low == np.log(5 / 3) - 20
    assert plausible_bounds(Bernoulli(), np.array([0.0, 1.0]), 0.3) == (-19.7, 20.3)


def test_outcomes_that_are_all_the_same_leave_room():
    assert plausible_bounds(Normal(), np.full(3, 7.0), 7.0) == (6.0, 8.0)


def test_what_prices_build_on_is_plausible():
    y, none = np.array([0.0, 1.0]), np.empty((0, 2))
    assert plausible_bounds(Normal(), y, 0.5, np.array([[-9.0, 0.0]]), none) == (-9.0, 2.0)
    assert plausible_bounds(Normal(), y, 0.5, none, np.array([[1.0, 9.0]])) == (-1.0, 9.0)
