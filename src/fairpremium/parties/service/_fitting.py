"""From a claimed fit to its bundle: join, check the rules, fit, price all rows, report, sign.

Everything here is a function of the sealed portfolio, the reports and the study's secret: a fit that is begun again,
after a kill or by another worker, ends with the same bytes.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, insert, select

from fairpremium import __version__
from fairpremium.audit import render_report, summarize_pricer
from fairpremium.errors import FairPremiumError
from fairpremium.labels import decode_labels
from fairpremium.noise import AnchorNoise, LikelihoodNoise, NoiseEstimator
from fairpremium.parties.bundle import feature_ranges, write_bundle
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import (
    EstimatedChannel,
    FitSpec,
    PortfolioSpec,
    Problem,
    Refusal,
    StudySpec,
    channel_of,
    labels_of,
    read_keys,
    round_count,
    sort_run,
)
from fairpremium.parties.release import (
    FileCheckpoint,
    FitSettings,
    RefusedError,
    Release,
    ReleaseSettings,
    Verdict,
    check_overlap,
    check_rows,
    default_release,
    fit_release,
    randomize_reports,
    rarest_report,
    seen_channel,
)
from fairpremium.parties.store import write_run
from fairpremium.parties.store.log import keep_checkpoint
from fairpremium.parties.store.schema import fits, portfolios, releases
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.privacy import Channel
from fairpremium.privacy._descriptor import canonical_json

from ._budget import plan_of, releases_to
from ._context import ServiceContext
from ._fits import Lease, LeaseLost, finish_fit, record_progress, refund
from ._portfolios import parts_of
from ._reports import reports_of
from ._studies import lock_study, spec_of, study_row

__all__ = ["run_fit"]

_AUDIT_ROWS = 200_000  # rows that the report looks at
_DRAWN_AT_ONCE = 500_000
_REPORT = "report"
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Job:
    """All that a fit is made of."""

    lease: Lease
    spec: FitSpec
    study_id: str
    study: StudySpec
    secret: bytes
    portfolio: PortfolioSpec
    portfolio_sha256: str
    parts: tuple[Path, ...]
    rows: int
    log_seq: int
    asked_at: datetime

    @property
    def features(self) -> list[str]:
        return [feature.name for feature in self.portfolio.features]

    @property
    def labels(self) -> tuple[Any, ...]:
        return labels_of(self.study.attribute)

    def tables(self) -> Iterator[pa.Table]:
        """Read the parts, one after the other."""
        for path in self.parts:
            yield pq.read_table(path)


@dataclass(frozen=True)
class _Joined:
    """Reports beside the rows: codes in the order of the parts, -1 where there is none."""

    codes: Codes
    keys: npt.NDArray[Any]

    @property
    def matched(self) -> int:
        return int((self.codes >= 0).sum())


def run_fit(context: ServiceContext, lease: Lease) -> None:
    """Work on a claimed fit until it has ended, one way or another."""

    def tell(phase: str, progress: float) -> None:
        point(f"fit.{phase}")
        context.store.write(lambda c: record_progress(c, lease, phase, progress))

    job = context.store.read(lambda c: _read_job(c, context, lease))
    try:
        outcome = _work(context, job, tell)
    except LeaseLost:
        raise
    except RefusedError as refused:
        broken = next(v for v in refused.verdicts if not v.passed)
        _end(context, lease, "refused", refusal=_refusal(broken).model_dump_json())
    except Problem as problem:
        if problem.code == "storage-full":  # it passes
            raise
        _end(context, lease, "failed", problem=json.dumps(problem.to_dict()))
    except FairPremiumError as error:
        _end(context, lease, "failed", problem=json.dumps(Problem("cannot-fit", _in_words(error)).to_dict()))
    except (ValueError, ArithmeticError):
        _end(
            context, lease, "failed", problem=json.dumps(Problem("cannot-fit", "its numbers do not allow it").to_dict())
        )
    else:
        try:
            point("fit.before_publish")
            context.store.write(lambda c: outcome(c))
            point("fit.after_publish")
        except RefusedError as refused:  # another fit used the budget up in the meantime
            broken = next(v for v in refused.verdicts if not v.passed)
            _end(context, lease, "refused", refusal=_refusal(broken).model_dump_json())


def _end(context: ServiceContext, lease: Lease, state: str, **values: Any) -> None:
    context.store.write(lambda c: finish_fit(c, context, lease, state, **values))


def _refusal(verdict: Verdict) -> Refusal:
    return Refusal(rule=verdict.rule, title=verdict.title, limit=verdict.limit)


def _in_words(error: FairPremiumError) -> str:
    """Return a reason from our own list; the error's text may quote data."""
    return {
        "RiskUnboundedError": "a group has too little information for this model",
        "ConvergenceError": "the solver found no solution",
        "NotIdentifiedError": "they do not tell the noise of the reports",
        "OutOfRangeError": "a price would be far outside the range of the outcomes",
        "UnattainableReferenceError": "no reference distribution balances the portfolio",
        "MissingExtraError": "the service does not have this model class installed",
    }.get(type(error).__name__, "its numbers do not allow it")


