"""What a report says, as plain data: every table with the words around it, for a price list or for a pricer."""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium import __version__
from fairpremium.audit import _words as words
from fairpremium.audit._book import as_pandas, check_numbers, n_rows
from fairpremium.audit._calibration import compute_calibration
from fairpremium.audit._change import (
    compute_adverse_selection,
    compute_balance,
    compute_premium_change,
    compute_prices_by_group,
)
from fairpremium.audit._comparison import (
    BEST_ESTIMATE,
    DISCRIMINATION_FREE,
    UNAWARE,
    Truth,
    compute_price_comparison,
    named_classes,
)
from fairpremium.audit._findings import findings
from fairpremium.audit._groups import (
    compute_demographic_disparity,
    compute_group_deviance,
    compute_group_means,
    compute_loss_ratio_gap,
)
from fairpremium.audit._keep import compute_keep_sensitivity
from fairpremium.audit._power import compute_gini, compute_lorenz
from fairpremium.audit._proxy import compute_discrimination, compute_propensities
from fairpremium.audit._sample import Sample
from fairpremium.errors import ModelFileError
from fairpremium.families import Family, get_family
from fairpremium.labels import infer_labels
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.privacy import Channel, RandomizedResponse

FORMAT = "fairpremium-audit"
FORMAT_VERSION = 1
MAX_GROUPS = 20  # pairs of more groups fill pages that nobody reads, and no chart tells them apart
Section = dict[str, Any]


def summarize_prices(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Channel | None = None,
    sample_weight: Any = None,
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
) -> dict[str, Any]:
    """Audit a price list of any origin: collect all that its report says.

    Parameters
    ----------
    premiums, y, sensitive, channel, sample_weight, cluster, by, level
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
        Whether the channel is an estimate; the report then says that intervals take it as given.

    Returns
    -------
    dict
        JSON types only; `render_report`, `render_markdown` and `save_report` make documents of it.
    """
    _check_groups(sensitive, channel)
    roles = {"sensitive": sensitive, "channel": channel, "sample_weight": sample_weight, "cluster": cluster}
    prices = {"premiums": premiums}
    sections = _sections_of_prices(prices, premiums, y, roles, by, level, family)
    head = _head(premiums, y, roles, level, title, unit, notes, hashes, channel_source, channel_estimated)
    return _complete(head, sections, None, level, unit)


def summarize_pricer(
    pricer: DiscriminationFreePricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    sample_weight: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
    title: str = "Premiums without discrimination",
    unit: str = "",
    notes: Sequence[str] = (),
    hashes: Mapping[str, str] | None = None,
    truth: Truth | None = None,
    channel_source: str = "",
    count_in: int = 1,
    created: datetime | None = None,
) -> dict[str, Any]:
    """Audit a fitted pricer: its discrimination-free premium, next to the other two prices.

    Parameters
    ----------
    pricer : DiscriminationFreePricer
        Fitted; its channel is that of the reports.
    X, y, sensitive, sample_weight, cluster
        Rows to audit: those it was fitted on, or better, others.
    by : str or array-like of shape (n,), optional
        The risk class of each row, or the name of a column of `X` that holds it.
    truth : object with ``best_estimate``, ``unaware`` and ``discrimination_free``, optional
        A simulated portfolio, whose true prices are shown beside the estimates.
    count_in : int
        Reports are counted to the nearest multiple of this, for readers who may not learn how many there are; the
        fingerprint of the audited columns then leaves reports out.
    level, title, unit, notes, hashes, channel_source
        As in `summarize_prices`.
    created : datetime, optional
        When the report was made; now by default.

    Returns
    -------
    dict
        JSON types only.
    """
    channel = pricer.channel_
    _check_groups(sensitive, channel)
    classes = label_classes(X, by)
    roles = {"sensitive": sensitive, "channel": channel, "sample_weight": sample_weight, "cluster": cluster}
    best = np.asarray(pricer.predict_best_estimate(X), dtype=np.float64)
    prices = {
        BEST_ESTIMATE: best,
        UNAWARE: np.asarray(pricer.predict_unaware(X)),
        DISCRIMINATION_FREE: np.asarray(pricer.predict(X)),
    }
    premiums = prices[DISCRIMINATION_FREE]
    comparison = compute_price_comparison(pricer, X, by=classes, level=level, truth=truth, sample_weight=sample_weight)
    sections = [_section("price_comparison", comparison, classes=describe_classes(comparison))]
    sections += _sections_of_model(prices, X, y, roles, classes, level)
    sections += _sections_of_prices(
        {name: prices[name] for name in (UNAWARE, DISCRIMINATION_FREE)},
        premiums,
        y,
        roles,
        classes,
        level,
        pricer.family,
    )
    source = channel_source or _source(pricer)
    head = _head(premiums, y, roles, level, title, unit, notes, hashes, source, pricer.noise_ is not None, count_in)
    head["hashes"] = {**head["hashes"], **_model_hash(pricer)}
    if created is not None:
        head["created"] = _minute(created)
    return _complete(head, sections, _describe_model(pricer), level, unit)


