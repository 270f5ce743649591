"""Channels that nobody wrote down: the options that say how to estimate them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from fairpremium.cli._files import as_text, read_table, require_columns
from fairpremium.cli._options import Weights
from fairpremium.noise import AnchorNoise, MarginNoise, NoiseEstimator, RetestNoise, ValidationNoise


class Noise(StrEnum):
    """Ways to estimate an unknown channel."""

    anchor = "anchor"
    margin = "margin"
    validation = "validation"
    retest = "retest"


@dataclass(frozen=True)
class NoiseOptions:
    """The samples that the estimators need."""

    noise: Noise | None
    margin: Weights | None
    validation: Path | None
    true_column: str
    report_column: str
    retest: Path | None
    first_column: str
    second_column: str

    def names(self) -> list[str]:
        """Return the options that were typed to have the channel estimated."""
        samples = {"--margin": self.margin, "--validation": self.validation, "--retest": self.retest}
        return ["--noise"] if self.noise else [name for name, sample in samples.items() if sample is not None]

    def kind(self) -> Noise | None:
        """Return the estimator that was asked for, by name or by its sample."""
        implied = [
            kind
            for kind, sample in (
                (Noise.margin, self.margin),
                (Noise.validation, self.validation),
                (Noise.retest, self.retest),
            )
            if sample is not None
        ]
        kinds = set(implied) | ({self.noise} if self.noise else set())
        if len(kinds) > 1:
            raise ValueError(f"Give one way to estimate the noise. Got {', '.join(sorted(k.value for k in kinds))}.")
        kind = kinds.pop() if kinds else None
        if kind is not None and kind is not Noise.anchor and not implied:
            raise ValueError(f"--noise {kind.value} needs --{kind.value}, which says what to estimate from.")
        return kind


def make_estimator(options: NoiseOptions, groups: list[str] | None, random_state: int | None) -> NoiseEstimator | None:
    """Return the noise estimator that the options ask for, or None."""
    kind = options.kind()
    if kind is Noise.anchor:
        return AnchorNoise(groups=groups, random_state=random_state)
    if kind is Noise.margin and options.margin is not None:
        return MarginNoise(options.margin)
    if kind is Noise.validation and options.validation is not None:
        true, report = _pair(options.validation, options.true_column, options.report_column)
        return ValidationNoise(true, report, groups=groups)
    if kind is Noise.retest and options.retest is not None:
        first, second = _pair(options.retest, options.first_column, options.second_column)
        return RetestNoise(first, second, groups=groups)
    return None


def _pair(path: Path, first: str, second: str) -> tuple[pd.Series, pd.Series]:
    frame = read_table(path, text={first, second})
    require_columns(frame, [first, second], path)
    return as_text(frame[first], path), as_text(frame[second], path)
