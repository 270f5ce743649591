"""Checks of the arguments of a fit, each made once at the entry: the pricer's parameters, the channel, the reports."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from fairpremium.blocks import Rows, Stream
from fairpremium.corrections import ReportChannel
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.labels import encode_labels, infer_labels
from fairpremium.models import (
    BoostedModel,
    Design,
    GroupModel,
    LinearModel,
    NeuralModel,
    RegressorModel,
    describe_numbers,
    find_outcome,
)
from fairpremium.noise import NoiseEstimator, check_coded_reports
from fairpremium.privacy import Channel

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
        if channel is not None and correction not in ("auto", *each.corrections):
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


def terms_of(models: list[LinearModel | GroupModel]) -> str | None:
    """Return the terms of the linear model; classes that are compared see the same features, so there is one only."""
    found = {model.terms if isinstance(model, LinearModel) else None for model in models}
    if len(found) > 1:
        raise ValueError(
            "Got a list of models of which one has terms of its own, but expected the same terms for all of them: what "
            "is compared sees the same features. Fit them one by one and compare their scores."
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
    if pooling is not None and (channel is None or correction == "inverse"):
        return None if merge == "auto" else bool(merge)
    if merge is True:
        raise ValueError(
            f"Got merge=True with correction={correction!r} and pooling={'auto' if pooling is None else pooling!r}, "
            'but only correction="inverse" with a given strength of pooling does not change when rows are merged.'
        )
    return False


def resolve_channel(channel: Any, X: Any, y: Any, sensitive: Any, weight: Any) -> ReportChannel:
    """Find out what `sensitive` holds; a noise estimator is fitted."""
    if sensitive is None:
        raise ValueError(
            "fit needs sensitive=...: the reports that went through `channel`, or the true attribute with channel=None."
        )
    if channel is None:
        groups = infer_labels(sensitive, "sensitive")
        if len(groups) < 2:
            raise ValueError(f"Got sensitive with {len(groups)} group(s), but expected at least two.")
        return ReportChannel.of(None, groups)
    if isinstance(channel, Channel):
        return ReportChannel.of(channel)
    if not isinstance(channel, NoiseEstimator):
        raise TypeError(
            f"Got channel of type {type(channel).__name__}, but expected None (sensitive is the true attribute), a "
            "Channel such as RandomizedResponse, or a noise estimator such as ValidationNoise."
        )
    estimator = clone(channel).fit(X, y, sensitive=sensitive, sample_weight=weight)
    return ReportChannel.of(estimator.require_channel(), estimator=estimator)


def encode_reports(sensitive: Any, labels: tuple[Any, ...], n: int) -> npt.NDArray[np.uint16]:
    """Turn the reports of n rows into codes, the number of labels standing for a missing one."""
    codes = encode_labels(sensitive, labels, name="sensitive", missing="code")
    if len(codes) != n:
        raise ValueError(f"Got sensitive with {len(codes)} rows, but X has {n}; expected the same number.")
    return np.where(codes < 0, len(labels), codes).astype(np.uint16)


def check_counts(counts: npt.NDArray[Any], channel: ReportChannel, *, every_group: bool = True) -> None:
    """Raise if there is no report at all, or none of a group that reports can name; `counts` ends with missing ones."""
    reported = counts[:-1]
    if not reported.any():
        raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
    if every_group and channel.labels == channel.groups and (reported == 0).any():
        absent = [group for group, count in zip(channel.groups, reported, strict=True) if count == 0]
        raise ValueError(
            f"Got sensitive without a single report of the group(s) {absent}; expected reports of each of "
            f"{list(channel.groups)}. Leave a group out of the channel only if nobody could have reported it."
        )


def warn_if_refuted(rows: Rows | Stream, channel: ReportChannel) -> None:
    """Warn if the reports are sharper than a declared channel permits; an estimated one has checks of its own.

    Of rows that are read piece by piece the first of some pieces are looked at, which takes no pass over them. Any rows
    will do, as long as they were not chosen by their reports.
    """
    declared = channel.channel
    if declared is None or channel.estimator is not None:
        return
    if isinstance(rows, Rows):
        some = rows.take(slice(None, None, max(1, -(-len(rows) // _CHECK_ROWS))))
    else:
        some = replace(rows, thorough=False).glance(_CHECK_ROWS)
    some = some.reported(channel.n_codes - 1)
    if some.cluster is not None:
        some = some.take(np.unique(some.cluster, return_index=True)[1])
    if len(some) < _CHECK_FROM * max(len(declared.groups), len(declared.reports)):
        return
    check = check_coded_reports(some.X, some.y, some.report.astype(np.intp), declared, level=0.999)
    if check.rejected:
        warnings.warn(check.message, ChannelRefutedWarning, stacklevel=4)


def check_features(design: Design, rows: Rows | Stream) -> None:
    """Raise if a number is a part of the outcome, and warn of one that looks like a key.

    Of rows that are read piece by piece the first of some pieces are looked at.
    """
    some = rows if isinstance(rows, Rows) else replace(rows, thorough=False).glance(_CHECK_ROWS)
    matrix, y = some.X, some.y
    numbers = {column.name for column in design.columns if column.levels is None}
    at = {name: j for j, name in enumerate(design.features) if name in numbers}
    name = find_outcome(list(at), matrix[:, list(at.values())], y)
    if name is not None:
        raise ValueError(
            f"Got column {name!r} of X, which is zero in exactly those rows in which y is zero: it looks like a part "
            "of the outcome, such as the claim amount, and is not known when a policy is priced. Leave it out of X "
            "(features=[...] of a source, --features on the command line, or terms that do not name it)."
        )
    for name, j in at.items() if design.named else ():
        found = describe_numbers(matrix[:, j])
        if found is not None:
            warnings.warn(
                f"Column {name!r} of X has {found}. If it is one, leave it out: its numbers get a price.",
                UserWarning,
                stacklevel=3,
            )
