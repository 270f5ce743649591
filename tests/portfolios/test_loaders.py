"""The real portfolios arrive whole, or with a sentence that says what to do."""

from __future__ import annotations

import numpy as np
import pytest

from fairpremium.errors import MissingExtraError
from fairpremium.portfolios import _loaders, load_ausprivauto, load_auto, load_belgian_motor, load_health
from fairpremium.portfolios._loaders import AUTO


@pytest.fixture
def auto_file(shared_data):
    return require(shared_data, "car_insurance_claim.csv")


@pytest.fixture
def ausprivauto_file(shared_data):
    return require(shared_data, "ausprivauto0405.csv")


def require(folder, name):
    if not (folder / name).is_file():
        pytest.skip(f"NOT RUN: {name} is not in {folder}; see the loader's message for where to get it")
    return folder / name


def check_shape(p):
    assert len(p.X) == len(p.y) == len(p.sensitive) == len(p)
    assert p.y.dtype == np.float64
    assert p.sensitive.dtype == object
    assert set(p.sensitive) == set(p.groups)
    assert p.X.index.equals(p.X.reset_index(drop=True).index)
    assert not hasattr(p, "best_estimate")


def test_health():
    p = load_health()
    check_shape(p)
    assert len(p) == 1338
    assert p.X.columns.tolist() == ["age", "bmi", "children", "smoker", "region"]
    assert p.groups == ("female", "male")
    assert (p.family, p.sample_weight) == ("normal", None)
    assert p.y[0] == 16884.924
    assert p.y.mean() == pytest.approx(13270.42, abs=0.005)
    assert (p.sensitive == "female").sum() == 662


def test_health_from_a_path(tmp_path):
    content = (_loaders._installed() / "insurance.csv").read_bytes()
    for ends in (content, content.replace(b"\r\n", b"\n")):  # either line end is the same file
        (tmp_path / "insurance.csv").write_bytes(ends)
        assert len(load_health(tmp_path)) == len(load_health(str(tmp_path / "insurance.csv"))) == 1338


def test_health_without_the_package(monkeypatch):
    monkeypatch.setattr(_loaders, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "fairpremium\[data\]"'):
        load_health()


def test_auto(auto_file):
    p = load_auto(auto_file)
    check_shape(p)
    assert (len(p), p.dropped_rows) == (8149, 1851)  # the paper says 8,150
    assert p.family == "bernoulli"
    assert p.sample_weight is None
    assert set(p.y) == {0.0, 1.0}
    assert p.groups == ("female", "male")
    assert not p.X.isna().any(axis=None)
    assert not {"ID", "OUTCOME", "GENDER"} & set(p.X.columns)
    assert p.X.shape[1] == 16
    assert p.X["POSTAL_CODE"][0] == "10238"


def test_auto_with_incomplete_rows_and_another_attribute(auto_file):
    p = load_auto(auto_file, sensitive="RACE", missing="keep")
    check_shape(p)
    assert (len(p), p.dropped_rows) == (10_000, 0)
    gaps = p.X.isna().sum()
    assert gaps[gaps > 0].to_dict() == {"CREDIT_SCORE": 982, "ANNUAL_MILEAGE": 957}
    assert p.groups == ("majority", "minority")
    assert "GENDER" in p.X
    assert "RACE" not in p.X


def test_ausprivauto(ausprivauto_file):
    p = load_ausprivauto(ausprivauto_file)
    check_shape(p)
    assert len(p) == 67_856
    assert p.X.columns.tolist() == ["VehValue", "VehAge", "VehBody", "DrivAge"]
    assert p.groups == ("Female", "Male")
    assert p.family == "poisson"
    assert p.sample_weight.min() > 0
    assert p.sample_weight.max() <= 1
    claims = p.y * p.sample_weight
    np.testing.assert_allclose(claims, np.rint(claims), atol=1e-9)
    assert claims.sum() == pytest.approx(4937)


def test_belgian_motor(shared_data):
    p = load_belgian_motor(require(shared_data, "beMTPL97.parquet"))
    check_shape(p)
    assert (len(p), p.family, p.groups) == (163_212, "poisson", ("female", "male"))
    assert p.X.columns.tolist() == ["coverage", "ageph", "bm", "power", "agec", "fuel", "use", "fleet"]
    assert (p.sensitive == "female").sum() == 43_168
    assert (p.X["fleet"] == "yes").sum() == 5171
    np.testing.assert_array_equal(p.y, p.counts / p.sample_weight)
    assert ((p.amounts > 0) == (p.counts > 0)).all()
    costs = load_belgian_motor(shared_data, outcome="severity")
    check_shape(costs)
    assert (len(costs), costs.family) == (18_276, "gamma")
    np.testing.assert_array_equal(costs.sample_weight, costs.counts)
    assert costs.y @ costs.counts == pytest.approx(p.amounts.sum())


def test_the_environment_names_the_folder(auto_file, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_DATA", str(auto_file.parent))
    assert len(load_auto()) == 8149


@pytest.mark.parametrize(
    "load, name", [(load_auto, "Kaggle"), (load_ausprivauto, "CASdatasets"), (load_belgian_motor, "CASdatasets")]
)
def test_a_missing_file_says_where_to_get_it(load, name, monkeypatch, tmp_path):
    monkeypatch.delenv("FAIRPREMIUM_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=rf"{name}.*path=.*FAIRPREMIUM_DATA"):
        load()
    for place in (tmp_path, tmp_path / "none.csv"):
        with pytest.raises(FileNotFoundError, match=rf"There is no file .*{name}"):
            load(place)
    monkeypatch.setenv("FAIRPREMIUM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=name):
        load()


@pytest.mark.parametrize(
    "load, name",
    [
        (load_health, "insurance.csv"),
        (load_auto, "car_insurance_claim.csv"),
        (load_ausprivauto, "ausprivauto0405.csv"),
        (load_belgian_motor, "beMTPL97.parquet"),
    ],
)
def test_another_file_is_refused(load, name, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"sha256 [0-9a-f]{64}, but expected [0-9a-f]{64}"):
        load(tmp_path)


def test_line_ends_do_not_matter(auto_file, tmp_path):
    (tmp_path / AUTO.filename).write_bytes(auto_file.read_bytes().replace(b"\r\n", b"\n"))
    assert len(load_auto(tmp_path)) == 8149


def test_one_changed_digit_is_refused(auto_file, tmp_path):
    content = auto_file.read_bytes()
    (tmp_path / AUTO.filename).write_bytes(content.replace(b"0.629027313918201", b"0.629027313918202"))
    with pytest.raises(ValueError, match="sha256"):
        load_auto(tmp_path)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"sensitive='AGE'.*GENDER.*RACE"):
        load_auto(sensitive="AGE")
    with pytest.raises(ValueError, match=r"missing='impute'.*'drop' or 'keep'"):
        load_auto(missing="impute")