def _read_job(connection: Connection, context: ServiceContext, lease: Lease) -> _Job:
    row = connection.execute(select(fits).where(fits.c.party == lease.party, fits.c.id == lease.fit)).one()
    study = study_row(connection, row.study)
    mine = (portfolios.c.party == lease.party, portfolios.c.id == row.portfolio)
    portfolio = connection.execute(select(portfolios).where(*mine)).one()
    parts = parts_of(connection, lease.party, row.portfolio)
    return _Job(
        lease,
        FitSpec.model_validate_json(row.spec),
        row.study,
        spec_of(study),
        bytes(study.secret),
        PortfolioSpec.model_validate_json(portfolio.spec),
        portfolio.sha256,
        tuple(context.blobs.path(part.sha256) for part in parts),
        sum(part.rows for part in parts),
        row.log_seq,
        datetime.fromtimestamp(row.created, UTC),
    )


def _work(context: ServiceContext, job: _Job, tell: Callable[[str, float], None]) -> Callable[[Connection], None]:
    """Do the work of a fit; return the command that makes its result known."""
    tell("joining", 0.0)
    joined = _join(context, job)
    # All keys, whether they reported or not: which rows a fit has is no secret of the reports.
    keys_run = write_run(context.blobs, sort_run(joined.keys, joined.codes + 1))
    identity = _identity(job, keys_run)
    tell("checking", 0.1)
    privacy = _privacy(job, identity)
    if privacy.mechanism == "gaussian" and job.rows <= context.limits.memory_rows:
        _check_rows(job)

    def reserve(connection: Connection) -> None:
        """Pay before the reports are looked at: a refusal or a failure later on tells of them, too."""
        record_progress(connection, job.lease, "checking", 0.2)  # the lease still holds
        lock_study(connection, job.study_id)  # two fits must not both spend the rest of the budget
        _check_overlap(connection, context, job, joined)
        _check_budget(connection, job, privacy, identity)
        mine = {"study": job.study_id, "party": job.lease.party, "fit": job.lease.fit}
        cost = {"mechanism": privacy.mechanism, "epsilon": privacy.epsilon, "delta": privacy.delta}
        refund(connection, job.lease.party, job.lease.fit)  # of a try that was killed
        connection.execute(insert(releases).values(**mine, **cost, keys_sha256=keys_run, identity=identity))

    context.store.write(reserve)
    steps = FileCheckpoint(context.blobs.folder / f".fit-{identity}.json")
    with _workspace(context, job.lease) as name:
        folder = Path(name)
        tell("fitting", 0.2)
        release = _fit(context, job, joined, privacy, folder, steps, lambda _, f: tell("fitting", 0.2 + 0.5 * f))
        tell("pricing", 0.7)
        premiums = folder / "premiums.parquet"
        _price(job, release.pricer, premiums)
        tell("reporting", 0.8)
        summary = _summarize(job, release, joined)
        tell("signing", 0.9)
        bundle = folder / "bundle.zip"
        checkpoint = context.store.write(lambda c: keep_checkpoint(c, context.key, job.log_seq))
        write_bundle(
            bundle,
            pricer=release.pricer,
            manifest=_manifest(job, joined, release, summary, checkpoint),
            premiums=premiums,
            report_html=render_report(summary),
            sign=context.key,
            ranges=feature_ranges(job.parts, job.features),
            level=job.spec.level,
        )
        digest = context.blobs.put(bundle)
    steps.remove()
    console = json.dumps(_for_console(job, summary, release))

    def publish(connection: Connection) -> None:
        matched = round_count(joined.matched, job.study.rules)
        finish_fit(connection, context, job.lease, "succeeded", sha256=digest, matched=matched, summary=console)

    return publish


