"""The comparison page: numbers to a dict, the dict to an HTML string, the string to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium import __version__
from fairpremium.audit._comparison import BEST_ESTIMATE, DISCRIMINATION_FREE, UNAWARE
from fairpremium.audit._plots import draw_price_comparison, format_price, to_svg
from fairpremium.errors import MissingExtraError
from fairpremium.pricing import DiscriminationFreePricer


def summarize_comparison(
    pricer: DiscriminationFreePricer,
    comparison: pd.DataFrame,
    *,
    title: str,
    level: float = 0.95,
    unit: str = "",
    notes: tuple[str, ...] = (),
    hashes: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Collect what the comparison page says, as plain data.

    Parameters
    ----------
    pricer : DiscriminationFreePricer
        Fitted.
    comparison : DataFrame
        From `compute_price_comparison`.
    title : str
    level : float
        Confidence level that the comparison was computed with.
    unit : str
        What a price is measured in.
    notes : tuple of str
        Sentences about the data, such as where they come from.
    hashes : mapping of str to str, optional
        Name and SHA-256 of every file that the numbers come from.

    Returns
    -------
    dict
        JSON types only.
    """
    shares = zip(pricer.groups_, pricer.group_distribution_, pricer.reference_distribution_, strict=True)
    return {
        "title": title,
        "version": __version__,
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "notes": list(notes),
        "unit": unit,
        "level": level,
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
        "groups": [
            {"group": str(group), "share": float(share), "reference": float(weight)} for group, share, weight in shares
        ],
        "reference": pricer.reference if isinstance(pricer.reference, str) else "given",
        "correction": pricer.correction_,
        "pooling": float(pricer.pooling_),
        "channel": _describe_channel(pricer),
        "has_truth": "truth" in comparison,
        "has_intervals": bool(comparison["low"].notna().any()),
        "classes": _describe_classes(comparison),
        "hashes": dict(hashes or {}),
    }


def render_report(summary: Mapping[str, Any]) -> str:
    """Return the page of a summary as one HTML string that needs nothing from elsewhere.

    Parameters
    ----------
    summary : dict
        From `summarize_comparison`.

    Returns
    -------
    str

    Raises
    ------
    MissingExtraError
        If Jinja2, Altair or vl-convert is not installed.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError('Reports need jinja2. Install it with: pip install "fairpremium[report]"') from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairpremium.audit"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["price"] = format_price
    chart = draw_price_comparison(_comparison(summary), level=summary["level"], unit=summary["unit"])
    return environment.get_template("comparison.html").render(summary, chart=to_svg(chart))


def write_report(html: str, path: str | PathLike[str]) -> None:
    """Write the page to a file."""
    Path(path).write_text(html, encoding="utf-8")


def _describe_channel(pricer: DiscriminationFreePricer) -> dict[str, Any] | None:
    channel = pricer.channel_
    if channel is None:
        return None
    return {
        "keep": None if math.isnan(channel.keep) else channel.keep,
        "epsilon": channel.epsilon if math.isfinite(channel.epsilon) else None,
        "odds": math.exp(channel.epsilon) if math.isfinite(channel.epsilon) else None,
        "sha256": channel.descriptor()["sha256"],
        "estimated": pricer.noise_ is not None,
    }


def _describe_classes(comparison: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn the long table into one dict per class: {..., best_estimate: [...], unaware: {...}, ...}."""
    found = []
    for risk_class, part in comparison.groupby("risk_class", sort=False):
        prices = [_price(row) for row in part.to_dict("records")]
        found.append(
            {
                "risk_class": str(risk_class),
                "rows": int(part["rows"].iloc[0]),
                "share": float(part["share"].iloc[0]),
                BEST_ESTIMATE: [p for p in prices if p["price"] == BEST_ESTIMATE],
                UNAWARE: next(p for p in prices if p["price"] == UNAWARE),
                DISCRIMINATION_FREE: next(p for p in prices if p["price"] == DISCRIMINATION_FREE),
            }
        )
    return found


def _price(row: Mapping[str, Any]) -> dict[str, Any]:
    price: dict[str, Any] = {"price": row["price"], "group": None}
    if row["price"] == BEST_ESTIMATE:
        price["group"] = str(row["group"])
    for name in ("mean", "low", "high", "truth"):
        value = row.get(name, math.nan)
        price[name] = float(value) if math.isfinite(value) else None
    return price


def _comparison(summary: Mapping[str, Any]) -> pd.DataFrame:
    """Turn the classes of a summary back into the long table."""
    rows = [
        {"risk_class": c["risk_class"], **price}
        for c in summary["classes"]
        for price in (*c[BEST_ESTIMATE], c[UNAWARE], c[DISCRIMINATION_FREE])
    ]
    table = pd.DataFrame(rows).astype({"mean": float, "low": float, "high": float, "truth": float})
    return table if summary["has_truth"] else table.drop(columns="truth")
