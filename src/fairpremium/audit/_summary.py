"""What an audit report says, as plain data: every table with its words, for a price list or for a pricer."""

import hashlib
import json
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium import __version__
from fairpremium.errors import ExposureWarning, ModelFileError
from fairpremium.families import Family, get_family
from fairpremium.models import check_weight
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, premium_band
from fairpremium.privacy import Channel, KeyedChannels, RandomizedResponse

from . import _audit_report_text as text
from ._audit_data import AuditData, as_pandas, n_rows, to_scalar
from ._calibration import compute_calibration
from ._channel_sensitivity import compute_channel_band, compute_keep_sensitivity
from ._comparison import compute_price_comparison, named_classes
from ._concentration import compute_gini, compute_lorenz
from ._discrimination import compute_discrimination, compute_propensities
from ._findings import findings
from ._groups import compute_demographic_disparity, compute_group_deviance, compute_group_means, compute_loss_ratio_gap
from ._price_changes import compute_adverse_selection, compute_balance, compute_premium_change, compute_prices_by_group
from .disparity import ALL_PAIRS, disparity_tables
from .drawing import BEST_ESTIMATE, DISCRIMINATION_FREE, MAX_GROUPS, UNAWARE
from .price_lists import (
    compute_change_by_factor,
    compute_dislocation,
    compute_limit_effect,
    compute_list_discrimination,
    discrimination_free_list,
    limit_changes,
)
from .report import ProxyEffect, ReportDetails, build_panel, choose_classes, measure_proxy_effect

FORMAT = "fairpremium-audit"
FORMAT_VERSION = 1
MODEL_HASH = "content of the model file (its field sha256)"
_FIT_ROLES = ("sensitive", "channel", "channel_key", "sample_weight", "exposure", "cluster")
_TYPICAL = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of the premium of the policies whose band is shown
Section = dict[str, Any]


