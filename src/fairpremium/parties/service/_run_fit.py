"""From a leased fit to its bundle: join, check the rules, fit, price all rows, audit, sign.

Everything here is a function of the sealed portfolio, the reports and the key of the epoch: a fit that is begun again,
after a kill or by another worker, ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, insert, select

from fairpremium import __version__
from fairpremium.audit import render_report
from fairpremium.documents import canonical_json
from fairpremium.errors import FairPremiumError
from fairpremium.families import get_family
from fairpremium.models import LinearModel
from fairpremium.noise import AnchorNoise, LikelihoodNoise, NoiseEstimator
from fairpremium.parties.bundle import feature_ranges, write_bundle
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import (
    EstimatedChannel,
    Problem,
    Refusal,
    ReleaseRules,
    channel_of,
    list_allowed,
    round_count,
    stored_fields,
)
from fairpremium.parties.release import (
    NUMBER_RANGE,
    Claims,
    ClaimSettings,
    FileCheckpoint,
    FitSettings,
    RefusedError,
    Release,
    ReleaseSettings,
    RuleResult,
    check_fit_rows,
    check_overlap,
    default_release,
    describe_arithmetic,
    find_outside_range,
    fit_release,
    rarest_report,
    recode,
    recode_draws,
    recode_reports,
)
from fairpremium.parties.store.log import store_checkpoint
from fairpremium.parties.store.schema import fits, releases
from fairpremium.privacy import Channel

from ._budget import plan_of, releases_to
from ._bundle_contents import describe_for_console, price_rows, summarize, write_manifest
from ._context import ServiceContext
from ._epochs import released_number
from ._even_time import wait_for_step
from ._fit_inputs import FitJob, JoinedReports, find_reports, frame, per_unit, read_job
from ._leases import Lease, finish_fit, record_progress, refund
from ._row_sets import hash_keys, read_row_set, store_row_set
from ._studies import lock_study, spec_of, study_row
from .erasure import steps_path, workspace_prefix
from .operations import log_event
from .reports import all_sources, prepare_snapshot, take_snapshots, waits_for_snapshot

# Reasons of our own: the text of an error may quote data.
_REASONS = {
    "RiskUnboundedError": "a group has too little information for this model",
    "ConvergenceError": "the solver found no solution",
    "NotIdentifiedError": "they do not tell the noise of the reports",
    "OutOfRangeError": "a price would be far outside the range of the outcomes",
    "UnattainableReferenceError": "no reference distribution balances the portfolio",
    "MissingExtraError": "the service does not have this model class installed",
    "TermsError": "its terms do not fit its columns",
}

Tell = Callable[[str, float], None]


def run_fit(context: ServiceContext, lease: Lease) -> None:
    """Work on a leased fit until it has ended, one way or another."""
    started = time.monotonic()

    def tell(phase: str, progress: float) -> None:
        point(f"fit.{phase}")
        wait_for_step(started, context.limits.step_seconds)
        context.database.write(lambda c: record_progress(c, lease, phase, progress))

    _take_snapshot(context, lease)
    job = context.database.read(lambda c: read_job(c, context, lease))
    values: dict[str, Any]
    try:
        state, values = "succeeded", _work(context, job, tell)
    except RefusedError as refused:
        broken = next(v for v in refused.rule_results if not v.passed)
        refusal = Refusal(rule=broken.rule, title=broken.title, limit=broken.limit, column=broken.column)
        state, values = "refused", {"refusal": refusal.model_dump_json()}
    except Problem as problem:
        if problem.code == "storage-full":  # it passes
            raise
        state, values = "failed", {"problem": json.dumps(problem.to_dict())}
    except (FairPremiumError, ValueError, ArithmeticError) as error:
        reason = _REASONS.get(type(error).__name__, "its numbers do not allow it")
        state, values = "failed", {"problem": json.dumps(Problem("cannot-fit", reason).to_dict())}
    point("fit.before_publish")
    wait_for_step(started, context.limits.step_seconds)
    if not context.database.write(lambda c: finish_fit(c, context, lease, state, **values)) and "sha256" in values:
        context.files.delete(values["sha256"])  # a bundle has the name of its fit in it: nobody else has the same
    point("fit.after_publish")


def _take_snapshot(context: ServiceContext, lease: Lease) -> None:
    """Take the snapshot of the reports from which everything in the epoch of a fit is computed, if there is none.

    Files are written in a transaction of their own, in which others can still write to the log. How long that takes
    depends on the reports and withdrawals that wait, and the insurer sees when the fit goes on: it goes on after a
    time that follows from released numbers, or a multiple of it.
    """
    this = (fits.c.party == lease.party, fits.c.id == lease.fit)
    study = context.database.read(lambda c: c.execute(select(fits.c.study).where(*this)).scalar_one())
    if not context.database.read(lambda c: waits_for_snapshot(c, study)):
        return
    started = time.monotonic()
    before = context.database.read(lambda c: released_number(c, study))
    with context.files.hold():
        context.database.write(lambda c: prepare_snapshot(c, context, study))
        point("fit.snapshot")
        context.database.write(lambda c: take_snapshots(c, context, lease.party, study))
    spec, after = context.database.read(lambda c: (spec_of(study_row(c, study)), released_number(c, study)))
    step = context.limits.snapshot_step(len(all_sources(spec)), max(before, after))
    if wait_for_step(started, step):
        log_event("snapshot.slow", party=lease.party, fit=lease.fit, attempt=lease.attempt, seconds=step)


def _work(context: ServiceContext, job: FitJob, tell: Tell) -> dict[str, Any]:
    """Do the work of a fit, and return the columns of its result."""
    tell("joining", 0.0)
    joined = find_reports(context, job)
    # All rows, whether they reported or not: which rows a fit has is no secret of the reports.
    rows = hash_keys(joined.keys, job.secret)
    keys_sha256 = store_row_set(context, rows)
    identity = _identity(context, job)
    tell("checking", 0.1)
    privacy = _privacy(job, identity)
    _channel(job)  # what no reports could make fit costs nothing
    _check_numbers(job)
    if (privacy.mechanism == "gaussian" or job.needs_check) and job.rows <= context.limits.memory_rows:
        _check_rows(job)

    def charge(connection: Connection, cost: ReleaseSettings) -> None:
        """Pay before the reports are looked at: a refusal or a failure later on tells of them, too."""
        record_progress(connection, job.lease, "checking", 0.2)  # the lease still holds
        lock_study(connection, job.study_id)  # two fits must not both spend the rest of the budget
        made = releases_to(connection, job.study_id, job.lease.party)
        earlier = [row for row in made if row.fit != job.lease.fit]
        _check_overlap(context, job, rows, earlier)
        _check_budget(job, privacy, identity, earlier)
        if cost is not privacy and len(earlier) < len(made):  # an attempt that was killed has paid this, or all
            return
        mine = {"study": job.study_id, "party": job.lease.party, "fit": job.lease.fit}
        paid: dict[str, Any] = {"mechanism": cost.mechanism, "epsilon": cost.epsilon, "delta": cost.delta}
        paid["attributes"] = None if job.names == (None,) else json.dumps(job.names)
        refund(connection, job.lease.party, job.lease.fit)  # it is charged anew at once
        about = {"keys_sha256": keys_sha256, "identity": identity, "epoch": job.epoch}
        connection.execute(insert(releases).values(**mine, **paid, **about))

    draw = _second_draw(job)
    if draw is not None:
        context.database.write(lambda c: charge(c, draw))
        tell("matching", 0.2)
        _check_matches(job, joined)
    context.database.write(lambda c: charge(c, privacy))
    steps = FileCheckpoint(steps_path(context, identity))
    with _workspace(context, job.lease) as name:
        folder = Path(name)
        tell("fitting", 0.2)
        release = _fit(context, job, joined, privacy, folder, steps, lambda _, f: tell("fitting", 0.2 + 0.5 * f))
        tell("pricing", 0.7)
        premiums = folder / "premiums.parquet"
        price_rows(job, release.pricer, premiums)
        tell("reporting", 0.8)
        summary = summarize(job, release, joined.show)
        tell("signing", 0.9)
        bundle = folder / "bundle.zip"
        checkpoint = context.database.write(lambda c: store_checkpoint(c, context.keys.current(c), job.log_seq))
        write_bundle(
            bundle,
            pricer=release.pricer,
            manifest=write_manifest(job, release, summary, checkpoint),
            premiums=premiums,
            report_html=render_report(summary),
            sign=context.key,
            ranges=feature_ranges(job.parts, job.features),
            level=job.spec.level,
        )
        digest = context.files.put(bundle)
    steps.remove()
    shown = json.dumps(describe_for_console(job, release, summary))
    return {"sha256": digest, "matched": round_count(release.reported, job.study.rules), "summary": shown}


def _workspace(context: ServiceContext, lease: Lease) -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the rows of a fit, and remove those of its attempts that were killed."""
    prefix = workspace_prefix(lease.party, lease.fit)
    for left in context.files.folder.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return tempfile.TemporaryDirectory(dir=context.files.folder, prefix=prefix)


