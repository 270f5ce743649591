"""The channel T[s, d] = P(S = s given D = d): sampling, privacy and correction from one set of integers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NoReturn, overload

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..documents import seal
from ..labels import Codes, Label, check_labels, encode_labels, label_key, label_to_json
from ._containers import labels_like
from ._descriptor import GENERAL, channel_from_descriptor
from ._exact import MAX_TOTAL, Rows, integer_weights, left_inverse, log_rounded_up, read_only
from ._sampling import Rng, check_rng, uniform_integers

IntRows = tuple[tuple[int, ...], ...]

_SUM_TOLERANCE = 1e-9
_SMALLEST_SINGULAR_VALUE = 1e-8


class Channel:
    r"""The law of the report S given the true attribute D, as an immutable object.

    Parameters
    ----------
    matrix : array-like of shape (reports, groups)
        ``matrix[s, d] = P(S = s given D = d)``; every **column** sums to one. Rounded once to integer weights
        with a common total N <= 2**32 per column; everything below comes from those integers.
    groups : sequence of str, int, bool, float or tuple
        The values of D, in the order of the columns.
    reports : sequence, optional
        The values of S, in the order of the rows; the groups when the matrix is square.

    Attributes
    ----------
    groups, reports : tuple
    total : int
        N, the sum of each column of the weights.

    Notes
    -----
    .. math:: \varepsilon = \max_{s, d, d'} \ln \frac{T_{sd}}{T_{sd'}}, \qquad
              T^{-1} = (T' W T)^{-1} T' W, \quad W = \mathrm{diag}(1 / P(S)), \quad P(S) = T 1 / K.

    The guarantee is local: the report is drawn before anybody else sees D, and any D may be exchanged for any
    other D' (the whole tuple when there are several attributes). Only S is protected, not X, Y or what they
    say about D. Whatever is computed from S costs no further epsilon.

    Examples
    --------
    >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["no", "yes"])
    >>> channel.weights.tolist(), channel.total, channel.keep
    ([[3, 1], [1, 3]], 4, 0.75)
    >>> channel.inverse
    array([[ 1.5, -0.5],
           [-0.5,  1.5]])
    """

    # Facts, written once by _set.
    groups: tuple[Label, ...]
    reports: tuple[Label, ...]
    total: int
    _scheme = GENERAL

    def __init__(self, matrix: Any, *, groups: Sequence[Label], reports: Sequence[Label] | None = None) -> None:
        checked = check_groups(groups)
        rows = _check_matrix(matrix, len(checked))
        if reports is None:
            if len(rows) != len(checked):
                raise ValueError(
                    f"Got no reports for a matrix with {len(rows)} rows and {len(checked)} groups, but expected one "
                    "label per row. They can be left out for a square matrix only."
                )
            reports = checked
        weights, total = integer_weights(rows)
        self._set_weights(weights, total, checked, reports)

    # --- construction ---

    @classmethod
    def _from_weights(cls, weights: IntRows, groups: Sequence[Label], reports: Sequence[Label]) -> Channel:
        """Build a channel from its integers; the columns must share one total and one divisor."""
        totals = {sum(column) for column in zip(*weights, strict=True)}
        if len(totals) != 1 or not 0 < min(totals) <= MAX_TOTAL:
            raise ValueError("the columns of weights must have one common total between 1 and 2**32")
        if math.gcd(*(w for row in weights for w in row)) != 1:
            raise ValueError("the weights must not have a common divisor")
        channel = object.__new__(Channel)
        channel._set_weights(weights, totals.pop(), check_groups(groups), reports)
        return channel

    def _set_weights(self, weights: IntRows, total: int, groups: tuple[Label, ...], reports: Sequence[Label]) -> None:
        named = check_labels(reports, "reports")
        if len(named) != len(weights) or any(len(row) != len(groups) for row in weights):
            raise ValueError(
                f"Got matrix of shape ({len(weights)}, {len(weights[0]) if weights else 0}), but expected "
                f"({len(named)}, {len(groups)}): one row per report and one column per group."
            )
        _check_rank(weights, total, named)
        self._set(groups=groups, reports=named, total=total, _weight_rows=weights)

    def _set(self, **facts: Any) -> None:
        self.__dict__.update(facts)

    @staticmethod
    def product(first: Channel, second: Channel, /, *others: Channel) -> Channel:
        """Return the channel of several attributes that are reported independently of each other.

        Parameters
        ----------
        first, second, *others : Channel
            One channel per attribute.

        Returns
        -------
        channel : Channel
            Groups and reports are flat tuples of the components' labels, the first attribute varying slowest.

        Notes
        -----
        The matrix is the Kronecker product, the left inverse that of the left inverses, and the epsilons add:
        the guarantee covers a change of the whole tuple.

        Examples
        --------
        >>> sex = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> smoker = Channel([[0.5, 0.25], [0.5, 0.75]], groups=[False, True])
        >>> both = Channel.product(sex, smoker)
        >>> both.groups
        (('F', False), ('F', True), ('M', False), ('M', True))
        >>> round(both.epsilon - sex.epsilon - smoker.epsilon, 12)
        0.0
        """
        from ._product import ProductChannel

        return ProductChannel._of((first, second, *others))

    @staticmethod
    def repeated(first: Channel, second: Channel, /, *others: Channel) -> Channel:
        r"""Return the channel of people who reported the same attribute several times, each time with fresh noise.

        Parameters
        ----------
        first, second, *others : Channel
            The channel of each report, with the same groups.

        Returns
        -------
        channel : Channel
            Its groups are theirs, its reports are tuples with one entry per time, the first varying slowest.

        Notes
        -----
        .. math:: T_{(s, t), d} = P(S_1 = s \mid D = d)\, P(S_2 = t \mid D = d).

        The epsilons add, as in a :class:`PrivacyLedger`. There are more reports than groups, and the left inverse is
        the one with the smallest variance if all groups are equally frequent. Whoever repeats the *same* report, as
        :class:`MemoizedReports` does, says nothing new: the first report alone is then the evidence.

        In fits and audits a row with some of the reports counts with those, as if they were a source of their own.

        Examples
        --------
        >>> once = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> twice = Channel.repeated(once, once)
        >>> twice.reports
        (('F', 'F'), ('F', 'M'), ('M', 'F'), ('M', 'M'))
        >>> twice.inverse.round(3).tolist()
        [[1.5, 0.5, 0.5, -0.5], [-0.5, 0.5, 0.5, 1.5]]
        """
        from ._repeated import RepeatedChannel

        return RepeatedChannel._of((first, second, *others))

    # --- facts ---

    @cached_property
    def components(self) -> tuple[Channel, ...]:
        """The independent channels of a product; the channel itself otherwise."""
        return (self,)

    @cached_property
    def repeats(self) -> tuple[Channel, ...]:
        """The channels of the reports that one person gave, see :meth:`repeated`; the channel itself otherwise."""
        return (self,)

    @cached_property
    def incomplete(self) -> dict[tuple[int, ...], Channel]:
        """The channels of people who gave some of the `repeats` only, by the positions of these; else empty."""
        return {}

    @cached_property
    def _weight_rows(self) -> IntRows:
        raise NotImplementedError

    @cached_property
    def weights(self) -> npt.NDArray[Any]:
        """Integer weights of shape (reports, groups); ``T = weights / total``."""
        dtype = np.int64 if self.total < 2**63 else object
        array = np.array(self._weight_rows, dtype=dtype)
        array.setflags(write=False)
        return array

    @cached_property
    def matrix(self) -> Array:
        """T, shape (reports, groups): ``T[s, d] = P(S = s given D = d)``; read-only."""
        return read_only([[Fraction(w, self.total) for w in row] for row in self._weight_rows])

    @cached_property
    def inverse_exact(self) -> Rows:
        """The left inverse in fractions: a tuple of rows, one per group."""
        return left_inverse(self._weight_rows, self.total)

    @cached_property
    def inverse(self) -> Array:
        """The left inverse of T, shape (groups, reports); read-only, its columns sum to one."""
        return read_only(self.inverse_exact)

    @cached_property
    def _worst_ratio(self) -> Fraction | None:
        """The largest T[s, d] / T[s, d'], or None when it is infinite."""
        if any(min(row) == 0 for row in self._weight_rows):
            return None
        return max(Fraction(max(row), min(row)) for row in self._weight_rows)

    @cached_property
    def epsilon(self) -> float:
        """The realised privacy parameter, the largest log-ratio of two entries of a row of T.

        Rounded up to a float, so that it never understates what the integers leak; inf when some report rules a
        group out.
        """
        return math.inf if self._worst_ratio is None else log_rounded_up(self._worst_ratio)

    @cached_property
    def keep(self) -> float:
        """P(S = D) when the channel has the shape of randomized response, else nan."""
        rows = self._weight_rows
        if _keys(self.groups) != _keys(self.reports):
            return math.nan
        same = {row[d] for d, row in enumerate(rows)}
        other = {w for s, row in enumerate(rows) for d, w in enumerate(row) if s != d}
        return same.pop() / self.total if len(same) == len(other) == 1 else math.nan

    @cached_property
    def condition_number(self) -> float:
        """The largest over the smallest singular value of T."""
        return float(np.linalg.cond(self.matrix))

    # --- reporting ---

    def privatize(self, values: Any, *, rng: Rng = None) -> Any:
        """Draw one report for each true value.

        Parameters
        ----------
        values : array-like of shape (n,), or a table with one column per attribute for tuple groups
            True values of D; every one must be a declared group.
        rng : numpy Generator or int, optional
            For simulations only: a report drawn from a seed protects nobody who knows the seed. None, the
            default, takes fresh randomness from the operating system.

        Returns
        -------
        reports : ndarray, or a Series, frame or Arrow object when ``values`` is one
            Labels in the declared type; pandas objects retain index and name.

        Notes
        -----
        One integer u, uniform in range(N), decides each report: s with weight ``weights[s, d]``, exactly. No
        floating-point number is involved. Each call draws anew: a person who is asked twice has spent epsilon
        twice (see :class:`MemoizedReports` and :class:`PrivacyLedger`).

        Examples
        --------
        >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> set(channel.privatize(["F", "M", "M"])) <= {"F", "M"}
        True
        """
        generator = check_rng(rng)
        if generator is None:
            self._refuse_if_unprotected()
        codes = encode_labels(values, self.groups, name="values", missing="error")
        return labels_like(values, self._draw(codes, generator), self.reports)

    def _refuse_if_unprotected(self) -> None:
        if self._worst_ratio is None:
            raise ValueError(
                "This channel has infinite epsilon: some report rules a group out, so it protects nobody. "
                "Give every report a positive probability in every group; for a simulation pass rng=."
            )

    def _draw(self, codes: npt.NDArray[Any], rng: np.random.Generator | None) -> npt.NDArray[np.int64]:
        u = [uniform_integers(len(codes), c.total, rng) for c in self.components]
        return self._choose_all(codes, u)

    def _choose_all(self, codes: npt.NDArray[Any], u: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Return the reports that belong to one integer per row and component."""
        return self._choose(codes, u[0])

    @cached_property
    def _boundaries(self) -> npt.NDArray[np.int64]:
        """Upper ends of the intervals of u, group after group, shifted by N per group."""
        ends = np.cumsum(np.array(self._weight_rows, dtype=np.int64), axis=0)  # (reports, groups)
        return (ends + np.arange(len(self.groups)) * self.total).T.ravel()

    def _choose(self, codes: npt.NDArray[Any], u: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the report of group d that owns u: the first s with u < w[0, d] + ... + w[s, d]."""
        group = codes.astype(np.int64)
        place = np.searchsorted(self._boundaries, u + group * self.total, side="right")
        return place.astype(np.int64) - group * len(self.reports)

    def encode(self, reports: Any, missing: Literal["error", "code"] = "code") -> Codes:
        """Replace each report by its position in ``reports``; a missing one gets -1.

        Parameters
        ----------
        reports : array-like of shape (n,), or a table with one column per attribute
        missing : {"code", "error"}
            Whether a missing report gets -1 or is an error.

        Returns
        -------
        codes : ndarray of int32, shape (n,)

        Examples
        --------
        >>> Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"]).encode(["M", None]).tolist()
        [1, -1]
        """
        return encode_labels(reports, self.reports, name="sensitive", missing=missing)

    # --- correcting ---

    @overload
    def group_distribution(
        self, reports: Any, *, sample_weight: npt.ArrayLike | None = None, return_covariance: Literal[False] = False
    ) -> Array: ...

    @overload
    def group_distribution(
        self, reports: Any, *, sample_weight: npt.ArrayLike | None = None, return_covariance: Literal[True]
    ) -> tuple[Array, Array]: ...

    def group_distribution(
        self, reports: Any, *, sample_weight: npt.ArrayLike | None = None, return_covariance: bool = False
    ) -> Array | tuple[Array, Array]:
        r"""Estimate P(D) without bias from the reports.

        Parameters
        ----------
        reports : array-like of shape (n,)
            Reports S; missing ones are left out.
        sample_weight : array-like of shape (n,), optional
            Volumes; the estimate is then the distribution of volume.
        return_covariance : bool
            Whether to return the estimated covariance of the estimate as well.

        Returns
        -------
        p : ndarray of shape (groups,)
            Sums to one; entries may leave [0, 1], see :func:`project_to_simplex`.
        covariance : ndarray of shape (groups, groups)
            Only with ``return_covariance=True``.

        Notes
        -----
        .. math:: \hat p = T^{-1} \hat P(S) = \frac{\sum_i w_i a_i}{\sum_i w_i}, \qquad
                  \frac{\sum_i w_i^2 (a_i - \hat p)(a_i - \hat p)'}{(\sum_i w_i)^2},

        where a_i is the column of ``inverse`` that belongs to the report of row i and w_i its weight.

        Examples
        --------
        >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> channel.group_distribution(["F", "F", "M", "F", None])
        array([1., 0.])
        """
        codes = self.encode(reports)
        weight = _check_weight(sample_weight, len(codes))
        seen = codes >= 0
        size = len(self.reports)
        mass = np.bincount(codes[seen], weights=weight[seen], minlength=size)
        if not mass.sum() > 0:
            raise ValueError("Got reports without volume, but expected a row with a report and a positive weight.")
        p: Array = self.inverse @ (mass / mass.sum())  # (groups,)
        if not return_covariance:
            return p
        squares = np.bincount(codes[seen], weights=weight[seen] ** 2, minlength=size)
        deviation = self.inverse - p[:, None]  # (groups, reports)
        covariance: Array = (deviation * (squares / mass.sum() ** 2)) @ deviation.T
        return p, covariance

    # --- description ---

    def descriptor(self) -> dict[str, Any]:
        """Return what travels with the reports: a plain dict that JSON can hold.

        Returns
        -------
        descriptor : dict
            scheme, groups, reports, the integers, the realised epsilon (None when infinite) and a SHA-256 of
            the canonical JSON of all these.

        Examples
        --------
        >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> Channel.from_descriptor(channel.descriptor()) == channel
        True
        """
        return seal(
            {
                "scheme": self._scheme,
                "groups": [label_to_json(label) for label in self.groups],
                "reports": [label_to_json(label) for label in self.reports],
                "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
                **self._described_integers(),
            }
        )

    def _described_integers(self) -> dict[str, Any]:
        return {"weights": [list(row) for row in self._weight_rows]}

    @staticmethod
    def from_descriptor(descriptor: Mapping[str, Any]) -> Channel:
        """Rebuild a channel from its descriptor; anything unknown, missing, extra or false is an error.

        Parameters
        ----------
        descriptor : dict
            As :meth:`descriptor` returns it; it may have been written to JSON and read back.

        Returns
        -------
        channel : Channel
        """
        return channel_from_descriptor(descriptor)

    def matches(self, descriptor: Any) -> bool:
        """Say whether a descriptor is valid and describes this channel.

        Examples
        --------
        >>> channel = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
        >>> channel.matches(channel.descriptor()), channel.matches({"scheme": "none"})
        (True, False)
        """
        try:
            return channel_from_descriptor(descriptor) == self
        except ValueError:
            return False

    # --- an immutable value ---

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        return (_keys(self.groups), _keys(self.reports), self.total, self._weight_rows)

    def __eq__(self, other: object) -> bool:
        return self._identity == other._identity if isinstance(other, Channel) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"A channel is immutable; build a new one instead of setting {name!r}.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"A channel is immutable; {name!r} cannot be deleted.")

    def __copy__(self) -> Channel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Channel:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (channel_from_descriptor, (self.descriptor(),))

    def __repr__(self) -> str:
        named = "" if _keys(self.groups) == _keys(self.reports) else f", reports={self.reports!r}"
        return f"Channel(groups={self.groups!r}{named}, epsilon={self.epsilon:.6g})"


def check_groups(groups: Any) -> tuple[Label, ...]:
    """Return the groups as a tuple of at least two distinct labels, or raise with a sentence."""
    found = check_labels(groups, "groups")
    if len(found) < 2:
        raise ValueError(f"Got groups with {len(found)} label(s), but expected at least two labels.")
    if len({len(g) if isinstance(g, tuple) else 0 for g in found}) > 1:
        raise ValueError("Got groups of several kinds, but expected single labels, or tuples of one length.")
    return found


def _keys(labels: tuple[Label, ...]) -> tuple[Any, ...]:
    return tuple(label_key(label) for label in labels)


def _check_matrix(matrix: Any, n_groups: int) -> list[list[Fraction]]:
    try:
        values = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("Got matrix with other entries, but expected a rectangular table of numbers.") from None
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"Got matrix of shape {values.shape}, but expected two dimensions, (reports, groups).")
    if values.shape[1] != n_groups:
        raise ValueError(
            f"Got matrix of shape {values.shape}, but expected {n_groups} columns, one per group; rows are reports."
        )
    if not np.all(np.isfinite(values)):
        raise ValueError("Got matrix with NaN or infinite entries, but expected finite numbers.")
    if np.any(values < 0):
        raise ValueError(f"Got matrix with the entry {values.min():.6g}, but expected probabilities, at least 0.")
    sums = values.sum(axis=0)
    if np.any(np.abs(sums - 1) > _SUM_TOLERANCE):
        d = int(np.argmax(np.abs(sums - 1)))
        by_row = np.all(np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE)
        hint = " Its rows sum to 1: pass the transpose." if by_row else ""
        raise ValueError(f"Got matrix with a sum of {sums[d]:.12g} in column {d}, but expected 1 in each.{hint}")
    exact = np.asarray(matrix, dtype=object)
    return [[p if isinstance(p, Fraction) else Fraction(repr(float(p))) for p in row] for row in exact]


def _check_rank(weights: IntRows, total: int, reports: tuple[Label, ...]) -> None:
    if len(weights) < len(weights[0]):
        raise ValueError(
            f"Got matrix with {len(weights)} reports and {len(weights[0])} groups, but expected at least as many "
            "reports, else the groups cannot be distinguished."
        )
    for s, row in enumerate(weights):
        if not any(row):
            raise ValueError(
                f"Got only zeros in the row of report {reports[s]!r}. Leave that report out of the matrix."
            )
    smallest = float(np.linalg.svd(np.array(weights, dtype=np.float64) / total, compute_uv=False)[-1])
    if not smallest >= _SMALLEST_SINGULAR_VALUE:
        raise ValueError(
            f"Got matrix with smallest singular value {smallest:.3g}, but expected full column rank, else the noise "
            "cannot be undone. Two or more groups report (almost) alike."
        )


def _check_weight(sample_weight: npt.ArrayLike | None, n: int) -> Array:
    if sample_weight is None:
        return np.ones(n)
    weight = np.asarray(sample_weight, dtype=np.float64)
    if weight.shape != (n,):
        raise ValueError(f"Got sample_weight of shape {weight.shape}, but expected one entry per report, shape ({n},).")
    if not np.all(np.isfinite(weight)) or np.any(weight < 0):
        raise ValueError("Got sample_weight with other values, but expected finite numbers that are not negative.")
    return weight
