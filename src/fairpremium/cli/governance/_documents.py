"""``fairpremium card`` and ``fairpremium record``: a model or a bundle in, a document about it out."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._command import Answer, command
from fairpremium.cli._terminal import progress
from fairpremium.cli.tables import check_output, require_file
from fairpremium.model_documents import ModelDocument, model_card, model_record
from fairpremium.pricing import load_pricer

ModelArgument = Annotated[Path, typer.Argument(help="Model file that fit wrote, or bundle (.zip) of the third party.")]


@dataclass(frozen=True)
class DocumentOptions:
    """The options of both documents."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Document to write: .md or .html.")]
    trust: Annotated[
        list[Path] | None, typer.Option(help="Public key of the third party, for a bundle; may be repeated.")
    ] = None
    audit: Annotated[
        Path | None, typer.Option(help="Audit of these prices, written by audit -o audit.json: adds its findings.")
    ] = None
    insurer: Annotated[str | None, typer.Option(help="Who uses the model.")] = None
    tariff: Annotated[str | None, typer.Option(help="Tariff and version that it is used for.")] = None


@command
def card(model: ModelArgument, options: DocumentOptions) -> Answer:
    """Write the model card of a model: purpose, data, method, accuracy, fairness, privacy, limits, hashes.

    Everything is drawn from the file; the sign-off is left to fill in.

    Example: fairpremium card model.json -o card.html
    """
    return _write(model_card, model, options)


@command
def record(model: ModelArgument, options: DocumentOptions) -> Answer:
    """Write the record of a model that supervisors ask for, under the headings of EIOPA.

    Everything is drawn from the file; the sign-off is left to fill in.

    Example: fairpremium record bundle.zip --trust service.key.pub -o record.html
    """
    return _write(model_record, model, options)


def _write(make: Callable[..., ModelDocument], model: Path, options: DocumentOptions) -> Answer:
    check_output(options.output, suffixes=(".md", ".html"), inputs=[model, options.audit])
    require_file(model)
    with progress("Reading"):
        manifest = None
        if model.suffix.lower() == ".zip":
            pricer, manifest = _open_bundle(model, options.trust or [])
        elif options.trust:
            raise ValueError(f"--trust belongs to a bundle, but {model} is not a .zip file. Leave it out.")
        else:
            pricer = load_pricer(model)
        findings = None if options.audit is None else _findings(options.audit, pricer.groups_)
        document = make(
            pricer,
            source=model.name,
            manifest=manifest,
            findings=findings,
            insurer=options.insurer,
            tariff=options.tariff,
        )
        document.save(options.output)
    headings = [section.heading for section in document.sections]
    result = {"title": document.title, "sections": headings, "model": str(model), "output": str(options.output)}
    facts = {
        "Document": document.title,
        "Model": str(model),
        "Sections": len(headings),
        "To fill in": "the sign-off",
        "Written": str(options.output),
    }
    return Answer(result, facts)


def _open_bundle(path: Path, trust: list[Path]) -> tuple[Any, dict[str, Any]]:
    from fairpremium.parties.bundle import load_bundle
    from fairpremium.parties.protocol import read_trusted_keys

    if not trust:
        raise ValueError(f"{path} is a bundle; expected --trust with the public key of the third party who signed it.")
    bundle = load_bundle(path, keys=[read_trusted_keys(require_file(file)) for file in trust])
    return bundle.pricer, bundle.manifest


def _findings(path: Path, groups: Any) -> list[dict[str, Any]]:
    """Return the findings of an audit report in JSON, which must be about the groups of the model."""
    try:
        report = json.loads(require_file(path).read_text(encoding="utf-8"))
        found = [{"heading": str(one["heading"]), "text": str(one["text"])} for one in report["findings"]]
        audited, own = ({str(group) for group in some} for some in (report["groups"], groups))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not an audit report in JSON, as audit -o audit.json writes it.") from error
    if audited != own:
        raise ValueError(
            f"{path} audits the groups {sorted(audited)}, but the model has {sorted(own)}. Give an audit of the "
            "prices of this model."
        )
    return found
