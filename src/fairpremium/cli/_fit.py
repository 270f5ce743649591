"""``fairpremium fit``: a portfolio with reports in, a model file out."""

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from sklearn.base import clone

from fairpremium.cli._channel_file import channel_text, describe_channel, noise_option
from fairpremium.cli._claims import ClaimOptions, FitRoles
from fairpremium.cli._command import Answer, command
from fairpremium.cli._large_portfolio import LargeData, is_large, large_data
from fairpremium.cli._model_options import PricerOptions, model_option
from fairpremium.cli._parsing import split_list
from fairpremium.cli._portfolio import Data, column_option, load_data
from fairpremium.cli._report_source import NoiseMethod, ReportSource
from fairpremium.cli._terminal import progress, shares_text
from fairpremium.cli.tables import TableFormat, check_output
from fairpremium.families import get_family
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, describe_pooling
from fairpremium.progress import listening

_PRICES = {"discrimination_free": "premium", "unaware": "unaware", "best_estimate": "best estimate"}
_JOINED = "{matched:,} of {rows:,} rows have a report; {unused_reports:,} reports have no row"


@command
def fit(
    portfolio: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file, or a folder of Parquet files, one row per policy.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, .json.")],
    roles: FitRoles,
    source: ReportSource,
    options: PricerOptions,
    files: TableFormat,
    claims: ClaimOptions,
    features: Annotated[
        str | None, column_option(help="Columns to price with; all without a role if left out.")
    ] = None,
    test: Annotated[
        float | None,
        model_option(help="Share of the rows, such as 0.2, to try the model on first; then it is fitted to all rows."),
    ] = None,
    noise: Annotated[NoiseMethod | None, noise_option(help="Estimate an unknown channel.")] = None,
    anchor_group: Annotated[
        str | None, noise_option(help="With --noise anchor: the group that some features give away with certainty.")
    ] = None,
    anchor_share: Annotated[
        float | None, noise_option(help="With --noise anchor: the share of the rows that have such features.")
    ] = None,
) -> Answer:
    """Learn discrimination-free prices from losses, features and noisy reports.

    Say how the reports were drawn with one of --keep, --epsilon, --channel, --noise or --true-attribute;
    reports that privatize wrote say it themselves. If they come from several sources, --channel-key names the column
    that says which, and --channel is repeated: --channel app=channel.json --channel consent=none. A warning says if
    the reports refute it. Folders and large Parquet files are read piece by piece, so that they may be larger than
    memory.

    For claims give their number and amount instead of an outcome: --claims n --amount paid --exposure years. The
    premium is then frequency times severity, per unit of exposure.

    With --test a first fit leaves out some rows and says how well its prices do on them: deviance, Gini index, observed
    over expected losses. The model file holds a second fit, to all rows.

    Example: fairpremium fit portfolio.csv --outcome y --sensitive report --keep 0.8 --family normal
    -o model.json
    """
    check_output(output, suffixes=(".json",), inputs=source.files(roles.channel_key))
    estimator = source.estimator(noise, options.random_state, anchor_group, anchor_share, files, roles.channel_key)
    pricer: DiscriminationFreePricer | FrequencySeverityPricer
    if roles.perils:
        pricer = claims.make_pricer(options)
    else:
        claims.refuse()
        pricer = options.make_pricer()
    chosen, tested = split_list(features, "--features") or options.columns(), None
    with ExitStack() as stack:
        with progress("Reading"):
            data = (
                stack.enter_context(large_data(portfolio, roles, chosen, output, files))
                if is_large(portfolio)
                else load_data(portfolio, roles, chosen, files)
            )
            pricer.channel, reported, said_by = source.resolve(data, estimator)
        if test is not None:
            with progress("Testing", bar=True) as show, listening(show):
                tested = _test(pricer, data, reported, test, options.random_state)
        with progress("Fitting", bar=True) as show, listening(show):
            if isinstance(data, LargeData):
                data.fit(pricer)
            elif isinstance(pricer, DiscriminationFreePricer):
                pricer.fit(data.X, data.y, sensitive=reported, channel_key=data.channel_key, **data.volume)
            else:
                assert data.claims is not None
                pricer.fit(
                    data.X, *data.claims, sensitive=reported, channel_key=data.channel_key, exposure=data.exposure
                )
    pricer.save(output)
    summary = _summary(pricer, data, options.terms, said_by, str(output)) | _parts(pricer) | {"test": tested}
    return Answer(summary, _facts(summary))