def summarize_prices(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Channel | Mapping[Any, Channel | None] | None = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
    family: str | Family = "normal",
    title: str = "Who pays what, and is it fair?",
    unit: str = "",
    notes: Sequence[str] = (),
    hashes: Mapping[str, str] | None = None,
    channel_source: str = "",
    channel_estimated: bool = False,
    X: Any = None,
    pricer: DiscriminationFreePricer | FrequencySeverityPricer | None = None,
    current: Any = None,
    cap: float | None = None,
    floor: float | None = None,
    decisions: Any = None,
    favourable: Any = None,
    controls: Any = None,
    against: Any = None,
    threshold: float | None = None,
    keep: tuple[float, float] | None = None,
    channels: Sequence[Channel] | Mapping[str, Channel] | None = None,
    details: ReportDetails | None = None,
) -> dict[str, Any]:
    """Audit a price list of any origin: collect all that its audit report says.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; `by` adds the tables within each class.
    family : str or Family
        Whose deviance measures the premium's error.
    title : str
    unit : str
        What an amount is measured in, such as "EUR a year".
    notes : sequence of str
        Sentences about the data, such as where they come from.
    hashes : mapping of str to str, optional
        Name and SHA-256 of every file that the numbers come from.
    channel_source : str
        Who says which channel the reports went through.
    channel_estimated : bool
        Whether the channel is an estimate; the audit report then says that intervals take it as given.
    X : data frame or array of shape (n, features), optional
        What a tariff may use: the audit report then says what proxies do in this list, and what a discrimination-free
        list would charge.
    pricer : DiscriminationFreePricer or FrequencySeverityPricer, optional
        A fitted pricer for these comparisons; by default one with this `family` is fitted to these rows.
    current : array-like of shape (n,), optional
        Premiums in force: the audit report then says who moves how much from them to `premiums`.
    cap, floor : float, optional
        Limits of the relative change, as in `limit_changes`: adds what they do to the list.
    decisions, favourable : optional
        As in `compute_adverse_impact`: adds adverse impact and denial odds ratio.
    controls : data frame or array of shape (n, controls), optional
        Adds the regression of the premium on group and controls, `compute_marginal_effect`.
    against : label, optional
        The group that others are compared with in the tables that supervisors ask for; by default the largest.
    threshold : float, optional
        Ratios of decisions and of mean premiums between it and its inverse are within the threshold; checked if it is
        given or if there are decisions, then four fifths by default. With any of these arguments the audit report also
        has standardized differences and, with `X`, the drivers of disparity.
    keep, channels
        Channels that are possible beside the one in use, as in `compute_channel_band`: adds the band of group means.
        With `X` and without `pricer` also that of the discrimination-free premium of five policies, from cheap to dear.
    details : ReportDetails, optional
        Insurer, tariff version, period and who signs.

    Returns
    -------
    dict
        JSON types only; `render_report`, `render_markdown` and `save_report` make documents of it.
    """
    roles = {
        "sensitive": sensitive, "channel": channel, "channel_key": channel_key, "sample_weight": sample_weight,
        "exposure": exposure, "cluster": cluster, "level": level,
    }  # fmt: skip
    if pricer is not None and X is None:
        raise ValueError("Got pricer=... without X, but expected the features that it prices.")
    privacy = _describe_channel(channel, channel_source, channel_estimated)
    head = _head(premiums, y, roles, title, unit, notes, hashes, privacy, details)
    effects: dict[str, ProxyEffect | None] = {}
    with _warned_once():
        sections = _sections_of_prices({"premiums": premiums}, premiums, y, roles, by, family, keep, channels)
        compared = disparity_tables(
            premiums, y, roles, X=X, decisions=decisions, favourable=favourable, controls=controls, against=against,
            threshold=threshold,
        )  # fmt: skip
        asked = [_section(name, table) for name, table in compared]
        if not all(given is None for given in (decisions, controls, against, threshold)):
            sections += [section for section in asked if not section["id"].endswith(ALL_PAIRS)]
        if X is not None:
            free = discrimination_free_list(
                premiums, X, y, pricer=pricer, family=family, **{name: roles[name] for name in _FIT_ROLES}
            )
            whose = "given" if pricer is not None else "fitted to these rows"
            head["notes"].append(
                f"What is said about proxies rests on best estimates of a model that was {whose}: "
                f"{_kind(free.pricer)}, with the features "
                f"{', '.join(free.pricer.design_.names)}."
            )
            head["hashes"] |= {} if pricer is None else _model_hash(pricer)
            pricer = free.pricer
            measures = compute_list_discrimination(premiums, X, pricer=pricer, **roles)
            h = free.premiums / free.loading
            lists = {} if current is None else {"current": current}
            guessed = _propensity(pricer, X, roles)
            for name, prices in {**lists, "premiums": premiums}.items():
                effects[name] = measure_proxy_effect(prices, h, X, pricer=pricer, propensity=guessed, **roles)
            to_free = compute_premium_change(premiums, free.premiums, **roles)
            sections = [
                _section("list_discrimination", measures),
                _section("premium_change", to_free, "_to_free"),
                *sections,
            ]
            if isinstance(pricer, DiscriminationFreePricer) and whose != "given" and (keep or channels):
                fitted_to = {name: roles[name] for name in _FIT_ROLES if name != "channel"}
                risks = _typical_risks(h)
                band = pricer.sensitivity(X, y, rows=risks, keep=keep, channels=channels, level=level, **fitted_to)
                sections.append(_section("premium_band", premium_band(band).sort_values("premium")))
        sections = [*_sections_of_change(premiums, X, pricer, roles, current, cap, floor), *sections]
    return _complete(head, sections, None, effects, {section["id"]: section["records"] for section in asked})


