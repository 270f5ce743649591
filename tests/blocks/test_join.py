"""Reports find their rows, in files larger than the memory that the join may use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium.blocks import Joined, _join, join_reports


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    n = 30_000
    portfolio = pd.DataFrame({"policy": rng.permutation(n) // 2, "x": rng.normal(size=n), "it's": "a'b"})
    reports = pd.DataFrame({"policy": rng.permutation(n)[: n // 2].astype(str), "report": "M"})
    reports.loc[rng.random(len(reports)) < 0.4, "report"] = "F"
    folder = tmp_path / "the 'portfolio'"
    folder.mkdir()
    for i, start in enumerate(range(0, n, 7000)):
        portfolio.iloc[start : start + 7000].to_parquet(folder / f"{9 - i}.parquet", index=False)
    order = sorted(folder.iterdir())
    stored = pd.concat([pd.read_parquet(path) for path in order], ignore_index=True)
    reports.to_parquet(tmp_path / "reports.parquet", index=False)
    return folder, tmp_path / "reports.parquet", stored, reports


@pytest.mark.parametrize("memory", ["1GiB", "60MB"])
def test_join_equals_a_merge_in_memory(
    files: tuple[Path, Path, pd.DataFrame, pd.DataFrame], tmp_path: Path, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path, portfolio, reports = files
    monkeypatch.setattr(_join, "_MEMORY", memory)
    found = join_reports(folder, path, tmp_path / "all.parquet", key="policy")
    expected = portfolio.assign(k=portfolio["policy"].astype(str)).merge(
        reports.rename(columns={"policy": "k"}), on="k", how="left"
    )
    written = pd.read_parquet(tmp_path / "all.parquet")
    pd.testing.assert_frame_equal(written, expected.drop(columns="k"))
    unused = int((~reports["policy"].isin(portfolio["policy"].astype(str))).sum())
    assert found == Joined(len(portfolio), int(expected["report"].notna().sum()), unused)
    assert found.unused_reports > 0
    assert not list(tmp_path.glob(".join-*"))


def test_mistakes_are_sentences(files: tuple[Path, Path, pd.DataFrame, pd.DataFrame], tmp_path: Path) -> None:
    folder, path, _, reports = files
    out = tmp_path / "out.parquet"
    with pytest.raises(ValueError, match=r"but expected \['nix'\] among them"):
        join_reports(folder, path, out, key="nix")
    bad = tmp_path / "bad.parquet"
    pd.concat([reports, reports.iloc[:3]]).to_parquet(bad, index=False)
    with pytest.raises(ValueError, match="repeats a key in 3 rows"):
        join_reports(folder, bad, out, key="policy")
    reports.assign(policy=reports["policy"].where(reports.index > 4)).to_parquet(bad, index=False)
    with pytest.raises(ValueError, match="is empty in 5 rows"):
        join_reports(folder, bad, out, key="policy")
    reports.assign(policy="P" + reports["policy"]).to_parquet(bad, index=False)
    with pytest.raises(ValueError, match=r"No key of .* occurs in"):
        join_reports(folder, bad, out, key="policy")
    with pytest.raises(ValueError, match="with a column 'x', but expected it among the reports"):
        join_reports(folder, folder, out, key="policy", sensitive="x")
    assert not out.exists()
