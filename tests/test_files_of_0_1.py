"""Files that version 0.1.0 wrote still load and give the numbers that it gave.

``data/0.1.0`` was written by that version: models of every class, reports as CSV and Parquet, a ledger, and a bundle
with the public key of its service; ``expected.json`` holds the prices of ``rows.csv``.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.errors import BudgetExceededError, NewDrawError
from fairpremium.parties import load_bundle, read_public_key
from fairpremium.privacy import PrivacyLedger, read_reports

FOLDER = Path(__file__).parent / "data" / "0.1.0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def rows():
    return pd.read_csv(FOLDER / "rows.csv")


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_models(name, rows):
    pricer = DiscriminationFreePricer.load(FOLDER / f"{name}.json")
    expected = EXPECTED[name]
    assert pricer.correction_ == expected["correction"]
    np.testing.assert_allclose(pricer.predict(rows), expected["premium"], rtol=1e-12)
    np.testing.assert_allclose(pricer.predict_unaware(rows), expected["unaware"], rtol=1e-12)
    np.testing.assert_allclose(pricer.predict_best_estimate(rows), expected["best"], rtol=1e-12)
    assert pricer.has_intervals_ == (expected["interval"] is not None)
    if pricer.has_intervals_:
        np.testing.assert_allclose(pricer.predict_interval(rows), expected["interval"], rtol=1e-10)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_reports(suffix):
    reports, channel = read_reports(FOLDER / f"reports.{suffix}")
    assert channel == RandomizedResponse(["F", "M"], keep=0.8)
    assert len(reports) == 20
    assert set(reports["report"]) == {"F", "M"}


def test_ledger(tmp_path):
    shutil.copy(FOLDER / "ledger.sqlite", tmp_path)
    with PrivacyLedger(tmp_path / "ledger.sqlite", budget=3.0) as ledger:
        assert [ledger.spent(person, "sex") for person in ("ann", "bob", "eve", "joe")] == [1.0, 2.0, 0.5, 0.0]
        ledger.charge("ann", "sex", 1.0, charge_id="first")  # known: it costs nothing more
        assert ledger.remaining("ann", "sex") == 2.0
        with pytest.raises(BudgetExceededError):
            ledger.charge("bob", "sex", 1.5)
        with pytest.raises(NewDrawError, match="by a column that it did not note"):
            ledger.charge_draws(["17", "18"], [b"1", b"2"], attribute="sex", epsilon=1.0, named_by="policy")


def test_bundle(rows):
    bundle = load_bundle(FOLDER / "bundle.zip", keys=[read_public_key(FOLDER / "service.key.pub")])
    assert bundle.manifest["study"] == "motor"
    assert bundle.report == "<p>An audit report.</p>"
    np.testing.assert_allclose(bundle.premiums["premium"], EXPECTED["linear-inverse"]["premium"], rtol=1e-12)
    np.testing.assert_allclose(bundle.pricer.predict(rows), EXPECTED["linear-inverse"]["premium"], rtol=1e-12)