def summarize_pricer(
    pricer: DiscriminationFreePricer | FrequencySeverityPricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
    title: str = "Premiums without discrimination",
    unit: str = "",
    notes: Sequence[str] = (),
    hashes: Mapping[str, str] | None = None,
    truth: Any = None,
    channel_source: str = "",
    count_in: int = 1,
    created: datetime | None = None,
    current: Any = None,
    cap: float | None = None,
    floor: float | None = None,
    keep: tuple[float, float] | None = None,
    channels: Sequence[Channel] | Mapping[str, Channel] | None = None,
    band: pd.DataFrame | None = None,
    by_attribute: Mapping[str, tuple[Any, Channel | None]] | None = None,
    details: ReportDetails | None = None,
    collected: Channel | None = None,
    release: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Audit a fitted pricer: its discrimination-free premium, next to the other two prices.

    Parameters
    ----------
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
        Fitted; its channel is that of the reports.
    X, y, sensitive, channel_key, sample_weight, exposure, cluster
        Rows to audit: those it was fitted on, or better, others. For claims y is their amount.
    by : str or array-like of shape (n,), optional
        The risk class of each row, or the name of a column of `X` that holds it. By default the three prices are
        compared in classes of the rating factors through which proxies act most, and nothing else is divided.
    truth : object with ``best_estimate``, ``unaware`` and ``discrimination_free``, optional
        A simulated portfolio, whose true prices are shown beside the estimates.
    count_in : int
        Reports are counted to the nearest multiple of this, for readers who may not learn how many there are; the
        fingerprint of the audited columns then leaves reports out.
    level, title, unit, notes, hashes, channel_source
        As in `summarize_prices`.
    created : datetime, optional
        When the audit report was made; now by default.
    current, cap, floor
        As in `summarize_prices`: who moves how much from the premiums in force to the discrimination-free ones. Both
        must have the same loadings; `summarize_prices` takes premiums of any origin.
    keep, channels
        As in `summarize_prices`.
    band : DataFrame, optional
        From `DiscriminationFreePricer.sensitivity`: adds the band of the premiums of its risks.
    by_attribute : mapping of str to (array-like of shape (n,), Channel or None), optional
        Where groups are combinations of several attributes: the reports of each attribute by itself, and their
        channel. Adds the tables of each attribute, in which rows count that reported this one.
    details : ReportDetails, optional
        Insurer, tariff version, period and who signs.
    collected : Channel, optional
        The channel from a person to a report, if a third party randomized the reports once more; by default that of
        the pricer.
    release : mapping, optional
        What a third party added to protect the reports: ``epsilon`` (None for nothing), ``delta``, and ``reports``, the
        number of reports as far as it may be told. Where the prices have that noise and the audit uses reports that
        were randomized once more, ``audit_epsilon`` is that of this second draw.

    Returns
    -------
    dict
        JSON types only.
    """
    channel = pricer.channel_
    classes = by
    if isinstance(by, str):  # classes of a column of X carry its name
        codes, names = named_classes(X, by, n_rows(X, "X"))
        classes = pd.Series(pd.Categorical.from_codes(codes, categories=[f"{by}: {name}" for name in names]))
    roles = {
        "sensitive": sensitive, "channel": channel, "channel_key": channel_key, "sample_weight": sample_weight,
        "exposure": exposure, "cluster": cluster, "level": level,
    }  # fmt: skip
    prices = {
        BEST_ESTIMATE: np.asarray(pricer.predict_best_estimate(X), dtype=np.float64),
        UNAWARE: np.asarray(pricer.predict_unaware(X)),
        DISCRIMINATION_FREE: np.asarray(pricer.predict(X)),
    }
    premiums = prices[DISCRIMINATION_FREE]
    privacy = _describe_channel(
        channel, channel_source or _source(pricer), pricer.noise_ is not None, collected, release
    )
    head = _head(premiums, y, roles, title, unit, notes, hashes, privacy, details, count_in, created)
    head["hashes"] |= _model_hash(pricer)
    two_prices = {name: prices[name] for name in (UNAWARE, DISCRIMINATION_FREE)}
    volume = check_weight(sample_weight, len(premiums), exposure=exposure)
    compared = classes
    if by is None:
        volume = np.ones(len(premiums)) if volume is None else volume
        compared = choose_classes(_used_columns(pricer, X), prices[UNAWARE] - premiums, volume)
    comparison = compute_price_comparison(
        pricer, X, by=compared, level=level, truth=truth, sample_weight=sample_weight, exposure=exposure
    )
    with _warned_once():
        in_use, guessed = (
            ({UNAWARE: prices[UNAWARE]}, None)
            if current is None
            else (
                {"current": current},
                _propensity(pricer, X, roles),
            )
        )
        effects = {
            name: measure_proxy_effect(values, premiums, X, pricer=pricer, propensity=guessed, **roles)
            for name, values in in_use.items()
        }
        sections = [
            _section("price_comparison", comparison) | {"classes": describe_classes(comparison)},
            *_sections_of_change(premiums, X, pricer, roles, current, cap, floor),
            *_sections_of_model(prices, _seen_features(pricer, X), y, roles, classes),
            *_sections_of_prices(two_prices, premiums, y, roles, classes, _law(pricer), keep, channels),
            *([] if band is None else [_section("premium_band", premium_band(band))]),
            *_sections_by_attribute(premiums, y, roles, by_attribute),
        ]
        compared_groups = disparity_tables(premiums, y, roles, X=_used_columns(pricer, X))
        asked = {name: _records(as_pandas(table)) for name, table in compared_groups}
    return _complete(head, sections, _describe_model(pricer), effects, asked)


# --- sections ---


@contextmanager
def _warned_once() -> Iterator[None]:
    """Leave out the warning about the losses that the head of the report gave; every table would repeat it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExposureWarning)
        yield


