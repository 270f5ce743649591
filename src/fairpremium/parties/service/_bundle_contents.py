"""What comes back from a fit: prices of all rows, the audit, the manifest of the bundle, what the console shows."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fairpremium import __version__
from fairpremium.audit import ReportDetails, summarize_pricer
from fairpremium.audit.tables import read_factors
from fairpremium.parties.bundle import compute_prices
from fairpremium.parties.protocol import (
    Checkpoint,
    ReportSpec,
    channel_of,
    one_attribute,
    round_count,
    stored_fields,
)
from fairpremium.parties.release import Release, SecondDraws, seen_channel
from fairpremium.parties.store.log import iso
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

from ._fit_inputs import FitJob, ShownReports, frame, per_unit

_AUDIT_ROWS = 200_000  # rows that the audit looks at
_BANDS, _MAX_CLASSES = 5, 24  # of a feature by which the report is divided


def price_rows(job: FitJob, pricer: DiscriminationFreePricer | FrequencySeverityPricer, path: Path) -> None:
    """Price all rows, with or without a report."""
    writer: pq.ParquetWriter | None = None
    path.touch(mode=0o600)
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


def summarize(job: FitJob, release: Release, show: Callable[[FitJob, Any], ShownReports]) -> dict[str, Any]:
    """Audit the released prices with the reports that may be shown, on all rows or evenly spaced ones."""
    rows = np.unique(np.linspace(0, job.rows - 1, min(job.rows, _AUDIT_ROWS)).astype(np.int64))
    X, losses, volume = job.split(job.take(rows))
    drawn, each = show(job, rows)
    second = drawn.second
    pricer = copy.copy(release.pricer)
    added = release.epsilon if np.isfinite(release.epsilon) else None
    reported = round_count(round(release.reported * len(rows) / job.rows), job.study.rules)
    if isinstance(second, SecondDraws):
        pricer.channel_ = second.channel
    elif second is None and len(job.names) > 1:  # of rows in a file it knows the codes of the reports
        pricer.channel_ = job.channel
    elif second is not None and release.mechanism == "gaussian":  # the audit sees reports after the second draw
        pricer.channel_ = seen_channel(drawn, job.channel, job.labels)
    asked = job.spec.report or ReportSpec()
    notes, classes = [_statement(job, release)], None
    if asked.by is not None:
        factor = read_factors(X, [asked.by], _BANDS, np.ones(len(rows)))[0]
        if len(factor.levels) <= _MAX_CLASSES:
            labels = [f"{factor.name}: {level}" for level in factor.levels]
            classes = pd.Series(pd.Categorical.from_codes(factor.codes, categories=labels))
        else:
            notes.append(f"{asked.by} has {len(factor.levels)} levels, more than the report can show one by one.")
    return summarize_pricer(
        pricer,
        X,
        per_unit(losses, volume),
        sensitive=drawn.reports,
        sample_weight=volume,
        by=classes,
        level=job.spec.level,
        title=job.study.title,
        unit=asked.unit,
        details=ReportDetails(
            asked.insurer or job.lease.party, asked.tariff_version, asked.period, asked.prepared_by, asked.approved_by
        ),
        notes=notes,
        hashes={"portfolio": job.portfolio_sha256},
        count_in=job.study.rules.round_to,
        created=job.asked_at,  # the same in every attempt
        by_attribute={n: (one.reports, one.channel) for n, one in each.items()} if len(each) > 1 else None,
        collected=job.channel,
        release={
            "epsilon": added,
            "delta": release.delta,
            "reports": reported,
            "audit_epsilon": _audit_epsilon(job, release),
        },
    )


def write_manifest(job: FitJob, release: Release, summary: dict[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the bundle says about a fit."""
    study, channel = job.study, job.channel
    return {
        "study": {"id": job.study_id, "title": study.title, "attribute": study.attribute.model_dump(mode="json")},
        "fit": {"id": job.lease.fit, "spec": stored_fields(job.spec)},
        "epoch": {"number": job.epoch, "closed": iso(job.epoch_at.timestamp())},
        "true_attribute": study.attribute.kind == "true",
        "channel": None if channel is None else channel.descriptor(),
        "epsilon": None if channel is None else channel.epsilon,
        **_attributes(job),
        "portfolio": {"sha256": job.portfolio_sha256, "rows": job.rows},
        "matched": round_count(release.reported, study.rules),
        "versions": {"fairpremium": __version__},
        "disclosure": {
            **_protection(job, release),
            "rules": study.rules.to_dict(),
            "passed": [{"rule": v.rule, "title": v.title, "limit": v.limit} for v in release.rule_results],
            "report_epsilon": None if study.release is None else study.release.randomized_epsilon,
            "noise": release.noise,
        },
        "details": summary["details"],
        "panel": summary["panel"],
        "findings": summary["findings"],
        "log": checkpoint.model_dump(),
    }


def _attributes(job: FitJob) -> dict[str, Any]:
    """Return of which attributes of several the prices are free, and what a report of each may tell."""
    if job.names == (None,):
        return {}
    channels = [channel_of(one_attribute(job.study.attribute, name)) for name in job.names]
    return {
        "attributes": [
            {"name": name, "epsilon": None if channel is None else channel.epsilon}
            for name, channel in zip(job.names, channels, strict=True)
        ]
    }


def describe_for_console(job: FitJob, release: Release, summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the operator's console shows of a fit: the comparison of groups, from what was released."""
    names = ("price_comparison", "group_means", "group_means_by_attribute")
    sections = [s for s in summary["sections"] if s["id"] in names]
    shown = {name: summary[name] for name in ("panel", "scale", "amounts", "findings")}
    return {**_protection(job, release), **shown, "sections": sections}


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
    statement = release.statement
    if len(job.names) > 1:
        statement += f" A report is here what a person told of {' and '.join(map(str, job.names))} together."
    epsilon = _audit_epsilon(job, release)
    if epsilon is None:
        return statement
    return (
        f"{statement} The audit in the report is computed from reports that the third party randomized once "
        "more, the same for every fit of the epoch: "
        f"epsilon {epsilon:g} on top, paid once per epoch."
    )


def _audit_epsilon(job: FitJob, release: Release) -> float | None:
    """Return the epsilon of the second draw that the audit of noised prices uses; None where prices come from it."""
    if release.mechanism != "gaussian" or job.study.release is None:
        return None
    return len(job.names) * job.study.release.randomized_epsilon
