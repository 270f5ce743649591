"""Checks of the caller's columns, once, at the boundary."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import clone

from fairpremium.labels import encode_labels, infer_labels
from fairpremium.models._inputs import check_outcome, check_weight
from fairpremium.noise import NoiseEstimator
from fairpremium.privacy import Channel

__all__ = [
    "Attribute",
    "check_cluster",
    "check_counts",
    "check_level",
    "check_outcome",
    "check_weight",
    "encode_reports",
    "resolve_channel",
]


def check_cluster(cluster: Any, n: int, *, of: str = "X") -> npt.NDArray[np.integer[Any]] | None:
    """Return codes of the persons, or None if every row is a person of its own."""
    if cluster is None:
        return None
    codes, _ = pd.factorize(np.asarray(cluster))
    if len(codes) != n:
        raise ValueError(f"Got cluster with {len(codes)} rows, but {of} has {n}; expected the same number.")
    if (codes < 0).any():
        raise ValueError(f"Got cluster with {int(np.count_nonzero(codes < 0))} missing values; expected none.")
    return np.asarray(codes)


def check_counts(counts: npt.NDArray[Any], labels: tuple[Any, ...], groups: tuple[Any, ...]) -> None:
    """Raise if nobody reported, or nobody a group that reports name."""
    if not counts.any():
        raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
    if labels == groups and (counts == 0).any():
        absent = [group for group, count in zip(groups, counts, strict=True) if count == 0]
        raise ValueError(
            f"Got sensitive without a single report of the group(s) {absent}; expected reports of each of "
            f"{list(groups)}. Leave a group out of the channel only if nobody could have reported it."
        )


def check_level(level: Any) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"Got level={level!r}, but expected a number strictly between 0 and 1, such as 0.95.")
    return float(level)


class Attribute(NamedTuple):
    """What `sensitive` holds: the true attribute if there is no channel, else reports of it."""

    channel: Channel | None
    groups: tuple[Any, ...]
    noise: NoiseEstimator | None = None  # fitted, if the channel was estimated

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values that may occur."""
        return self.groups if self.channel is None else self.channel.reports


def resolve_channel(channel: Any, X: Any, y: Any, sensitive: Any, weight: Any) -> Attribute:
    """Find out what `sensitive` holds; a noise estimator is fitted."""
    if sensitive is None:
        raise ValueError(
            "fit needs sensitive=...: the reports that went through `channel`, or the true attribute with channel=None."
        )
    if channel is None:
        groups = infer_labels(sensitive, "sensitive")
        if len(groups) < 2:
            raise ValueError(f"Got sensitive with {len(groups)} group(s), but expected at least two.")
        return Attribute(None, groups)
    if isinstance(channel, Channel):
        return Attribute(channel, channel.groups)
    if not isinstance(channel, NoiseEstimator):
        raise TypeError(
            f"Got channel of type {type(channel).__name__}, but expected None (sensitive is the true attribute), a "
            "Channel such as RandomizedResponse, or a noise estimator such as ValidationNoise."
        )
    noise = clone(channel).fit(X, y, sensitive=sensitive, sample_weight=weight)
    found = noise.require_channel()
    return Attribute(found, found.groups, noise)


def encode_reports(sensitive: Any, attribute: Attribute, n: int, *, every_group: bool = True) -> npt.NDArray[np.uint16]:
    """Turn reports into codes, the number of reports standing for a missing one."""
    if sensitive is None:
        raise ValueError("Got sensitive=None, but expected the reports (or the true attribute) of these rows.")
    labels = attribute.labels
    codes = encode_labels(sensitive, labels, name="sensitive", missing="code")
    if len(codes) != n:
        raise ValueError(f"Got sensitive with {len(codes)} rows, but X has {n}; expected the same number.")
    counts = np.bincount(codes + 1, minlength=len(labels) + 1)[1:]
    check_counts(counts, labels, attribute.groups if every_group else ())
    if counts.sum() < n:
        codes = np.where(codes < 0, len(labels), codes)
    return codes.astype(np.uint16)