def _sections_of_prices(
    prices: Mapping[str, Any],
    premiums: Any,
    y: Any,
    roles: dict[str, Any],
    by: Any,
    family: str | Family,
    keep: tuple[float, float] | None,
    channels: Sequence[Channel] | Mapping[str, Channel] | None,
) -> list[Section]:
    pair = (premiums, y)
    named = {text.PRICE_NAMES.get(name, name): values for name, values in prices.items()}
    without_reports = {name: roles[name] for name in ("sample_weight", "exposure", "cluster", "level")}
    sections = [
        _section("group_means", compute_group_means(*pair, **roles)),
        _section("demographic_disparity", compute_demographic_disparity(premiums, **roles)),
        _section("loss_ratio_gap", compute_loss_ratio_gap(*pair, **roles)),
        _section("calibration", compute_calibration(*pair, **roles)),
        _section("balance", compute_balance(named, y, **without_reports)),
        _section("lorenz", compute_lorenz(*pair, **roles)),
        _section("gini", compute_gini(*pair, **roles)),
    ]
    law = get_family(family)
    data = AuditData.read({"premiums": premiums, "y": y}, by=None, **roles)
    if law.mean.contains(data["premiums"]).all() and law.outcome.contains(data["y"]).all():
        sections.append(_section("group_deviance", compute_group_deviance(*pair, family=law, **roles)))
    if by is not None:
        sections += [
            _section("group_means", compute_group_means(*pair, by=by, **roles), "_by_class"),
            _section("loss_ratio_gap", compute_loss_ratio_gap(*pair, by=by, **roles), "_by_class"),
        ]
    if isinstance(roles["channel"], RandomizedResponse):
        sections.append(_section("keep_sensitivity", compute_keep_sensitivity(*pair, keep=keep, **roles)))
    if keep is not None or channels is not None:
        sections.append(_section("channel_band", compute_channel_band(*pair, keep=keep, channels=channels, **roles)))
    return sections


def _typical_risks(premiums: Any) -> npt.NDArray[np.intp]:
    """Return the positions of five policies, at the 5, 25, 50, 75 and 95 % quantiles of the premium."""
    values = np.asarray(premiums, dtype=np.float64)
    places = np.argsort(values, kind="stable")[np.round(np.array(_TYPICAL) * (len(values) - 1)).astype(np.intp)]
    return np.asarray(list(dict.fromkeys(places.tolist())), dtype=np.intp)


def _used_columns(pricer: DiscriminationFreePricer | FrequencySeverityPricer, X: Any) -> Any:
    """Return the columns that the prices depend on: terms may leave some out."""
    design = pricer.design_
    return X if design.terms is None else as_pandas(X)[list(design.names)]


def _seen_features(pricer: DiscriminationFreePricer | FrequencySeverityPricer, X: Any) -> Any:
    """Return what the prices depend on: the columns, or what terms made of some of them."""
    design = pricer.design_
    return X if design.terms is None else design.transform(X, unseen=pricer.unseen_levels)


