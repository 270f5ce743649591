"""Memoized reports: stable, exact, keyed by every field, and deaf to repetition."""

from __future__ import annotations

import copy
import hashlib
import hmac
import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fairpremium.privacy import Channel, MemoizedReports, PrivacyLedger, RandomizedResponse
from fairpremium.privacy._memoized_reports import _person_bytes
from helpers.privacy_audit import ALPHA

from ._mutants import MemoOff

SEX = RandomizedResponse(["F", "M"], epsilon=1.0)
SECRET = b"correct horse battery staple"


def memo(channel=SEX, secret=SECRET, attribute="sex", campaign="2025", kind=MemoizedReports):
    return kind(channel, secret, attribute=attribute, campaign=campaign)


def is_stable(memo, n=200):
    """Whether n people who are asked again answer alike."""
    persons, values = [f"p{i}" for i in range(n)], ["F", "M"] * (n // 2)
    return memo.privatize(persons, values).tolist() == memo.privatize(persons, values).tolist()


def test_the_same_person_gives_the_same_report():
    assert is_stable(memo())
    assert [memo().report("p", "F") for _ in range(20)] == [memo().report("p", "F")] * 20


def test_a_memo_that_forgets_is_found():
    assert not is_stable(memo(kind=MemoOff))


def test_bulk_and_single_reports_agree():
    persons, values = list(range(100)), ["F", "M"] * 50
    assert memo().privatize(persons, values).tolist() == [
        memo().report(p, v) for p, v in zip(persons, values, strict=True)
    ]


@pytest.mark.parametrize(
    "other",
    [
        memo(secret=SECRET + b"!"),
        memo(attribute="gender"),
        memo(campaign="2026"),
        memo(channel=RandomizedResponse(["F", "M"], epsilon=1.0000001)),
        memo(channel=RandomizedResponse(["F", "M", "X"], epsilon=1.0)),
    ],
    ids=["secret", "attribute", "campaign", "epsilon", "groups"],
)
def test_every_field_counts(other):
    n = 400
    values = ["F"] * n
    here, there = memo().privatize(range(n), values), other.privatize(range(n), values)
    # independent draws agree with probability at most 0.62 each; 400 agree with probability below 1e-80
    assert here.tolist() != there.tolist()


def test_fields_do_not_run_into_each_other():
    n = 400
    a = memo(attribute="ab", campaign="c").privatize(range(n), ["F"] * n)
    b = memo(attribute="a", campaign="bc").privatize(range(n), ["F"] * n)
    assert a.tolist() != b.tolist()
    keys = [1, "1", b"1"]
    assert len({memo()._uniform(_person_bytes(key), 0, 0, 2**32) for key in keys}) == 3
    assert memo().report(np.int64(7), "F") == memo().report(7, "F")


def test_an_independent_implementation():
    # The scheme as documented, written down once more: a report in the field must stay what it is.
    def field(x):
        return len(x).to_bytes(8, "big") + x

    def twin(person, value):
        scheme = bytes.fromhex(SEX.descriptor()["sha256"])
        message = b"".join(map(field, [b"fairpremium memoized report 1", scheme, b"sex", b"2025"]))
        message += field(b"s" + person.encode()) + field(b'"' + value.encode() + b'"') + bytes(4)
        for counter in itertools.count():
            digest = hmac.new(SECRET, message + counter.to_bytes(8, "big"), hashlib.sha256).digest()
            for i in range(8):
                word = int.from_bytes(digest[4 * i : 4 * i + 4], "big")
                if word < 2**32 - 2**32 % SEX.total:
                    return value if word % SEX.total < SEX.a else {"F": "M", "M": "F"}[value]

    persons = [f"person {i}" for i in range(300)]
    for value in "FM":
        assert memo().privatize(persons, [value] * 300).tolist() == [twin(p, value) for p in persons]


def test_products_are_memoized_component_by_component():
    both = Channel.product(SEX, RandomizedResponse([1, 2], keep=0.7))
    m = memo(channel=both)
    frame = pd.DataFrame({"sex": ["F", "M"] * 200, "class": [1] * 400})
    drawn = m.privatize(range(400), frame)
    pd.testing.assert_frame_equal(drawn, m.privatize(range(400), frame))
    lied = (drawn["sex"] != frame["sex"]).to_numpy(), (drawn["class"] != frame["class"]).to_numpy()
    assert abs(np.corrcoef(*lied)[0, 1]) < 5.5 / math.sqrt(400)  # independent components; 1e-7
    assert m.report("p", ("F", 1)) == m.report("p", ("F", 1))


# --- the longitudinal attack ---


def majority_vote_hits(ask, n=400, questions=1000):
    """How many of n people are guessed right from the majority of their answers."""
    hits = 0
    for i in range(n):
        truth = "FM"[i % 2]
        votes = ask(f"person {i}", truth, questions)
        hits += (sum(v == truth for v in votes) * 2) > len(votes)
    return hits


def test_a_thousand_answers_tell_no_more_than_one():
    m = memo()

    def ask(person, truth, questions):
        return m.privatize([person] * questions, [truth] * questions)

    hits = majority_vote_hits(ask, n=300, questions=1000)
    assert hits < binom.isf(ALPHA, 300, SEX.keep)  # as good as one answer, 0.73, up to chance at 1e-6
    assert hits > binom.ppf(ALPHA, 300, SEX.keep)


def test_without_the_memo_the_attack_works_and_the_ledger_sees_it():
    forgetful = memo(kind=MemoOff)

    def ask(person, truth, questions):
        return forgetful.privatize([person] * questions, [truth] * questions)

    assert majority_vote_hits(ask, n=300, questions=1000) >= 299  # a vote of 1,000 errs with probability 1e-48
    with PrivacyLedger(":memory:", budget=2000.0) as ledger:
        for _ in range(1000):
            ledger.charge("person 1", "sex", SEX.epsilon)
        assert ledger.spent("person 1", "sex") == pytest.approx(1000 * SEX.epsilon, rel=1e-12)


def test_a_changed_answer_draws_anew():
    n = 2000
    first, second = (memo().privatize(range(n), [v] * n) for v in "FM")
    changed = np.mean(first != second)
    # independent draws from the two columns of T differ with probability pi^2 + (1 - pi)^2
    expected = SEX.keep**2 + (1 - SEX.keep) ** 2
    assert abs(changed - expected) < 5.5 * math.sqrt(expected * (1 - expected) / n)


# --- secrets and refusals ---


def test_the_secret_is_never_shown():
    m = memo()
    for text in (repr(m), str(m), f"{m}"):
        assert "horse" not in text
    with pytest.raises(TypeError, match="holds a secret"):
        pickle.dumps(m)
    with pytest.raises(TypeError, match="holds a secret"):
        copy.deepcopy(m)


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ({"secret": b"short"}, ValueError, "with 5 bytes, but expected at least 16"),
        ({"secret": "x" * 32}, TypeError, "expected bytes"),
        ({"secret": None}, TypeError, "expected bytes"),
        ({"attribute": ""}, TypeError, "attribute"),
        ({"campaign": 2025}, TypeError, "campaign"),
        ({"channel": "rr"}, TypeError, "expected a Channel"),
        ({"channel": Channel(np.eye(2), groups=["F", "M"])}, ValueError, "infinite epsilon"),
    ],
)
def test_refusals(arguments, kind, message):
    with pytest.raises(kind, match=message):
        memo(**arguments)


def test_persons_and_values_are_checked():
    with pytest.raises(ValueError, match=r"Got 1 persons, but expected one key per value, 2 in all"):
        memo().privatize(["p"], ["F", "M"])
    for person in (None, 1.5, True, math.nan, pd.NA, ("a",)):
        with pytest.raises(TypeError, match="a key of type str, int or bytes"):
            memo().report(person, "F")
    for value in ("f", None, math.nan, 0):
        with pytest.raises(ValueError, match="Got values with 1 row"):
            memo().report("p", value)


def test_series_keep_their_index():
    drawn = memo().privatize(pd.Series(["a", "b"]), pd.Series(["F", "M"], index=[4, 5], name="sex"))
    assert list(drawn.index) == [4, 5]
    assert drawn.name == "sex"
