"""A fit passes through the modules that the design page names, and makes each check once."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.models import BoostedModel

CHANNEL = RandomizedResponse(["F", "M"], keep=0.9)
PAGE = Path(__file__).parents[2] / "docs" / "design.md"
CHECKS = (
    "as_frame",
    "check",
    "check_cluster",
    "check_counts",
    "check_merge",
    "check_models",
    "check_outcome",
    "check_pooling",
    "check_weight",
    "encode_labels",
    "get_family",
    "resolve_channel",
    "Reference.of",
)


def portfolio() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    D = rng.choice(["F", "M"], 400)
    X = pd.DataFrame({"age": rng.integers(18, 80, 400), "area": rng.choice(["city", "land"], 400)})
    y = rng.poisson(np.where(D == "F", 0.5, 1.0)).astype(float)
    return {"X": X, "y": y, "sensitive": CHANNEL.privatize(D, rng=1), "exposure": rng.uniform(0.5, 1, 400)}


def calls_of(pricer: DiscriminationFreePricer, **data: Any) -> Counter[tuple[str, str]]:
    """Count the calls of a fit by module and function."""
    seen: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if event == "call" and module.startswith("fairpremium."):
            seen[module.removeprefix("fairpremium."), frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        pricer.fit(**data)
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.parametrize("correction", ["inverse", "auto"])
def test_modules_of_the_design_page(correction: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Where a fit passes")[1].split("\n## ")[0]
    named = set(re.findall(r"(?:pricing|models)\._\w+", section)) - {"pricing._source_portfolio"}
    pricer = DiscriminationFreePricer("poisson", channel=CHANNEL, correction=correction, random_state=0)
    used = {module for module, _ in calls_of(pricer, **portfolio())}
    assert {module for module in used if module.startswith(("pricing.", "models."))} == named


def test_each_check_is_made_once() -> None:
    pricer = DiscriminationFreePricer("poisson", channel=CHANNEL, random_state=0)
    calls = Counter[str]()
    for (_, function), count in calls_of(pricer, **portfolio(), cluster=np.arange(400)).items():
        calls[function.removeprefix("LinearModel.")] += count
    assert {name: calls[name] for name in CHECKS} == dict.fromkeys(CHECKS, 1)


@pytest.mark.parametrize("model", ["linear", BoostedModel(max_rounds=2)])
def test_a_small_source_without_a_group_is_refused_by_every_model_class(model: Any, tmp_path: Path) -> None:
    data = portfolio()
    data["X"].assign(y=data["y"], report="F").to_parquet(tmp_path / "rows.parquet")
    pricer = DiscriminationFreePricer("poisson", channel=CHANNEL, model=model, correction="posterior")
    with pytest.raises(ValueError, match=r"without a single report of the group\(s\) \['M'\]"):
        pricer.fit(tmp_path / "rows.parquet", y="y", sensitive="report")
