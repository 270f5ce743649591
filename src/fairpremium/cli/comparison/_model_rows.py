"""The rows that a fitted model is compared on: its features, losses and reports from a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.cli._portfolio import Roles, load_data
from fairpremium.cli.tables import TableFormat, as_labels, as_text, require_file
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, load_pricer


@dataclass(frozen=True)
class ModelRows:
    """A model, and rows with everything that it was fitted to."""

    pricer: DiscriminationFreePricer | FrequencySeverityPricer
    X: pd.DataFrame
    y: pd.Series
    reports: pd.Series
    volume: dict[str, Any]
    others: pd.DataFrame  # further columns that were asked for


def read_model_rows(
    model: Path, portfolio: Path, roles: Roles, files: TableFormat, others: list[str | None]
) -> ModelRows:
    """Read a model and its rows; the reports are those of the model's channel."""
    pricer = load_pricer(require_file(model))
    if not pricer.design_.named:
        raise ValueError(f"{model} was fitted to an array; expected a model whose features have names.")
    if roles.channel_key is not None or isinstance(pricer.channel_, Mapping):
        raise ValueError(f"{model} or --channel-key has reports of several sources, but expected one channel.")
    if roles.second_report is not None or (pricer.channel_ is not None and pricer.channel_.repeats[1:]):
        raise ValueError(f"{model} or --second-report has two reports of one person, but expected one of each.")
    named = [name for name in others if name is not None]
    features = list(pricer.design_.names)
    data = load_data(portfolio, roles, list(dict.fromkeys([*features, *named])), files)
    texts = [c.name for c in pricer.design_.columns if c.levels is not None and isinstance(c.levels[0], str)]
    labels = pricer.groups_ if pricer.channel_ is None else pricer.channel_.reports
    wrong = f"with a report that the model does not know; expected one of {list(map(str, labels))}"
    reports = as_labels(as_text(data.reports, data.reports_path), labels, data.reports_path, wrong)
    if data.described is not None and pricer.channel_ is not None and data.described.channel != pricer.channel_:
        raise ValueError(
            f"{data.described.source} describes another channel than {model} was fitted with. Fit the model to these "
            "reports, or use the reports that it was fitted to."
        )
    X = data.X[features].astype(dict.fromkeys(texts, str))
    return ModelRows(pricer, X, data.y, reports, data.volume, data.X[named])