def _sections_by_attribute(
    premiums: Any, y: Any, roles: dict[str, Any], by_attribute: Mapping[str, tuple[Any, Channel | None]] | None
) -> list[Section]:
    """Compare the groups of each attribute by itself; a group is called by its attribute, too."""
    if not by_attribute:
        return []
    found: dict[str, list[pd.DataFrame]] = {}
    for name, (reports, channel) in by_attribute.items():
        own = {**roles, "sensitive": reports, "channel": channel, "channel_key": None}
        tables = {
            "group_means": compute_group_means(premiums, y, **own),
            "demographic_disparity": compute_demographic_disparity(premiums, **own),
            "loss_ratio_gap": compute_loss_ratio_gap(premiums, y, **own),
        }
        for measure, table in tables.items():
            called = as_pandas(table).copy()
            for column in ("group", "against"):
                if column in called:
                    called[column] = [f"{name}: {'everyone' if group is None else group}" for group in called[column]]
            found.setdefault(measure, []).append(called)
    return [_section(measure, pd.concat(tables), "_by_attribute") for measure, tables in found.items()]


def _sections_of_model(prices: dict[str, Any], X: Any, y: Any, roles: dict[str, Any], classes: Any) -> list[Section]:
    old, new, best = prices[UNAWARE], prices[DISCRIMINATION_FREE], prices[BEST_ESTIMATE]
    propensity = compute_propensities(X, **{name: roles[name] for name in ("sensitive", "channel", "channel_key")})
    measures = compute_discrimination(old, best_estimate=best, discrimination_free=new, propensity=propensity, **roles)
    sections = [
        _section("prices_by_group", compute_prices_by_group(prices, **roles)),
        _section("discrimination", measures),
        _section("premium_change", compute_premium_change(old, new, **roles)),
        _section("premium_change", compute_premium_change(old, new, bins=10, **roles), "_by_decile"),
    ]
    if classes is not None:
        by_class = compute_premium_change(old, new, by=classes, **roles)
        sections.append(_section("premium_change", by_class, "_by_class"))
    return [*sections, _section("adverse_selection", compute_adverse_selection(new, y, best, **roles))]


def _propensity(pricer: DiscriminationFreePricer | FrequencySeverityPricer, X: Any, roles: dict[str, Any]) -> Any:
    """Return P(D given x), with the groups in the order of the reports."""
    given = {name: roles[name] for name in ("sensitive", "channel", "channel_key")}
    return compute_propensities(_seen_features(pricer, X), **given)


def _sections_of_change(
    new: Any,
    X: Any,
    pricer: DiscriminationFreePricer | FrequencySeverityPricer | None,
    roles: dict[str, Any],
    current: Any,
    cap: float | None,
    floor: float | None,
) -> list[Section]:
    """Say who moves how much from the premiums in force, and what limits on the change do."""
    is_limited = cap is not None or floor is not None
    if current is None:
        if is_limited:
            raise ValueError("Got cap or floor without current, but expected the premiums in force to limit a change.")
        return []
    sections = [
        _section("dislocation", compute_dislocation(current, new, **roles)),
        _section("premium_change", compute_premium_change(current, new, **roles), "_from_current"),
    ]
    if X is not None:
        names = None if pricer is None or not pricer.design_.named else pricer.design_.names
        sections.append(
            _section("change_by_factor", compute_change_by_factor(current, new, X, factors=names, bands=5, **roles))
        )
    if is_limited:
        limited = limit_changes(
            current, new, cap=cap, floor=floor, **{name: roles[name] for name in ("sample_weight", "exposure")}
        )
        facts = {"cap": cap, "floor": floor, **limited._asdict()}
        del facts["premiums"]
        sections.append(_section("limited_change", pd.DataFrame([facts])))
        if pricer is not None:
            effect = compute_limit_effect(current, new, X, pricer=pricer, cap=cap, floor=floor, **roles)
            sections.append(_section("limit_effect", effect))
    return sections