# --- the model -------------------------------------------------------------------------------------------------------


def _fit(
    context: ServiceContext,
    job: FitJob,
    joined: JoinedReports,
    privacy: ReleaseSettings,
    folder: Path,
    steps: FileCheckpoint,
    tell: Tell,
) -> Release:
    """Fit to a table in memory, or piece by piece to files with the reports beside the rows."""
    channel = _channel(job)
    drawn = None if privacy.mechanism == "gaussian" else joined.show(job).reports
    reports = joined.reports() if drawn is None else drawn.reports  # stored ones only where their sums get noise
    options: dict[str, Any] = {"groups": job.labels, "rules": job.study.rules, "drawn": drawn}
    options |= {"progress": tell, "checkpoint": steps}
    if job.rows > context.limits.memory_rows:
        if isinstance(channel, NoiseEstimator):
            raise Problem("cannot-fit", "an unknown channel needs a portfolio that fits into memory")
        source = folder / "joined"
        if isinstance(channel, Channel) and len(job.names) > 1:  # a column of a file holds no tuples
            reports, options["drawn"] = recode_reports(reports, channel), drawn and recode_draws(drawn, channel)
            channel = recode(channel)
            options["groups"] = channel.reports
        job.write_joined(reports, options["groups"], source)
        job.check_terms(str(source))
        release = fit_release(
            _settings(job), str(source), *job.roles, job.report_column, channel, privacy, features=job.features,
            **options,
        )  # fmt: skip
        shutil.rmtree(source)
        return release
    table = pa.concat_tables(job.tables())
    X, losses, volume = job.split(table)
    names = [feature.name for feature in job.portfolio.x_star]
    if isinstance(channel, NoiseEstimator) and names:  # from features of its own (Algorithm 2)
        y = per_unit(losses, volume, of="counts")
        channel = _Estimated(channel.fit(frame(table, names), y, sensitive=reports, sample_weight=volume))
    return fit_release(_settings(job), X, losses, volume, reports, channel, privacy, **options)


