"""``fairpremium fit``: a portfolio with reports in, a model file out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._arguments import (
    COLUMNS,
    NOISE,
    ChannelOption,
    EpsilonOption,
    FirstColumnOption,
    GroupsOption,
    KeepOption,
    KeyOption,
    MarginOption,
    OutcomeOption,
    ReportColumnOption,
    ReportsOption,
    RetestOption,
    SecondColumnOption,
    SensitiveOption,
    TrueAttributeOption,
    TrueColumnOption,
    ValidationOption,
    WeightOption,
)
from fairpremium.cli._channels import channel_text, describe_channel, load_channel
from fairpremium.cli._files import check_output
from fairpremium.cli._large import LargeData, is_large, large_data
from fairpremium.cli._noise import Noise, NoiseOptions, make_estimator
from fairpremium.cli._options import split_list, split_weights
from fairpremium.cli._output import JsonOption, print_facts, progress, shares_text, show
from fairpremium.cli._portfolio import Data, Roles, load_data
from fairpremium.cli._source import check_one_source, resolve_channel
from fairpremium.families import get_family
from fairpremium.models import LinearModel
from fairpremium.pricing import DiscriminationFreePricer

_MODEL = "Model"


def fit(
    portfolio: Annotated[
        Path, typer.Argument(help="CSV or Parquet file, or a folder of Parquet files, one row per policy.")
    ],
    outcome: OutcomeOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, .json.")],
    sensitive: SensitiveOption = "report",
    weight: WeightOption = None,
    features: Annotated[
        str | None,
        typer.Option(help="Columns to price with; all without a role if left out.", rich_help_panel=COLUMNS),
    ] = None,
    reports: ReportsOption = None,
    key: KeyOption = None,
    keep: KeepOption = None,
    epsilon: EpsilonOption = None,
    channel: ChannelOption = None,
    groups: GroupsOption = None,
    true_attribute: TrueAttributeOption = False,
    noise: Annotated[Noise | None, typer.Option(help="Estimate an unknown channel.", rich_help_panel=NOISE)] = None,
    margin: MarginOption = None,
    validation: ValidationOption = None,
    true_column: TrueColumnOption = "true",
    report_column: ReportColumnOption = "report",
    retest: RetestOption = None,
    first_column: FirstColumnOption = "first",
    second_column: SecondColumnOption = "second",
    family: Annotated[
        str,
        typer.Option(help="normal, poisson, gamma, tweedie or bernoulli.", rich_help_panel=_MODEL),
    ] = "normal",
    power: Annotated[float | None, typer.Option(help="Variance power of tweedie; 1.5.", rich_help_panel=_MODEL)] = None,
    model: Annotated[
        str,
        typer.Option(
            help="linear, boosted or neural; several, such as linear,boosted, to choose.", rich_help_panel=_MODEL
        ),
    ] = "linear",
    correction: Annotated[
        str,
        typer.Option(
            help="How the noise is undone: auto, inverse, score, posterior or likelihood.", rich_help_panel=_MODEL
        ),
    ] = "auto",
    pooling: Annotated[
        str, typer.Option(help="auto, or a strength in rows; 0 for none.", rich_help_panel=_MODEL)
    ] = "auto",
    ridge: Annotated[float, typer.Option(help="Ridge penalty of a linear model.", rich_help_panel=_MODEL)] = 0.0,
    reference: Annotated[
        str,
        typer.Option(
            help="Weights of the groups: marginal, uniform, balanced, or F=0.5,M=0.5.", rich_help_panel=_MODEL
        ),
    ] = "marginal",
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="Confidence limits.", rich_help_panel=_MODEL)
    ] = True,
    unseen_levels: Annotated[
        str,
        typer.Option(
            help="Price a text level that fit did not see: error, or base for the base level.",
            rich_help_panel=_MODEL,
        ),
    ] = "error",
    random_state: Annotated[
        int | None, typer.Option(help="Seed of the cross-validation.", rich_help_panel=_MODEL)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Learn discrimination-free prices from losses, features and noisy reports.

    Say how the reports were drawn with one of --keep, --epsilon, --channel, --noise or --true-attribute;
    reports that privatize wrote say it themselves. Folders and large Parquet files are read piece by piece, so that
    they may be larger than memory.

    Example: fairpremium fit portfolio.csv --outcome y --sensitive report --keep 0.8 --family normal
    -o model.json
    """
    check_output(output, suffixes=(".json",), inputs=[channel])
    labels = split_list(groups, "--groups")
    options = NoiseOptions(
        noise, split_weights(margin, "--margin"), validation, true_column, report_column, retest, first_column,
        second_column,
    )  # fmt: skip
    estimator = make_estimator(options, labels, random_state)
    check_one_source(keep, epsilon, channel, true_attribute, options.names())
    pricer = DiscriminationFreePricer(
        family=make_family(family, power),
        model=_models(model, ridge),
        correction=correction,
        pooling=_pooling(pooling),
        reference=split_weights(reference, "--reference") if "=" in reference else reference,
        intervals=intervals,
        unseen_levels=unseen_levels,  # type: ignore[arg-type]
        random_state=random_state,
    )
    roles, chosen = Roles(outcome, sensitive, weight, key), split_list(features, "--features")
    with ExitStack() as stack:
        with progress("Reading"):
            data = (
                stack.enter_context(large_data(portfolio, roles, chosen, reports, output))
                if is_large(portfolio)
                else load_data(portfolio, roles, chosen, reports)
            )
            given = None if channel is None else load_channel(channel)
            pricer.channel, reported, source = resolve_channel(
                data, labels, (keep, epsilon), given, true_attribute, estimator, options.names()
            )
        with progress("Fitting"):
            if isinstance(data, LargeData):
                data.fit(pricer)
            else:
                pricer.fit(data.X, data.y, sensitive=reported, sample_weight=data.weight)
    pricer.save(output)
    show(_summary(pricer, data, source, str(output)), as_json, _render)


