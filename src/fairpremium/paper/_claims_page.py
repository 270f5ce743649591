"""The page of claims: verdicts first, then every number behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fairpremium.paper._settings import CHOICES, Settings
from fairpremium.paper._verdict import RULE

_PARTS = {
    "synthetic": "Section 5: the synthetic portfolio",
    "health": "Section 6: health data",
    "auto": "Appendix: auto data",
    "theory": "Lemma and theorems in simulation",
    "errata": "Errata: what is printed, computed",
}


def claims_page(claims: Sequence[dict[str, Any]], settings: Settings) -> str:
    """Write the claims as Markdown."""
    lines = [
        "# Claims of the paper, measured",
        "",
        "Every empirical statement of Zhang, Liu and Shi, *Discrimination-Free Insurance Pricing with Privatized "
        "Sensitive Attributes*, its exact criterion, and what came out. Written by `fairpremium reproduce`.",
        "",
        f"**The rule.** {RULE} Verdicts are computed, none is written by hand. {settings.seeds} seeds; a seed of a "
        "real portfolio is another split and other reports, so that the intervals speak about these data, not others. "
        'Rows from "ours" are not statements of the paper: they compare its estimator with `correction="auto"` and '
        "with the naive fit.",
        "",
    ]
    if settings.name != "full":
        lines += [
            f"**A {settings.name} run**: small samples, short training and {settings.seeds} seeds. It shows that "
            "everything runs; its verdicts are no evidence.",
            "",
        ]
    lines += ["## Verdicts", ""]
    for part, title in _PARTS.items():
        found = [claim for claim in claims if claim["id"].split("/")[0] == part]
        if not found:
            lines += [f"### {title}", "", "Not measured in this run.", ""]
            continue
        lines += [
            f"### {title}",
            "",
            "| claim | from | statement | verdict | cases |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_summary(claim) for claim in found]
        lines.append("")
    lines += ["## Numbers", "", "Mean over the seeds, standard error, 95 % interval of the mean, seeds in favour.", ""]
    for claim in claims:
        lines += _details(claim)
    lines += ["## Choices", "", "Where the paper is silent we chose:", ""]
    lines += [f"- **{what}**: {how}." for what, how in CHOICES.items()]
    return "\n".join(lines) + "\n"


def _summary(claim: dict[str, Any]) -> str:
    name = claim["id"].split("/")[1]
    cells = [name, claim["source"], claim["statement"], f"**{claim['verdict']}**", _tally(claim)]
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _tally(claim: dict[str, Any]) -> str:
    if not claim["cases"]:
        return str(claim["measured"])
    verdicts = [case["verdict"] for case in claim["cases"]]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in ("yes", "open", "no") if v in verdicts)


def _details(claim: dict[str, Any]) -> list[str]:
    lines = [f"### {claim['id']}", "", f"{_escape(claim['statement'])} **{claim['verdict'].capitalize()}.**", ""]
    if not claim["cases"]:
        return [
            *lines,
            f"Criterion: {_escape(claim['criterion'])}. Measured: {_escape(claim['measured'])}. "
            f"Right: {_escape(claim['right'])}.",
            "",
        ]
    lines += [f"Criterion: {_escape(claim['criterion'])}.", ""]
    lines += ["| case | mean | s.e. | interval | in favour | verdict |", "| --- | ---: | ---: | --- | ---: | --- |"]
    for case in claim["cases"]:
        cells = [
            _escape(case["case"] or "all"),
            number(case["mean"]),
            number(case["standard_error"]),
            f"{number(case['low'])} to {number(case['high'])}",
            f"{case['seeds_in_favour']} of {case['seeds']}" + _refused(case),
            case["verdict"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _refused(case: dict[str, Any]) -> str:
    return f" ({case['without_number']} without a number)" if case["without_number"] else ""


def number(value: float | None) -> str:
    """Write a number with three significant digits.

    Examples
    --------
    >>> number(1234.5), number(0.01234), number(-0.5), number(float("nan"))
    ('1,234', '0.0123', '-0.500', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    if abs(value) < 1e-9:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("*(", "\\*(").replace("~", "\\~")
