"""What comes back from a fit: prices of all rows, the audit, the manifest of the bundle, what the console shows."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairpremium import __version__
from fairpremium.audit import summarize_pricer
from fairpremium.parties.bundle import compute_prices
from fairpremium.parties.protocol import Checkpoint, channel_of, round_count
from fairpremium.parties.release import Release, seen_channel
from fairpremium.pricing import DiscriminationFreePricer

from ._fit_inputs import FitJob, JoinedReports, frame

_AUDIT_ROWS = 200_000  # rows that the audit looks at


def price_rows(job: FitJob, pricer: DiscriminationFreePricer, path: Path) -> None:
    """Price all rows, with or without a report."""
    writer: pq.ParquetWriter | None = None
    try:
        for table in job.tables():
            prices = compute_prices(pricer, frame(table, job.features), job.spec.level)
            priced = pa.table({"key": table.column(job.portfolio.key), **prices})
            if writer is None:
                writer = pq.ParquetWriter(path, priced.schema, compression="none")
            writer.write_table(priced)
    finally:
        if writer is not None:
            writer.close()


def summarize(job: FitJob, release: Release, joined: JoinedReports) -> dict[str, Any]:
    """Audit the released prices with the reports that may be shown, on all rows or evenly spaced ones."""
    rows = np.unique(np.linspace(0, job.rows - 1, min(job.rows, _AUDIT_ROWS)).astype(np.int64))
    X, y, weight = job.split(job.take(rows))
    reports, second = joined.randomize(job, rows)
    pricer = copy.copy(release.pricer)
    if release.mechanism == "gaussian":  # the audit sees reports after the second randomization
        pricer.channel_ = seen_channel(second, channel_of(job.study.attribute), reports, job.labels)
    return summarize_pricer(
        pricer,
        X,
        y,
        sensitive=reports,
        sample_weight=weight,
        level=job.spec.level,
        title=job.study.title,
        notes=[_statement(job, release)],
        hashes={"portfolio": job.portfolio_sha256},
        count_in=job.study.rules.round_to,
        created=job.asked_at,  # the same in every attempt
    )


def write_manifest(
    job: FitJob, joined: JoinedReports, release: Release, summary: dict[str, Any], checkpoint: Checkpoint
) -> dict[str, Any]:
    """Return what the bundle says about a fit."""
    study, channel = job.study, channel_of(job.study.attribute)
    return {
        "study": {"id": job.study_id, "title": study.title, "attribute": study.attribute.model_dump(mode="json")},
        "fit": {"id": job.lease.fit, "spec": job.spec.model_dump(mode="json")},
        "true_attribute": study.attribute.kind == "true",
        "channel": None if channel is None else channel.descriptor(),
        "epsilon": None if channel is None else channel.epsilon,
        "portfolio": {"sha256": job.portfolio_sha256, "rows": job.rows},
        "matched": round_count(joined.matched, study.rules),
        "versions": {"fairpremium": __version__},
        "disclosure": {
            **_protection(job, release),
            "rules": study.rules.to_dict(),
            "passed": [{"rule": v.rule, "title": v.title, "limit": v.limit} for v in release.rule_results],
            "report_epsilon": None if study.release is None else study.release.randomized_epsilon,
            "noise": release.noise,
        },
        "findings": summary["findings"],
        "log": checkpoint.model_dump(),
    }


def describe_for_console(job: FitJob, release: Release, summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the operator's console shows of a fit: the comparison of groups, from what was released."""
    sections = [s for s in summary["sections"] if s["id"] in ("price_comparison", "group_means")]
    return {**_protection(job, release), "findings": summary["findings"], "sections": sections}


def _protection(job: FitJob, release: Release) -> dict[str, Any]:
    """Return by what the reports were protected, in numbers and in words."""
    return {
        "mechanism": release.mechanism,
        "epsilon": release.epsilon if np.isfinite(release.epsilon) else None,
        "delta": release.delta,
        "statement": _statement(job, release),
    }


def _statement(job: FitJob, release: Release) -> str:
    """Return what the bundle promises about the reports: of its prices, and of the audit in its report."""
    if release.mechanism != "gaussian" or job.study.release is None:
        return release.statement
    return (
        f"{release.statement} The audit in the report is computed from reports that the third party randomized once "
        "more, the same for every fit of the study: "
        f"epsilon {job.study.release.randomized_epsilon:g} on top, paid once."
    )
