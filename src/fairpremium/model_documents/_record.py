"""The record of a model that supervisors ask for, under the headings of EIOPA."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from ._card import evidence
from ._document import ModelDocument, Section, Table
from ._facts import sign_off


def model_record(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    *,
    source: str = "",
    manifest: Mapping[str, Any] | None = None,
    findings: Sequence[Mapping[str, Any]] | None = None,
    insurer: str | None = None,
    tariff: str | None = None,
) -> ModelDocument:
    """Write the record of a fitted pricer for a supervisor.

    Parameters
    ----------
    pricer, source, manifest, findings, insurer, tariff
        As in `model_card`.

    Returns
    -------
    ModelDocument
        ``save("record.md")`` or ``save("record.html")`` writes it.

    Notes
    -----
    The first nine headings are the fields of the template in annex I of EIOPA's opinion of 2025, the tenth is about
    what its part on fairness asks for. Data post-processing, a field of the older checklist of EIOPA's expert group
    (2021, page 59), is under data preparation. A supervisor may ask for more than this document holds, such as levels
    of performance that were set in advance, and plans for a fall-back.

    References
    ----------
    EIOPA (2025), Opinion on AI governance and risk management, EIOPA-BoS-25-360, 6 August 2025.
    EIOPA's Consultative Expert Group on Digital Ethics in insurance (2021), Artificial intelligence governance
    principles: towards ethical and trustworthy artificial intelligence in the European insurance sector, page 59.
    """
    e = evidence(pricer, source, manifest, findings, insurer, tariff)
    parties = (
        "A third party joined the reports with the features and fitted the model; the insurer did not see reports, and "
        "the third party did not see policy numbers. Keys and checkpoints below identify the parties."
        if manifest
        else "The model was fitted by the holder of the file, who had the features, the losses and the reports."
    )
    sections: dict[str, Sequence[str | Table]] = {
        "Model": e.identity(),
        "1. Business objective": e.purpose(),
        "2. Integration into the IT infrastructure": [
            "The model is one JSON file. It prices offline, from the features alone, in Python, on the command line "
            "(fairpremium price), as ONNX, or as a tariff in Excel, CSV or SQL. No service is needed to quote.",
            *e.features(),
        ],
        "3. Staff involved": [parties, "Names and functions are in the sign-off at the end."],
        "4. Data collection": [*e.data(), *e.privacy()],
        "5. Data preparation and post-processing": [
            "Categories are indicators of their levels against the base level, numbers are used as they are, unless "
            "feature terms say otherwise. Rows with missing or infinite features or outcomes are refused, not "
            "repaired. Missing reports are no error.",
            *_terms(e.first),
            "Best estimates of the groups are averaged with the reference distribution. Nothing else is done to the "
            "premiums: no clipping, no rounding.",
        ],
        "6. Technical choices": [*e.method(), "Candidates that were compared:", *e.candidates()],
        "7. Code and hyperparameters": [
            "The file holds every number that a price needs: nothing is drawn again. Pooling by empirical Bayes has a "
            "fixed seed, other models that of the argument random_state.",
            *e.integrity(),
        ],
        "8. Model performance": e.performance(),
        "9. Model security": [
            "The file has a checksum, and a bundle is signed by the third party. Reading them executes no code. A "
            "bundle tests itself: it holds rows with the prices that the model must give them.",
            "Changes of prices and groups over time are watched with fairpremium monitor.",
        ],
        "10. Fairness, and limits": [*e.audit(), *e.limits()],
    }
    found = tuple(Section(heading, tuple(blocks)) for heading, blocks in sections.items())
    return ModelDocument("Record of a pricing model", (*found, sign_off()))


def _terms(part: DiscriminationFreePricer) -> list[str]:
    terms = part.model_.get_params().get("terms")
    return [] if terms is None else [f"Feature terms: {terms}"]
