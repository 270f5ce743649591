"""``fairpremium fit``: a portfolio with reports in, a model file out."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fairpremium._labels import infer_labels
from fairpremium.cli._channels import (
    channel_text,
    decode_reports,
    describe_channel,
    known_channel,
    load_channel,
    require_single,
)
from fairpremium.cli._files import as_text, check_output
from fairpremium.cli._large import LargeData, is_large, large_data
from fairpremium.cli._noise import Noise, NoiseOptions, make_estimator
from fairpremium.cli._options import split_list, split_weights
from fairpremium.cli._output import JsonOption, print_facts, progress, shares_text, show
from fairpremium.cli._portfolio import Data, Roles, load_data
from fairpremium.families import get_family
from fairpremium.models import LinearModel
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.privacy import Channel

_COLUMNS, _NOISE, _MODEL = "Columns", "How the reports were drawn", "Model"


def fit(
    portfolio: Annotated[
        Path, typer.Argument(help="CSV or Parquet file, or a folder of Parquet files, one row per policy.")
    ],
    outcome: Annotated[str, typer.Option(help="Column with the losses.", rich_help_panel=_COLUMNS)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model file to write, .json.")],
    sensitive: Annotated[str, typer.Option(help="Column with the reports.", rich_help_panel=_COLUMNS)] = "report",
    weight: Annotated[
        str | None, typer.Option(help="Column with the exposure or volume.", rich_help_panel=_COLUMNS)
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="Columns to price with; all without a role if left out.", rich_help_panel=_COLUMNS),
    ] = None,
    reports: Annotated[
        Path | None, typer.Option(help="File with the reports, joined by --key.", rich_help_panel=_COLUMNS)
    ] = None,
    key: Annotated[str | None, typer.Option(help="Column that identifies a policy.", rich_help_panel=_COLUMNS)] = None,
    keep: Annotated[
        float | None, typer.Option(help="Probability that a report is the truth.", rich_help_panel=_NOISE)
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy parameter, instead of keep.", rich_help_panel=_NOISE)
    ] = None,
    channel: Annotated[
        Path | None, typer.Option(help="JSON file that describes the channel.", rich_help_panel=_NOISE)
    ] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="All groups, such as F,M; the distinct reports if left out.", rich_help_panel=_NOISE),
    ] = None,
    true_attribute: Annotated[
        bool,
        typer.Option("--true-attribute", help="The column holds the truth, not reports.", rich_help_panel=_NOISE),
    ] = False,
    noise: Annotated[Noise | None, typer.Option(help="Estimate an unknown channel.", rich_help_panel=_NOISE)] = None,
    margin: Annotated[
        str | None, typer.Option(help="Known shares, such as F=0.45,M=0.55.", rich_help_panel=_NOISE)
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="File of people with truth and report.", rich_help_panel=_NOISE)
    ] = None,
    true_column: Annotated[str, typer.Option(help="Truth in the validation file.", rich_help_panel=_NOISE)] = "true",
    report_column: Annotated[
        str, typer.Option(help="Report in the validation file.", rich_help_panel=_NOISE)
    ] = "report",
    retest: Annotated[
        Path | None, typer.Option(help="File of people with two fresh reports.", rich_help_panel=_NOISE)
    ] = None,
    first_column: Annotated[
        str, typer.Option(help="First report in the retest file.", rich_help_panel=_NOISE)
    ] = "first",
    second_column: Annotated[
        str, typer.Option(help="Second report in the retest file.", rich_help_panel=_NOISE)
    ] = "second",
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
    _check_one_source(keep, epsilon, channel, true_attribute, estimator)
    pricer = DiscriminationFreePricer(
        family=_family(family, power),
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
            pricer.channel, reported, source = _resolve(data, labels, (keep, epsilon), given, true_attribute, estimator)
        with progress("Fitting"):
            if isinstance(data, LargeData):
                data.fit(pricer)
            else:
                pricer.fit(data.X, data.y, sensitive=reported, sample_weight=data.weight)
    pricer.save(output)
    show(_summary(pricer, data, source, str(output)), as_json, _render)


def _check_one_source(
    keep: float | None, epsilon: float | None, channel: Path | None, true_attribute: bool, estimator: Any
) -> None:
    given = {
        "--keep": keep is not None,
        "--epsilon": epsilon is not None,
        "--channel": channel is not None,
        "--true-attribute": true_attribute,
        "--noise": estimator is not None,
    }
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise ValueError(f"Say in one way how the reports were drawn. Got {' and '.join(named)}.")


def _resolve(
    data: Data,
    groups: list[str] | None,
    rates: tuple[float | None, float | None],
    given: Any,
    true_attribute: bool,
    estimator: NoiseEstimator | None,
) -> tuple[Channel | NoiseEstimator | None, pd.Series, str]:
    """Return the channel or its estimator, the reports in the type of its labels, and who says so."""
    found = data.described
    texts = as_text(data.reports, data.reports_path)
    if true_attribute or estimator is not None:
        if found is not None:
            option = "--true-attribute" if true_attribute else "--noise"
            raise ValueError(
                f"{option} contradicts {found.source}, which says that the reports went through a known channel."
            )
        _check_groups(texts, groups)
        return estimator, texts, "the true attribute" if estimator is None else "an estimate"
    if found is None and given is None and rates == (None, None):
        raise ValueError(
            f"Nothing says how the reports of {data.reports_path} were drawn. Give one of --keep, --epsilon, "
            "--channel, --noise, or --true-attribute if they are the truth."
        )
    channel, source = known_channel(found, given, *rates, groups, texts)
    require_single(channel)
    return channel, decode_reports(data.reports, channel, data.reports_path), source


def _check_groups(texts: pd.Series, groups: list[str] | None) -> None:
    if groups is not None and not set(infer_labels(texts, "sensitive")) <= set(groups):
        raise ValueError(f"Some rows hold a group that is not among --groups {','.join(groups)}.")


def _family(name: str, power: float | None) -> Any:
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
        "intervals": pricer.intervals,
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