def _parts(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> dict[str, Any]:
    """Return what one fit found, or each part of several perils."""
    if isinstance(pricer, FrequencySeverityPricer):
        excess = pricer.excess_.reset_index().to_dict("records")
        return {"parts": pricer.summary().to_dict("records"), "excess": excess}
    chosen = pricer.candidates_[pricer.candidates_["chosen"]].iloc[0]
    return {
        "family": get_family(pricer.family).to_dict(),
        "model": chosen["model"],
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reason": chosen["reason"],
    }


def _test(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    data: Data,
    reported: Any,
    share: float,
    seed: int | None,
) -> dict[str, Any]:
    """Fit to some rows and measure the prices on the others."""
    if isinstance(data, LargeData):
        raise ValueError("--test needs a table that is read at once, but this one is read piece by piece.")
    from fairpremium.diagnostics import evaluate, hold_out

    held = hold_out(len(data.X), share, random_state=0 if seed is None else seed)

    def part(rows: Any) -> dict[str, Any]:
        columns = {"channel_key": data.channel_key, **data.volume}
        return {"sensitive": reported[rows], **{name: c[rows] for name, c in columns.items() if c is not None}}

    first, seen = clone(pricer), ~held
    losses = (data.y,) if data.claims is None else data.claims
    first.fit(data.X[seen], *(column[seen] for column in losses), **part(seen))
    table = evaluate(first, data.X[held], data.y[held], **part(held))
    return {"rows": int(held.sum()), "share": share, "prices": table.to_dict("records")}


def _test_facts(tested: dict[str, Any] | None) -> dict[str, Any]:
    if tested is None:
        return {}
    facts = {"Test": f"{tested['rows']:,} rows that the first fit did not see; the model is fitted to all rows"}
    for row in tested["prices"]:
        known = f", Gini {row['gini']:.3f} ({row['gini_low']:.3f} to {row['gini_high']:.3f})"
        gini = "" if math.isnan(row["gini"]) else known
        facts[f"  {_PRICES[row['price']]}"] = (
            f"deviance {row['deviance']:.5g} ({100 * row['deviance_explained']:.2f} % explained){gini}, observed over "
            f"expected {row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})"
        )
    return facts


def _summary(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    data: Data,
    terms: str | None,
    source: str,
    output: str,
) -> dict[str, Any]:
    names = [str(group) for group in pricer.groups_]
    return {
        "rows": pricer.n_rows_,
        "rows_sampled": getattr(pricer, "n_sampled_rows_", None),  # None: all were fitted
        "reports_missing": pricer.n_missing_reports_,
        "join": data.joined,
        "features": list(data.X.columns),
        "terms": terms,
        "groups": dict(zip(names, pricer.group_distribution_.tolist(), strict=True)),
        "channel": describe_channel(pricer.channel_),
        "channel_source": source,
        "noise": _noise(pricer.noise_),
        "reference": {
            "name": pricer.reference if isinstance(pricer.reference, str) else "given",
            "weights": dict(zip(names, pricer.reference_distribution_.tolist(), strict=True)),
        },
        "intervals": pricer.has_intervals_,
        "output": output,
    }


def _noise(noise: Any) -> dict[str, Any] | None:
    """Return what was learned about an unknown channel; of several sources by key."""
    if isinstance(noise, dict):
        return {str(key): _noise(each) for key, each in noise.items()} or None
    return noise and {"keep": noise.keep_, "interval": list(noise.interval_), "message": noise.message_}


def _noise_text(noise: dict[str, Any] | None) -> str | None:
    if noise is None:
        return None
    if "message" in noise:
        return str(noise["message"])
    return " ".join(f"{key}: {each['message']}" for key, each in noise.items())


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    join, channel, source = result["join"], result["channel"], result["channel_source"]
    missing, reference, sampled = result["reports_missing"], result["reference"], result["rows_sampled"]
    of = "" if sampled is None else f"{sampled:,} random rows of "
    return {
        "Fitted": f"{of}{result['rows']:,} rows, {_family(result)}",
        "Features": ", ".join(result["features"]),
        "Terms": result["terms"],
        "Joined": join and _JOINED.format(**join),
        "Reports": f"{result['rows'] - missing:,}, missing {missing:,}",
        "Groups": f"{shares_text(result['groups'])} (estimated shares)",
        "Channel": source if channel is None else f"{channel_text(channel)} (from {source})",
        "Noise": _noise_text(result["noise"]),
        **(_part_facts(result) if "parts" in result else _one_fit(result)),
        "Reference": f"{reference['name']}: {shares_text(reference['weights'])}",
        **_test_facts(result["test"]),
        "Written": result["output"],
    }


def _family(result: dict[str, Any]) -> str:
    return "frequency and severity" if "parts" in result else f"{result['family']['name']} family"


def _one_fit(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "Model": result["model"],
        "Correction": result["correction"] + _because(result["reason"]),
        "Pooling": describe_pooling(result["pooling"]),
    }


def _part_facts(result: dict[str, Any]) -> dict[str, Any]:
    """Say how each part was fitted, and how large claims were spread."""
    facts, several = {}, len(result["excess"]) > 1
    for part in result["parts"]:
        name = part["part"].capitalize() + (f" {part['peril']}" if several else "")
        kind = f"{part['family']}, {part['model']}, {part['correction']}"
        facts[name] = f"{part['rows']:,} rows, {kind}{_because(part['reason'])}"
    for row in result["excess"]:
        if row["cap"] == row["cap"]:  # not NaN: there is a cap
            facts["Large claims" + (f" {row['peril']}" if several else "")] = (
                f"{row['large_rows']:,} rows above {row['cap']:,.6g}; the excess of {row['excess']:,.6g} is spread in "
                f"proportion to the premium, a factor of {row['loading']:.4f}"
            )
    return facts


def _because(reason: str) -> str:
    return "" if reason == "asked for" else f": {reason}"
