"""``fairpremium insurer``: send a portfolio, ask for a fit, fetch what came out, and price without anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._files import check_output, read_table, require_columns
from fairpremium.cli._group import make_group
from fairpremium.cli._options import split_list, split_weights
from fairpremium.cli._output import JsonOption, print_facts, progress, progress_bar, show
from fairpremium.cli._service import (
    SERVICE,
    KeyFileOption,
    SecretOption,
    ServiceOption,
    StudyOption,
    TrustOption,
    check_ids,
    connect,
    make_message,
    read_trusted,
    require_service,
)

_COLUMNS, _MODEL = "Columns", "What to fit"
_REFERENCES = ("marginal", "uniform", "balanced")
_FitArgument = Annotated[str, typer.Argument(help="Id of the fit; you choose it.")]
_PortfolioOption = Annotated[str, typer.Option(help="Id of the portfolio; you choose it.")]


def upload(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file, one row per policy.")],
    study: StudyOption,
    portfolio: _PortfolioOption,
    policy: Annotated[
        str, typer.Option(help="Column with the policy number; it is not sent.", rich_help_panel=_COLUMNS)
    ],
    outcome: Annotated[str, typer.Option(help="Column with the losses.", rich_help_panel=_COLUMNS)],
    secret: SecretOption,
    weight: Annotated[
        str | None, typer.Option(help="Column with the exposure or volume.", rich_help_panel=_COLUMNS)
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="Columns to price with; all others if left out.", rich_help_panel=_COLUMNS)
    ] = None,
    x_star: Annotated[
        str | None, typer.Option(help="Columns to estimate unknown noise from alone.", rich_help_panel=_COLUMNS)
    ] = None,
    rows_per_part: Annotated[int, typer.Option(min=1, help="Rows that are sent at once.")] = 200_000,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send features and losses to the service, with keys in the place of policy numbers, and seal them.

    Run it again after an interruption: it sends what is missing. A sealed portfolio does not change any more.

    Example: fairpremium insurer upload portfolio.csv --study motor --portfolio p2026 --policy policy --outcome y
    --secret motor.secret --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import read_secret

    check_ids(study=study, portfolio=portfolio)
    shared = read_secret(secret)
    named = split_list(features, "--features")
    apart = split_list(x_star, "--x-star") or []
    with progress("Reading"):
        frame = read_table(table, text={policy})
        require_columns(frame, [policy, outcome, weight, *(named or []), *apart], table)
    with connect(Insurer, service, key) as insurer, progress_bar("Sending the portfolio") as tell:
        there = insurer.upload(
            frame, study=study, portfolio=portfolio, secret=shared, policy=policy, outcome=outcome, weight=weight,
            features=named, x_star=apart, rows_per_part=rows_per_part,
            tell=lambda done, total: tell(done / total, f"part {done} of {total}"),
        )  # fmt: skip
    result = {
        "portfolio": there.id,
        "study": there.spec.study,
        "state": there.state,
        "rows": there.rows,
        "parts": len(there.parts),
        "features": [feature.name for feature in there.spec.features],
        "sha256": there.sha256,
    }
    show(result, as_json, _render_portfolio)


def _render_portfolio(result: dict[str, Any]) -> None:
    print_facts(
        {
            "Portfolio": f"{result['portfolio']} ({result['state']}) of study {result['study']}",
            "Rows": f"{result['rows']:,} in {result['parts']} part(s)",
            "Features": ", ".join(result["features"]),
            "SHA-256": result["sha256"],
        }
    )


def fit(
    fit: _FitArgument,
    study: StudyOption,
    portfolio: _PortfolioOption,
    family: Annotated[str, typer.Option(help="Distribution of the outcome.", rich_help_panel=_MODEL)] = "normal",
    power: Annotated[float | None, typer.Option(help="Variance power of tweedie; 1.5.", rich_help_panel=_MODEL)] = None,
    model: Annotated[str, typer.Option(help="linear, boosted or neural.", rich_help_panel=_MODEL)] = "linear",
    correction: Annotated[
        str, typer.Option(help="auto, inverse, score, posterior or likelihood.", rich_help_panel=_MODEL)
    ] = "auto",
    pooling: Annotated[str, typer.Option(help="auto, or a strength; 0 is none.", rich_help_panel=_MODEL)] = "auto",
    reference: Annotated[
        str, typer.Option(help="marginal, uniform, balanced, or F=0.5,M=0.5.", rich_help_panel=_MODEL)
    ] = "marginal",
    release: Annotated[
        Literal["default", "gaussian", "randomized"],
        typer.Option(help="Where the noise of rule 9 is added.", rich_help_panel=_MODEL),
    ] = "default",
    level: Annotated[
        float, typer.Option(help="Confidence level of the premiums in the bundle.", rich_help_panel=_MODEL)
    ] = 0.95,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the service for a fit, and wait for it; exit code 1 if it is refused or fails.

    Ctrl-C ends the waiting, not the fit: run the same command again to go on waiting. A refusal names the rule of the
    study that forbids the result.

    Example: fairpremium insurer fit first --study motor --portfolio p2026 --family normal --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import FitSpec

    check_ids(fit=fit)
    weights = split_weights(reference, "--reference") if "=" in reference else None
    if weights is None and reference not in _REFERENCES:
        raise ValueError(f"--reference expects {', '.join(_REFERENCES)}, or weights. Got {reference!r}.")
    fields = {
        "study": study,
        "portfolio": portfolio,
        "family": family,
        "power": power,
        "model": model,
        "correction": correction,
        "pooling": _strength(pooling),
        "reference": weights or reference,
        "release": release,
        "level": level,
    }
    spec = make_message(FitSpec, fields)
    with connect(Insurer, service, key) as insurer:
        seen = insurer.fit(fit, spec)
        if wait and seen.ended is None:
            with progress_bar("Fitting") as tell:
                seen = insurer.watch(fit, lambda f: tell(f.progress, f.phase))
    _show_fit(seen, as_json)


def _strength(pooling: str) -> str | float:
    try:
        return "auto" if pooling == "auto" else float(pooling)
    except ValueError:
        raise ValueError(f"--pooling expects auto or a number. Got {pooling!r}.") from None


def show_fit(
    fit: Annotated[str | None, typer.Argument(help="Id of the fit; all of yours if left out.")] = None,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far a fit is, or how it ended; exit code 1 if it was refused or failed.

    Example: fairpremium insurer show first --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import Fit

    if fit is not None:
        check_ids(fit=fit)
    with connect(Insurer, service, key) as insurer:
        if fit is not None:
            _show_fit(insurer.get(f"/v1/fits/{fit}", Fit), as_json)
            return
        listed = insurer.send("GET", "/v1/fits").json()
    show({"fits": listed}, as_json, _render_fits)


def cancel(
    fit: _FitArgument, service: ServiceOption = SERVICE, key: KeyFileOption = None, as_json: JsonOption = False
) -> None:
    """Ask a fit to stop. One that has ended stays as it is.

    Example: fairpremium insurer cancel first --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer

    check_ids(fit=fit)
    with connect(Insurer, service, key) as insurer:
        seen = insurer.cancel(fit)
    show(json.loads(seen.model_dump_json()), as_json, _render_fit)


