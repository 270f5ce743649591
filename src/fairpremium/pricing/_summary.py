"""What an actuary reads first about a fitted pricer: coefficients with errors, tests of features, the essentials."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtrc, ndtri

from fairpremium.arrays import Array
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._fit_quality import BEST_ESTIMATE, DISCRIMINATION_FREE, UNAWARE
from fairpremium.pricing._prices import LinearPrices, Prices

BETWEEN_GROUPS = "between_groups"


class _Coefficients(NamedTuple):
    """The coefficients of (1, x) of one price, and their covariance if there is one."""

    price: str
    group: Any
    value: Array  # (1 + features,)
    covariance: Array | None


def summary_table(prices: Prices, level: float) -> pd.DataFrame:
    """Make the table of `DiscriminationFreePricer.summary`."""
    quality = {(q.price, q.group): (q.explained, q.aic) for q in prices.quality}
    records = []
    for found in _with_rows(prices):
        names = ["intercept", *prices.design.features] if len(found.value) else [None]
        value = found.value if len(found.value) else np.full(1, np.nan)
        error = np.full(len(value), np.nan)
        if found.covariance is not None:
            error = np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
        width = ndtri(0.5 + level / 2) * error
        explained, aic = quality.get((found.price, found.group), (np.nan, np.nan))
        rows = zip(names, value, error, value - width, value + width, strict=True)
        records += [(found.price, found.group, *row, explained, aic) for row in rows]
    columns = ["price", "group", "feature", "coefficient", "standard_error", "lower", "upper"]
    table = pd.DataFrame(records, columns=[*columns, "deviance_explained", "aic"])
    for name in ("group", "feature"):  # pandas would turn None into NaN
        table[name] = pd.Series([record[columns.index(name)] for record in records], dtype=object)
    return table


def feature_tests(prices: LinearPrices) -> pd.DataFrame:
    """Make the table of `DiscriminationFreePricer.feature_tests`."""
    prices._check_intervals()
    origins = np.array(prices.design.origins, dtype=object)
    found = list(_coefficients(prices))
    tests = [(c.price, c.group, c.value, c.covariance) for c in found if c.covariance is not None]
    groups = [c for c in found if c.price == BEST_ESTIMATE]
    contrasts = np.eye(len(groups))[1:] - np.eye(len(groups))[:1]  # each group against the first
    covariance = _group_covariance(prices)
    records = []
    for feature in dict.fromkeys(origins):
        own = 1 + np.flatnonzero(origins == feature)
        records += [(price, group, feature, *_wald(b[own], V[np.ix_(own, own)])) for price, group, b, V in tests]
        if len(groups) > 1:
            differences = np.kron(contrasts, np.eye(len(prices.coefficients))[own])
            stacked = prices.coefficients.T.ravel()
            wald = _wald(differences @ stacked, differences @ covariance @ differences.T)
            records.append((BETWEEN_GROUPS, None, feature, *wald))
    columns = ["price", "group", "feature", "statistic", "degrees_of_freedom", "p_value"]
    table = pd.DataFrame(records, columns=columns)
    table["group"] = pd.Series([record[1] for record in records], dtype=object)
    order = {name: i for i, name in enumerate((BEST_ESTIMATE, BETWEEN_GROUPS, UNAWARE))}
    place = [(order[price], 0 if group is None else prices.groups.index(group)) for price, group, *_ in records]
    return table.iloc[sorted(range(len(table)), key=lambda i: place[i])].reset_index(drop=True)


def _wald(b: Array, V: Array) -> tuple[float, int, float]:
    """Test b = 0: b' V^- b against chi-squared with as many degrees of freedom as V has rank."""
    scale = np.sqrt(np.maximum(np.diag(V), 0.0))
    used = scale > 0  # a feature that was left out is zero for certain
    if not used.any():
        return float("nan"), 0, float("nan")
    b, V = b[used] / scale[used], V[np.ix_(used, used)] / np.outer(scale[used], scale[used])
    solved, _, rank, _ = np.linalg.lstsq(V, b, rcond=1e-10)
    statistic = float(b @ solved)
    return statistic, int(rank), float(chdtrc(rank, statistic))


def _with_rows(prices: Prices) -> Iterator[_Coefficients]:
    """Yield every price of the summary; one without coefficients has a row without numbers."""
    none = np.empty(0)
    if isinstance(prices, LinearPrices):
        found = list(_coefficients(prices))
        yield from found[:-1]
        yield _Coefficients(BEST_ESTIMATE, None, none, None)
        yield found[-1]
        yield (
            _premium(prices)
            if prices.family.link.name == "identity"
            else _Coefficients(DISCRIMINATION_FREE, None, none, None)
        )
        return
    for group in (*prices.groups, None):
        yield _Coefficients(BEST_ESTIMATE, group, none, None)
    for price in (UNAWARE, DISCRIMINATION_FREE):
        yield _Coefficients(price, None, none, None)


def _coefficients(prices: LinearPrices) -> Iterator[_Coefficients]:
    """Yield those of every group, and of the unaware price."""
    covariance, q = _group_covariance(prices), len(prices.coefficients)
    for k, group in enumerate(prices.groups):
        own = slice(k * q, (k + 1) * q)
        V = None if covariance is None else covariance[own, own]
        yield _Coefficients(BEST_ESTIMATE, group, prices.coefficients[:, k], V)
    yield _Coefficients(UNAWARE, None, prices.unaware, prices.unaware_covariance)