def _check_rows(job: _Job) -> None:
    """Refuse rows that no reports could make fit, before anything is paid: the reports play no part in it."""
    table = pa.concat_tables(job.tables())
    y, weight = _column(table, job.portfolio.outcome), _column(table, job.portfolio.weight)
    check_rows(_settings(job), frame(table, job.features), y, weight, job.labels, job.study.rules)


def _workspace(context: ServiceContext, lease: Lease) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the rows of a fit, and remove what tries of it left behind that were killed."""
    prefix = f".fit-{hashlib.sha256(f'{lease.party}/{lease.fit}'.encode()).hexdigest()}-"
    for left in context.blobs.folder.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(dir=context.blobs.folder, prefix=prefix)


# --- the data --------------------------------------------------------------------------------------------------------


def _join(context: ServiceContext, job: _Job) -> _Joined:
    """Find the report of each row by its key; who reported to several collectors counts once, at the first of them."""

    def look(connection: Connection) -> list[Callable[[npt.NDArray[Any]], npt.NDArray[np.int32]]]:
        return [reports_of(connection, context, job.study_id, name) for name in job.study.collectors]

    with context.blobs.hold():  # what is open stays, should it be swept away
        look_ups = context.store.read(look)
    keys = np.concatenate([read_keys(path, job.portfolio.key) for path in job.parts])
    codes = np.full(len(keys), -1, dtype=np.int32)
    for look_up in look_ups:
        rest = np.flatnonzero(codes < 0)
        codes[rest] = look_up(keys[rest])
    return _Joined(codes, keys)


def _randomized(job: _Job, keys: npt.NDArray[Any], codes: Codes) -> tuple[npt.NDArray[Any], Any]:
    """Return reports that may be shown, and the second channel: the reports themselves where rule 9 is off."""
    labels = job.labels
    if job.study.release is None:
        return decode_labels(codes, labels), None
    known, epsilon = channel_of(job.study.attribute), job.study.release.randomized_epsilon
    drawn = []
    for start in range(0, len(codes), _DRAWN_AT_ONCE):
        some = slice(start, start + _DRAWN_AT_ONCE)
        persons = [bytes(key) for key in keys[some]]
        reports = decode_labels(codes[some], labels)
        drawn.append(randomize_reports(persons, reports, known, epsilon, job.secret, groups=labels))
    return np.concatenate([part.reports for part in drawn]), drawn[0].second


def _fit(
    context: ServiceContext,
    job: _Job,
    joined: _Joined,
    privacy: ReleaseSettings,
    folder: Path,
    steps: FileCheckpoint,
    tell: Callable[[str, float], None],
) -> Release:
    """Fit to a table in memory, or piece by piece to files with the reports beside the rows."""
    portfolio, channel = job.portfolio, _channel(job)
    reports, second = decode_labels(joined.codes, job.labels), None
    if privacy.mechanism == "randomized":
        reports, second = _randomized(job, joined.keys, joined.codes)
    options: dict[str, Any] = {
        "groups": job.labels,
        "rules": job.study.rules,
        "second": second,
        "progress": tell,
        "checkpoint": steps,
    }
    settings = _settings(job)
    if job.rows > context.limits.memory_rows:
        if isinstance(channel, NoiseEstimator):
            raise Problem("cannot-fit", "an unknown channel needs a portfolio that fits into memory")
        source = folder / "joined"
        _write_joined(job, reports, source)
        release = fit_release(
            settings, str(source), portfolio.outcome, portfolio.weight, _REPORT_COLUMN(job), channel, privacy,
            features=job.features, **options,
        )  # fmt: skip
        shutil.rmtree(source)
        return release
    table = pa.concat_tables(job.tables())
    y, weight = _column(table, portfolio.outcome), _column(table, portfolio.weight)
    if isinstance(channel, NoiseEstimator):
        channel = _estimate(job, table, y, weight, reports, channel)
    return fit_release(settings, frame(table, job.features), y, weight, reports, channel, privacy, **options)


def _REPORT_COLUMN(job: _Job) -> str:  # noqa: N802
    """Return a name for the column of reports that no other column has."""
    taken = {*job.features, job.portfolio.outcome, job.portfolio.weight, job.portfolio.key}
    name = _REPORT
    while name in taken:
        name = f"_{name}"
    return name


def _write_joined(job: _Job, reports: npt.NDArray[Any], folder: Path) -> None:
    folder.mkdir()
    start = 0
    names = [*job.features, job.portfolio.outcome, *([job.portfolio.weight] if job.portfolio.weight else [])]
    for n, table in enumerate(job.tables()):
        column = pa.array(reports[start : start + len(table)].tolist())
        joined = table.select(names).append_column(_REPORT_COLUMN(job), column)
        pq.write_table(joined, folder / f"{n:06d}.parquet", compression="none")
        start += len(table)


def _take(job: _Job, rows: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows of the parts, given by their sorted positions."""
    found, start = [], 0
    for table in job.tables():
        here = rows[(rows >= start) & (rows < start + len(table))] - start
        found.append(table.take(pa.array(here)))
        start += len(table)
    return pa.concat_tables(found)


