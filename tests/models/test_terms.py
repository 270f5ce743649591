"""The language of feature terms: what it reads and refuses, what is learned, and what new rows become."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.interpolate import CubicSpline

from fairpremium.models import Design, SplineFactor, parse_terms


def frame(n=400, rng=0):
    rng = np.random.default_rng(rng)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "power": rng.gamma(4, 20, n),
            "region": rng.choice(["north", "south", "west", "isle", "rock"], n, p=[0.5, 0.3, 0.16, 0.02, 0.02]),
            "size": rng.choice(["low", "mid", "high"], n),
            "zone": rng.integers(1, 4, n),
            "own car": rng.random(n) < 0.5,
        }
    )


def learn(terms, X=None):
    X = frame() if X is None else X
    design, matrix = Design.learn_transform(X, terms=terms)
    np.testing.assert_array_equal(design.transform(X), matrix)
    again = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert again == design
    np.testing.assert_array_equal(again.transform(X), matrix)
    assert matrix.shape == (len(X), len(design.features)) == (len(X), len(design.origins))
    return design, matrix


def test_bands_hold_their_lower_limit_and_their_base_is_the_most_frequent():
    X = pd.DataFrame({"age": [24.9, 25.0, 39.9, 40.0, 80.0, 26.0]})
    design, matrix = learn("bands(age, 25, 40)", X)
    assert design.features == ("age<25", "age>=40")  # the base is [25,40), with three rows
    np.testing.assert_array_equal(matrix, [[1, 0], [0, 0], [0, 0], [0, 1], [0, 1], [0, 0]])
    design, _ = learn('base(bands(age, 25, 40), "<25")', X)
    assert design.features == ("age=[25,40)", "age>=40")


def test_spline_is_the_natural_one_through_its_knots_and_linear_outside():
    X = frame()
    design, matrix = learn("spline(power, 4)")
    factor = design.terms[0].factors[0]
    assert isinstance(factor, SplineFactor)
    np.testing.assert_allclose(factor.knots, np.quantile(X["power"], np.linspace(0.05, 0.95, 5)))
    values = np.array([0.3, -1.0, 2.0, 0.5, 1.5])  # at the knots
    natural = CubicSpline(factor.knots, values, bc_type="natural")
    inside = X["power"].between(factor.knots[0], factor.knots[-1]).to_numpy()
    found = values[0] + matrix @ (values[1:] - values[0])
    np.testing.assert_allclose(found[inside], natural(X["power"][inside]), atol=1e-10)
    for end, beyond in ((factor.knots[0], -300.0), (factor.knots[-1], 500.0)):
        there = design.transform(pd.DataFrame({"power": [end + beyond]})) @ (values[1:] - values[0]) + values[0]
        np.testing.assert_allclose(there, natural(end) + beyond * natural(end, 1), atol=1e-8)


def test_spline_with_given_knots_and_of_few_numbers():
    design, _ = learn("spline(age, 20, 30, 50, 70)")
    assert design.features == ("age@30", "age@50", "age@70")
    few = pd.DataFrame({"doors": [3, 3, 3, 3, 3, 3, 3, 5, 4, 2]})  # quantiles coincide, different values do not
    assert len(learn("spline(doors, 2)", few)[0].features) == 2
    with pytest.raises(ValueError, match=r"'spline\(doors, 5\)', column 'doors' at position 8.*and it has 4"):
        learn("spline(doors, 5)", few)


def test_polynomial_spans_the_powers():
    X = frame()
    design, matrix = learn("poly(age, 3)")
    assert design.features == ("poly(age)^1", "poly(age)^2", "poly(age)^3")
    powers = np.vander(X["age"].astype(float), 4)
    fitted = np.column_stack([np.ones(len(X)), matrix])
    left = powers - fitted @ np.linalg.lstsq(fitted, powers, rcond=None)[0]
    assert np.abs(left).max() < 1e-6 * np.abs(powers).max()


def test_products_are_products_of_features():
    X = frame()
    design, matrix = learn("bands(age, 40):region + age:power")
    a, b = (learn(text)[1] for text in ("bands(age, 40)", "region"))
    np.testing.assert_array_equal(matrix[:, :-1], (a[:, :, None] * b[:, None, :]).reshape(len(X), -1))
    np.testing.assert_array_equal(matrix[:, -1], X["age"] * X["power"])
    assert design.features[0] == "age<40:region=isle"
    assert design.origins[0] == "bands(age, 40):region"
    assert design.features[-1] == "age:power"


def test_rare_levels_are_put_together_and_unseen_ones_join_them():
    design, matrix = learn("rare(region, 30)")
    assert design.features == ("region=south", "region=west", "region=other")
    assert design.terms[0].factors[0].grouped == ("isle", "rock")
    X = frame()
    np.testing.assert_array_equal(matrix[:, 2], X["region"].isin(["isle", "rock"]))
    np.testing.assert_array_equal(design.transform(pd.DataFrame({"region": ["moon"]})), [[0, 0, 1]])
    assert learn("rare(region, 0.05)")[0].terms[0].factors == design.terms[0].factors
    without, _ = learn("rare(region, 1)")  # nothing is rare
    with pytest.raises(ValueError, match="'region' that was not seen"):
        without.transform(pd.DataFrame({"region": ["moon"]}))
    np.testing.assert_array_equal(without.transform(pd.DataFrame({"region": ["moon"]}), unseen="base"), [[0, 0, 0, 0]])


def test_base_ordered_and_whole_numbers_as_levels():
    design, _ = learn(
        'base(region, "west") + ordered(size, "low", "mid", "high") + levels(zone) + base(`own car`, true)'
    )
    assert design.features == (
        *(f"region={level}" for level in ("isle", "north", "rock", "south")),
        "size>=mid",
        "size>=high",
        *(f"zone={z}" for z in (1, 2, 3) if z != design.columns[2].levels[0]),
        "own car=False",
    )
    X = frame()
    np.testing.assert_array_equal(design.transform(X)[:, 4:6], np.c_[X["size"] != "low", X["size"] == "high"])
    np.testing.assert_array_equal(design.transform(X.assign(zone=X["zone"].astype(float))), design.transform(X))
    with pytest.raises(ValueError, match="'zone' of X with decimals"):
        design.transform(X.assign(zone=1.5))


def test_both_rare_and_base():
    design, _ = learn('base(rare(region, 30), "south")')
    assert design.terms[0].factors[0].levels == ("south", "north", "west", "other")
    assert learn('rare(base(region, "south"), 30)')[0].terms[0].factors == design.terms[0].factors


def test_a_point_is_every_other_column():
    design, _ = learn("bands(age, 40) + .")
    assert design.names == ("age", "power", "region", "size", "zone", "own car")
    assert design.features[1:3] == ("power", "region=isle")
    only, _ = learn("age + size")
    assert only.names == ("age", "size")


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas, lambda X: X.convert_dtypes()])
def test_every_kind_of_frame(convert):
    terms = "bands(age, 25, 40) + spline(power, 3) + rare(region, 30) + age:size + levels(zone) + `own car`"
    design, matrix = learn(terms)
    other, found = Design.learn_transform(convert(frame()), terms=terms)
    assert other == design
    np.testing.assert_allclose(found, matrix, atol=1e-14)
    np.testing.assert_allclose(design.transform(convert(frame())), matrix, atol=1e-14)


def test_arrays_have_columns_x0_x1():
    X = frame()[["age", "power", "zone"]]
    design, matrix = Design.learn_transform(X.to_numpy(float), terms="bands(x0, 40) + levels(x2)")
    expected = Design.learn_transform(X, terms="bands(age, 40) + levels(zone)")[1]
    np.testing.assert_array_equal(matrix, expected)
    np.testing.assert_array_equal(design.transform(X.to_numpy(float)), expected)
    with pytest.raises(ValueError, match=r"'age' at position 7.*\['x0', 'x1', 'x2'\]"):
        Design.learn_transform(X.to_numpy(float), terms="bands(age, 40)")


@pytest.mark.parametrize(
    ("terms", "position", "expected"),
    [
        ("", 1, "name of a column"),
        ("age +", 6, "name of a column"),
        ("age power", 5, '"+" or ":"'),
        ("bnads(age, 25)", 1, "bands, spline"),
        ("bands(age, 40, 25)", 1, "ascending"),
        ("bands(age)", 1, "such as bands(age, 25, 40)"),
        ("bands(age, 'x')", 12, "numbers"),
        ("age + spline(power, 1)", 21, "whole number from 2"),
        ("age + spline(power, 400)", 21, "of 'power', a whole number from 2 to 100"),
        ("bands(age, 40, 25)", 1, "of 'age': at least 1 numbers in ascending order"),
        ("poly(age, 99)", 11, "of 'age', one whole number from 1 to 10"),
        ("spline(power, 3, 4)", 1, "at least 3"),
        ("poly(age, 99)", 11, "from 1 to 10"),
        ("region ; drop", 8, "a name"),
        ("__import__('os')", 1, "bands, spline"),
        ("age.real()", 1, "bands, spline"),
        ('base(region, "north)', 14, "quote that ends"),
        ("base(region, north)", 14, "a level"),
        ('ordered(size, "low", 3)', 15, "one kind"),
        ("rare(bands(age, 30), 5)", 1, "other limits"),
        ("spline(region, 3)", 8, "'region' holds text"),
        ("age + wrong", 7, "'own car'"),
        ('base(region, "east")', 6, "'east' is none"),
        ('ordered(size, "low", "mid")', 9, "['high'] are not named"),
        ("bands(age, 40", 14, '"," or ")"'),
        ("lambda: 0", 9, "name of a column"),
    ],
)
def test_errors_name_the_position(terms, position, expected):
    with pytest.raises(ValueError, match=f"position {position}\\b") as error:
        learn(terms)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_a_term_may_occur_once():
    with pytest.raises(ValueError, match="twice"):
        parse_terms("age + region + age")
    with pytest.raises(TypeError, match="expected text"):
        parse_terms(["age"])


def test_missing_values_name_the_column():
    X = frame()
    design, _ = learn("spline(power, 3) + region")
    with pytest.raises(ValueError, match=r"missing.*'power'"):
        design.transform(X.assign(power=X["power"].where(X.index > 3)))
    with pytest.raises(ValueError, match=r"missing.*'region'"):
        design.transform(X.assign(region=X["region"].where(X.index > 3)))
    with pytest.raises(ValueError, match=r"missing.*'power'"):
        learn("spline(power, 3)", X.assign(power=X["power"].where(X.index > 3)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.update(kind="code"),
        lambda f: f.update(knots=[3.0, 2.0, 1.0]),
        lambda f: f.update(knots=[1.0, 2.0, float("nan")]),
        lambda f: f.update(column="other"),
        lambda f: f.update(extra=1),
    ],
)
def test_a_damaged_design_is_refused(damage):
    data = learn("spline(power, 3)")[0].to_dict()
    damage(data["terms"][0]["factors"][0])
    with pytest.raises((ValueError, KeyError, TypeError)):
        Design.from_dict(data)