def _show_fit(seen: Any, as_json: bool) -> None:
    show(json.loads(seen.model_dump_json()), as_json, _render_fit)
    if seen.state in ("refused", "failed", "cancelled"):
        raise typer.Exit(1)


def _render_fits(result: dict[str, Any]) -> None:
    for fit in result["fits"]:
        print(f"{fit['id']}: {_state(fit)}")
    if not result["fits"]:
        print("None.")


def _render_fit(fit: dict[str, Any]) -> None:
    spec, refusal, problem = fit["spec"], fit["refusal"], fit["problem"]
    matched = fit["matched"]
    print_facts(
        {
            "Fit": f"{fit['id']}: {_state(fit)}",
            "Of": f"portfolio {spec['portfolio']} in study {spec['study']}: {spec['family']}, {spec['model']}",
            "Refused": None if refusal is None else f"rule {refusal['rule']}: {refusal['title']} ({refusal['limit']})",
            "Problem": None if problem is None else problem["title"],
            "Matched": None if matched is None else f"about {matched:,} rows have a report",
            "SHA-256": fit["sha256"],
        }
    )


def _state(fit: dict[str, Any]) -> str:
    if fit["ended"] is not None:
        return str(fit["state"])
    return f"{fit['state']}, {fit['phase']}, {100 * fit['progress']:.0f} %"


