"""``fairpremium demo``: all three parties on one machine, in processes and files of their own."""

from __future__ import annotations

import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table

from fairpremium.audit import compute_price_comparison, describe_classes
from fairpremium.cli._channel_file import channel_text, describe_channel
from fairpremium.cli._command import Answer
from fairpremium.cli._terminal import new_table, print_table, progress, stdout_console
from fairpremium.cli.parties._demo_people import INVITED, ask_people, write_question
from fairpremium.cli.parties._processes import CommandRunner
from fairpremium.cli.parties._service import party_command
from fairpremium.portfolios import SimulatedPortfolio, zhang_liu_shi_2025
from fairpremium.privacy import RandomizedResponse

_ROWS, _SEED, _NEW_SEED, _KEEP, _LEVEL = 5000, 2025, 2026, 0.8, 0.95
_UNIT = "per policy and year"
_CAVEAT = (
    "The unaware price is a linear formula as well. Its truth has a product of age and smoking, which the "
    "formula misses: that gap is not noise."
)
_MISS = f"A {100 * _LEVEL:g} % interval misses the truth in one case of {1 / (1 - _LEVEL):.0f} on average."
_MARK = ".made-by-demo"
_FILES = (
    "people.csv", "reports.csv", "portfolio.csv", "new.csv", "bundle.zip", "model.json", "premiums.csv", "prices.csv",
    "report.html",
)  # fmt: skip


@party_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo"),
    browser: Annotated[
        bool, typer.Option("--browser", help="Begin with people who answer in their browsers; you can be one of them.")
    ] = False,
    as_json: bool = False,
) -> Answer:
    """Run all three parties on this machine, and compare the premiums with the truth.

    A service runs on a free port of this machine. A collector reports for 5,000 simulated policyholders, an insurer
    uploads its portfolio, has prices fitted, fetches the signed bundle and prices new policies offline; then the log is
    checked. Each step is a command, which is shown.

    Writes people.csv (policyholders), reports.csv (what leaves them), portfolio.csv and new.csv (insurer), bundle.zip
    with model.json and report.html (from the third party), premiums.csv, prices.csv (an unaware price list, to try
    audit on), and the folders keys and third-party.

    With --browser some people are invited and answer on the page, where the report is drawn on their own device. The
    demo prints a link to answer yourself, and the console that shows how many have answered.

    Example: fairpremium demo --out demo
    """
    from fairpremium.parties.bundle import load_bundle
    from fairpremium.parties.protocol import read_trusted_keys

    _clear(out)
    portfolio = zhang_liu_shi_2025(n=_ROWS, rng=_SEED, age_band=True)
    _write_data(out, portfolio, invited=INVITED if browser else 0)
    waiting = progress("Running the three parties") if as_json else nullcontext()  # otherwise commands are shown
    with waiting, CommandRunner(quiet=as_json, log=out / "serve.log", collector=out / "collector") as runner:
        found, answered = _run_parties(runner, out, portfolio, browser)
    bundle = load_bundle(out / "bundle.zip", keys=[read_trusted_keys(out / "third-party" / "service.key.pub")])
    pricer = bundle.pricer
    X = portfolio.X
    # a price list as an insurer has it today, which leaves sex out and nothing else
    present = X.assign(premium=pricer.predict_unaware(X).round(2), y=portfolio.y.round(2))
    pd.concat([_numbers("P"), present], axis=1).to_csv(out / "prices.csv", index=False)
    comparison = compute_price_comparison(pricer, X, by=_risk_classes(X), level=_LEVEL, truth=portfolio)
    channel = RandomizedResponse(portfolio.groups, keep=_KEEP)
    result = {
        "channel": describe_channel(channel),
        "rows": _ROWS,
        "classes": describe_classes(comparison),
        "noise": bundle.manifest["disclosure"]["statement"],
        "log": found,
        "answered": answered,
        "commands": runner.commands,
        "files": {name: str(out / name) for name in _FILES},
    }
    return Answer(result, _render)


