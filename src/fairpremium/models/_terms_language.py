"""The language of feature terms: parsed into plain data, never evaluated.

    terms    = term { "+" term }
    term     = factor { ":" factor }
    factor   = column | function "(" argument { "," argument } ")" | "."
    argument = factor | number | text

A column is a name, or any text between backquotes. Text stands between quotes. The functions are those of `FUNCTIONS`,
and "." means every column that is not named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, NoReturn

Label = str | bool | int

_TOKENS = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
    |(?P<name>[^\W\d][\w.]*|`[^`]+`)|(?P<text>"[^"]*"|'[^']*')|(?P<mark>[+:(),.]))""",
    re.VERBOSE,
)
_MOST = 100  # of everything that may be repeated
_TRUTH: dict[str, bool] = {"true": True, "false": False}


class TermsError(ValueError):
    """A text of terms that cannot be read; the message names the place."""


@dataclass(frozen=True)
class Plain:
    """A column as it is: a number, or one indicator for each level but the base."""

    column: str
    at: int = field(default=0, compare=False)  # position of the column in the text


@dataclass(frozen=True)
class LevelsOf:
    """A column as levels, or the bands of a number."""

    column: str
    at: int = field(default=0, compare=False)
    cuts: tuple[float, ...] | None = None  # of bands
    rare: float | None = None  # levels with fewer rows (or a smaller share, if below one) are put together
    base: Label | None = None  # None: the most frequent
    order: tuple[Label, ...] | None = None  # of ordered levels


@dataclass(frozen=True)
class SplineOf:
    """A natural cubic spline of a number."""

    column: str
    at: int = field(default=0, compare=False)
    freedom: int | None = None
    knots: tuple[float, ...] | None = None  # None: at quantiles


@dataclass(frozen=True)
class PolynomialOf:
    """The powers of a number."""

    column: str
    degree: int
    at: int = field(default=0, compare=False)


FactorSpec = Plain | LevelsOf | SplineOf | PolynomialOf


@dataclass(frozen=True)
class TermSpec:
    """A product of factors."""

    factors: tuple[FactorSpec, ...]
    text: str  # as it was written


