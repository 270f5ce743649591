"""``fairpremium plan``: what privacy will cost, before anybody is asked."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium import pricing
from fairpremium.cli._channel_file import load_channel
from fairpremium.cli._command import Answer, command
from fairpremium.cli._parsing import Mechanism, split_list, split_numbers, to_number
from fairpremium.cli._terminal import new_table, print_table, stdout_console

_EXPLAINED = {
    "share": "share of the group",
    "posterior": "the most that one report says: P(group given report)",
    "c1": "largest weight of a row",
    "inflation": "variance of the group's mean, over its variance with known groups",
    "inflation_inverse": "the same for the correction inverse, which gives all rows the same weight",
    "chosen": "share of the people who choose this epsilon",
    "worth": "rows with known group that one row is worth",
    "part": "part of all that is known about the group's mean",
    "effective_rows": "rows with known group that would be as good",
    "standard_error": "of the group's mean, in the unit of --outcome-sd",
    "share_error": "standard error of the estimated share",
    "rows_needed": "rows for the wanted standard error",
    "rows_needed_known": "the same with known groups",
}


@command
def plan(
    groups: Annotated[str | None, typer.Option(help="Number of groups, or their names, such as 4 or F,M.")] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="Privacy parameter of a report. If people choose: 1,2,4, or with the share of the people who choose "
            "each, 1=0.5,2=0.3,4=0.2."
        ),
    ] = None,
    keep: Annotated[float | None, typer.Option(help="Probability of the truth, instead of epsilon.")] = None,
    channel: Annotated[
        Path | None, typer.Option(help="JSON file that describes a channel, instead of the three above.")
    ] = None,
    mechanism: Annotated[
        Mechanism, typer.Option(help="How a report with this epsilon is drawn.")
    ] = Mechanism.randomized_response,
    shares: Annotated[
        str | None, typer.Option(help="Shares of the groups, such as 0.7,0.2,0.1; equal if left out.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Rows with a report: what do they achieve?")] = None,
    standard_error: Annotated[
        float | None, typer.Option(help="Wanted standard error of a group's mean: how many rows?")
    ] = None,
    outcome_sd: Annotated[
        str, typer.Option(help="Standard deviation of the outcome, for all groups or one each.")
    ] = "1",
    outcome_means: Annotated[str | None, typer.Option(help="Mean outcome of each group.")] = None,
) -> Answer:
    """Compute what a channel costs in rows and precision, before anybody is asked.

    With an epsilon the plan says which mechanism needs fewer rows. With several, from which people choose, it says what
    each choice is worth.

    Example: fairpremium plan --groups 4 --epsilon 1 --rows 100000
    """
    spread = split_numbers(outcome_sd, "--outcome-sd")
    result = pricing.plan(
        _groups(groups),
        epsilon=_epsilons(epsilon),
        keep=keep,
        mechanism=mechanism.value,
        channel=None if channel is None else load_channel(channel).channel,
        shares=split_numbers(shares, "--shares"),
        rows=rows,
        standard_error=standard_error,
        outcome_sd=spread[0] if isinstance(spread, list) and len(spread) == 1 else spread or 1.0,
        outcome_means=split_numbers(outcome_means, "--outcome-means"),
    )
    return Answer(result.to_dict(), _render)


def _groups(text: str | None) -> int | list[str] | None:
    names = split_list(text, "--groups")
    return int(names[0]) if names and len(names) == 1 and names[0].isdecimal() else names


def _epsilons(text: str | None) -> float | list[float] | dict[float, float] | None:
    numbers = split_numbers(text, "--epsilon")
    if isinstance(numbers, dict):
        return {to_number(name, "--epsilon"): share for name, share in numbers.items()}
    return numbers[0] if numbers is not None and len(numbers) == 1 else numbers


def _render(result: dict[str, Any]) -> None:
    console = stdout_console()
    asked = "" if result["rows"] is None else f", {result['rows']:,} rows"
    console.print(f"keep {_number(result['keep'])}, epsilon {_number(result['epsilon'])}{asked}")
    _print_records(result["groups"])
    if result["choices"] is not None:
        console.print("What each choice is worth, and what it would do if everybody made it")
        _print_records(result["choices"])
    for name in dict.fromkeys([*result["groups"][0], *(result["choices"] or [{}])[0]]):
        if name in _EXPLAINED:
            console.print(f"{name}: {_EXPLAINED[name]}", soft_wrap=True, markup=False)
    if result["mechanisms"] is not None:
        console.print(_advice(result["mechanisms"]), soft_wrap=True, markup=False)


def _print_records(records: list[dict[str, Any]]) -> None:
    columns = list(records[0])
    table = new_table()
    for name in columns:
        table.add_column(name.replace("_", "\n"), justify="left" if name == "group" else "right", no_wrap=True)
    for row in records:
        table.add_row(*(_number(row[name]) for name in columns))
    print_table(table)


def _advice(mechanisms: list[dict[str, Any]]) -> str:
    """Say which mechanism needs fewer rows."""
    chosen = next(row for row in mechanisms if row["recommended"])
    if chosen["mechanism"] == Mechanism.randomized_response:
        return "Recommended: randomized response; subset selection would not need fewer rows."
    return (
        f"Recommended: subset selection with {chosen['size']} groups in a report; its inflation is "
        f"{chosen['inflation']:.4g}, that of randomized response {mechanisms[0]['inflation']:.4g}."
    )


def _number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str) or (isinstance(value, int) and abs(value) < 10):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 or isinstance(value, int) else f"{value:.4g}"