def _settings(job: FitJob) -> FitSettings | ClaimSettings:
    spec = job.spec
    reference: Any = spec.reference
    if isinstance(reference, dict):
        groups = job.labels if job.channel is None else job.channel.groups
        labels = {", ".join(map(str, label)) if isinstance(label, tuple) else str(label): label for label in groups}
        if set(reference) != set(labels) or len(labels) != len(groups):
            raise Problem("cannot-fit", f"the reference must give a weight to each group: {list_allowed(labels)}")
        reference = {labels[name]: weight for name, weight in reference.items()}
    model = spec.model if spec.terms is None else LinearModel(terms=spec.terms)
    common: dict[str, Any] = {"model": model, "correction": spec.correction, "pooling": spec.pooling}
    if spec.claims is None:
        return FitSettings(_family(spec.family, spec.power), reference=reference, **common)
    frequency, severity, cap = spec.claims.frequency, _family(spec.claims.severity, spec.power), spec.claims.cap
    return ClaimSettings(frequency, severity, cap, reference=reference, **common)


def _family(name: str, power: float | None) -> Any:
    return name if power is None else {"name": name, "power": power}


def _channel(job: FitJob) -> Channel | NoiseEstimator | None:
    attribute = job.attribute
    if not isinstance(attribute, EstimatedChannel):
        return job.channel
    groups = attribute.groups
    if attribute.method == "anchor":
        if attribute.anchor is None:
            raise Problem("cannot-fit", "the study declares no anchor, without which reports do not tell their noise")
        group, share = attribute.anchor.group, attribute.anchor.share
        return AnchorNoise(attribute.n_splits, group=group, anchor_share=share, groups=groups, random_state=0)
    settings = _settings(job)
    family = settings.frequency if isinstance(settings, ClaimSettings) else settings.family
    return LikelihoodNoise(family=family, groups=groups, random_state=0)