def _check_groups(sensitive: Any, channel: Any) -> None:
    """Raise if there are more groups than a report can show."""
    if sensitive is None or not (channel is None or isinstance(channel, Channel)):
        return  # the tables say what is wrong
    number = len(infer_labels(sensitive, "sensitive") if channel is None else channel.groups)
    if number > MAX_GROUPS:
        raise ValueError(
            f"Got sensitive with {number} groups, but a report shows at most {MAX_GROUPS}; merge them first, such as "
            "ages to bands (before reports are drawn), or use the tables, such as compute_group_means."
        )


# --- sections ---


def _sections_of_prices(
    prices: Mapping[str, Any], premiums: Any, y: Any, roles: dict[str, Any], by: Any, level: float, family: Any
) -> list[Section]:
    pair = (premiums, y)
    every = {**roles, "level": level}
    named = {words.PRICE_NAMES.get(name, name): values for name, values in prices.items()}
    balance = compute_balance(named, y, sample_weight=roles["sample_weight"], cluster=roles["cluster"], level=level)
    sections = [
        _section("group_means", compute_group_means(*pair, **every)),
        _section("demographic_disparity", compute_demographic_disparity(premiums, **every)),
        _section("loss_ratio_gap", compute_loss_ratio_gap(*pair, **every)),
        _section("calibration", compute_calibration(*pair, **every)),
        _section("balance", balance),
        _section("lorenz", compute_lorenz(*pair, **every)),
        _section("gini", compute_gini(*pair, **every)),
    ]
    law = get_family(family)
    columns = [check_numbers(v, "", n_rows(premiums, "premiums"), "") for v in pair]
    if law.mean.contains(columns[0]).all() and law.outcome.contains(columns[1]).all():
        sections.append(_section("group_deviance", compute_group_deviance(*pair, family=law, **every)))
    if by is not None:
        for name, compute, data in (
            ("group_means", compute_group_means, pair),
            ("loss_ratio_gap", compute_loss_ratio_gap, pair),
        ):
            sections.append(_section(name, compute(*data, by=by, **every), conditional=True))
    if isinstance(roles["channel"], RandomizedResponse):
        sections.append(_section("keep_sensitivity", compute_keep_sensitivity(*pair, **every)))
    return sections


def _sections_of_model(
    prices: dict[str, Any], X: Any, y: Any, roles: dict[str, Any], classes: Any, level: float
) -> list[Section]:
    every = {**roles, "level": level}
    old, new, best = prices[UNAWARE], prices[DISCRIMINATION_FREE], prices[BEST_ESTIMATE]
    propensity = compute_propensities(X, sensitive=roles["sensitive"], channel=roles["channel"])
    measures = compute_discrimination(old, best_estimate=best, discrimination_free=new, propensity=propensity, **every)
    sections = [
        _section("prices_by_group", compute_prices_by_group(prices, **every)),
        _section("discrimination", measures),
        _section("premium_change", compute_premium_change(old, new, **every)),
        _section("premium_change", compute_premium_change(old, new, bins=10, **every), by_decile=True),
    ]
    if classes is not None:
        sections.append(
            _section("premium_change", compute_premium_change(old, new, by=classes, **every), conditional=True)
        )
    sections.append(_section("adverse_selection", compute_adverse_selection(new, y, best, **every)))
    return sections


def _section(name: str, table: Any, *, conditional: bool = False, by_decile: bool = False, **more: Any) -> Section:
    kind = "_by_class" if conditional else "_by_decile" if by_decile else ""
    return {"id": name + kind, "measure": name, "records": _records(as_pandas(table)), **more}


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{key: _plain(value) for key, value in row.items()} for row in table.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _complete(
    head: dict[str, Any], sections: list[Section], model: dict[str, Any] | None, level: float, unit: str
) -> dict[str, Any]:
    tables = {section["id"]: section["records"] for section in sections}
    return {
        **head,
        "findings": findings(tables, head, model),
        "model": model,
        "sections": [{**section, **words.describe_section(section["id"])} for section in sections],
        "limits": words.limits(model is not None, head["privacy"]),
        "definitions": words.definitions(model is not None),
    }


# --- what stands above and below the tables ---


