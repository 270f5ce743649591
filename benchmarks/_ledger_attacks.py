"""Draws of the same people again and again by their collector: what a majority vote learns, and what the ledger says.

Each attack runs ``fairpremium privatize``, or draws as ``fairpremium collector submit`` does, 41 times on people with
keep 0.8, and removes, renames or changes something between the runs. The guess is the report that a person gave most
often. A ledger that tells the truth bounds the rate of right guesses: from even odds, a person who has spent epsilon is
guessed right with probability at most e^epsilon / (1 + e^epsilon). Without accounts the vote over 41
draws is right for everybody.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from fairpremium import RandomizedResponse
from fairpremium.cli._account import DrawOptions
from fairpremium.cli._app import make_app
from fairpremium.errors import NewDrawError
from fairpremium.parties import draw_reports
from fairpremium.privacy import PrivacyLedger

RUNS, PEOPLE = 41, 400
_APP = make_app(["privatize"])


class Collector:
    """A collector in a folder of its own, who runs the command line and keeps all reports that come out."""

    def __init__(self, folder: Path, people: int, seed: int):
        self.folder = folder
        rng = np.random.default_rng(seed)
        self.truth = pd.Series(rng.choice(["F", "M"], people), index=[f"person {i}" for i in range(people)])
        self.home = folder / "collector"
        self.refused = 0
        self.told = 0.0  # the most that a ledger said of anybody, also one that was lost
        self.seen: list[pd.DataFrame] = []

    def table(self, policies: int = 1) -> pd.DataFrame:
        """Return people with one row for each of their policies."""
        rows = self.truth.repeat(policies)
        return pd.DataFrame({"policy": np.arange(len(rows)) + 10**6, "holder": rows.index, "sex": rows.to_numpy()})

    def privatize(self, table: pd.DataFrame, *words: Any, column: str = "sex", place: str = ".") -> bool:
        """Run the command in a place; return whether it was refused, with exit code 2 and one line."""
        folder = self.folder / place
        folder.mkdir(parents=True, exist_ok=True)
        table.rename(columns={"sex": column}).to_csv(folder / "people.csv", index=False)
        output = folder / "reports.csv"
        options = ["--column", column, "--groups", "F,M", "-o", output, *words]
        if "--keep" not in words:
            options += ["--keep", 0.8]
        result = CliRunner().invoke(_APP, ["privatize", *map(str, [folder / "people.csv", *options])])
        if result.exit_code == 2 and result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1:
            self.refused += 1
            return False
        if result.exit_code:
            raise RuntimeError(result.output) from result.exception
        self.told = max(self.told, self.spent())
        self.seen.append(pd.read_csv(output, dtype=str)[["holder", "report"]])
        output.unlink()  # the reports are lost
        return True

    def submit(self, table: pd.DataFrame, *, policy: str, person: str | None = None) -> bool:
        """Draw as `collector submit` does for a study of its own; return whether it was refused."""
        path = self.folder / f"reports {len(self.seen) + self.refused}.parquet"
        account = DrawOptions(person=person, budget=2.0)
        memo = account.make_memo(RandomizedResponse(["F", "M"], keep=0.8), "sex")
        try:
            with account.open_ledger() as ledger, account.drawing(memo, ledger, person or policy):
                drawn, _ = draw_reports(
                    table, path, policy=policy, column="sex", person=person, memo=memo, ledger=ledger
                )
        except NewDrawError:
            self.refused += 1
            return False
        self.told = max(self.told, self.spent())
        self.seen.append(drawn[["report"]].assign(holder=self.truth.index))
        return True

    def vote(self) -> float:
        """Return the rate of right guesses from all reports of each person."""
        votes = pd.concat(self.seen).groupby("holder")["report"].agg(lambda reports: (reports == "F").mean())
        guess = np.where(votes.loc[self.truth.index] > 0.5, "F", "M")
        return float((guess == self.truth.to_numpy()).mean())

    def spent(self) -> float:
        """Return the most that the ledger says anybody has spent, over all names of the attribute."""
        path = self.home / "ledger.sqlite"
        with PrivacyLedger(path) as ledger, ledger._connected() as connection:
            names = [row[0] for row in connection.execute("SELECT DISTINCT attribute FROM charges")]
            known = [row[0] for row in connection.execute("SELECT DISTINCT person FROM charges WHERE person != ''")]
        with PrivacyLedger(path) as ledger:
            return max(math.fsum(ledger.spent(who, name) for name in names) for who in [*self.truth.index, *known])


def _lost_reports(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder")


def _lost_reports_of_rows(collector: Collector, k: int) -> None:
    collector.privatize(collector.table())


def _lost_memo_key(collector: Collector, k: int) -> None:
    (collector.home / "memo.key").unlink(missing_ok=True)
    collector.privatize(collector.table(), "--person", "holder")


def _lost_ledger(collector: Collector, k: int) -> None:
    for path in collector.home.glob("ledger.sqlite*"):
        path.unlink()
    collector.privatize(collector.table(), "--person", "holder")


def _lost_ledger_other_campaign(collector: Collector, k: int) -> None:
    for path in collector.home.glob("ledger.sqlite*"):
        path.unlink()
    collector.privatize(collector.table(), "--person", "holder", "--campaign", k)


def _lost_ledger_other_column(collector: Collector, k: int) -> None:
    for path in collector.home.glob("ledger.sqlite*"):
        path.unlink()
    collector.privatize(collector.table(), "--person", "holder", column=f"sex {k}")


def _lost_ledger_other_order(collector: Collector, k: int) -> None:
    for path in collector.home.glob("ledger.sqlite*"):
        path.unlink()
    collector.privatize(collector.table().sample(frac=1, random_state=k))


def _lost_ledger_begun_again(collector: Collector, k: int) -> None:
    for path in collector.home.glob("ledger.sqlite*"):
        path.unlink()
    if k:
        collector.privatize(collector.table()[:1], "--person", "holder")  # one of the former draws
    collector.privatize(collector.table(), "--person", "holder", "--campaign", f"again {k}" if k else "reports")


def _three_policies(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(policies=3), "--person", "holder")


def _new_policies(collector: Collector, k: int) -> None:
    table = collector.table()
    collector.privatize(table.assign(policy=table["policy"] + 1000 * k), "--person", "holder")


def _renamed_column(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder", column=f"sex {k}")


def _named_by_another_column(collector: Collector, k: int) -> None:
    table = collector.table()
    names = {f"id {k}": [f"{k}-{holder}" for holder in table["holder"]]} if k else {}
    collector.privatize(table.assign(**names), "--person", f"id {k}" if k else "holder")


def _keys_written_otherwise(collector: Collector, k: int) -> None:
    table = collector.table()
    collector.privatize(table.assign(id=[f"{'0' * k}{i}" for i in range(len(table))]), "--person", "id")


def _other_keys_same_policies(collector: Collector, k: int) -> None:
    table = collector.table()
    collector.submit(table.assign(id=[f"{k}-{i}" for i in range(len(table))]), policy="policy", person="id")


def _other_column_of_policies(collector: Collector, k: int) -> None:
    table = collector.table()
    collector.submit(table.assign(**{f"policy {k}": table["policy"] + 10**6 * k}), policy=f"policy {k}")


def _policies_written_otherwise(collector: Collector, k: int) -> None:
    table = collector.table()
    collector.submit(table.assign(policy=[f"{'0' * k}{policy}" for policy in table["policy"]]), policy="policy")


def _moved_file(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder", place=f"year {k}")


def _other_order(collector: Collector, k: int) -> None:
    collector.privatize(collector.table().sample(frac=1, random_state=k))


def _other_channel(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder", "--keep", 0.8 - k / 1000)


def _other_campaign(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder", "--campaign", k)


def _confirmed(collector: Collector, k: int) -> None:
    collector.privatize(collector.table(), "--person", "holder", "--campaign", k, "--confirm-new-draw")


ATTACKS: dict[str, Callable[[Collector, int], None]] = {
    "reports lost": _lost_reports,
    "reports lost, no column for the person": _lost_reports_of_rows,
    "memo key lost": _lost_memo_key,
    "ledger lost": _lost_ledger,
    "ledger lost, another campaign": _lost_ledger_other_campaign,
    "ledger lost, column renamed": _lost_ledger_other_column,
    "ledger lost, one person drawn as before, another campaign": _lost_ledger_begun_again,
    "ledger lost, rows in another order, no column for the person": _lost_ledger_other_order,
    "three policies of each person": _three_policies,
    "other policies every year": _new_policies,
    "column renamed": _renamed_column,
    "people named by another column": _named_by_another_column,
    "keys of people with another zero in front": _keys_written_otherwise,
    "other keys of people with the same policies": _other_keys_same_policies,
    "policies of another column, no column for the person": _other_column_of_policies,
    "policies with another zero in front, no column for the person": _policies_written_otherwise,
    "file in another folder": _moved_file,
    "rows in another order, no column for the person": _other_order,
    "another keep": _other_channel,
    "another campaign": _other_campaign,
    "another campaign, confirmed": _confirmed,
}


def run(name: str, *, runs: int = RUNS, people: int = PEOPLE, seed: int = 0) -> dict[str, Any]:
    """Run one attack; return the rate of right guesses, what the ledger says, and the bound that follows from it."""
    with tempfile.TemporaryDirectory() as folder, _home(Path(folder) / "collector"):
        collector = Collector(Path(folder), people, seed)
        for k in range(runs):
            ATTACKS[name](collector, k)
        spent = collector.told
        return {
            "attack": name,
            "runs": runs,
            "people": people,
            "refused": collector.refused,
            "rate": collector.vote(),
            "spent": spent,
            "bound": 1 / (1 + math.exp(-spent)),
        }


def write(path: Path) -> None:
    """Run all attacks, and write their figures as JSON and as a table."""
    results = [run(name) for name in ATTACKS]
    path.write_text(json.dumps(results, indent=1) + "\n")
    lines = ["# What a collector's own people lose", "", " ".join(__doc__.split("\n\n")[1].split()), ""]
    lines += ["| between the runs | refused | spent | right guesses | at most |", "| --- | --- | --- | --- | --- |"]
    for r in results:
        error = math.sqrt(r["bound"] * (1 - r["bound"]) / r["people"])
        lines.append(
            f"| {r['attack']} | {r['refused']} of {r['runs']} | {r['spent']:.3f} | "
            f"{100 * r['rate']:.1f} ± {100 * error:.1f} % | {100 * r['bound']:.1f} % |"
        )
    path.with_suffix(".md").write_text("\n".join([*lines, ""]))


@contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Give the command line a collector's folder."""
    before = os.environ.get("FAIRPREMIUM_COLLECTOR")
    os.environ["FAIRPREMIUM_COLLECTOR"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FAIRPREMIUM_COLLECTOR"]
        else:
            os.environ["FAIRPREMIUM_COLLECTOR"] = before
