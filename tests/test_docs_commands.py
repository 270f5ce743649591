"""The outputs that the guide shows for its commands are what the commands print, but for the numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fairpremium.cli._app import make_app
from fairpremium.portfolios import zhang_liu_shi_2025

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "cli.md"
PAIR = re.compile(r"^```bash\n([^`]*)```\n\n```text\n([^`]*)```$", re.MULTILINE)
ERROR = re.compile(r"^```text\n\$ ([^\n]*)\n(Error:[^`]*)```$", re.MULTILINE)
SLOW = {"demo", "reproduce"}  # tests/cli and tests/paper run them


def shown() -> list[tuple[str, str]]:
    """The commands of the page with the output that it shows for them, in the order of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = [(match.start(), match[1].strip().splitlines()[-1], match[2]) for match in PAIR.finditer(text)]
    found += [(match.start(), match[1], match[2]) for match in ERROR.finditer(text)]
    return [(command, output) for _, command, output in sorted(found) if command.split()[1] not in SLOW]


def pattern(output: str) -> re.Pattern[str]:
    """An expression for outputs with the same words; `...` stands for any text."""
    return re.compile(".*".join(re.escape(words(piece)) for piece in output.split("...")), re.DOTALL)


def words(text: str) -> str:
    """The text with every number as 0, every run of spaces as one space, and every rule of a table as one stroke."""
    return " ".join(re.sub("─+", "─", re.sub(r"\d+(?:[.,]\d+)*", "0", text)).split())


def write_demo_files(folder: Path) -> None:
    """The files of the demo that the commands of the page read, without running its service."""
    portfolio = zhang_liu_shi_2025(n=5000, rng=2025, age_band=True)
    policy = [f"P{i:05d}" for i in range(1, 5001)]
    X = portfolio.X.to_numpy(dtype=float)
    X = np.column_stack([np.ones(len(X)), X])
    premium = X @ np.linalg.lstsq(X, portfolio.y, rcond=None)[0]
    rows = portfolio.X.assign(policy=policy)
    pd.DataFrame({"policy": policy, "sex": portfolio.sensitive}).to_csv(folder / "people.csv", index=False)
    columns = ["policy", "age", "smoker", "age_20_40", "y"]
    rows.assign(y=portfolio.y)[columns].to_csv(folder / "portfolio.csv", index=False)
    rows.to_csv(folder / "new.csv", index=False)
    rows[["policy", "smoker"]].assign(premium=premium, y=portfolio.y).to_csv(folder / "prices.csv", index=False)


def test_the_page_shows_outputs_of_the_commands_that_work_on_files():
    known = "privatize fit price tariff audit spectrum card plan"
    assert {command.split()[1] for command, _ in shown()} == set(known.split())


def test_the_commands_print_what_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_demo_files(tmp_path)
    pd.DataFrame({"policy": ["P00001"], "report": ["F"]}).to_csv("reports.csv", index=False)  # until privatize has run
    for command, output in shown():
        result = CliRunner().invoke(make_app(), shlex.split(command)[1:], catch_exceptions=False)
        printed = words(result.output)
        assert pattern(output).fullmatch(printed), f"{command}\nprints\n{printed}\nthe page has\n{words(output)}"


@pytest.mark.parametrize(
    ("output", "printed", "same"),
    [
        ("Rows  5,000\nMean  1.5\n", "Rows 12,345 Mean 0.25", True),
        ("Rows  5,000\n...\nWritten  a.csv\n", "Rows 3\nand more\nWritten a.csv", True),
        ("Rows  5,000\n", "Rows 3\nModel linear", False),
        ("Rows  5,000\n", "Lines 5,000", False),
    ],
)
def test_outputs_are_compared_word_by_word(output, printed, same):
    assert bool(pattern(output).fullmatch(words(printed))) == same