@dataclass(frozen=True)
class Terms:
    """A parsed text."""

    terms: tuple[TermSpec, ...]
    others: bool  # whether every column that is not named is a term, too

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named, each once."""
        return tuple(dict.fromkeys(factor.column for term in self.terms for factor in term.factors))

    def over(self, columns: tuple[str, ...]) -> tuple[TermSpec, ...]:
        """Return the terms over a table with these columns, "." written out; raise if one is not there."""
        for term in self.terms:
            for factor in term.factors:
                if factor.column not in columns:
                    raise TermsError(
                        f"Got terms with {factor.column!r} at position {factor.at + 1}, but expected one of the "
                        f"columns {list(columns)}, or a function with its arguments in parentheses."
                    )
        if not self.others:
            return self.terms
        rest = (name for name in columns if name not in self.columns)
        return (*self.terms, *(TermSpec((Plain(name),), name) for name in rest))


class _Token(NamedTuple):
    kind: str  # "number", "name", "text", "mark" or "end"
    text: str
    at: int


class _Call(NamedTuple):
    """A function with what stands between its parentheses."""

    name: str
    at: int
    column: FactorSpec
    arguments: tuple[_Token, ...]

    def numbers(self, what: str) -> tuple[float, ...]:
        for token in self.arguments:
            if token.kind != "number":
                _fail(token, f"{what} as numbers in {self.name}()")
        return tuple(float(token.text) for token in self.arguments)

    def labels(self) -> tuple[Label, ...]:
        return tuple(_label(token) for token in self.arguments)

    def plain_column(self) -> str:
        if not isinstance(self.column, Plain):
            _fail(_Token("name", self.name, self.at), f"{self.name}() of a column")
        return self.column.column


def _label(token: _Token) -> Label:
    if token.kind == "text":
        return token.text[1:-1]
    if token.kind == "name" and token.text.lower() in _TRUTH:
        return _TRUTH[token.text.lower()]
    if token.kind == "number" and float(token.text).is_integer():
        return int(float(token.text))
    _fail(token, 'a level, such as "north", 3 or true')


def _increasing(values: tuple[float, ...], call: _Call, least: int, what: str) -> tuple[float, ...]:
    if len(values) < least or any(b <= a for a, b in pairwise(values)):
        _fail(
            _Token("name", call.name, call.at),
            f"{what} in {call.name}() of {call.column.column!r}: at least {least} numbers in ascending order",
        )
    return values


def _bands(call: _Call) -> FactorSpec:
    cuts = _increasing(call.numbers("the limits"), call, 1, "the limits of the bands")
    return LevelsOf(call.plain_column(), call.column.at, cuts=cuts)


def _spline(call: _Call) -> FactorSpec:
    numbers = call.numbers("the degrees of freedom or the knots")
    if len(numbers) == 1:
        if not (numbers[0].is_integer() and 2 <= numbers[0] <= _MOST):
            _fail(
                call.arguments[0],
                f"the degrees of freedom of spline() of {call.column.column!r}, a whole number from 2 to {_MOST}",
            )
        return SplineOf(call.plain_column(), call.column.at, freedom=int(numbers[0]))
    return SplineOf(call.plain_column(), call.column.at, knots=_increasing(numbers, call, 3, "one number, or knots"))


def _poly(call: _Call) -> FactorSpec:
    numbers = call.numbers("the degree")
    if len(numbers) != 1 or not (numbers[0].is_integer() and 1 <= numbers[0] <= 10):
        _fail(call.arguments[0], f"the degree of poly() of {call.column.column!r}, one whole number from 1 to 10")
    return PolynomialOf(call.plain_column(), int(numbers[0]), call.column.at)


def _as_levels(call: _Call) -> LevelsOf:
    """Return what base() and rare() are applied to."""
    inner = call.column
    if isinstance(inner, Plain):
        return LevelsOf(inner.column, inner.at)
    if isinstance(inner, LevelsOf) and inner.order is None:
        return inner
    _fail(_Token("name", call.name, call.at), f"{call.name}() of a column or of bands(), rare() or base()")


def _levels(call: _Call) -> FactorSpec:
    if call.arguments:
        _fail(call.arguments[0], "levels() of one column")
    return LevelsOf(call.plain_column(), call.column.at)


def _rare(call: _Call) -> FactorSpec:
    numbers, inner = call.numbers("the least number of rows, or the least share,"), _as_levels(call)
    if len(numbers) != 1 or not 0 < numbers[0] < math.inf:
        _fail(call.arguments[0], "one number in rare(): the least number of rows, or below 1 the least share")
    if inner.cuts is not None:
        _fail(_Token("name", call.name, call.at), "rare() of a column; choose other limits of bands")
    return replace(inner, rare=numbers[0])


def _base(call: _Call) -> FactorSpec:
    labels, inner = call.labels(), _as_levels(call)
    if len(labels) != 1:
        _fail(call.arguments[0], "one level in base()")
    return replace(inner, base=labels[0])


def _ordered(call: _Call) -> FactorSpec:
    labels = call.labels()
    if len(labels) < 2 or len(set(labels)) < len(labels) or len({type(label) for label in labels}) > 1:
        _fail(call.arguments[0], "the levels of ordered(), at least two of one kind, each once, in their order")
    return LevelsOf(call.plain_column(), call.column.at, order=labels)


FUNCTIONS: dict[str, Callable[[_Call], FactorSpec]] = {
    "bands": _bands,
    "spline": _spline,
    "poly": _poly,
    "levels": _levels,
    "rare": _rare,
    "base": _base,
    "ordered": _ordered,
}


def parse_terms(text: str) -> Terms:
    """Read a text of terms; a TermsError says what is wrong where."""
    if not isinstance(text, str):
        raise TypeError(
            f"Got terms of type {type(text).__name__}, but expected text, such as 'bands(age, 25) + region'."
        )
    return _Parser(text).read()


class _Parser:
    def __init__(self, text: str):
        self.text, self.tokens, self.position = text, _split(text), 0

    @property
    def now(self) -> _Token:
        return self.tokens[self.position]

    def advance(self) -> _Token:
        token = self.now
        self.position += token.kind != "end"
        return token

    def take(self, mark: str) -> bool:
        """Go past a mark if it stands here."""
        found = self.now.kind == "mark" and self.now.text == mark
        self.position += found
        return found

    def read(self) -> Terms:
        terms: list[TermSpec] = []
        others = False
        while True:
            if self.take("."):
                others = True
            else:
                terms.append(self.term())
            if not self.take("+"):
                break
        if self.now.kind != "end":
            _fail(self.now, '"+" or ":" between terms, or the end')
        written = [term.factors for term in terms]
        for term in terms:
            if written.count(term.factors) > 1:
                raise TermsError(f"Got terms with {term.text!r} twice, but expected each once.")
        return Terms(tuple(terms), others)

    def term(self) -> TermSpec:
        start = self.now.at
        factors = [self.factor()]
        while self.take(":"):
            factors.append(self.factor())
        return TermSpec(tuple(factors), " ".join(self.text[start : self.now.at].split()))

    def factor(self, depth: int = 0) -> FactorSpec:
        token = self.advance()
        if token.kind != "name" or depth > 3:
            _fail(token, "the name of a column or a function")
        if not self.take("("):
            return Plain(token.text.strip("`"), token.at)
        function = FUNCTIONS.get(token.text)
        if function is None:
            _fail(token, f"one of the functions {', '.join(FUNCTIONS)}")
        column = self.factor(depth + 1)
        arguments: list[_Token] = []
        while self.take(","):
            argument = self.advance()
            if argument.kind not in ("number", "text", "name"):
                _fail(argument, "a number or a text")
            arguments.append(argument)
        if not self.take(")"):
            _fail(self.now, f'"," or ")" in {token.text}()')
        if len(arguments) > _MOST:
            _fail(token, f"at most {_MOST} arguments")
        if not arguments and token.text != "levels":
            _fail(token, f"{token.text}() with a column and what it needs, such as {_EXAMPLES[token.text]}")
        return function(_Call(token.text, token.at, column, tuple(arguments)))


_EXAMPLES = {
    "bands": "bands(age, 25, 40)",
    "spline": "spline(power, 4)",
    "poly": "poly(age, 2)",
    "rare": "rare(region, 50)",
    "base": 'base(region, "north")',
    "ordered": 'ordered(size, "low", "mid", "high")',
}


def _split(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKENS.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            what = (
                "a quote that ends" if text[at] in "\"'`" else "a name, a number, a quoted text or one of + : ( ) , ."
            )
            _fail(_Token("mark", text[at], at), what)
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match.group(kind), match.start(kind)))
        at = match.end()
    return [*tokens, _Token("end", "", end)]


def _fail(token: _Token, expected: str) -> NoReturn:
    what = "the end" if token.kind == "end" else repr(token.text)
    raise TermsError(f"Got terms with {what} at position {token.at + 1}, but expected {expected}.")