def make_family(name: str, power: float | None) -> Any:
    """Return the family that --family and --power name."""
    if power is None:
        return get_family(name)
    if name != "tweedie":
        raise ValueError(f"--power belongs to --family tweedie. Got --family {name}.")
    return get_family({"name": name, "power": power})


def _models(text: str, ridge: float) -> Any:
    names = split_list(text, "--model") or []
    if ridge and "linear" not in names:
        raise ValueError(f"--ridge belongs to --model linear. Got --model {text}.")
    models = [LinearModel(ridge=ridge) if name == "linear" else name for name in names]
    return models[0] if len(models) == 1 else models


def _pooling(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--pooling expects auto or a number. Got {text!r}.") from None


def _summary(pricer: DiscriminationFreePricer, data: Data, source: str, output: str) -> dict[str, Any]:
    names = [str(group) for group in pricer.groups_]
    noise = pricer.noise_
    return {
        "rows": pricer.n_rows_,
        "reports_missing": pricer.n_missing_reports_,
        "join": data.joined,
        "features": list(data.X.columns),
        "family": get_family(pricer.family).to_dict(),
        "groups": dict(zip(names, pricer.group_distribution_.tolist(), strict=True)),
        "channel": describe_channel(pricer.channel_),
        "channel_source": source,
        "noise": None
        if noise is None
        else {"keep": noise.keep_, "interval": list(noise.interval_), "message": noise.message_},
        "model": pricer.candidates_.loc[pricer.candidates_["chosen"], "model"].iloc[0],
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reason": pricer.candidates_.loc[pricer.candidates_["chosen"], "reason"].iloc[0],
        "reference": {
            "name": pricer.reference if isinstance(pricer.reference, str) else "given",
            "weights": dict(zip(names, pricer.reference_distribution_.tolist(), strict=True)),
        },
        "intervals": pricer.has_intervals_,
        "output": output,
    }


def _render(result: dict[str, Any]) -> None:
    join, channel = result["join"], result["channel"]
    missing, reference = result["reports_missing"], result["reference"]
    print_facts(
        {
            "Fitted": f"{result['rows']:,} rows, {result['family']['name']} family",
            "Features": ", ".join(result["features"]),
            "Joined": join
            and f"{join['matched']:,} of {join['rows']:,} rows have a report; {join['unused_reports']:,} reports "
            "have no row",
            "Reports": f"{result['rows'] - missing:,}, missing {missing:,}",
            "Groups": f"{shares_text(result['groups'])} (estimated shares)",
            "Channel": result["channel_source"]
            if channel is None
            else f"{channel_text(channel)} (from {result['channel_source']})",
            "Noise": result["noise"] and result["noise"]["message"],
            "Model": result["model"],
            "Correction": f"{result['correction']}, pooling {result['pooling']:.4g}"
            + ("" if result["reason"] == "given" else f" ({result['reason']})"),
            "Reference": f"{reference['name']}: {shares_text(reference['weights'])}",
            "Written": result["output"],
        }
    )
