"""``fairpremium insurer``: send a portfolio, ask for a fit, fetch what came out, and price without anybody."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fairpremium.cli._claims import (
    AmountOption,
    ClaimOptions,
    ClaimsOption,
    LossesOption,
    check_losses,
    claim_columns,
    claim_option,
)
from fairpremium.cli._command import Answer, make_group
from fairpremium.cli._model_options import ModelOptions, TermsOption, model_option
from fairpremium.cli._parsing import split_list
from fairpremium.cli._portfolio import ExposureOption, WeightOption, check_volumes, column_option
from fairpremium.cli._price import PriceOptions, price_rows
from fairpremium.cli._report_options import ReportOptions, report_option
from fairpremium.cli._terminal import progress
from fairpremium.cli.parties._service import (
    Connection,
    SecretOption,
    StudyOption,
    TrustedKeys,
    check_ids,
    make_message,
    message_fields,
    party_command,
)
from fairpremium.cli.tables import TableFormat, check_output, read_table, require_file

if TYPE_CHECKING:
    from fairpremium.parties.protocol import Fit

_FEW_MATCHES = (
    "If more rows should have a report: compare the fingerprints of both linkage secrets (fairpremium keys show FILE), "
    "how policy numbers are written (leading zeros, blanks, letters), and the study."
)
_REFERENCES = ("marginal", "uniform", "balanced")
_FitArgument = Annotated[str, typer.Argument(help="Id of the fit; you choose it.")]
_PortfolioOption = Annotated[str, typer.Option(help="Id of the portfolio; you choose it.")]


@party_command
def upload(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy.")],
    study: StudyOption,
    portfolio: _PortfolioOption,
    policy: Annotated[str, column_option(help="Column with the policy number; it is not sent.")],
    secret: SecretOption,
    connection: Connection,
    files: TableFormat,
    outcome: LossesOption = "",
    claims: ClaimsOption = None,
    amount: AmountOption = None,
    weight: WeightOption = None,
    exposure: ExposureOption = None,
    features: Annotated[str | None, column_option(help="Columns to price with; all others if left out.")] = None,
    x_star: Annotated[str | None, column_option(help="Columns to estimate unknown noise from alone.")] = None,
    rows_per_part: Annotated[int, typer.Option(min=1, help="Rows that are sent at once.")] = 200_000,
) -> Answer:
    """Send features and losses to the service, with keys in the place of policy numbers, and seal them.

    Run it again after an interruption: it sends what is missing. If the service refuses a part of the file, correct the
    file and run the same command again: what was not sealed is replaced. A sealed portfolio does not change any more.

    For claims give their number and amount instead of an outcome: --claims n --amount paid --exposure years. Then ask
    for a fit with --claims.

    Example: fairpremium insurer upload portfolio.csv --study motor --portfolio p2026 --policy policy --outcome y
    --secret motor.secret --key insurer.key
    """
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import read_secret

    check_ids(study=study, portfolio=portfolio)
    check_losses(outcome, claims, amount, weight)
    check_volumes(weight, exposure)
    perils = claim_columns(claims, amount)
    counts, amounts = ({name: pair[i] for name, pair in perils.items()} or None for i in (0, 1))
    shared = read_secret(secret)
    named = split_list(features, "--features")
    apart = split_list(x_star, "--x-star") or []
    with progress("Reading"):
        own = [name for pair in perils.values() for name in pair] or [outcome]
        columns = [policy, *own, weight, exposure, *(named or []), *apart]
        frame = read_table(table, files, require=columns, text={policy})
    with connection.open(Insurer) as insurer, progress("Sending the portfolio", bar=True) as tell:
        there = insurer.upload(
            frame, study=study, portfolio=portfolio, secret=shared, policy=policy, outcome=outcome or None,
            claims=counts, amount=amounts, weight=weight, exposure=exposure, features=named, x_star=apart,
            rows_per_part=rows_per_part,
            tell=lambda done, total: tell(done / total, f"part {done} of {total}"),
        )  # fmt: skip
    sent = [feature.name for feature in there.spec.features]
    result = {
        "portfolio": there.id,
        "study": there.spec.study,
        "state": there.state,
        "rows": there.rows,
        "parts": len(there.parts),
        "features": sent,
        "sha256": there.sha256,
        "linkage_secret": shared.fingerprint,
    }
    facts = {
        "Portfolio": f"{there.id} ({there.state}) of study {there.spec.study}",
        "Rows": f"{there.rows:,} in {len(there.parts)} part(s)",
        "Features": ", ".join(sent),
        "SHA-256": there.sha256,
        "Linkage secret": f"{shared.fingerprint}  (the collector's must be the same)",
    }
    return Answer(result, facts)


@party_command
def fit(
    fit: _FitArgument,
    study: StudyOption,
    portfolio: _PortfolioOption,
    options: ModelOptions,
    claim_options: ClaimOptions,
    connection: Connection,
    about: ReportOptions,
    claims: Annotated[
        bool, claim_option("--claims", help="Fit frequency and severity to the portfolio's claims.")
    ] = False,
    terms: TermsOption = None,
    by: Annotated[str | None, report_option(help="Feature by whose levels the report is divided.")] = None,
    release: Annotated[
        Literal["default", "gaussian", "randomized"], model_option(help="Where the noise of rule 9 is added.")
    ] = "default",
    level: Annotated[float, model_option(help="Confidence level of the premiums in the bundle.")] = 0.95,
    attributes: Annotated[
        str | None, model_option(help="In a study of several: what prices are to be free of, such as sex,age; all.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it has ended.")] = True,
) -> Answer:
    """Ask the service for a fit, and wait for it; exit code 1 if it is refused or fails.

    Ctrl-C ends the waiting, not the fit: run the same command again to go on waiting. A refusal names the rule of the
    study that forbids the result, and for rules 2 and 4 the column by which a row stands out. A portfolio that matches
    (almost) no reports ends with a problem that says so, before more than the second randomization of the epoch is
    charged.

    The report of the bundle says what --insurer, --tariff-version, --period and --unit tell it, and has tables for each
    level of the feature --by, or bands of its numbers.

    If the portfolio was uploaded with claims, --claims asks for frequency times severity; --frequency, --severity and
    --cap say how, as for fairpremium fit.

    Example: fairpremium insurer fit first --study motor --portfolio p2026 --family normal --key insurer.key
    """
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import FitSpec

    check_ids(fit=fit)
    reference = options.weights()
    if isinstance(reference, str) and reference not in _REFERENCES:
        raise ValueError(f"Got --reference {reference}, but expected {', '.join(_REFERENCES)}, or weights.")
    report = {**asdict(about), "by": by}
    fields = {
        **asdict(options),
        "study": study,
        "portfolio": portfolio,
        "pooling": options.strength(),
        "reference": reference,
        "release": release,
        "level": level,
        "terms": terms,
        "attributes": split_list(attributes, "--attributes"),
        "report": report if any(report.values()) else None,
    }
    if claims:
        fields["claims"] = claim_options.fields(options)
    else:
        claim_options.refuse("--claims, but expected both")
    spec = make_message(FitSpec, fields)
    with connection.open(Insurer) as insurer:
        seen = insurer.fit(fit, spec)
        if wait and seen.ended is None:
            with progress("Fitting", bar=True) as tell:
                seen = insurer.watch(fit, lambda f: tell(f.progress, f.phase))
    return _answer(seen)


@party_command
def show_fit(
    connection: Connection,
    fit: Annotated[str | None, typer.Argument(help="Id of the fit; all of yours if left out.")] = None,
) -> Answer:
    """Show how far a fit is, or how it ended; exit code 1 if it was refused or failed.

    Example: fairpremium insurer show first --key insurer.key
    """
    from fairpremium.parties.clients import Insurer
    from fairpremium.parties.protocol import Fit

    if fit is not None:
        check_ids(fit=fit)
    with connection.open(Insurer) as insurer:
        if fit is not None:
            return _answer(insurer.get(f"/v1/fits/{fit}", Fit))
        return Answer({"fits": insurer.send("GET", "/v1/fits").json()}, _render_fits)


@party_command
def cancel(fit: _FitArgument, connection: Connection) -> Answer:
    """Ask a fit to stop. One that has ended stays as it is.

    Example: fairpremium insurer cancel first --key insurer.key
    """
    from fairpremium.parties.clients import Insurer

    check_ids(fit=fit)
    with connection.open(Insurer) as insurer:
        return _answer(insurer.cancel(fit))._replace(exit_code=0)


def _answer(seen: Fit) -> Answer:
    failed = seen.state in ("refused", "failed", "cancelled")
    return Answer(message_fields(seen), _fit_facts(message_fields(seen)), exit_code=1 if failed else 0)


def _render_fits(result: dict[str, Any]) -> None:
    for fit in result["fits"]:
        print(f"{fit['id']}: {_state(fit)}")
    if not result["fits"]:
        print("None.")


def _fit_facts(fit: dict[str, Any]) -> dict[str, Any]:
    spec, refusal, problem, matched = (fit[name] for name in ("spec", "refusal", "problem", "matched"))
    return {
        "Fit": f"{fit['id']}: {_state(fit)}",
        "Of": f"portfolio {spec['portfolio']} in study {spec['study']}: {_law(spec)}, {spec['model']}",
        "Free of": ", ".join(spec.get("attributes") or ()) or None,
        "Refused": refusal and f"rule {refusal['rule']}: {refusal['title']} ({refusal['limit']})",
        "Stands out": refusal and refusal["column"] and f"a row, most by {refusal['column']}",
        "Check": _FEW_MATCHES if refusal and refusal["rule"] == 1 else None,
        "Problem": problem and problem["title"],
        "Epoch": fit["epoch"],
        "Matched": None if matched is None else f"about {matched:,} rows have a report",
        "SHA-256": fit["sha256"],
    }


def _law(spec: dict[str, Any]) -> str:
    claims = spec["claims"]
    return str(spec["family"]) if claims is None else f"{claims['frequency']} frequency, {claims['severity']} severity"


def _state(fit: dict[str, Any]) -> str:
    if fit["ended"] is not None:
        return str(fit["state"])
    return f"{fit['state']}, {fit['phase']}, {100 * fit['progress']:.0f} %"


@party_command
def fetch(
    fit: _FitArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to put the bundle: a .zip file.")],
    trusted: TrustedKeys,
    connection: Connection,
    report: Annotated[Path | None, typer.Option(help="Take the report out of it: .html, or .pdf.")] = None,
    model: Annotated[Path | None, typer.Option(help="Take the model out of it, for price: .json.")] = None,
) -> Answer:
    """Fetch the bundle of a finished fit, and check its signature, digests and self-test.

    Example: fairpremium insurer fetch first -o bundle.zip --trust service.key.pub --key insurer.key
    """
    from fairpremium.parties.clients import Insurer

    check_ids(fit=fit)
    check_output(output, suffixes=(".zip",))
    for path, suffixes in ((report, (".html", ".pdf")), (model, (".json",))):
        if path is not None:
            check_output(path, suffixes=suffixes)
    is_pdf = report is not None and report.suffix.lower() == ".pdf"
    if is_pdf:
        from fairpremium.audit import check_pdf

        check_pdf()  # before any work is done
    keys = trusted.read()
    with progress("Fetching and checking"), connection.open(Insurer) as insurer:
        bundle = insurer.fetch(fit, output, trusted=keys)
    if report is not None:
        from fairpremium.audit import render_pdf

        page = bundle.report or ""
        report.write_bytes(render_pdf(page) if is_pdf else page.encode())
    if model is not None:
        bundle.pricer.save(model)
    return _describe(bundle.manifest, output)


@party_command
def price(
    bundle: Annotated[Path, typer.Argument(help="Bundle that fetch brought.")],
    new: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file with the features.")],
    options: PriceOptions,
    files: TableFormat,
    trusted: TrustedKeys,
    policy: Annotated[str | None, typer.Option(help="Column to put in front, such as policy.")] = None,
) -> Answer:
    """Compute premiums with the model of a bundle: offline, without service, key or report.

    The bundle is checked first. Columns and limits are those of fairpremium price.

    Example: fairpremium insurer price bundle.zip new.csv -o premiums.csv --trust service.key.pub
    """
    from fairpremium.parties.bundle import load_bundle

    require_file(bundle)
    check_output(options.output, inputs=[bundle, new])
    keys = trusted.read()
    with progress("Checking the bundle"):
        pricer = load_bundle(bundle, keys=keys).pricer
    return price_rows(pricer, str(bundle), new, options, files, policy)


@party_command
def erase(portfolio: Annotated[str, typer.Argument(help="Id of the portfolio.")], connection: Connection) -> Answer:
    """Ask the service to erase the rows of a portfolio. Digests and log stay.

    Example: fairpremium insurer erase p2026 --key insurer.key
    """
    from fairpremium.parties.clients import Insurer

    check_ids(portfolio=portfolio)
    with connection.open(Insurer) as insurer:
        insurer.erase(portfolio)
    return Answer({"erased": portfolio}, {"Erased": portfolio})


def _describe(manifest: dict[str, Any], output: Path) -> Answer:
    """Return what the manifest of a checked bundle says."""
    rows, matched, point = manifest["portfolio"]["rows"], manifest["matched"], manifest["log"]
    result = {
        "study": manifest["study"]["id"],
        "fit": manifest["fit"]["id"],
        **{name: manifest[name] for name in ("true_attribute", "matched", "disclosure", "log")},
        "rows": rows,
        "output": str(output),
    }
    facts = {
        "Bundle": f"{output}: fit {result['fit']} of study {result['study']}, checked",
        "Attribute": "the true attribute was used" if manifest["true_attribute"] else None,
        "Rows": f"{rows:,}" + ("" if matched is None else f", about {matched:,} with a report"),
        "Noise": manifest["disclosure"]["statement"],
        "Log": f"checkpoint {point.get('size', point.get('seq'))}, signed by {point['key_id']}",
    }
    return Answer(result, facts)


insurer = make_group(
    "The insurer's side: features and losses leave, premiums come back.",
    {"upload": upload, "fit": fit, "show": show_fit, "cancel": cancel, "fetch": fetch, "price": price, "erase": erase},
)
