"""The model card: what a model is, from whom, how good, and what it does not promise."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from ._document import ModelDocument, Section
from ._facts import Evidence, sign_off


def model_card(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    *,
    source: str = "",
    manifest: Mapping[str, Any] | None = None,
    findings: Sequence[Mapping[str, Any]] | None = None,
    insurer: str | None = None,
    tariff: str | None = None,
) -> ModelDocument:
    """Write the model card of a fitted pricer.

    Parameters
    ----------
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
        Fitted, or loaded from a file.
    source : str
        Name of its file, for the page.
    manifest : dict, optional
        `manifest` of the bundle that it came in: study, promises, digests, findings of its audit.
    findings : list of dict, optional
        ``summary["findings"]`` of an audit; those of the manifest if left out.
    insurer, tariff : str, optional
        Who uses it, and for which tariff and version.

    Returns
    -------
    ModelDocument
        ``save("card.md")`` or ``save("card.html")`` writes it.

    Notes
    -----
    The sections are those of Mitchell and others (2019), Model cards for model reporting, FAT* '19, as far as they
    apply to prices: details, intended use, factors, data, metrics, evaluation, ethical considerations, caveats.
    """
    e = evidence(pricer, source, manifest, findings, insurer, tariff)
    sections = {
        "Model": e.identity(),
        "Intended use": e.purpose(),
        "Features": e.features(),
        "Data": e.data(),
        "Method": e.method(),
        "Candidates that were compared": e.candidates(),
        "Accuracy": e.performance(),
        "Fairness and balance": e.audit(),
        "Privacy": e.privacy(),
        "Limits": e.limits(),
        "Integrity and versions": e.integrity(),
    }
    found = tuple(Section(heading, tuple(blocks)) for heading, blocks in sections.items())
    return ModelDocument("Model card: discrimination-free premiums", (*found, sign_off()))


def evidence(
    pricer: Any,
    source: str,
    manifest: Mapping[str, Any] | None,
    findings: Sequence[Mapping[str, Any]] | None,
    insurer: str | None,
    tariff: str | None,
) -> Evidence:
    """Collect what is known about a pricer."""
    if not isinstance(pricer, DiscriminationFreePricer | FrequencySeverityPricer):
        raise TypeError(
            f"Got pricer of type {type(pricer).__name__}, but expected a fitted DiscriminationFreePricer or "
            "FrequencySeverityPricer; load_pricer reads one from its file."
        )
    if findings is None:
        findings = (manifest or {}).get("findings", [])
    with tempfile.TemporaryDirectory() as folder:  # what a file of the pricer says is its hash
        path = Path(folder) / "model.json"
        pricer.save(path)
        sha256 = str(json.loads(path.read_text(encoding="utf-8"))["sha256"])
    told = (manifest or {}).get("details", {})  # what the bundle says, unless something else is given
    insurer, tariff = insurer or told.get("insurer"), tariff or told.get("tariff_version")
    return Evidence(pricer, sha256, source, manifest, list(findings), insurer or None, tariff or None)
