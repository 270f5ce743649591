"""``fairpremium fit``: a portfolio with reports in, a model file out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._channel_file import channel_text, describe_channel
from fairpremium.cli._command import Answer, command
from fairpremium.cli._large_portfolio import LargeData, is_large, large_data
from fairpremium.cli._model_options import PricerOptions
from fairpremium.cli._parsing import split_list
from fairpremium.cli._portfolio import Data, Roles, column_option, load_data
from fairpremium.cli._report_source import NoiseMethod, ReportSource, noise_option
from fairpremium.cli._tables import check_output
from fairpremium.cli._terminal import progress, shares_text
from fairpremium.families import get_family
from fairpremium.pricing import DiscriminationFreePricer, describe_pooling

_JOINED = "{matched:,} of {rows:,} rows have a report; {unused_reports:,} reports have no row"


@command
def fit(
    portfolio: Annotated[
        Path, typer.Argument(help="CSV or Parquet file, or a folder of Parquet files, one row per policy.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, .json.")],
    roles: Roles,
    source: ReportSource,
    options: PricerOptions,
    features: Annotated[
        str | None, column_option(help="Columns to price with; all without a role if left out.")
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
    reports that privatize wrote say it themselves. A warning says if the reports refute it. Folders and large Parquet
    files are read piece by piece, so that they may be larger than memory.

    Example: fairpremium fit portfolio.csv --outcome y --sensitive report --keep 0.8 --family normal
    -o model.json
    """
    check_output(output, suffixes=(".json",), inputs=[source.channel])
    estimator = source.estimator(noise, options.random_state, anchor_group, anchor_share)
    pricer = options.make_pricer()
    chosen = split_list(features, "--features") or options.columns()
    with ExitStack() as stack:
        with progress("Reading"):
            data = (
                stack.enter_context(large_data(portfolio, roles, chosen, output))
                if is_large(portfolio)
                else load_data(portfolio, roles, chosen)
            )
            pricer.channel, reported, said_by = source.resolve(data, estimator)
        with progress("Fitting"):
            if isinstance(data, LargeData):
                data.fit(pricer)
            else:
                pricer.fit(data.X, data.y, sensitive=reported, sample_weight=data.weight)
    pricer.save(output)
    summary = _summary(pricer, data, said_by, str(output))
    return Answer(summary, _facts(summary))


def _summary(pricer: DiscriminationFreePricer, data: Data, source: str, output: str) -> dict[str, Any]:
    names = [str(group) for group in pricer.groups_]
    noise, chosen = pricer.noise_, pricer.candidates_[pricer.candidates_["chosen"]].iloc[0]
    return {
        "rows": pricer.n_rows_,
        "reports_missing": pricer.n_missing_reports_,
        "join": data.joined,
        "features": list(data.X.columns),
        "terms": getattr(pricer.model_, "terms", None),
        "family": get_family(pricer.family).to_dict(),
        "groups": dict(zip(names, pricer.group_distribution_.tolist(), strict=True)),
        "channel": describe_channel(pricer.channel_),
        "channel_source": source,
        "noise": noise and {"keep": noise.keep_, "interval": list(noise.interval_), "message": noise.message_},
        "model": chosen["model"],
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reason": chosen["reason"],
        "reference": {
            "name": pricer.reference if isinstance(pricer.reference, str) else "given",
            "weights": dict(zip(names, pricer.reference_distribution_.tolist(), strict=True)),
        },
        "intervals": pricer.has_intervals_,
        "output": output,
    }


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    join, channel, source = result["join"], result["channel"], result["channel_source"]
    missing, reference = result["reports_missing"], result["reference"]
    reason = "" if result["reason"] == "asked for" else f": {result['reason']}"
    return {
        "Fitted": f"{result['rows']:,} rows, {result['family']['name']} family",
        "Features": ", ".join(result["features"]),
        "Terms": result["terms"],
        "Joined": join and _JOINED.format(**join),
        "Reports": f"{result['rows'] - missing:,}, missing {missing:,}",
        "Groups": f"{shares_text(result['groups'])} (estimated shares)",
        "Channel": source if channel is None else f"{channel_text(channel)} (from {source})",
        "Noise": result["noise"] and result["noise"]["message"],
        "Model": result["model"],
        "Correction": result["correction"] + reason,
        "Pooling": describe_pooling(result["pooling"]),
        "Reference": f"{reference['name']}: {shares_text(reference['weights'])}",
        "Written": result["output"],
    }
