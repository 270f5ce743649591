"""Several attributes after the second draw: the law of what is seen, from first principles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fairpremium import Channel, RandomizedResponse
from fairpremium.labels import decode_labels
from fairpremium.parties.release import combine_draws, randomize_reports, recode
from fairpremium.parties.release._randomized import mixed_channel, second_channel
from fairpremium.parties.release._several_attributes import mix_draws

SEX = RandomizedResponse(["F", "M"], keep=0.8)
AGE = RandomizedResponse(["20", "40", "60"], keep=0.7)
SECRET = b"a secret of sixteen bytes or more"


def law_by_hand(firsts, epsilon, patterns, given):
    """P(the reports after the draw given the groups), of each combination of reports; None is one of its values."""
    total = {}
    for pattern, share in patterns.items():
        laws = []
        for first, has_one, group in zip(firsts, pattern, given, strict=True):
            second = second_channel(first.reports, epsilon)
            values = range(len(first.reports) + 1)
            stored = first.matrix[:, group] if has_one else np.zeros(len(first.reports))
            stored = np.append(stored, 0.0 if has_one else 1.0)  # the last value: no report
            laws.append([sum(second.matrix[new, old] * stored[old] for old in values) for new in values])
        for seen in itertools.product(*(range(len(law)) for law in laws)):
            chance = np.prod([law[code] for law, code in zip(laws, seen, strict=True)])
            total[seen] = total.get(seen, 0.0) + share * chance
    return total


@pytest.mark.parametrize("both", [1.0, 0.7])
def test_the_channel_is_the_law_of_the_rows_that_have_all_reports(both):
    firsts, epsilon = (SEX, AGE), 1.5
    patterns = {(1, 1): both, (1, 0): (1 - both) / 2, (0, 1): 0.0, (0, 0): (1 - both) / 2}  # far from independent
    there = dict.fromkeys(itertools.product((True, False), repeat=2), 0.0)
    for seen, chance in law_by_hand(firsts, epsilon, patterns, (0, 0)).items():
        there[seen[0] < 2, seen[1] < 3] += chance  # the same whatever the groups
    n = 1_000_000
    counts = [round(n * share) for share in there.values()]
    patterns_seen = np.repeat(list(there), counts, axis=0)
    seconds = [second_channel(first.reports, epsilon) for first in firsts]
    drawn = mix_draws(seconds, firsts, patterns_seen)
    assert drawn.epsilon == pytest.approx(2 * epsilon, abs=1e-6)
    assert drawn.missing == pytest.approx(1 - both, abs=1e-5)
    assert drawn.channel.groups == Channel.product(SEX, AGE).groups
    for column, given in enumerate(itertools.product(range(2), range(3))):
        law = law_by_hand(firsts, epsilon, patterns, given)
        expected = np.array([law[seen] for seen in itertools.product(range(2), range(3))])
        # the shares of the patterns are rounded to a thousandth
        np.testing.assert_allclose(drawn.channel.matrix[:, column], expected / expected.sum(), atol=6e-4)


def test_without_gaps_the_channel_is_the_product_of_both_draws():
    seconds = [second_channel(first.reports, 4.0) for first in (SEX, AGE)]
    n = 10_000
    lost = [round(n * second.matrix[0, 1]) for second in seconds]  # whose report became none in the draw
    both = round(n * float(seconds[0].matrix[0, 1] * seconds[1].matrix[0, 1]))
    there = np.ones((n, 2), dtype=bool)
    there[: lost[0], 0] = False
    there[lost[0] - both : lost[0] - both + lost[1], 1] = False
    drawn = mix_draws(seconds, [SEX, AGE], there)
    seen = [mixed_channel(second, first, 0.0) for second, first in zip(seconds, (SEX, AGE), strict=True)]
    np.testing.assert_allclose(drawn.channel.matrix, Channel.product(*seen).matrix, atol=2e-3)


def test_shares_of_combinations_are_found_again():
    """Two attributes that belong together, in persons of whom some report one, some both and some nothing."""
    rng = np.random.default_rng(3)
    n = 60_000
    truth = np.array([0.4, 0.1, 0.05, 0.05, 0.1, 0.3])  # F and the ages, M and the ages
    cell = rng.choice(6, n, p=truth)
    sex, age = decode_labels(cell // 3, SEX.groups), decode_labels(cell % 3, AGE.groups)
    told = rng.random(n)
    reports = [SEX.privatize(sex, rng=4).astype(object), AGE.privatize(age, rng=5).astype(object)]
    reports[0][told < 0.2] = None
    reports[1][(told < 0.1) | (told > 0.85)] = None
    keys = [f"key {i}" for i in range(n)]
    draws = [
        randomize_reports(keys, column, first, 2.0, SECRET, attribute=name)
        for column, first, name in zip(reports, (SEX, AGE), ("sex", "age"), strict=True)
    ]
    together = combine_draws(draws, [SEX, AGE])
    rows = zip(*(draw.reports for draw in draws), strict=True)
    assert together.reports.tolist() == [None if None in row else row for row in rows]
    p, covariance = together.channel.group_distribution(together.reports, return_covariance=True)
    error = np.sqrt(np.diag(covariance))
    assert (error < 0.04).all()
    assert (np.abs(p - truth) < 4 * error).all()


def test_attributes_are_drawn_apart_and_each_always_alike():
    keys, reports = [f"key {i}" for i in range(4000)], np.full(4000, "F", dtype=object)
    draw = [
        randomize_reports(keys, reports, SEX, 1.0, SECRET, attribute=name).reports for name in ("sex", "partner", "sex")
    ]
    assert (draw[0] == draw[2]).all()
    lied = [column != "F" for column in draw]
    share = np.mean(lied[0]) * np.mean(lied[1])
    assert abs(np.mean(lied[0] & lied[1]) - share) < 4 * np.sqrt(share / len(keys))


def test_too_few_reports_are_said():
    seconds = [second_channel(first.reports, 1.0) for first in (SEX, AGE)]
    with pytest.raises(ValueError, match="too few to tell"):
        mix_draws(seconds, [SEX, AGE], np.zeros((1000, 2), dtype=bool))


def test_recoded_reports_are_integers():
    product = Channel.product(SEX, AGE)
    recoded = recode(product)
    assert recoded.groups == product.groups
    assert recoded.reports == tuple(range(6))
    np.testing.assert_allclose(recoded.matrix, product.matrix, atol=1e-9)