def fetch(
    fit: _FitArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to put the bundle: a .zip file.")],
    trust: TrustOption,
    report: Annotated[Path | None, typer.Option(help="Take the page with the report out of it: .html.")] = None,
    model: Annotated[Path | None, typer.Option(help="Take the model out of it, for price: .json.")] = None,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch the bundle of a finished fit, and check its signature, digests and self-test.

    Example: fairpremium insurer fetch first -o bundle.zip --trust service.key.pub --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer

    check_ids(fit=fit)
    check_output(output, suffixes=(".zip",))
    for path, suffix in ((report, ".html"), (model, ".json")):
        if path is not None:
            check_output(path, suffixes=(suffix,))
    trusted = read_trusted(trust)
    with progress("Fetching and checking"), connect(Insurer, service, key) as insurer:
        bundle = insurer.fetch(fit, output, trusted=trusted)
    if report is not None:
        report.write_text(bundle.report or "", encoding="utf-8")
    if model is not None:
        bundle.pricer.save(model)
    show({**_describe(bundle), "output": str(output)}, as_json, _render_bundle)


def price(
    bundle: Annotated[Path, typer.Argument(help="Bundle that fetch brought.")],
    new: Annotated[Path, typer.Argument(help="CSV or Parquet file with the features.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV or Parquet file to write.")],
    trust: TrustOption,
    level: Annotated[float | None, typer.Option(help="Confidence level of low and high; 0.95.")] = None,
    policy: Annotated[str | None, typer.Option(help="Column to put in front, such as policy.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Add the unaware price and one best estimate per group.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute premiums with the model of a bundle: offline, without service, key or report.

    The bundle is checked first. Columns and limits are those of fairpremium price.

    Example: fairpremium insurer price bundle.zip new.csv -o premiums.csv --trust service.key.pub
    """
    require_service()
    from fairpremium.cli._price import price_table, render_prices
    from fairpremium.parties.bundle import load_bundle

    if not bundle.is_file():
        raise ValueError(f"There is no file {bundle}.")
    check_output(output, inputs=[bundle, new])
    trusted = read_trusted(trust)
    with progress("Checking the bundle"):
        pricer = load_bundle(bundle, keys=trusted).pricer
    show(price_table(pricer, str(bundle), new, output, level, policy, every), as_json, render_prices)


def erase(
    portfolio: Annotated[str, typer.Argument(help="Id of the portfolio.")],
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the service to erase the rows of a portfolio. Digests and log stay.

    Example: fairpremium insurer erase p2026 --key insurer.key
    """
    require_service()
    from fairpremium.parties.clients import Insurer

    check_ids(portfolio=portfolio)
    with connect(Insurer, service, key) as insurer:
        insurer.erase(portfolio)
    show({"erased": portfolio}, as_json, lambda r: print_facts({"Erased": r["erased"]}))


def _describe(bundle: Any) -> dict[str, Any]:
    manifest = bundle.manifest
    return {
        "study": manifest["study"]["id"],
        "fit": manifest["fit"]["id"],
        "true_attribute": manifest["true_attribute"],
        "rows": manifest["portfolio"]["rows"],
        "matched": manifest["matched"],
        "disclosure": manifest["disclosure"],
        "log": manifest["log"],
    }


def _render_bundle(result: dict[str, Any]) -> None:
    point = result["log"]
    print_facts(
        {
            "Bundle": f"{result['output']}: fit {result['fit']} of study {result['study']}, checked",
            "Attribute": "the true attribute was used" if result["true_attribute"] else None,
            "Rows": f"{result['rows']:,}"
            + ("" if result["matched"] is None else f", about {result['matched']:,} with a report"),
            "Noise": result["disclosure"]["statement"],
            "Log": f"checkpoint {point['seq']}, signed by {point['key_id']}",
        }
    )


insurer = make_group(
    "The insurer's side: features and losses leave, premiums come back.",
    {
        "upload": upload,
        "fit": fit,
        "show": show_fit,
        "cancel": cancel,
        "fetch": fetch,
        "price": price,
        "erase": erase,
    },
)
