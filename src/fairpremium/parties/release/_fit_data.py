"""What a fit is made of: settings and data, of one outcome or of claims, and the parts that rules look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from fairpremium.blocks import Rows, Stream
from fairpremium.corrections import ReportChannel
from fairpremium.families import Family, get_family
from fairpremium.labels import encode_labels
from fairpremium.models import Design, LinearModel
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, SourcePortfolio, is_source

from ._public_data import read_rows


@dataclass(frozen=True)
class FitSettings:
    """What is to be fitted; the fields are those of `DiscriminationFreePricer`."""

    family: Any = "normal"
    model: Any = "linear"
    correction: str = "auto"
    pooling: Literal["auto"] | float = "auto"
    reference: Any = "marginal"
    intervals: bool = True

    def make_pricer(self, channel: Any) -> DiscriminationFreePricer:
        """Return a pricer that is not fitted yet."""
        return DiscriminationFreePricer(**vars(self), channel=channel, random_state=0)


@dataclass(frozen=True)
class ClaimSettings:
    """How claims are to be fitted; the fields are those of `FrequencySeverityPricer`."""

    frequency: Any = "poisson"
    severity: Any = "gamma"
    cap: Any = None
    model: Any = "linear"
    correction: str = "auto"
    pooling: Literal["auto"] | float = "auto"
    reference: Any = "marginal"
    intervals: bool = True

    def make_pricer(self, channel: Any) -> FrequencySeverityPricer:
        """Return a pricer that is not fitted yet."""
        return FrequencySeverityPricer(**vars(self), channel=channel, random_state=0)


class Claims(NamedTuple):
    """Numbers and amounts of claims, or the names of their columns, by peril."""

    counts: dict[str, Any]
    amounts: dict[str, Any]


class Part(NamedTuple):
    """Rows to which one model is fitted. `place` says in a refusal which of several they are."""

    rows: Rows | Stream
    design: Design
    family: Family
    model: LinearModel | None
    place: str = ""


class FitData(NamedTuple):
    """The data of a fit; see `fit_release`."""

    X: Any
    y: Any
    sample_weight: Any
    reports: Any
    features: Sequence[str] | None = None

    def numbers(self) -> dict[str, Any]:
        """Return the columns of outcomes and volumes of a table."""
        return {"y": self.y, "sample_weight": self.sample_weight}

    def fit(self, pricer: Any) -> None:
        """Fit a pricer to them."""
        volume = {"sample_weight": self.sample_weight}
        pricer.fit(self.X, self.y, sensitive=self.reports, features=self.features, **volume)

    @contextmanager
    def parts(self, settings: FitSettings, labels: tuple[Any, ...]) -> Iterator[Iterator[Part]]:
        """Read the rows of the one model."""
        family, model = get_family(settings.family), _linear(settings.model)
        with self.rows(labels, family, model and model.terms) as (rows, design):
            yield iter([Part(rows, design, family, _penalized(model))])

    @contextmanager
    def rows(
        self, labels: tuple[Any, ...], family: Family, terms: str | None = None
    ) -> Iterator[tuple[Rows | Stream, Design]]:
        """Read the rows, with the codes of their reports, and how their features are made."""
        if is_source(self.X):
            with SourcePortfolio(self.X, self.y, self.reports, self.sample_weight, self.features, terms) as portfolio:
                yield portfolio.rows(ReportChannel.of(None, labels), family, thorough=False), portfolio.design
        else:
            codes = encode_labels(self.reports, labels, name="reports", missing="code")
            codes = np.where(codes < 0, len(labels), codes)
            yield read_rows(self.X, self.y, self.sample_weight, family, codes, terms)


class ClaimData(NamedTuple):
    """The data of a fit to claims."""

    X: Any
    claims: Claims
    exposure: Any
    reports: Any
    features: Sequence[str] | None = None

    def numbers(self) -> dict[str, Any]:
        """Return the columns of claims and volumes of a table."""
        counts, amounts = self.claims
        pairs = (("counts", counts), ("amounts", amounts))
        named = {f"{what} of {peril}": values for what, by in pairs for peril, values in by.items()}
        return {**named, "exposure": self.exposure}

    def fit(self, pricer: Any) -> None:
        """Fit a pricer to them."""
        pricer.fit(self.X, *self.claims, sensitive=self.reports, exposure=self.exposure, features=self.features)

    @contextmanager
    def parts(self, settings: ClaimSettings, labels: tuple[Any, ...]) -> Iterator[Iterator[Part]]:
        """Read the rows of frequency and severity; the latter are those with claims."""
        roles: dict[str, Any] = {"sensitive": self.reports, "labels": labels, "exposure": self.exposure}
        pricer, several = settings.make_pricer(None), len(self.claims.counts) > 1
        with pricer.open_parts(self.X, *self.claims, **roles, features=self.features) as parts:
            yield (
                Part(part.rows, part.design, part.family, _penalized(_linear(part.models[0])), _place(n, several))
                for n, part in enumerate(parts)
            )


def _linear(model: Any) -> LinearModel | None:
    return model if isinstance(model, LinearModel) else None


def _penalized(model: LinearModel | None) -> LinearModel | None:
    """Return a linear model with a ridge of its own; any other gets that of the rules, which lets rare levels stay."""
    return model if model is not None and model.ridge else None


def _place(n: int, several: bool) -> str:
    peril, severity = divmod(n, 2)
    where = "the rows with claims" if severity else "all rows"
    return f"{where} of peril {peril + 1}" if several else where
