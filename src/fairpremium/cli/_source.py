"""How the reports were drawn: the options of a command and the file of the reports, resolved to one channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.cli._channels import decode_reports, known_channel, require_single
from fairpremium.cli._files import as_text
from fairpremium.cli._portfolio import Data
from fairpremium.labels import infer_labels
from fairpremium.noise import NoiseEstimator
from fairpremium.privacy import Channel


def check_one_source(
    keep: float | None, epsilon: float | None, channel: Path | None, true_attribute: bool, estimated_by: list[str]
) -> None:
    """Raise if the options say in several ways how the reports were drawn; `estimated_by` names those of a sample."""
    given = {
        "--keep": keep is not None,
        "--epsilon": epsilon is not None,
        "--channel": channel is not None,
        "--true-attribute": true_attribute,
    }
    named = [name for name, is_given in given.items() if is_given] + estimated_by
    if len(named) > 1:
        raise ValueError(f"Say in one way how the reports were drawn. Got {' and '.join(named)}.")


def resolve_channel(
    data: Data,
    groups: list[str] | None,
    rates: tuple[float | None, float | None],
    given: Any,
    true_attribute: bool,
    estimator: NoiseEstimator | None,
    estimated_by: list[str],
) -> tuple[Channel | NoiseEstimator | None, pd.Series, str]:
    """Return the channel or its estimator, the reports in the type of its labels, and who says so."""
    found = data.described
    texts = as_text(data.reports, data.reports_path)
    if true_attribute or estimator is not None:
        if found is not None:
            option = "--true-attribute" if true_attribute else estimated_by[0]
            raise ValueError(
                f"{option} contradicts {found.source}, which says that the reports went through a known channel."
            )
        _check_groups(texts, groups)
        return estimator, texts, "the true attribute" if estimator is None else "an estimate"
    if found is None and given is None and rates == (None, None):
        raise ValueError(
            f"Nothing says how the reports of {data.reports_path} were drawn. Give one of --keep, --epsilon, "
            "--channel, a sample to estimate it from (--margin, --validation, --retest), or --true-attribute if they "
            "are the truth."
        )
    channel, source = known_channel(found, given, *rates, groups, texts)
    require_single(channel)
    return channel, decode_reports(data.reports, channel, data.reports_path), source


def _check_groups(texts: pd.Series, groups: list[str] | None) -> None:
    if groups is not None and not set(infer_labels(texts, "sensitive")) <= set(groups):
        raise ValueError(f"Some rows hold a group that is not among --groups {','.join(groups)}.")
