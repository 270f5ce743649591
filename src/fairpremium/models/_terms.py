"""Feature terms after they were learned: levels, bands, knots and powers, as plain data that a model file holds.

A factor turns one column into features, a term is a product of factors, and a design is a list of terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.models._recognition import check_texts
from fairpremium.models._terms_language import Label, LevelsOf, Plain, PolynomialOf, SplineOf, TermsError, TermSpec

Unseen = Literal["error", "base"]
OTHER = "other"  # the level of rare levels that were put together


class Categories(NamedTuple):
    """A column of levels: the distinct ones, and which of them each row has."""

    present: Sequence[Label]
    positions: npt.NDArray[np.intp]

    def numbers(self) -> Array:
        """Return levels that are whole numbers as such."""
        return np.asarray(self.present, dtype=np.float64)[self.positions]


Values = Array | Categories


class ColumnFacts(Protocol):
    """What can be learned about a column."""

    @property
    def name(self) -> str:
        """Of the column."""

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""

    def counts(self) -> Mapping[Label, int]:
        """Count the levels; numbers must be whole."""

    def sample(self) -> Array:
        """Return the numbers of all rows, or of some."""


class Factor(ABC):
    """One column as features."""

    kind: ClassVar[str]
    column: str

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the features."""

    @abstractmethod
    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Compute the features: shape (rows, features)."""

    @abstractmethod
    def check(self) -> None:
        """Raise a ValueError if the factor, which a file may hold, cannot be."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class NumberFactor(Factor):
    """A number as it is."""

    column: str

    kind: ClassVar[str] = "number"

    @property
    def names(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Return the number."""
        return _numbers(values)[:, None]

    def check(self) -> None:
        """Every name will do."""


@dataclass(frozen=True)
class LevelsFactor(Factor):
    """An indicator for each level but the first; for ordered levels, whether a row has at least this level.

    `grouped` are rare levels, which count as the level "other", and so does every level that was not seen.
    """

    column: str
    levels: tuple[Label, ...]
    grouped: tuple[Label, ...] = ()
    ordered: bool = False

    kind: ClassVar[str] = "levels"

    @property
    def names(self) -> tuple[str, ...]:
        """The column with each level."""
        sign = ">=" if self.ordered else "="
        return tuple(f"{self.column}{sign}{level}" for level in self.levels[1:])

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Return the indicators."""
        if not isinstance(values, Categories):
            values = whole_categories(values, self.column)
        known: dict[Any, int] = {level: code for code, level in enumerate(self.levels)}
        known |= dict.fromkeys(self.grouped, known.get(OTHER, -1))
        rest = known[OTHER] if self.grouped else -1
        codes = np.array([known.get(level, rest) for level in values.present], dtype=np.intp)[values.positions]
        unknown = int(np.count_nonzero(codes < 0))
        if unknown and unseen == "error":
            raise ValueError(
                f"Got {unknown} rows of X with a level of column {self.column!r} that was not seen in fit; expected "
                f'one of {list(self.levels)}. unseen_levels="base" prices such rows at the base level '
                f"{self.levels[0]!r}."
            )
        later = np.arange(1, len(self.levels))
        return np.asarray(codes[:, None] >= later if self.ordered else codes[:, None] == later, dtype=np.float64)

    def check(self) -> None:
        """Raise unless every level occurs once."""
        every = [*self.levels, *self.grouped]
        if not self.levels or len(set(every)) < len(every) or (self.grouped and OTHER not in self.levels):
            raise ValueError("the levels of a term are not distinct")


@dataclass(frozen=True)
class BandsFactor(Factor):
    """An indicator for each band of a number but the base; a band holds its lower limit and not its upper one."""

    column: str
    cuts: tuple[float, ...]
    base: int

    kind: ClassVar[str] = "bands"

    @property
    def labels(self) -> tuple[str, ...]:
        """Of all bands, in ascending order."""
        return band_labels(self.cuts)

    @property
    def names(self) -> tuple[str, ...]:
        """The column with each band."""
        labels = (label for i, label in enumerate(self.labels) if i != self.base)
        return tuple(self.column + (label if label[0] in "<>" else f"={label}") for label in labels)

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Return the indicators."""
        band = np.searchsorted(self.cuts, _numbers(values), side="right")
        others = np.delete(np.arange(len(self.cuts) + 1), self.base)
        return np.asarray(band[:, None] == others, dtype=np.float64)

    def check(self) -> None:
        """Raise unless limits ascend."""
        _check_ascending(self.cuts, 1, "limits of the bands")
        if not 0 <= self.base <= len(self.cuts):
            raise ValueError("the base band of a term does not exist")


@dataclass(frozen=True)
class SplineFactor(Factor):
    """A natural cubic spline: each feature is one at its knot and zero at all others, and linear outside the knots.

    The first knot has no feature: coefficients are effects relative to it.
    """

    column: str
    knots: tuple[float, ...]

    kind: ClassVar[str] = "spline"

    @property
    def names(self) -> tuple[str, ...]:
        """The column at each knot but the first."""
        return tuple(f"{self.column}@{knot:g}" for knot in self.knots[1:])

    @cached_property
    def _basis(self) -> Any:
        from scipy.interpolate import CubicSpline  # takes longer to load than most fits

        return CubicSpline(self.knots, np.eye(len(self.knots))[:, 1:], bc_type="natural")

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Compute the spline's features."""
        x = _numbers(values)
        inside = np.clip(x, self.knots[0], self.knots[-1])
        beyond = (x - inside)[:, None]
        return np.asarray(self._basis(inside) + beyond * self._basis(inside, 1))

    def check(self) -> None:
        """Raise unless knots ascend."""
        _check_ascending(self.knots, 3, "knots of the spline")


@dataclass(frozen=True)
class PolynomialFactor(Factor):
    """Powers of (x - center) / scale."""

    column: str
    degree: int
    center: float
    scale: float

    kind: ClassVar[str] = "polynomial"

    @property
    def names(self) -> tuple[str, ...]:
        """The column with each power."""
        return tuple(f"poly({self.column})^{power}" for power in range(1, self.degree + 1))

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Compute the powers."""
        t = (_numbers(values) - self.center) / self.scale
        return np.asarray(t[:, None] ** np.arange(1, self.degree + 1))

    def check(self) -> None:
        """Raise unless the powers exist."""
        if not (1 <= self.degree <= 10 and self.scale > 0 and np.isfinite([self.center, self.scale]).all()):
            raise ValueError("a polynomial of a term has no finite powers")


@dataclass(frozen=True)
class Term:
    """A product of factors."""

    factors: tuple[Factor, ...]
    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        names = self.factors[0].names
        for factor in self.factors[1:]:
            names = tuple(f"{a}:{b}" for a in names for b in factor.names)
        return names

    def encode(self, values: Mapping[str, Values], unseen: Unseen) -> Array:
        """Compute the features: shape (rows, features)."""
        found = self.factors[0].encode(values[self.factors[0].column], unseen)
        for factor in self.factors[1:]:
            other = factor.encode(values[factor.column], unseen)
            found = (found[:, :, None] * other[:, None, :]).reshape(len(found), -1)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"text": self.text, "factors": [_plain(factor.to_dict()) for factor in self.factors]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Term:
        """Read back what `to_dict` returned, checking every field."""
        return cls(tuple(_read_factor(dict(factor)) for factor in data["factors"]), str(data["text"]))


_KINDS: dict[str, type[Factor]] = {
    each.kind: each for each in (NumberFactor, LevelsFactor, BandsFactor, SplineFactor, PolynomialFactor)
}


def _read_factor(data: dict[str, Any]) -> Factor:
    kind = _KINDS[data.pop("kind")]
    fields: dict[str, Any] = {
        "column": str,
        "levels": tuple,
        "grouped": tuple,
        "ordered": bool,
        "cuts": lambda values: tuple(map(float, values)),
        "base": int,
        "knots": lambda values: tuple(map(float, values)),
        "degree": int,
        "center": float,
        "scale": float,
    }
    factor = kind(**{name: fields[name](value) for name, value in data.items()})
    factor.check()
    return factor


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}


# --- learning --------------------------------------------------------------------------------------------------------


def learn_term(spec: TermSpec, facts: Mapping[str, ColumnFacts]) -> Term:
    """Learn what a term needs to know about its columns."""
    return Term(tuple(_learn_factor(factor, facts[factor.column], spec) for factor in spec.factors), spec.text)


def _learn_factor(spec: Any, facts: ColumnFacts, term: TermSpec) -> Factor:
    if isinstance(spec, LevelsOf) and spec.cuts is None:
        return _learn_levels(spec, facts, term)
    if isinstance(spec, Plain):
        if facts.is_number:
            return NumberFactor(spec.column)
        check_texts(spec.column, facts.counts())
        return _learn_levels(LevelsOf(spec.column, spec.at), facts, term)
    if not facts.is_number:
        raise _error(spec, term, f"a column of numbers, and {spec.column!r} holds text")
    x = facts.sample()
    if isinstance(spec, LevelsOf):
        assert spec.cuts is not None
        labels = band_labels(spec.cuts)
        counts = np.bincount(np.searchsorted(spec.cuts, x, side="right"), minlength=len(labels))
        if spec.base is not None and spec.base not in labels:
            raise _error(spec, term, f"one of the bands {list(labels)} as base")
        base = int(np.argmax(counts)) if spec.base is None else labels.index(str(spec.base))
        return BandsFactor(spec.column, spec.cuts, base)
    if isinstance(spec, SplineOf):
        return SplineFactor(spec.column, spec.knots or _quantile_knots(spec, x, term))
    assert isinstance(spec, PolynomialOf)
    distinct = len(np.unique(x))
    if distinct <= spec.degree:
        raise _error(spec, term, f"a column of more than {spec.degree} different numbers, and it has {distinct}")
    return PolynomialFactor(spec.column, spec.degree, _rounded(x.mean()), _rounded(x.std()))


def _learn_levels(spec: LevelsOf, facts: ColumnFacts, term: TermSpec) -> LevelsFactor:
    counts = dict(facts.counts())
    if spec.order is not None:
        unknown = sorted(set(counts) - set(spec.order), key=str)
        if unknown:
            raise _error(spec, term, f"all levels of {spec.column!r} in their order, and {unknown} are not named")
        return LevelsFactor(spec.column, spec.order, ordered=True)
    grouped: tuple[Label, ...] = ()
    if spec.rare is not None:
        least = spec.rare * sum(counts.values()) if spec.rare < 1 else spec.rare
        grouped = tuple(sorted((level for level, n in counts.items() if n < least and level != OTHER), key=str))
        if grouped:
            counts[OTHER] = counts.get(OTHER, 0) + sum(counts.pop(level) for level in grouped)
    if len(counts) < 2:
        raise _error(spec, term, f"{spec.column!r} to have two levels at least, and {list(counts)} is all there is")
    order = sorted(counts, key=lambda level: (level == OTHER and bool(grouped), isinstance(level, str), level))
    base: Any = max(order, key=lambda level: counts[level]) if spec.base is None else spec.base
    if base not in counts:
        raise _error(spec, term, f"one of the levels {order} as base, and {base!r} is none")
    return LevelsFactor(spec.column, (base, *(level for level in order if level != base)), grouped)


def _quantile_knots(spec: SplineOf, x: Array, term: TermSpec) -> tuple[float, ...]:
    """Spread knots over the quantiles, of the different values where rows repeat few of them."""
    assert spec.freedom is not None
    different = np.unique(x)
    if len(different) <= spec.freedom:
        raise _error(spec, term, f"a column of more than {spec.freedom} different numbers, and it has {len(different)}")
    at = np.linspace(0.05, 0.95, spec.freedom + 1)
    knots = np.quantile(x, at)
    if np.diff(knots).min() <= 1e-9 * np.ptp(knots):
        knots = np.quantile(different, at)
    return tuple(knots.tolist())


def _error(spec: Any, term: TermSpec, expected: str) -> TermsError:
    return TermsError(
        f"Got terms with {term.text!r}, column {spec.column!r} at position {spec.at + 1}, but expected {expected}."
    )


def band_labels(cuts: Sequence[float]) -> tuple[str, ...]:
    """Name the bands between limits."""
    between = (f"[{a:.12g},{b:.12g})" for a, b in pairwise(cuts))
    return (f"<{cuts[0]:.12g}", *between, f">={cuts[-1]:.12g}")


def whole_categories(values: Array, column: str) -> Categories:
    """Return whole numbers as levels."""
    present, positions = np.unique(values, return_inverse=True)
    if not (np.floor(present) == present).all():
        raise ValueError(f"Got column {column!r} of X with decimals, but expected whole numbers, which are levels.")
    return Categories([int(level) for level in present], positions.reshape(len(values)))


def _numbers(values: Values) -> Array:
    return values.numbers() if isinstance(values, Categories) else values


def _check_ascending(values: tuple[float, ...], least: int, what: str) -> None:
    if len(values) < least or not np.isfinite(values).all() or (np.diff(values) <= 0).any():
        raise ValueError(f"the {what} of a term do not ascend")


def _rounded(value: Any) -> float:
    """Six digits, so that a center is no one's number."""
    return float(f"{value:.6g}")