class _Estimated(NoiseEstimator):
    """An estimate that was made before, from features of its own."""

    def __init__(self, estimate: NoiseEstimator):
        self.estimate = estimate

    def __sklearn_clone__(self) -> _Estimated:
        """Return it with what was estimated, which a copy of its parameters would not have."""
        return self

    def fit(self, X: Any, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> _Estimated:
        """Return the estimate."""
        self.__dict__.update({name: value for name, value in vars(self.estimate).items() if name.endswith("_")})
        return self


# --- the rules -------------------------------------------------------------------------------------------------------


def _privacy(job: FitJob, identity: str) -> ReleaseSettings:
    """Choose the mechanism of rule 9."""
    rule, spec = job.study.release, job.spec
    if rule is None:
        return ReleaseSettings("none")
    claims = spec.claims is not None
    wanted = spec.release
    if wanted == "default":
        wanted = default_release(spec.model, spec.correction, job.rows, claims=claims)
    if wanted == "gaussian" and (claims or spec.model != "linear" or spec.correction not in ("auto", "inverse")):
        allowed = (
            "Gaussian noise is for one linear model with correction inverse or auto; release randomized is for all"
        )
        raise Problem("not-allowed-here", allowed)
    if wanted == "randomized" or isinstance(job.study.attribute, EstimatedChannel):
        return _randomized(job, rule)
    noise_key = hmac.digest(job.draw_key, identity.encode(), "sha256")
    return ReleaseSettings("gaussian", rule.fit_epsilon, rule.delta, noise_key)


def _second_draw(job: FitJob) -> ReleaseSettings | None:
    """Return what the second draw of the reports costs, which every fit of an epoch needs; None where rule 9 is off."""
    return None if job.study.release is None else _randomized(job, job.study.release)


def _randomized(job: FitJob, rule: ReleaseRules) -> ReleaseSettings:
    return ReleaseSettings("randomized", len(job.names) * rule.randomized_epsilon, rule.delta, job.draw_key)


def _check_matches(job: FitJob, joined: JoinedReports) -> None:
    """End a fit of rows that match (almost) no report, before more than the second draw is charged for it.

    Which rows match is known from the reports after that draw alone. The corrected portfolio uses the same draw, and
    pays nothing for it in the same epoch.
    """
    for name, found in joined.count_matches(job).items():
        if found.is_none:
            of = "" if name is None else f" of {name}"
            below = f"{100 * found.limit:.2g} % of {job.rows:,} rows"
            raise Problem("no-match", f"their noised number{of} is below {below}, where it is not told apart from none")


def _identity(context: ServiceContext, job: FitJob) -> str:
    """Return what tells two fits apart: settings, rows, epoch, version. The same fit has the same noise, for free.

    The reports of an epoch never change, so that nobody learns from the noise whether they did. Another version or
    processor, or rows that come from files, may be added up in another order, and the last digit of a sensitivity gives
    other noise: there a repeat is paid.
    """
    left_out = ("portfolio", "attributes", "report", "epoch")
    settings = {name: value for name, value in stored_fields(job.spec).items() if name not in left_out}
    if job.names != (None,):  # named or not, in whatever order
        settings["attributes"] = list(job.names)
    content = {"settings": settings, "rows": job.portfolio_sha256, "epoch": job.epoch, "version": __version__}
    content |= {"arithmetic": describe_arithmetic(), "in_memory": job.rows <= context.limits.memory_rows}
    return hashlib.sha256(canonical_json(content)).hexdigest()


def _check_numbers(job: FitJob) -> None:
    """Refuse numbers beyond those that can be computed with, and outcomes that the family does not have.

    It is done before anything is paid, and the reports play no part in it.
    """
    settings, (outcome, _) = _settings(job), job.roles
    family = get_family(settings.family) if isinstance(settings, FitSettings) and isinstance(outcome, str) else None
    names = [column.name for column in job.portfolio.columns if column.kind == "number"]
    for table in job.tables():
        outside = find_outside_range({name: table.column(name).to_numpy() for name in names})
        if outside is not None:
            raise Problem("cannot-fit", f"each number of {outside} must be {NUMBER_RANGE}")
        if family is not None and not family.outcome.contains(table.column(outcome).to_numpy().astype(float)).all():
            raise Problem("cannot-fit", f"an outcome of the family {family.name} must be {family.outcome}")


def _check_rows(job: FitJob) -> None:
    """Refuse rows that no reports could make fit, before anything is paid: the reports play no part in it."""
    X, losses, volume = job.split(pa.concat_tables(job.tables()))
    job.check_terms(X)
    if isinstance(losses, Claims) and not all(counts.any() for counts in losses.counts.values()):
        raise Problem("cannot-fit", "a peril has no claims")
    check_fit_rows(_settings(job), X, losses, volume, job.labels, job.study.rules)


def _check_overlap(context: ServiceContext, job: FitJob, rows: Any, earlier: list[Any]) -> None:
    """Apply rule 5 to the rows of this insurer's fits, given by the hashes of their keys."""
    digests = sorted({row.keys_sha256 for row in earlier})
    if not digests:
        return
    known = channel_of(job.study.attribute)
    rarest = rarest_report(known) if known is not None else 1 / len(job.labels)
    sets = [read_row_set(context, digest, job.secret) for digest in digests] + [rows]
    result = check_overlap(sets, job.study.rules, rarest=rarest)
    if not result.passed:
        raise RefusedError([result])


def _check_budget(job: FitJob, privacy: ReleaseSettings, identity: str, earlier: list[Any]) -> None:
    """Apply rule 9 to all releases to this insurer."""
    rule = job.study.release
    if rule is None:
        return
    plan, before = plan_of(rule, earlier, *((job.epoch, name) for name in job.names)), plan_of(rule, earlier)
    known = {row.identity for row in earlier if row.mechanism == "gaussian"}
    if privacy.mechanism == "gaussian" and identity not in known:
        plan = plan.after("gaussian", privacy.epsilon)
    if before.spent < plan.spent and plan.spent > rule.epsilon * (1 + 1e-9):
        limit = f"epsilon {rule.epsilon:g} at delta {rule.delta:g}"
        raise RefusedError([RuleResult(9, False, limit, f"{before.spent:.3g} spent")])
