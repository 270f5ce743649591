"""The number of rows with a report, from randomized reports: right on average, and "none" where there are none."""

import numpy as np
import pytest

from fairpremium.parties.release import count_matches, randomize_reports


def count(rows, reported, *, epsilon=2.0, groups=("F", "M"), seed=0):
    """Count the matches of rows of which the first ones have a report; `seed` draws them."""
    reports = np.full(rows, None, dtype=object)
    reports[:reported] = np.resize(np.array(groups, dtype=object), reported)
    drawn = randomize_reports(range(rows), reports, None, epsilon, seed.to_bytes(32), groups=groups)
    return count_matches(drawn)


@pytest.mark.parametrize("groups", [("F", "M"), ("a", "b", "c", "d")])
def test_the_share_is_right_on_average_and_its_limit_is_three_standard_errors(groups):
    rows, runs = 2000, 60
    found = [count(rows, 0, groups=groups, seed=seed) for seed in range(runs)]
    shares, error = np.array([one.share for one in found]), found[0].limit / 3
    assert abs(shares.mean()) < 4 * error / np.sqrt(runs)
    assert 0.65 < shares.std() / error < 1.4  # chi-square with 59 degrees of freedom, one in a thousand on each side
    half = np.array([count(rows, rows // 2, groups=groups, seed=seed).share for seed in range(runs)])
    assert abs(half.mean() - 0.5) < 4 * half.std() / np.sqrt(runs)


def test_20000_rows_without_a_report_are_told_and_a_twentieth_is_enough():
    assert sum(count(20_000, 0, seed=seed).is_none for seed in range(10)) >= 9
    assert not any(count(20_000, 1000, seed=seed).is_none for seed in range(10))


def test_where_noise_hides_a_tenth_of_the_rows_nothing_is_said():
    assert count(300, 0).limit > 0.1
    assert not count(300, 0).is_none
    assert not count(20_000, 0, epsilon=0.05).is_none