def frame(table: pa.Table, names: list[str]) -> pd.DataFrame:
    """Return columns as a data frame, categories as text."""
    columns = {}
    for name in names:
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        columns[name] = column.to_pandas()
    return pd.DataFrame(columns)


def _column(table: pa.Table, name: str | None) -> Any:
    return None if name is None else table.column(name).to_numpy().astype(np.float64)


# --- the model -------------------------------------------------------------------------------------------------------


def _settings(job: _Job) -> FitSettings:
    spec = job.spec
    family: Any = spec.family if spec.power is None else {"name": spec.family, "power": spec.power}
    reference: Any = spec.reference
    if isinstance(reference, dict):
        labels = {str(label): label for label in _groups(job)}
        if set(reference) != set(labels):
            raise Problem("cannot-fit", "the reference must give a weight to each group")
        reference = {labels[name]: weight for name, weight in reference.items()}
    return FitSettings(family, spec.model, spec.correction, spec.pooling, reference)


def _groups(job: _Job) -> tuple[Any, ...]:
    known = channel_of(job.study.attribute)
    return job.labels if known is None else tuple(known.groups)


def _channel(job: _Job) -> Channel | NoiseEstimator | None:
    attribute = job.study.attribute
    if not isinstance(attribute, EstimatedChannel):
        return channel_of(attribute)
    groups = attribute.groups
    if attribute.method == "anchor":
        return AnchorNoise(n_splits=attribute.n_splits, groups=groups, random_state=0)
    return LikelihoodNoise(family=_settings(job).family, groups=groups, random_state=0)


