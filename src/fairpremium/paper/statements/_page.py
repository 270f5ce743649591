"""The page of statements: verdicts first, then every number behind them."""

import math
from collections.abc import Sequence
from typing import Any

from fairpremium.paper._setup import CHOICES, RunSize
from fairpremium.paper.statements._statement import RULE

_SECTIONS = {
    "synthetic": "Section 5: the synthetic portfolio",
    "health": "Section 6: health data",
    "auto": "Appendix: auto data",
    "theory": "Lemma and theorems in simulation",
    "errata": "Errata: what is printed, computed",
}


def statements_page(statements: Sequence[dict[str, Any]], size: RunSize) -> str:
    """Write the judged statements as Markdown."""
    lines = [
        "# Statements of the paper, measured",
        "",
        "Every empirical statement of Zhang, Liu and Shi, *Discrimination-Free Insurance Pricing with Privatized "
        "Sensitive Attributes*, its exact criterion, and what came out. Written by `fairpremium reproduce`.",
        "",
        f"**The rule.** {RULE} Verdicts are computed, none is written by hand. {size.seeds} seeds; a seed of a "
        "real portfolio is another split and other reports, so that the intervals speak about these data, not others. "
        'Rows from "ours" are not statements of the paper: they compare its estimator with `correction="auto"` and '
        "with the naive fit.",
        "",
    ]
    if size.name != "full":
        lines += [
            f"**A {size.name} run**: small samples, short training and {size.seeds} seeds. It shows that "
            "everything runs; its verdicts are no evidence.",
            "",
        ]
    lines += ["## Verdicts", ""]
    for section, title in _SECTIONS.items():
        found = [statement for statement in statements if statement["id"].split("/")[0] == section]
        if not found:
            lines += [f"### {title}", "", "Not measured in this run.", ""]
            continue
        lines += [f"### {title}", "", "| name | from | statement | verdict | cases |"]
        lines += ["| --- | --- | --- | --- | --- |", *map(_summary, found), ""]
    lines += ["## Numbers", "", "Mean over the seeds, standard error, 95 % interval of the mean, seeds in favour.", ""]
    for statement in statements:
        lines += _details(statement)
    lines += ["## Choices", "", "Where the paper is silent we chose:", ""]
    lines += [f"- **{what}**: {how}." for what, how in CHOICES.items()]
    return "\n".join(lines) + "\n"


def _summary(statement: dict[str, Any]) -> str:
    name = statement["id"].split("/")[1]
    cells = [name, statement["source"], statement["statement"], f"**{statement['verdict']}**", _tally(statement)]
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |"


def _tally(statement: dict[str, Any]) -> str:
    if not statement["cases"]:
        return str(statement["measured"])
    verdicts = [case["verdict"] for case in statement["cases"]]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in ("yes", "open", "no") if v in verdicts)


def _details(statement: dict[str, Any]) -> list[str]:
    text, criterion = _escape(statement["statement"]), _escape(statement["criterion"])
    lines = [f"### {statement['id']}", "", f"{text} **{statement['verdict'].capitalize()}.**", ""]
    if not statement["cases"]:
        measured, right = _escape(statement["measured"]), _escape(statement["right"])
        return [*lines, f"Criterion: {criterion}. Measured: {measured}. Right: {right}.", ""]
    lines += [f"Criterion: {criterion}.", ""]
    lines += ["| case | mean | s.e. | interval | in favour | verdict |", "| --- | ---: | ---: | --- | ---: | --- |"]
    for case in statement["cases"]:
        refused = f" ({case['without_number']} without a number)" if case["without_number"] else ""
        cells = [
            _escape(case["case"] or "all"),
            number(case["mean"]),
            number(case["standard_error"]),
            f"{number(case['low'])} to {number(case['high'])}",
            f"{case['seeds_in_favour']} of {case['seeds']}{refused}",
            case["verdict"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


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
