"""Links and domains: identities over all members."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.families import Domain, Identity, Link, Log, Logit

LINKS = [Identity(), Log(), Logit()]
every_link = pytest.mark.parametrize("link", LINKS, ids=repr)


def test_the_parametrisation_covers_every_link() -> None:
    assert {type(link) for link in LINKS} == set(Link.__subclasses__())


@every_link
def test_round_trip(link: Link) -> None:
    eta = np.linspace(-8, 8, 33)
    mu = link.mean_of(eta)
    assert link.mean.contains(mu).all()
    np.testing.assert_allclose(link.predictor(mu), eta, atol=1e-11)


@every_link
def test_slope_matches_differences_and_is_positive(link: Link) -> None:
    eta, h = np.linspace(-6, 6, 33), 1e-5
    slope = link.slope(eta)
    assert np.all(slope > 0)
    np.testing.assert_allclose((link.mean_of(eta + h) - link.mean_of(eta - h)) / (2 * h), slope, rtol=1e-8)
    np.testing.assert_array_equal(link.mean_and_slope(eta), (link.mean_of(eta), slope))


def test_logit_slope_keeps_its_tail() -> None:
    """mu (1 - mu) is zero in floating point where expit(eta) expit(-eta) is not."""
    assert Logit().slope(np.array([60.0]))[0] == pytest.approx(np.exp(-60))


@every_link
def test_links_are_equal_by_kind(link: Link) -> None:
    assert link == type(link)()
    assert hash(link) == hash(type(link)())
    assert [link == other for other in LINKS].count(True) == 1


@pytest.mark.parametrize(
    ("domain", "text", "inside", "outside"),
    [
        (Domain(), "any finite number", [-1e300, 0.0], [np.inf, -np.inf, np.nan]),
        (Domain(low=0), "greater than 0", [1e-300], [0.0, -1.0, np.inf, np.nan]),
        (Domain(low=0, low_inclusive=True), "at least 0", [0.0, 5.0], [-1e-300, np.inf, np.nan]),
        (Domain(low=0, high=1), "in (0, 1)", [0.5], [0.0, 1.0, np.nan]),
        (Domain(low=0, high=1, high_inclusive=True), "in (0, 1]", [0.5, 1.0], [0.0, 1.1]),
        (Domain(values=(0.0, 1.0)), "one of 0, 1", [0.0, 1.0], [0.5, np.nan]),
    ],
    ids=str,
)
def test_domains_are_data(domain: Domain, text: str, inside: list[float], outside: list[float]) -> None:
    assert str(domain) == text
    assert domain.contains(np.array(inside)).all()
    assert not domain.contains(np.array(outside)).any()


@settings(deadline=None, derandomize=True)
@given(
    low=st.floats(-10, 10), width=st.floats(0, 10), x=st.floats(-30, 30), ends=st.tuples(st.booleans(), st.booleans())
)
def test_contains_is_two_comparisons(low: float, width: float, x: float, ends: tuple[bool, bool]) -> None:
    high = low + width
    expected = (low < x or (ends[0] and x == low)) and (x < high or (ends[1] and x == high))
    assert bool(Domain(low, high, *ends).contains(np.array(x))) == expected