class _Estimated(NoiseEstimator):
    """An estimate that was made before, from features of its own."""

    def __init__(self, estimate: NoiseEstimator):
        self.estimate = estimate

    def fit(self, X: Any, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> _Estimated:
        """Return the estimate."""
        self.__dict__.update({name: value for name, value in vars(self.estimate).items() if name.endswith("_")})
        return self


def _estimate(job: _Job, table: pa.Table, y: Any, weight: Any, reports: Any, noise: NoiseEstimator) -> NoiseEstimator:
    """Estimate the channel of the reports from the features that are there for it (Algorithm 2), or from all."""
    names = [feature.name for feature in job.portfolio.x_star]
    if not names:
        return noise
    noise.fit(frame(table, names), y, sensitive=reports, sample_weight=weight)
    return _Estimated(noise)


def _privacy(job: _Job, identity: str) -> ReleaseSettings:
    """Choose the mechanism of rule 9."""
    rule, spec = job.study.release, job.spec
    if rule is None:
        return ReleaseSettings("none")
    wanted = default_release(spec.model, spec.correction, job.rows) if spec.release == "default" else spec.release
    if wanted == "gaussian" and (spec.model != "linear" or spec.correction not in ("auto", "inverse")):
        raise Problem("not-allowed-here", "Gaussian noise is for linear models with the inverse correction")
    if isinstance(job.study.attribute, EstimatedChannel):
        wanted = "randomized"
    if wanted == "randomized":
        return ReleaseSettings("randomized", rule.randomized_epsilon, rule.delta, job.secret)
    return ReleaseSettings(
        "gaussian", rule.fit_epsilon, rule.delta, hmac.digest(job.secret, identity.encode(), "sha256")
    )


def _identity(job: _Job, keys_run: str) -> str:
    """Return what tells two fits apart: settings, rows and reports. The same fit again has the same noise, for free."""
    settings = job.spec.model_dump(mode="json", exclude={"portfolio"})
    content = {"settings": settings, "rows": job.portfolio_sha256, "reports": keys_run}
    return hashlib.sha256(canonical_json(content)).hexdigest()


# --- the rules that look at other fits -------------------------------------------------------------------------------


def _earlier(connection: Connection, job: _Job) -> list[Any]:
    made = releases_to(connection, job.study_id, job.lease.party)
    return [row for row in made if row.fit != job.lease.fit]


def _check_overlap(connection: Connection, context: ServiceContext, job: _Job, joined: _Joined) -> None:
    """Apply rule 5 to the keys of this insurer's fits."""
    digests = sorted({row.keys_sha256 for row in _earlier(connection, job)})
    if not digests:
        return
    known = channel_of(job.study.attribute)
    rarest = rarest_report(known) if known is not None else 1 / len(job.labels)
    sets = [context.run(digest).keys for digest in digests] + [joined.keys]
    verdict = check_overlap(sets, job.study.rules, rarest=rarest)
    if not verdict.passed:
        raise RefusedError([verdict])


def _check_budget(connection: Connection, job: _Job, privacy: ReleaseSettings, identity: str) -> None:
    """Apply rule 9 to all releases to this insurer."""
    rule = job.study.release
    if rule is None:
        return
    earlier = _earlier(connection, job)
    plan = plan_of(rule, earlier).after("randomized", rule.randomized_epsilon)
    spent = {row.identity for row in earlier if row.mechanism == "gaussian"}
    is_new = privacy.mechanism == "gaussian" and identity not in spent
    if is_new and not plan.allows("gaussian", privacy.epsilon):
        limit = f"epsilon {rule.epsilon:g} at delta {rule.delta:g}"
        raise RefusedError([Verdict(9, False, limit, f"{plan.spent:.3g} spent")])


# --- what comes back -------------------------------------------------------------------------------------------------


def _price(job: _Job, pricer: DiscriminationFreePricer, path: Path) -> None:
    """Price all rows, with or without a report."""
    writer: pq.ParquetWriter | None = None
    try:
        for table in job.tables():
            X = frame(table, job.features)
            low, high = pricer.predict_interval(X, job.spec.level)
            columns = {
                "key": table.column(job.portfolio.key),
                "premium": pricer.predict(X),
                "low": low,
                "high": high,
                "unaware": pricer.predict_unaware(X),
            }
            best = np.asarray(pricer.predict_best_estimate(X))
            columns |= {f"group {group}": best[:, k] for k, group in enumerate(pricer.groups_)}
            priced = pa.table(columns)
            if writer is None:
                writer = pq.ParquetWriter(path, priced.schema, compression="none")
            writer.write_table(priced)
    finally:
        if writer is not None:
            writer.close()


def _summarize(job: _Job, release: Release, joined: _Joined) -> dict[str, Any]:
    """Audit the released prices with the reports that may be shown, on all rows or evenly spaced ones."""
    rows = np.unique(np.linspace(0, job.rows - 1, min(job.rows, _AUDIT_ROWS)).astype(np.int64))
    table = _take(job, rows)
    reports, second = _randomized(job, joined.keys[rows], joined.codes[rows])
    pricer = copy.copy(release.pricer)
    if release.mechanism == "gaussian":  # the audit sees reports after the second randomization
        known = channel_of(job.study.attribute)
        pricer.channel_ = seen_channel(second, known, reports, job.labels)
    return summarize_pricer(
        pricer,
        frame(table, job.features),
        _column(table, job.portfolio.outcome),
        sensitive=reports,
        sample_weight=_column(table, job.portfolio.weight),
        level=job.spec.level,
        title=job.study.title,
        notes=[_statement(job, release)],
        hashes={"portfolio": job.portfolio_sha256},
        count_in=job.study.rules.round_to,
        created=job.asked_at,  # the same in every attempt
    )


def _manifest(job: _Job, joined: _Joined, release: Release, summary: dict[str, Any], checkpoint: Any) -> dict[str, Any]:
    channel = channel_of(job.study.attribute)
    return {
        "study": {
            "id": job.study_id,
            "title": job.study.title,
            "attribute": job.study.attribute.model_dump(mode="json"),
        },
        "fit": {"id": job.lease.fit, "spec": job.spec.model_dump(mode="json")},
        "true_attribute": job.study.attribute.kind == "true",
        "channel": None if channel is None else channel.descriptor(),
        "epsilon": None if channel is None else channel.epsilon,
        "portfolio": {"sha256": job.portfolio_sha256, "rows": job.rows},
        "matched": round_count(joined.matched, job.study.rules),
        "versions": {"fairpremium": __version__},
        "disclosure": {
            "rules": job.study.rules.to_dict(),
            "passed": [{"rule": v.rule, "title": v.title, "limit": v.limit} for v in release.verdicts],
            "mechanism": release.mechanism,
            "epsilon": release.epsilon if np.isfinite(release.epsilon) else None,
            "delta": release.delta,
            "report_epsilon": None if job.study.release is None else job.study.release.randomized_epsilon,
            "statement": _statement(job, release),
            "noise": release.noise,
        },
        "findings": summary["findings"],
        "log": checkpoint.model_dump(),
    }


def _statement(job: _Job, release: Release) -> str:
    """Return what the bundle promises about the reports: of its prices, and of the audit in its report."""
    if release.mechanism != "gaussian" or job.study.release is None:
        return release.statement
    return (
        f"{release.statement} The audit in the report is computed from reports that the third party randomized once "
        "more, the same for every fit of the study: "
        f"epsilon {job.study.release.randomized_epsilon:g} on top, paid once."
    )


def _for_console(job: _Job, summary: dict[str, Any], release: Release) -> dict[str, Any]:
    """Return what the operator's console shows of a fit: the comparison of groups, from what was released."""
    return {
        "mechanism": release.mechanism,
        "epsilon": release.epsilon if np.isfinite(release.epsilon) else None,
        "delta": release.delta,
        "statement": _statement(job, release),
        "findings": summary["findings"],
        "sections": [s for s in summary["sections"] if s["id"] in ("price_comparison", "group_means")],
    }