def _head(
    premiums: Any,
    y: Any,
    roles: dict[str, Any],
    level: float,
    title: str,
    unit: str,
    notes: Sequence[str],
    hashes: Mapping[str, str] | None,
    source: str,
    estimated: bool,
    count_in: int = 1,
) -> dict[str, Any]:
    n = n_rows(premiums, "premiums")
    sample = Sample.read(n, roles["sensitive"], roles["channel"], roles["sample_weight"], roles["cluster"], "premiums")
    columns = [check_numbers(v, name, n, "premiums") for name, v in (("premiums", premiums), ("y", y))]
    digest = hashlib.sha256()
    codes = [sample.code.astype(np.int32)] if count_in == 1 else []
    for column in (*columns, sample.weight, *codes):
        digest.update(np.ascontiguousarray(column).tobytes())
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "title": title,
        "version": __version__,
        "created": _minute(datetime.now(UTC)),
        "notes": list(notes),
        "unit": unit,
        "level": level,
        "rows": n,
        "reports": (reports := count_in * math.floor((n - sample.n_missing) / count_in + 0.5)),
        "missing_reports": max(n - reports, 0),
        "rounded_to": count_in,
        "persons": None if sample.cluster is None else int(sample.cluster.max()) + 1,
        "weighted": roles["sample_weight"] is not None,
        "groups": [_plain(group) for group in sample.groups],
        "privacy": _describe_channel(roles["channel"], source, estimated),
        "hashes": {**dict(hashes or {}), "audited columns": digest.hexdigest()},
    }


def _minute(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _describe_channel(channel: Channel | None, source: str, estimated: bool) -> dict[str, Any] | None:
    if channel is None:
        return None
    finite = math.isfinite(channel.epsilon)
    return {
        "keep": None if math.isnan(channel.keep) else channel.keep,
        "epsilon": channel.epsilon if finite else None,
        "odds": math.exp(channel.epsilon) if finite else None,
        "sha256": channel.descriptor()["sha256"],
        "estimated": estimated,
        "source": source or "declared by whoever made this report",
    }


def _source(pricer: DiscriminationFreePricer) -> str:
    if pricer.channel_ is None:
        return ""
    if pricer.noise_ is None:
        return "declared when the prices were fitted"
    low, high = pricer.noise_.interval_
    return (
        f"estimated, not declared: the truth is kept with probability {pricer.noise_.keep_:.3g} "
        f"({low:.3g} to {high:.3g}). {pricer.noise_.message_}"
    )


def _describe_model(pricer: DiscriminationFreePricer) -> dict[str, Any]:
    shares = zip(pricer.groups_, pricer.group_distribution_, pricer.reference_distribution_, strict=True)
    return {
        "family": get_family(pricer.family).to_dict(),
        "model": " ".join(repr(pricer.model_).split()),
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
        "groups": [{"group": _plain(g), "share": float(p), "reference": float(w)} for g, p, w in shares],
        "reference": pricer.reference if isinstance(pricer.reference, str) else "given",
        "correction": pricer.correction_,
        "pooling": float(pricer.pooling_),
        "candidates": _records(pricer.candidates_),
    }


def _model_hash(pricer: DiscriminationFreePricer) -> dict[str, str]:
    """Return the SHA-256 of the model file, if the pricer can be saved."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        try:
            pricer.save(path)
        except ModelFileError:
            return {}
        return {"model file": hashlib.sha256(path.read_bytes()).hexdigest()}


def label_classes(X: Any, by: Any) -> Any:
    """Return the class of each row; those of a column of X carry its name."""
    if not isinstance(by, str):
        return by
    codes, names = named_classes(X, by, n_rows(X, "X"))
    labels = [f"{by}: {name}" for name in names]
    return pd.Series(pd.Categorical.from_codes(codes, categories=labels))


def describe_classes(comparison: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn the table of `compute_price_comparison` into one dict per class: {..., unaware: {...}, ...}."""
    found = []
    for risk_class, part in comparison.groupby("risk_class", sort=False):
        prices = [_price(row) for row in part.to_dict("records")]
        found.append(
            {
                "risk_class": str(risk_class),
                "rows": int(part["rows"].iloc[0]),
                "share": float(part["share"].iloc[0]),
                BEST_ESTIMATE: [p for p in prices if p["price"] == BEST_ESTIMATE],
                UNAWARE: next(p for p in prices if p["price"] == UNAWARE),
                DISCRIMINATION_FREE: next(p for p in prices if p["price"] == DISCRIMINATION_FREE),
            }
        )
    return found


def _price(row: Mapping[Any, Any]) -> dict[str, Any]:
    price: dict[str, Any] = {"price": row["price"], "group": None}
    if row["price"] == BEST_ESTIMATE:
        price["group"] = str(row["group"])
    for name in ("mean", "low", "high", "truth"):
        price[name] = _plain(row.get(name))
    return price