def _section(name: str, table: Any, division: str = "") -> Section:
    return {"id": name + division, "measure": name, "records": _records(as_pandas(table))}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{key: _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    value = to_scalar(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _complete(
    head: dict[str, Any],
    sections: list[Section],
    model: dict[str, Any] | None,
    effects: Mapping[str, ProxyEffect | None],
    asked: Mapping[str, list[dict[str, Any]]] | None = None,
) -> dict[str, Any]:
    """Put the report together; `asked` are tables that the panel needs and no section shows."""
    tables = {section["id"]: section["records"] for section in sections}
    panel = build_panel({**tables, **(asked or {})}, head, effects, is_model=model is not None)
    return {
        **head,
        "panel": panel,
        "findings": findings(tables, head, model, panel),
        "model": model,
        "sections": [{**section, **text.describe_section(section["id"])} for section in sections],
        "limits": text.limits(model is not None or "list_discrimination" in tables, head["privacy"]),
        "definitions": text.definitions(model is not None or "list_discrimination" in tables),
    }


# --- what stands above and below the tables ---


def _head(
    premiums: Any,
    y: Any,
    roles: dict[str, Any],
    title: str,
    unit: str,
    notes: Sequence[str],
    hashes: Mapping[str, str] | None,
    privacy: dict[str, Any] | None,
    details: ReportDetails | None,
    count_in: int = 1,
    created: datetime | None = None,
) -> dict[str, Any]:
    data = AuditData.read({"premiums": premiums, "y": y}, by=None, **roles)
    reports, n = data.reports, len(data.reports)
    if len(data.groups) > MAX_GROUPS:
        raise ValueError(
            f"Got sensitive with {len(data.groups)} groups, but an audit report shows at most {MAX_GROUPS}; merge them "
            "first, such as ages to bands (before reports are drawn), or use the tables, such as compute_group_means."
        )
    counted = count_in * math.floor((n - reports.n_missing) / count_in + 0.5)
    if privacy is not None and privacy["release"] is not None and privacy["release"]["reports"] is not None:
        counted = min(privacy["release"]["reports"], n)  # what the shares of groups come from, too
    weighted = not (roles["sample_weight"] is None and roles["exposure"] is None)
    scale = _scale(float(np.average(np.abs(data["premiums"]), weights=reports.weight)))
    per = "" if scale == 1 else f"per {scale:,} {'units of volume' if weighted else 'policies'}"
    digest = hashlib.sha256()
    codes = [reports.code.astype(np.int32)] if count_in == 1 else []
    for column in (data["premiums"], data["y"], reports.weight, *codes):
        digest.update(np.ascontiguousarray(column).tobytes())
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "title": title,
        "version": __version__,
        "created": (created or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "notes": list(notes),
        "details": (details or ReportDetails()).to_dict(),
        "unit": unit,
        "scale": scale,  # amounts are shown times this
        "amounts": f"{unit} {per}".strip(),
        "level": roles["level"],
        "rows": n,
        "reports": counted,
        "missing_reports": max(n - counted, 0),
        "rounded_to": count_in,
        "persons": None if reports.cluster is None else int(reports.cluster.max()) + 1,
        "weighted": weighted,
        "groups": [_plain(group) for group in reports.groups],
        "privacy": privacy,
        "hashes": {**dict(hashes or {}), "audited columns": digest.hexdigest()},
    }


def _scale(mean: float) -> int:
    """Return by what amounts are multiplied so that they are read without zeros behind the point."""
    return 1 if mean >= 0.1 or mean == 0 else 1000 if mean >= 1e-4 else 1_000_000


def _describe_channel(
    channel: Any,
    source: str,
    estimated: bool,
    collected: Channel | None = None,
    release: Mapping[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Say what protects a report; of several sources the largest epsilon, and each of them under `sources`."""
    if channel is None:
        return None
    sources = {}
    if isinstance(channel, Mapping):
        if all(each is None for each in channel.values()):
            return None
        channel = KeyedChannels(channel)
        sources = {str(key): _describe_channel(each, source, estimated) for key, each in channel.items()}
    added = None if release is None else {name: _plain(release[name]) for name in ("epsilon", "delta", "reports")}
    if added is not None and release is not None and release.get("audit_epsilon") is not None:
        added["audit_epsilon"] = _plain(release["audit_epsilon"])
    return {
        **_noise(channel),
        "sha256": channel.descriptor()["sha256"],
        "estimated": estimated,
        "source": source or "declared by the author of this audit report",
        "collected": _noise(channel if collected is None else collected),
        "release": added,
        **({"sources": sources} if sources else {}),
    }


def _noise(channel: Any) -> dict[str, Any]:
    keep = getattr(channel, "keep", math.nan)
    finite = math.isfinite(channel.epsilon)
    return {
        "keep": None if math.isnan(keep) else keep,
        "epsilon": channel.epsilon if finite else None,
        "odds": math.exp(channel.epsilon) if finite else None,
    }


def _source(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> str:
    if pricer.noise_ is None:
        return "declared when the prices were fitted"
    if isinstance(pricer.noise_, Mapping):
        return " ".join(f"{key}: {_estimated(noise)}" for key, noise in pricer.noise_.items())
    return _estimated(pricer.noise_)


def _estimated(noise: Any) -> str:
    low, high = noise.interval_
    return (
        f"estimated, not declared: the truth is kept with probability {noise.keep_:.3g} "
        f"({low:.3g} to {high:.3g}). {noise.message_}"
    )


def _law(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> Family:
    """Return the family whose deviance measures the premiums: of claims that of amounts with many zeros."""
    return get_family("tweedie" if isinstance(pricer, FrequencySeverityPricer) else pricer.family)


def _describe_model(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> dict[str, Any]:
    if isinstance(pricer, FrequencySeverityPricer):
        return {"model": "frequency times severity", **_describe_groups(pricer), "parts": _records(pricer.summary())}
    return {
        "family": get_family(pricer.family).to_dict(),
        "model": " ".join(repr(pricer.model_).split()),
        **_describe_groups(pricer),
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "candidates": _records(pricer.candidates_),
    }


def _describe_groups(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> dict[str, Any]:
    shares = zip(pricer.groups_, pricer.group_distribution_, pricer.reference_distribution_, strict=True)
    return {
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
        "groups": [{"group": _plain(g), "share": float(p), "reference": float(w)} for g, p, w in shares],
        "reference": pricer.reference if isinstance(pricer.reference, str) else "given",
    }


def _kind(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> str:
    """Name the model class and the family, of each part if there are several."""
    if isinstance(pricer, DiscriminationFreePricer):
        return f"{pricer.model_.kind}, {get_family(pricer.family).name} family"
    return "; ".join(
        f"{peril}: frequency {_kind(frequency)}, severity {_kind(severity)}"
        for peril, (frequency, severity) in pricer.parts_.items()
    )


def _model_hash(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> dict[str, str]:
    """Return the SHA-256 that a model file has inside, of its content, if the pricer can be saved.

    The bytes of files of one model differ, as a bundle writes it without spaces; this number is the same in all.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        try:
            pricer.save(path)
        except ModelFileError:
            return {}
        return {MODEL_HASH: str(json.loads(path.read_text(encoding="utf-8"))["sha256"])}


def describe_classes(comparison: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn the table of `compute_price_comparison` into one dict per class: {..., unaware: {...}, ...}."""
    found = []
    for risk_class, rows in comparison.groupby("risk_class", sort=False):
        prices: list[dict[str, Any]] = []
        for row in rows.to_dict("records"):
            group = str(row["group"]) if row["price"] == BEST_ESTIMATE else None
            numbers = {name: _plain(row.get(name)) for name in ("mean", "low", "high", "truth")}
            prices.append({"price": row["price"], "group": group, **numbers})
        of_class = {"risk_class": str(risk_class), "rows": int(row["rows"]), "share": float(row["share"])}
        by_name: dict[str, Any] = {price["price"]: price for price in prices}
        by_name[BEST_ESTIMATE] = [price for price in prices if price["price"] == BEST_ESTIMATE]
        found.append({**of_class, **by_name})
    return found