def _premium(prices: LinearPrices) -> _Coefficients:
    """Average the coefficients with P*, whose error counts too."""
    B, weights = prices.coefficients, prices.reference
    V = prices.covariance
    if V is not None:
        gradient = np.hstack([np.kron(weights, np.eye(len(B))), B])
        V = gradient @ V @ gradient.T
    return _Coefficients(DISCRIMINATION_FREE, None, B @ weights, V)


def _group_covariance(prices: LinearPrices) -> Any:
    """Return that of the coefficients, group after group, as `predict_interval` takes it for single groups."""
    size = prices.coefficients.size
    if prices.group_covariance is not None or prices.covariance is None:
        return prices.group_covariance
    return prices.covariance[:size, :size]


# --- the essentials, for a notebook ---


class _Hidden:
    """Stands where a noise estimator does, whose own sample of attributes and reports scikit-learn would show."""

    def __init__(self, estimator: NoiseEstimator):
        self._text = repr(estimator)

    def __repr__(self) -> str:
        return self._text


def without_samples(pricer: Any) -> Any:
    """Return a pricer to be shown: the sample of a noise estimator is replaced by its size."""
    shown = copy.copy(pricer)
    for name in ("channel", "noise_"):
        value = vars(shown).get(name)
        if isinstance(value, NoiseEstimator):
            setattr(shown, name, _Hidden(value))
        elif isinstance(value, Mapping):
            hidden = {key: _Hidden(each) if isinstance(each, NoiseEstimator) else each for key, each in value.items()}
            setattr(shown, name, hidden)
    return shown


_STYLE = (
    "font:14px/1.4 sans-serif;border:1px solid #bbb;border-radius:4px;padding:8px 12px;margin-bottom:8px;"
    "display:inline-block;max-width:60em"
)
_CELL = "text-align:right;padding:1px 0 1px 14px"
_FACT = "text-align:left;padding:1px 14px 1px 0;vertical-align:top"


def essentials_html(pricer: Any) -> str:
    """Return a short table about a fitted pricer: no row, no report and no attribute of a person."""
    from fairpremium.pricing._model_selection import describe_pooling

    prices: Prices = pricer._fitted()
    facts = {
        "Family, model": f"{prices.family.name}, {pricer.model_.kind}",
        "Fitted on": _describe_rows(pricer),
        "Reports": _describe_reports(pricer.channel_),
        "Correction": pricer.correction_,
        "Pooling": describe_pooling(pricer.pooling_),
        "Features": ", ".join(prices.design.names),
    }
    explained = _describe_quality(prices)
    if explained:
        facts["Deviance explained"] = explained
    return _as_html(pricer, facts)


def claim_essentials_html(pricer: Any) -> str:
    """Return a short table about a fitted pricer of claims, with a line for each part."""
    facts = {
        "Fitted on": _describe_rows(pricer),
        "Reports": _describe_reports(pricer.channel_),
        "Features": ", ".join(pricer.design_.names),
    }
    for peril, parts in pricer.parts_.items():
        of = f" of {peril}" if len(pricer.parts_) > 1 else ""
        for kind, part in parts._asdict().items():
            prices = part._fitted()
            explained = _describe_quality(prices)
            own = f"{prices.family.name}, {part.model_.kind}, correction {part.correction_}, {part.n_rows_:,} rows"
            facts[f"{kind.capitalize()}{of}"] = own + (f"; deviance explained: {explained}" if explained else "")
        excess = pricer.excess_.loc[peril]
        if excess["cap"] == excess["cap"]:  # none if NaN
            words = f"{excess['cap']:,.6g} per claim; {excess['large_rows']:,} rows are above it"
            facts[f"Cap{of}"] = f"{words}, and premiums have the factor {excess['loading']:.4g}"
    return _as_html(pricer, facts)


def _describe_rows(pricer: Any) -> str:
    sampled = getattr(pricer, "n_sampled_rows_", None)
    fitted = "" if sampled is None else f"{sampled:,} random rows of "
    return f"{fitted}{pricer.n_rows_:,} rows, {pricer.n_missing_reports_:,} without a report"


def _describe_quality(prices: Prices) -> str:
    quality = {q.price: q for q in prices.quality if q.group is None}
    labels = {UNAWARE: "unaware", DISCRIMINATION_FREE: "discrimination-free", BEST_ESTIMATE: "best estimates"}
    return ", ".join(f"{labels[p]} {100 * quality[p].explained:.2f} %" for p in labels if p in quality)


def _as_html(pricer: Any, facts: dict[str, str]) -> str:
    lines = "".join(
        f'<tr><td style="{_FACT}">{escape(k)}</td><td style="{_FACT}">{escape(v)}</td></tr>' for k, v in facts.items()
    )
    shares = zip(pricer.groups_, pricer.group_distribution_, pricer.reference_distribution_, strict=True)
    groups = "".join(
        f'<tr><td style="{_FACT}">{escape(_name(g))}</td>'
        f'<td style="{_CELL}">{p:.3f}</td><td style="{_CELL}">{w:.3f}</td></tr>'
        for g, p, w in shares
    )
    return (
        f'<div style="{_STYLE}"><strong>Discrimination-free prices</strong><table>{lines}</table>'
        f'<table><tr><th style="{_FACT}">Group</th><th style="{_CELL}">estimated share</th>'
        f'<th style="{_CELL}">weight in the premium</th></tr>{groups}</table></div>'
    )


def _describe_reports(channel: Any) -> str:
    if isinstance(channel, Mapping):
        return ", ".join(f"{_name(key)}: {_describe_reports(each)}" for key, each in channel.items())
    return "the true attribute" if channel is None else f"epsilon {channel.epsilon:.3g}"


def _name(group: Any) -> str:
    return ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)
