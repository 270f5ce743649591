"""The guide's code runs."""

from __future__ import annotations

import re
from pathlib import Path

import fairpremium.noise

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "unknown-noise.md"


def test_blocks_run_in_order(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    out = capsys.readouterr().out
    assert "No anchor is declared" in out
    assert "It rests on your declaration" in out


def test_every_source_is_mentioned():
    text = PAGE.read_text(encoding="utf-8")
    for name in set(fairpremium.noise.__all__) - {"NoiseEstimator", "SourceCheck", "check_sources"}:
        assert f"`{name}`" in text