def _run_parties(
    runner: CommandRunner, out: Path, portfolio: SimulatedPortfolio, browser: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Let the parties act, each in processes of its own; return what the check of the log found, and who answered."""
    keys, folder = out / "keys", out / "third-party"
    trust = ("--trust", folder / "service.key.pub")
    secret = ("--secret", keys / "motor.secret")
    roles = {"operator": "trust-office", "collector": "app", "insurer": "acme"}
    operator, collector, insurer = (("--key", keys / f"{role}.key") for role in roles)
    runner.tell("Each party makes its key; collector and insurer share a secret that the third party does not get.")
    runner.run(("keys", "new", *(keys / f"{role}.key" for role in roles)), ("keys", "secret", keys / "motor.secret"))
    runner.tell("The third party registers the public keys, starts its service and opens a study.")
    add = [
        ("keys", "add", "--folder", folder, keys / f"{role}.key.pub", "--party", party, "--role", role)
        for role, party in roles.items()
    ]
    runner.run(add[0])  # makes the folder
    runner.run(*add[1:])
    service = runner.serve(folder, *(["--collect"] if browser else []))
    question = ("--question", write_question(out)) if browser else ()
    runner.run(_words("study create motor --groups F,M --keep", f"{_KEEP:g}", "--collector app --insurer acme --open",
                      *question, *operator))  # fmt: skip
    answered = None
    if browser:
        runner.tell(f"The collector invites {INVITED} people to answer on their own devices.")
        runner.run(_words("collector invite", out / "invited.csv", "--study motor --attribute sex", *secret, "-o",
                          out / "links.csv",
                          *collector))  # fmt: skip
        true = portfolio.sensitive[:INVITED]
        answered = ask_people(service, out / "links.csv", true, keys / "collector.key", runner.tell, quiet=runner.quiet)
    others = _ROWS - (INVITED if browser else 0)
    runner.tell(f"The collector draws a report for each of {others:,} policyholders; the insurer sends what it knows.")
    sent, _ = runner.run(
        _words("collector submit", out / "people.csv", "--study motor --policy policy --column sex", *secret,
               "--reports", out / "reports.csv", *collector),
        _words("insurer upload", out / "portfolio.csv", "--study motor --portfolio p2026 --policy policy --outcome y",
               *secret, *insurer),
    )  # fmt: skip
    runner.tell(f"{sent['reports']:,} reports are there, each for epsilon {sent['epsilon']:.4g}. The insurer asks for "
                "a fit and fetches what came out.")  # fmt: skip
    about = (
        "--unit",
        "EUR a year",
        "--insurer",
        "Acme Insurance",
        "--tariff-version",
        "Motor 2026",
        "--period",
        "2025",
    )
    runner.run((*_words("insurer fit first --study motor --portfolio p2026"), *about, *insurer))
    runner.run(_words("insurer fetch first -o", out / "bundle.zip", *trust, "--report", out / "report.html",
                      "--model", out / "model.json", *insurer))  # fmt: skip
    runner.stop_service()
    runner.tell("The service has stopped. The insurer prices new policies alone, and the log is checked.")
    _, found = runner.run(
        _words("insurer price", out / "bundle.zip", out / "new.csv", "-o", out / "premiums.csv", *trust,
               "--policy policy"),
        _words("log verify", "--folder", folder, "--bundle", out / "bundle.zip"),
    )  # fmt: skip
    return found, answered


def _words(*pieces: str | Path) -> tuple[str | Path, ...]:
    """Split the texts of a command at their spaces; paths stay whole."""
    return tuple(word for piece in pieces for word in ([piece] if isinstance(piece, Path) else piece.split()))


def _clear(out: Path) -> None:
    """Make the folder, and remove what an earlier demo left there that cannot be overwritten."""
    out.mkdir(parents=True, exist_ok=True)
    folder, keys = out / "third-party", out / "keys"
    if folder.exists() and not (folder / _MARK).exists():
        raise ValueError(f"{folder} exists and was not made by a demo. Choose another folder with --out.")
    if folder.exists():
        for old in (folder, keys, out / "collector"):
            shutil.rmtree(old, ignore_errors=True)
        for old in (*out.glob("reports.csv*"), out / "links.csv"):
            old.unlink(missing_ok=True)
    folder.mkdir(mode=0o700)
    (folder / _MARK).touch()
    keys.mkdir(mode=0o700, exist_ok=True)


def _risk_classes(X: pd.DataFrame) -> pd.Series:
    """Return the risk class of each row, younger ages and smokers first."""
    order = ["Age 20-40, smoker", "Age 20-40, non-smoker", "Other ages, smoker", "Other ages, non-smoker"]
    return pd.Series(pd.Categorical.from_codes(2 * ~X["age_20_40"].astype(bool) + ~X["smoker"].astype(bool), order))


def _numbers(letter: str) -> pd.Series:
    return pd.Series([f"{letter}{i:05d}" for i in range(1, _ROWS + 1)], name="policy")


def _write_data(out: Path, portfolio: SimulatedPortfolio, invited: int) -> None:
    policy = _numbers("P")
    people = pd.DataFrame({"policy": policy, "sex": portfolio.sensitive})
    people[invited:].to_csv(out / "people.csv", index=False)
    if invited:  # of them the collector knows nothing but how to reach them
        people[["policy"]][:invited].to_csv(out / "invited.csv", index=False)
    pd.concat([policy, portfolio.X], axis=1).assign(y=portfolio.y.round(2)).to_csv(out / "portfolio.csv", index=False)
    new = zhang_liu_shi_2025(n=_ROWS, rng=_NEW_SEED, age_band=True)
    pd.concat([_numbers("N"), new.X], axis=1).to_csv(out / "new.csv", index=False)


def _render(result: dict[str, Any]) -> None:
    console = stdout_console()
    channel, files = result["channel"], result["files"]
    console.print(
        f"\nThe log is intact ({result['log']['entries']} entries). {result['rows']:,} simulated policies; sex was "
        f"reported through {channel_text(channel)}: one report multiplies the odds of F against M by at most "
        f"{np.exp(channel['epsilon']):.2f}. Mean price {_UNIT}, in brackets the truth:"
    )
    print_table(_table(result["classes"], channel["groups"]))
    unaware, free = (_surcharge(result["classes"], price) for price in ("unaware", "discrimination_free"))
    console.print(
        f"Smoking costs 100. Smokers pay {unaware:.0f} more than others at the unaware price, because most of them are "
        f"women, and {free:.0f} more at the discrimination-free price. {_CAVEAT} The noise of the reports comes from "
        f"the operating system, so that the estimates differ a little from run to run. {_MISS} {result['noise']}\n",
        markup=False,
    )
    where = shlex.quote(str(Path(files["report.html"]).parent))
    lines = [
        f"Premiums  {files['premiums.csv']}",
        f"Report    {files['report.html']}  (open it in a browser)",
        "",
        "Look into the third party's service, with the keys of the demo:",
        f"  $ fairpremium serve --folder {where}/third-party",
        f"  $ fairpremium log show --key {where}/keys/operator.key",
        "",
        "Try next, without a third party:",
        f"  fairpremium privatize {where}/people.csv --column sex --groups F,M --keep {_KEEP:g} -o {where}/again.csv",
        f"  fairpremium fit {where}/portfolio.csv --outcome y --reports {where}/again.csv --key policy "
        f"-o {where}/again.json",
        f"  fairpremium price {where}/again.json {where}/portfolio.csv --key policy -o {where}/again-premiums.csv",
        f"  fairpremium audit {where}/prices.csv --premium premium --outcome y --reports {where}/reports.csv --key "
        f"policy --features age,smoker,age_20_40 -o {where}/audit.html",
        "  fairpremium plan --groups F,M --epsilon 1 --rows 5000",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _surcharge(classes: list[dict[str, Any]], price: str) -> float:
    """Return what smokers pay more than others, on average over the age classes."""
    means = [c[price]["mean"] for c in classes]  # smokers and others alternate
    return float(np.mean(means[0::2]) - np.mean(means[1::2]))


def _table(classes: list[dict[str, Any]], groups: list[str]) -> Table:
    table = new_table()
    table.add_column("risk class", no_wrap=True)
    for group in groups:
        table.add_column(f"best\nest. {group}", justify="right")
    table.add_column("\nunaware", justify="right")
    table.add_column("discrim.-\nfree", justify="right", style="bold")
    table.add_column(f"{100 * _LEVEL:g} %\ninterval", justify="right")
    for c in classes:
        h = c["discrimination_free"]
        cells = [f"{p['mean']:.0f} ({p['truth']:.0f})" for p in (*c["best_estimate"], c["unaware"], h)]
        table.add_row(c["risk_class"], *cells, f"{h['low']:.0f}-{h['high']:.0f}")
    return table
