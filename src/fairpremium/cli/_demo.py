"""``fairpremium demo``: the whole story on a simulated portfolio, in files to look at."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich import box
from rich.table import Table

from fairpremium.audit import write_report
from fairpremium.cli._channels import channel_text, describe_channel
from fairpremium.cli._output import JsonOption, print_table, progress, show, stdout_console
from fairpremium.portfolios import SimulatedPortfolio, zhang_liu_shi_2025
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.privacy import RandomizedResponse, write_reports

_ROWS, _SEED, _KEEP, _LEVEL = 5000, 2025, 0.8, 0.95
_UNIT = "per policy and year"
_CAVEAT = (
    "The unaware price is a linear formula as well. Its truth has a product of age and smoking, which the "
    "formula misses: that gap is not noise."
)
_MISS = f"A {100 * _LEVEL:g} % interval misses the truth in one case of {1 / (1 - _LEVEL):.0f} on average."
_NOTES = (
    "A simulated portfolio in which women cost more than men and most smokers are women. The insurer sees age, "
    "smoking and losses; of sex only a noisy report leaves the policyholder.",
    f"The portfolio is the same in every run (seed {_SEED}). The noise of the reports comes from the operating "
    f"system, as in production, so that the estimates differ a little from run to run. {_MISS}",
    _CAVEAT,
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo"),
    as_json: JsonOption = False,
) -> None:
    """Privatize, fit and price a simulated portfolio, and compare with the truth.

    Writes people.csv (policyholders), reports.csv (what leaves them), portfolio.csv (insurer), model.json
    (third party), premiums.csv, report.html, and prices.csv (an unaware price list, to try audit on).

    Example: fairpremium demo --out demo
    """
    out.mkdir(parents=True, exist_ok=True)
    with progress("Privatizing, fitting and pricing"):
        portfolio = zhang_liu_shi_2025(n=_ROWS, rng=_SEED, age_band=True)
        X = portfolio.X
        policy = pd.Series([f"P{i:05d}" for i in range(1, _ROWS + 1)], name="policy")
        channel = RandomizedResponse(portfolio.groups, keep=_KEEP)
        reports = channel.privatize(portfolio.sensitive)
        pricer = DiscriminationFreePricer(family=portfolio.family, channel=channel, random_state=0)
        pricer.fit(X, portfolio.y, sensitive=reports)
        _write_data(out, policy, X, portfolio, channel, reports)
        pricer.save(out / "model.json")
        _premiums(pricer, X, policy).to_csv(out / "premiums.csv", index=False)
        _present_prices(pricer, X, portfolio, policy).to_csv(out / "prices.csv", index=False)
        summary = write_report(
            pricer,
            X,
            portfolio.y,
            sensitive=reports,
            path=out / "report.html",
            by=_risk_classes(X),
            truth=portfolio,
            title="Premiums without discrimination: a demonstration",
            level=_LEVEL,
            unit=_UNIT,
            notes=_NOTES,
            hashes={name: _sha256(out / name) for name in ("portfolio.csv", "reports.csv", "model.json")},
        )
    files = ("people.csv", "reports.csv", "portfolio.csv", "model.json", "premiums.csv", "prices.csv", "report.html")
    result = {
        "channel": describe_channel(channel),
        "rows": _ROWS,
        "classes": next(s["classes"] for s in summary["sections"] if s["id"] == "price_comparison"),
        "files": {name: str(out / name) for name in files},
    }
    show(result, as_json, _render)


def _risk_classes(X: pd.DataFrame) -> pd.Series:
    """Return the risk class of each row, younger ages and smokers first."""
    ages, smoking = ("Age 20-40", "Other ages"), ("smoker", "non-smoker")
    order = [f"{age}, {habit}" for age in ages for habit in smoking]
    age = np.where(X["age_20_40"], *ages)
    habit = np.where(X["smoker"], *smoking)
    labels = [f"{a}, {h}" for a, h in zip(age, habit, strict=True)]
    return pd.Series(pd.Categorical(labels, categories=order))


def _write_data(
    out: Path,
    policy: pd.Series,
    X: pd.DataFrame,
    portfolio: SimulatedPortfolio,
    channel: RandomizedResponse,
    reports: Any,
) -> None:
    pd.DataFrame({"policy": policy, "sex": portfolio.sensitive}).to_csv(out / "people.csv", index=False)
    write_reports(out / "reports.csv", pd.DataFrame({"policy": policy, "report": reports}), channel)
    pd.concat([policy, X], axis=1).assign(y=portfolio.y.round(2)).to_csv(out / "portfolio.csv", index=False)


def _premiums(pricer: DiscriminationFreePricer, X: pd.DataFrame, policy: pd.Series) -> pd.DataFrame:
    low, high = pricer.predict_interval(X, _LEVEL)
    return pd.DataFrame({"policy": policy, "premium": pricer.predict(X), "low": low, "high": high}).round(4)


def _present_prices(
    pricer: DiscriminationFreePricer, X: pd.DataFrame, portfolio: SimulatedPortfolio, policy: pd.Series
) -> pd.DataFrame:
    """Return a price list as an insurer has it today, which leaves sex out and nothing else."""
    unaware = pricer.predict_unaware(X).round(2)
    return pd.DataFrame({"policy": policy, "smoker": X["smoker"], "premium": unaware, "y": portfolio.y.round(2)})


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _render(result: dict[str, Any]) -> None:
    console = stdout_console()
    channel, files = result["channel"], result["files"]
    console.print(
        f"{result['rows']:,} simulated policies. Sex was reported through {channel_text(channel)}: one report "
        f"multiplies the odds of F against M by at most {np.exp(channel['epsilon']):.2f}. "
        f"Mean price {_UNIT}, in brackets the truth:"
    )
    print_table(_table(result["classes"], channel["groups"]))
    unaware, free = (_surcharge(result["classes"], price) for price in ("unaware", "discrimination_free"))
    console.print(
        f"Smoking costs 100. Smokers pay {unaware:.0f} more than others at the unaware price, because most of them are "
        f"women, and {free:.0f} more at the discrimination-free price. {_CAVEAT} The noise of the reports comes from "
        f"the operating system, so that the estimates differ a little from run to run. {_MISS}\n"
    )
    where = Path(files["report.html"]).parent
    lines = [
        f"Premiums  {files['premiums.csv']}",
        f"Report    {files['report.html']}  (open it in a browser)",
        "",
        "Try next:",
        f"  fairpremium privatize {where}/people.csv --column sex --groups F,M --epsilon 1 -o {where}/again.csv",
        f"  fairpremium fit {where}/portfolio.csv --outcome y --reports {where}/again.csv --key policy "
        f"-o {where}/again.json",
        f"  fairpremium price {where}/again.json {where}/portfolio.csv --key policy -o {where}/again-premiums.csv",
        f"  fairpremium audit {where}/prices.csv --premium premium --outcome y --reports {where}/reports.csv --key "
        f"policy -o {where}/audit.html",
        "  fairpremium plan --groups F,M --epsilon 1 --rows 5000",
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _surcharge(classes: list[dict[str, Any]], price: str) -> float:
    """Return what smokers pay more than others, on average over the age classes."""
    means = [c[price]["mean"] for c in classes]  # smokers and others alternate
    return float(np.mean(means[0::2]) - np.mean(means[1::2]))


def _table(classes: list[dict[str, Any]], groups: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("risk class", no_wrap=True)
    for group in groups:
        table.add_column(f"best\nest. {group}", justify="right")
    table.add_column("\nunaware", justify="right")
    table.add_column("discrim.-\nfree", justify="right", style="bold")
    table.add_column(f"{100 * _LEVEL:g} %\ninterval", justify="right")
    for c in classes:
        h = c["discrimination_free"]
        cells = [_cell(p) for p in (*c["best_estimate"], c["unaware"], h)]
        table.add_row(c["risk_class"], *cells, f"{h['low']:.0f}-{h['high']:.0f}")
    return table


def _cell(price: dict[str, Any]) -> str:
    return f"{price['mean']:.0f} ({price['truth']:.0f})"
