"""Checks of the arguments of a fit, each made once at the entry: the pricer's parameters, the channel, the reports."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing

from fairpremium.blocks import Rows, Stream
from fairpremium.corrections import ReportChannel
from fairpremium.errors import (
    ChannelRefutedWarning,
    ExposureWarning,
    GroupsNotScoredWarning,
    NotIdentifiedError,
    SourcesDependWarning,
)
from fairpremium.labels import check_labels, encode_labels, first_column, infer_labels
from fairpremium.models import (
    BandsFactor,
    BoostedModel,
    Design,
    GroupModel,
    LevelsFactor,
    LinearModel,
    NeuralModel,
    RegressorModel,
    describe_numbers,
    find_outcome,
)
from fairpremium.noise import NoiseEstimator, check_coded_reports, check_coded_sources
from fairpremium.privacy import Channel, KeyedChannels

MODELS: dict[str, type[LinearModel | GroupModel]] = {
    each.kind: each for each in (LinearModel, BoostedModel, NeuralModel)
}
_CORRECTIONS = ("auto", *LinearModel.corrections)
_CHECK_ROWS = 20_000  # rows on which a declared channel is checked
_CHECK_FROM = 50  # people per group, or per report, from which on it is


def check_models(model: Any, correction: str, channel: Any) -> list[LinearModel | GroupModel]:
    """Return the model objects that names, objects or regressors stand for, if they can serve the correction."""
    if correction not in _CORRECTIONS:
        raise ValueError(f"Got correction={correction!r}, but expected one of {list(_CORRECTIONS)}.")
    models = [_check_model(each) for each in (model if isinstance(model, list) else [model])]
    if not models:
        raise ValueError("Got model=[], but expected at least one model class.")
    for each in models:
        each.check()
        if not is_known(channel) and correction not in ("auto", *each.corrections):
            why = (
                "its equations are those of a linear predictor"
                if correction == "score"
                else "its row weights T^-1[k, s] are negative, and trees then diverge silently"
            )
            raise ValueError(
                f'Got correction={correction!r} with a {each.kind} model, but {why}; expected "auto" or one of '
                f"{list(each.corrections)}."
            )
    return models


def check_importable(*given: Any) -> None:
    """Raise if a class is one that the running script defines: workers of a source do not import the script."""
    for each in given:
        parts = [each, *(each.get_params(deep=True).values() if hasattr(each, "get_params") else ())]
        for part in parts:
            if type(part).__module__ == "__main__":
                raise ValueError(
                    f"Got {type(part).__name__}, a class of the script that runs, but expected one that the workers "
                    "of a source can import. Put it into a module of its own."
                )


def terms_of(models: list[LinearModel | GroupModel]) -> str | None:
    """Return the terms of the linear model; classes that are compared see the same features, so there is one only."""
    found = {model.terms if isinstance(model, LinearModel) else None for model in models}
    if len(found) > 1:
        raise ValueError(
            "Got models of which one has terms of its own, but expected the same terms for all of them: models that "
            "are compared, and the parts of a premium, see the same features."
        )
    return found.pop()


def _check_model(model: Any) -> LinearModel | GroupModel:
    if isinstance(model, str):
        if model not in MODELS:
            raise ValueError(f"Got model={model!r}, but expected one of {list(MODELS)} or a model object.")
        return MODELS[model]()
    if isinstance(model, LinearModel | GroupModel):
        return model
    if isinstance(model, BaseEstimator):
        return RegressorModel(model)
    raise TypeError(
        f"Got model of type {type(model).__name__}, but expected one of {list(MODELS)}, a model object, a "
        "scikit-learn regressor, or a list of these."
    )


def check_pooling(pooling: Any) -> float | None:
    """Return the pooling strength, or None for empirical Bayes."""
    if isinstance(pooling, str):
        if pooling == "auto":
            return None
    elif not isinstance(pooling, bool) and isinstance(pooling, int | float | np.number) and 0 <= pooling < np.inf:
        return float(pooling)
    raise ValueError(f'Got pooling={pooling!r}, but expected "auto" or a finite strength >= 0 in rows.')


def check_merge(merge: Any, correction: str, channel: Any, pooling: float | None) -> bool | None:
    """Return whether to merge rows, None if that depends on them; it must change no price."""
    if merge not in (True, False, "auto"):
        raise ValueError(f'Got merge={merge!r}, but expected True, False or "auto".')
    if pooling is not None and (is_known(channel) or correction == "inverse"):
        return None if merge == "auto" else bool(merge)
    if merge is True:
        raise ValueError(
            f"Got merge=True with correction={correction!r} and pooling={'auto' if pooling is None else pooling!r}, "
            'but only correction="inverse" with a given strength of pooling does not change when rows are merged.'
        )
    return False


def is_known(channel: Any) -> bool:
    """Tell whether the argument `channel` says that every row holds the true attribute."""
    return channel is None or (isinstance(channel, Mapping) and all(each is None for each in channel.values()))


def resolve_channel(channel: Any, X: Any, y: Any, sensitive: Any, weight: Any, keys: Any = None) -> ReportChannel:
    """Find out what `sensitive` holds; noise estimators are fitted, those of several sources to the rows of theirs."""
    if sensitive is None:
        raise ValueError(
            "fit needs sensitive=...: the reports that went through `channel`, or the true attribute with channel=None."
        )
    if is_known(channel):
        groups = infer_labels(sensitive, "sensitive")
        if len(groups) < 2:
            raise ValueError(f"Got sensitive with {len(groups)} group(s), but expected at least two.")
        return ReportChannel.of(channel, groups)
    if isinstance(channel, Channel):
        return ReportChannel.of(channel)
    if isinstance(channel, Mapping):
        return _resolve_sources(channel, X, y, sensitive, weight, keys)
    if not isinstance(channel, NoiseEstimator):
        raise TypeError(
            f"Got channel of type {type(channel).__name__}, but expected None (sensitive is the true attribute), a "
            "Channel such as RandomizedResponse, a noise estimator such as ValidationNoise, or a mapping of keys to "
            "these."
        )
    estimator = clone(channel).fit(X, y, sensitive=sensitive, sample_weight=weight)
    return ReportChannel.of(estimator.require_channel(), estimator=estimator)


def _resolve_sources(
    sources: Mapping[Any, Any], X: Any, y: Any, sensitive: Any, weight: Any, keys: Any
) -> ReportChannel:
    estimators = {key: each for key, each in sources.items() if isinstance(each, NoiseEstimator)}
    if not estimators:
        return ReportChannel.of(sources)
    labels = check_labels(list(sources), "keys")
    if keys is None:
        raise ValueError(f"Got no channel_key, but expected the source of each row, one of {list(labels)}.")
    source = encode_labels(keys, labels, name="channel_key", missing="code")
    reports = first_column(sensitive)  # others hold further reports of people who were asked several times
    found = {}
    for w, key in enumerate(labels):
        if key not in estimators:
            continue
        rows = np.flatnonzero(source == w)
        own = {"sensitive": take_rows(reports, rows), "sample_weight": take_rows(weight, rows)}
        try:
            found[key] = clone(estimators[key]).fit(take_rows(X, rows), take_rows(y, rows), **own)
            found[key].require_channel()
        except NotIdentifiedError as error:
            raise NotIdentifiedError(f"The source {key!r}: {error}") from error
        except ValueError as error:
            raise ValueError(f"The source {key!r}: {error}") from error
    channels = {key: found[key].channel_ if key in found else each for key, each in sources.items()}
    return ReportChannel.of(channels, estimator=found)


def take_rows(values: Any, rows: npt.NDArray[np.intp]) -> Any:
    """Return some rows of a table or a column of any kind; None stays None."""
    if values is None:
        return None
    if hasattr(values, "take") and not hasattr(values, "iloc") and not isinstance(values, np.ndarray):
        return values.take(rows)  # Arrow
    if isinstance(values, list | tuple):
        return [values[i] for i in rows]
    return _safe_indexing(values, rows)


def encode_reports(sensitive: Any, channel: ReportChannel, n: int, keys: Any = None) -> npt.NDArray[np.uint16]:
    """Turn the reports of n rows into codes, the number of labels standing for a missing one."""
    codes = channel.encode(sensitive, keys)
    if len(codes) != n:
        raise ValueError(f"Got sensitive with {len(codes)} rows, but X has {n}; expected the same number.")
    return codes


def check_counts(counts: npt.NDArray[Any], channel: ReportChannel, *, every_group: bool = True) -> None:
    """Raise if there is no report at all, or none of a group that reports can name; `counts` ends with missing ones."""
    reported = counts[:-1]
    if not reported.any():
        raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
    keyed = channel.channel if isinstance(channel.channel, KeyedChannels) else None
    sources = [channel.labels] if keyed is None else [keyed.reports_of(key) for key in keyed]
    if every_group and all(set(labels) == set(channel.groups) for labels in sources):
        named = [label for labels in sources for label in labels]
        seen = {label for label, count in zip(named, reported, strict=True) if count}
        absent = [group for group in channel.groups if group not in seen]
        if absent:
            raise ValueError(
                f"Got sensitive without a single report of the group(s) {absent}; expected reports of each of "
                f"{list(channel.groups)}. Leave a group out of the channel only if nobody could have reported it."
            )


def warn_if_refuted(rows: Rows | Stream, channel: ReportChannel) -> None:
    """Warn if the reports are sharper than a declared channel permits; an estimated one has checks of its own.

    Any rows will do, as long as they were not chosen by their reports. Each source is checked by itself, with the same
    chance of a false alarm in all.
    """
    estimated = channel.estimator if isinstance(channel.estimator, dict) else {None: channel.estimator}
    some = some_rows(rows).reported(channel.n_codes - 1)
    if some.cluster is not None:
        some = some.take(np.unique(some.cluster, return_index=True)[1])
    for each in channel.sources:
        if each.channel is None or estimated.get(each.key) is not None:
            continue
        own = some if len(channel.sources) == 1 else some.take(np.isin(some.report, each.codes))
        if len(own) < _CHECK_FROM * max(len(channel.groups), len(each.codes)):
            continue
        level = 1 - 0.001 / len(channel.sources)
        check = check_coded_reports(own.X, own.y, own.report.astype(np.intp) - each.codes[0], each.channel, level=level)
        if check.rejected:
            text = check.message if len(channel.sources) == 1 else f"The source {each.name!r}: {check.message}"
            warnings.warn(text, ChannelRefutedWarning, stacklevel=4)


def warn_if_sources_depend(rows: Rows | Stream, channel: ReportChannel) -> None:
    """Warn if the source of a row depends on the outcome or the attribute beyond the features.

    Rows without a report are a source if they take part in the fit.
    """
    if len(channel.sources) == 1 and not channel.everyone:
        return
    found = check_coded_sources(some_rows(rows), channel, level=0.999, missing=channel.everyone)
    if found is not None and found.rejected:
        warnings.warn(found.message, SourcesDependWarning, stacklevel=4)


def check_unreported(unreported: Any) -> bool:
    """Return whether rows without a report take part in the fits of the groups."""
    if unreported not in ("exclude", "include"):
        raise ValueError(f'Got unreported={unreported!r}, but expected "exclude" or "include".')
    return bool(unreported == "include")


def check_features(design: Design, matrix: npt.NDArray[Any], outcomes: Sequence[npt.NDArray[Any]]) -> None:
    """Raise if a column is a part of an outcome, and warn of one that looks like a key; some rows will do."""
    some_lossless = [y for y in outcomes if y.any() and not y.all()]
    columns, levels = _columns_of(design, matrix) if some_lossless else ({}, set())
    for y in some_lossless:
        name = find_outcome(columns, y, levels)
        if name is not None:
            raise ValueError(
                f"Got column {name!r} of X with values that no row has whose y is zero, and many others have, which is "
                "not chance: it looks like a part of the outcome, such as the claim amount or whether there was a "
                "claim, and is not known when a policy is priced. Leave it out of X (features=[...] of a source, "
                "--features on the command line, or terms that do not name it)."
            )
    numbers = {column.name for column in design.columns if column.levels is None}
    at = {name: j for j, name in enumerate(design.features) if name in numbers}
    for name, j in at.items() if design.named else ():
        found = describe_numbers(matrix[:, j])
        if found is not None:
            warnings.warn(
                f"Column {name!r} of X has {found}. If it is one, leave it out: its numbers get a price.",
                UserWarning,
                stacklevel=3,
            )


def _columns_of(design: Design, matrix: npt.NDArray[Any]) -> tuple[dict[str, npt.NDArray[Any]], set[str]]:
    """Return the columns that have a term of their own, and which of them are levels.

    Numbers are zero where the column is; levels have a code.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    levels, first = set(), 0
    for term in design.terms or [column.term for column in design.columns]:
        width = len(term.names)
        features = matrix[:, first : first + width]
        first += width
        (factor, *others), name = term.factors, term.factors[0].column
        if others or not width or name in found:
            continue
        if isinstance(factor, LevelsFactor | BandsFactor):
            ordered = isinstance(factor, LevelsFactor) and factor.ordered
            found[name] = features.sum(axis=1) if ordered else features @ np.arange(1.0, width + 1)
            levels.add(name)
        else:
            found[name] = features[:, 0] - factor.encode(np.zeros(1), "error")[0, 0]
    return found, levels


def warn_exposure_not_scored() -> None:
    """Warn that a score of totals without their exposure is a rough one."""
    warnings.warn(
        "Got no exposure for the score of a pricer that was fitted with one: every row is taken for one with the mean "
        "exposure. Pass exposure, as searches of scikit-learn do after "
        "sklearn.set_config(enable_metadata_routing=True).",
        ExposureWarning,
        stacklevel=3,
    )


def warn_groups_not_scored() -> None:
    """Warn that a score without reports says nothing about groups."""
    warnings.warn(
        "Got sensitive=None, so the score is minus the deviance of the unaware price: it does not see the groups, and "
        "is the same for every correction, pooling and reference. Pass sensitive. Searches of scikit-learn do so "
        "after sklearn.set_config(enable_metadata_routing=True).",
        GroupsNotScoredWarning,
        stacklevel=3,
    )


def some_rows(rows: Rows | Stream) -> Rows:
    """Return rows to check; of those that are read piece by piece the first of some pieces, which takes no pass."""
    if isinstance(rows, Rows):
        return rows.take(np.arange(0, len(rows), max(1, -(-len(rows) // _CHECK_ROWS))))
    return replace(rows, thorough=False).glance(_CHECK_ROWS)
