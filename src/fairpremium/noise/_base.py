"""What all estimators of an unknown channel share: the learned attributes, and the refusal."""

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fairpremium.errors import NotIdentifiedError
from fairpremium.labels import check_labels, encode_labels, infer_labels
from fairpremium.privacy import Channel, RandomizedResponse


class NoiseEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of the estimators of an unknown channel.

    Attributes
    ----------
    groups_ : tuple
        The groups, in the order of the channel.
    channel_ : Channel or None
        The estimated channel; None when the data do not identify it.
    keep_ : float
        The estimate of pi = P(S = D), as it came out, also when it is not identified; nan if there is none.
    interval_ : tuple of float
        Lower and upper confidence limit of pi, within [0, 1]; nan if there is none.
    standard_error_ : float
        Standard error of ``keep_``; nan if there is none.
    identified_ : bool
        Whether ``channel_`` may be used, under the assumption that ``message_`` names.
    message_ : str
        How pi was estimated, what that rests on, and what to do if it is not identified.
    """

    groups_: tuple[Any, ...]
    channel_: Channel | None
    keep_: float
    interval_: tuple[float, float]
    standard_error_: float
    identified_: bool
    message_: str

    @abstractmethod
    def fit(self, X: Any, y: Any, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel; each estimator says what it uses.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_columns)
            The features.
        y : array-like of shape (n_samples,)
            The outcome.
        sensitive : array-like of shape (n_samples,)
            S; rows without a report are left out. An estimator with a sample of its own only checks the labels, and
            takes None.
        sample_weight : array-like of shape (n_samples,), optional
            Volumes. They say nothing about the channel itself.

        Returns
        -------
        self
        """

    def require_channel(self) -> Channel:
        """Return the estimated channel.

        Returns
        -------
        Channel
            ``channel_``.

        Raises
        ------
        NotIdentifiedError
            If the data do not identify the channel; the text is ``message_``.
        """
        check_is_fitted(self, "identified_")
        if self.channel_ is None:
            raise NotIdentifiedError(self.message_)
        return self.channel_

    def _store(
        self,
        groups: tuple[Any, ...],
        keep: float,
        standard_error: float,
        interval: tuple[float, float],
        sentences: Sequence[str],
        problems: Sequence[str],
        channel: Channel | None = None,
    ) -> Self:
        """Set the learned attributes; any problem means that the channel, by default keep's, is not identified."""
        self.groups_ = groups
        self.keep_ = float(keep)
        self.standard_error_ = float(standard_error)
        self.interval_ = (float(interval[0]), float(interval[1]))
        self.identified_ = not problems
        self.channel_ = None if problems else channel or RandomizedResponse(groups, keep=self.keep_)
        first = ["The noise of the reports is not identified.", *problems] if problems else []
        self.message_ = " ".join([*first, *sentences])
        return self


class SampleNoiseEstimator(NoiseEstimator):
    """A noise estimator with people's answers among its parameters: it does not print them."""

    groups: Sequence[Any] | None

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        parameters = []
        for name, value in self.get_params(deep=False).items():
            is_sample = name not in ("groups", "level", "symmetric")
            shown = f"<{len(value)} values>" if is_sample and hasattr(value, "__len__") else repr(value)
            parameters.append(f"{name}={shown}")
        return f"{type(self).__name__}({', '.join(parameters)})"

    def _html_repr(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def _read_sample(
        self, first: str, second: str, sensitive: Any
    ) -> tuple[tuple[Any, ...], NDArray[np.intp], NDArray[np.intp], list[str]]:
        """Check the sample in the parameters `first` and `second`, and the labels of the portfolio.

        Returns the groups, both labels as codes for the people who have both, and a sentence about those left out.
        """
        values = getattr(self, first), getattr(self, second)
        groups = resolve_groups(self.groups, *values, name=f"{first} and {second}")
        a, b = (report_codes(value, groups, name) for value, name in zip(values, (first, second), strict=True))
        if len(a) != len(b):
            raise ValueError(
                f"Got {first} with {len(a)} and {second} with {len(b)} values, but expected the same people in the "
                "same order."
            )
        known = (a >= 0) & (b >= 0)
        if not known.any():
            raise ValueError(
                f"Got {first} and {second} without a single person who has both, but expected at least one."
            )
        if sensitive is not None:
            try:
                report_codes(sensitive, groups, "sensitive")
            except ValueError as error:
                raise ValueError(
                    f"{error} The groups come from the noise estimator's own sample; if that sample lacks a group, "
                    "pass groups=[...] to it."
                ) from error
        return groups, a[known], b[known], describe_missing(known, "people were")


def check_level(level: object) -> float:
    """Return the confidence level as a float in (0, 1)."""
    if not isinstance(level, Real) or isinstance(level, bool) or not 0 < float(level) < 1:
        raise ValueError(f"Got level={level!r}, but expected a number between 0 and 1, such as 0.95.")
    return float(level)


def resolve_groups(groups: Sequence[Any] | None, *samples: Any, name: str) -> tuple[Any, ...]:
    """Return the declared groups, or the labels that occur in the samples, in sorted order: at least two.

    `name` is what the samples are called in messages.
    """
    if groups is None:
        found = [label for sample in samples for label in infer_labels(sample, name)]
        labels, source = infer_labels(found, name), name
    else:
        labels, source = check_labels(groups, "groups"), "groups"
    if len(labels) < 2:
        raise ValueError(
            f"Got {source} with {len(labels)} distinct group(s), but expected at least two. Pass "
            "groups=[...] with all groups that exist."
        )
    return labels


def report_codes(values: Any, groups: tuple[Any, ...], name: str) -> NDArray[np.intp]:
    """Return the positions of the labels in ``groups``, -1 where missing."""
    return np.asarray(encode_labels(values, groups, name=name, missing="code"), dtype=np.intp)


def describe_missing(known: NDArray[np.bool_], what: str) -> list[str]:
    """Return a sentence about what was left out, if anything was."""
    n_missing = int((~known).sum())
    return [f"{n_missing} {what} left out because of a missing value."] if n_missing else []


def make_generator(random_state: Any) -> np.random.Generator:
    """Return a generator from a seed, a generator or scikit-learn's older kind of random state."""
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31))
    return np.random.default_rng(random_state)
