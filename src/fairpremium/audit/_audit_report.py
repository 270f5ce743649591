"""The audit report: numbers to a dict (`_summary`), the dict to HTML, Markdown or JSON, the text to a file."""

import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.pricing import DiscriminationFreePricer, describe_pooling

from ._audit_report_text import PRICE_NAMES, describe_measure
from ._comparison_chart import draw_classes, draw_price_comparison
from ._plot_functions import EVERYBODY, MAX_CLASSES, draw, draw_panels
from ._signatures import with_arguments_of
from ._summary import summarize_pricer
from .drawing import (
    BEST_ESTIMATE,
    DISCRIMINATION_FREE,
    UNAWARE,
    choose_places,
    format_percent,
    format_price,
    import_extra,
    import_vl_convert,
    to_svg,
)
from .price_lists import LIST_NAMES
from .report import ReportDetails, check_pdf, render_pdf

_WITHOUT_CHART = {"gini", "group_deviance", "limited_change", "premium_band"}
_LONG = 12  # a table with more rows is folded


@with_arguments_of(summarize_pricer)
def write_report(
    pricer: DiscriminationFreePricer,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    path: str | PathLike[str],
    interactive: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Audit a pricer and write its audit report to a file.

    Parameters
    ----------
    pricer, X, y, sensitive
        As in `summarize_pricer`, which takes further `settings`: `sample_weight`, `exposure`, `cluster`, `by`, `level`,
        `title`, `unit`, `notes`, `hashes`, `truth`, `details`.
    path : str or path
        Ends in .html, .pdf, .md or .json, which decides the format. A PDF needs the extra "pdf".
    interactive : bool
        Whether charts of an HTML page answer to the mouse; the page then carries the drawing library (0.9 MB).

    Returns
    -------
    dict
        What the audit report says, as plain data.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> import tempfile
    >>> p = zhang_liu_shi_2025(n=2000, rng=0, age_band=True)
    >>> pricer = DiscriminationFreePricer(pooling=0).fit(p.X, p.y, sensitive=p.sensitive)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     summary = write_report(pricer, p.X, p.y, sensitive=p.sensitive, path=f"{folder}/report.md", by="smoker")
    >>> summary["findings"][0]["heading"]
    'Who pays what'
    """
    _check_suffix(path)  # before any work is done
    summary = summarize_pricer(pricer, X, y, sensitive=sensitive, **settings)
    save_report(summary, path, interactive=interactive)
    return summary


def save_report(summary: Mapping[str, Any], path: str | PathLike[str], *, interactive: bool = False) -> None:
    """Write a summary as HTML, PDF, Markdown or JSON, by the ending of the file's name."""
    suffix = _check_suffix(path)
    if suffix == ".pdf":
        Path(path).write_bytes(render_pdf(render_report(summary)))
        return
    render = {".md": render_markdown, ".json": render_json}.get(suffix)
    page = render_report(summary, interactive=interactive) if render is None else render(summary)
    Path(path).write_text(page, encoding="utf-8")


def _check_suffix(path: str | PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (".html", ".htm", ".pdf", ".md", ".json"):
        raise ValueError(f"Got path={str(path)!r}, but expected a name that ends in .html, .pdf, .md or .json.")
    if suffix == ".pdf":
        check_pdf()
    return suffix


def render_report(summary: Mapping[str, Any], *, interactive: bool = False) -> str:
    """Return the audit report of a summary as one HTML string that needs nothing from elsewhere.

    Parameters
    ----------
    summary : dict
        From `summarize_prices` or `summarize_pricer`.
    interactive : bool
        Whether charts answer to the mouse. They are pictures in the page either way, so that it can be printed and
        read without scripts.

    Returns
    -------
    str

    Raises
    ------
    MissingExtraError
        If Jinja2, Altair or vl-convert is not installed.
    """
    form = {"level": summary["level"], "unit": summary["amounts"], "scale": summary["scale"]}
    drawn = {s["id"]: _charts(s, **form) for s in summary["sections"]}
    script = ""
    if interactive:
        charts = {s["id"]: _chart(s, **form) for s in summary["sections"]}
        drawable = {name: chart.to_dict() for name, chart in charts.items() if chart is not None}
        specs = json.dumps(drawable).replace("<", "\\u003c")
        bundle = re.sub("</(?=script)", r"<\\/", import_vl_convert().javascript_bundle(), flags=re.IGNORECASE)
        script = f"{bundle}\nconst specs = {specs};"
    pictures = {name: [_picture(to_svg(chart)) for chart in charts] for name, charts in drawn.items() if charts}
    return _fill("report.html", summary, charts=pictures, script=script)


def render_markdown(summary: Mapping[str, Any]) -> str:
    """Return the same words and numbers as Markdown, without the charts."""
    return _fill("report.md", summary, finalize=_markdown)


def render_json(summary: Mapping[str, Any]) -> str:
    """Return the same numbers as JSON."""
    return json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def render_chart(section: Mapping[str, Any], *, level: float = 0.95, unit: str = "", scale: float = 1) -> str | None:
    """Return the chart of one section of a summary as SVG text.

    Parameters
    ----------
    section : dict
        One of ``summary["sections"]``.
    level : float
        Confidence level of the intervals, which the chart names.
    unit : str
        What an amount is measured in, for the axis.
    scale : float
        What amounts are multiplied by, such as ``summary["scale"]``.

    Returns
    -------
    str or None
        SVG with presentation attributes only: no style, no script. None for a section without a chart.
    """
    chart = _chart(section, level, unit, scale)
    return None if chart is None else to_svg(chart)


def _fill(name: str, summary: Mapping[str, Any], finalize: Callable[[Any], Any] | None = None, **more: Any) -> str:
    """Fill a template with a summary and its tables as text."""
    jinja2 = import_extra("jinja2", "Audit reports need jinja2")
    shown = [_shown(section, summary["scale"]) for section in summary["sections"]]
    return str(_template(jinja2, name, finalize).render(summary, shown=shown, **more))


@functools.cache
def _template(jinja2: Any, name: str, finalize: Callable[[Any], Any] | None) -> Any:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairpremium.audit"),
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": format_percent,
        "cell": _markdown_cell,
        "with_error": _with_error,
        "pooling": describe_pooling,
        "detail": ReportDetails.label,
    }
    return environment.get_template(name)


# --- tables as text ---


def _shown(section: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """Return a section with its table as text: headers, and rows of cells with their limits apart."""
    columns, text = section["columns"], section["text"]
    words = [column["form"] in _WORDS or column["key"] in _WORD_KEYS for column in columns]
    if section["measure"] == "price_comparison":
        table = _comparison_table(section["classes"], scale)
        words = [cell["label"] == "Risk class" for cell in table[0]]
        if section["classes"][0][UNAWARE]["truth"] is not None:
            text += " In brackets the truth, which is known of a simulated portfolio."
    else:
        writers = {column["key"]: _writer(column, section["records"], scale) for column in columns}
        table = [_cells(row, columns, writers, scale) for row in section["records"]]
    return {
        **section,
        "text": text,
        "headers": [cell["label"] for cell in next(iter(table), [])],
        "words": words,
        "rows": table,
        "folded": len(table) > _LONG,
    }


def _comparison_table(classes: list[dict[str, Any]], scale: float) -> list[list[dict[str, str]]]:
    free = [c[DISCRIMINATION_FREE] for c in classes]
    means = [price["mean"] for c in classes for price in (*c[BEST_ESTIMATE], c[UNAWARE], c[DISCRIMINATION_FREE])]
    write = _amounts(means, [(price["low"], price["high"]) for price in free], scale)
    return [_comparison_cells(risk_class, write) for risk_class in classes]


def _comparison_cells(risk_class: Mapping[str, Any], write: Callable[[Any], str]) -> list[dict[str, str]]:
    """Return the class, its policies, its prices with the truth beside them, and the interval of the last."""
    best, free = risk_class[BEST_ESTIMATE], risk_class[DISCRIMINATION_FREE]
    prices = [(f"Best estimate {price['group']}", price) for price in best]
    prices += [("Unaware", risk_class[UNAWARE]), ("Discrimination-free", free)]
    cells = [("Risk class", risk_class["risk_class"], ""), ("Policies", f"{risk_class['rows']:,}", "")]
    for label, price in prices:
        truth = "" if price["truth"] is None else f"({write(price['truth'])})"
        cells.append((label, write(price["mean"]), truth))
    if free["low"] is not None:
        interval = f"{write(free['low'])} to {write(free['high'])}"
        cells.append(("Its interval", interval.replace(" ", "\N{NO-BREAK SPACE}"), ""))
    return [{"label": label, "text": text, "small": small} for label, text, small in cells]


def _amounts(values: Iterable[Any], limits: Iterable[tuple[Any, Any]], scale: float) -> Callable[[Any], str]:
    """Return how amounts that stand together are written: with as many places as the most precise one supports."""
    errors = [scale * (high - low) / 4 for low, high in limits if low is not None and high is not None]
    places = choose_places([scale * value for value in values if value is not None], errors)
    return lambda value: "" if value is None else format_price(scale * value, places=places)


def _writer(column: Mapping[str, Any], records: list[dict[str, Any]], scale: float) -> Callable[[Any], str]:
    """Return how the numbers of a column are written."""
    if column["form"] not in ("price", "plain"):
        return _FORMS.get(column["form"], str)
    key = column["key"]
    limits = [(row.get(f"{key}_low"), row.get(f"{key}_high")) for row in records] if column["limits"] else []
    return _amounts([row.get(key) for row in records], limits, scale if column["form"] == "price" else 1)


def _cells(
    row: Mapping[str, Any],
    columns: list[dict[str, Any]],
    writers: Mapping[str, Callable[[Any], str]],
    scale: float,
) -> list[dict[str, str]]:
    """Return the cells of a row; the sentence of a row without numbers stands in its first cell that is empty."""
    cells = [_cell(row, column, writers[column["key"]], scale) for column in columns]
    numbers = [cell for cell, column in zip(cells, columns, strict=True) if column["form"] not in ("group", "text")]
    empty = [cell for cell in numbers if not cell["text"]]
    if row.get("note") and empty:
        empty[0]["text"] = row["note"].split(" (")[0]
    return cells


def _cell(
    row: Mapping[str, Any], column: Mapping[str, Any], write: Callable[[Any], str], scale: float
) -> dict[str, str]:
    key, form, label = column["key"], column["form"], column["label"]
    if form == "measure":
        return {"text": describe_measure(row["measure"])["label"], "small": "", "label": label}
    if form == "measure_value":
        own = {**column, "form": describe_measure(row["measure"])["form"]}
        write = _writer(own, [dict(row)], scale)
    text, small = write(row.get(key)), ""
    if column["limits"] and text:
        low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
        if low is not None and high is not None:
            if abs(row[key]) < 1e-3 * (high - low):
                text = write(0.0)  # a difference of rounding errors
            small = f"{write(low)} to {write(high)}"
    return {"text": text, "small": small, "label": label}


_FORMS: dict[str, Callable[[Any], str]] = {
    "percent": format_percent,
    "ratio": lambda value: "" if value is None else f"{value:.3f}",
    "group": lambda value: EVERYBODY if value is None else str(value),
    "text": lambda value: "" if value is None else str(value),
    "label": lambda value: str(value).replace("_", " "),
    "price_name": lambda value: PRICE_NAMES.get(value, str(value)),
    "list_name": lambda value: LIST_NAMES.get(value, PRICE_NAMES.get(value, str(value))),
    "number": lambda value: "" if value is None else f"{value:.4f}",
    "p_value": lambda value: "" if value is None else f"{value:.3f}" if value >= 0.001 else "below 0.001",
    "whole": lambda value: "" if value is None else f"{value:,.0f}",
    "change": lambda value: "none" if value is None else _signed(100 * value) + "\N{NO-BREAK SPACE}%",
}
_WORDS = {"group", "label", "price_name", "list_name", "measure"}  # forms of columns that are read, not compared
_WORD_KEYS = {"risk_class", "factor", "level", "band", "answer"}


def _signed(value: float) -> str:
    """Write a number with its sign, and zero without one."""
    text = f"{value:+.1f}"
    return text if text.strip("+-0.") else text[1:]


def _with_error(value: float | None, error: float | None) -> str:
    """Write a number to as many places as two digits of its standard error have.

    Examples
    --------
    >>> [_with_error(*pair).split() for pair in ((0.530241, 0.00751), (2813.1, 600.2), (2813.1, None))]
    [['0.5302', '±', '0.0075'], ['2,813', '±', '600'], ['2813.1']]
    """
    if value is None:
        return ""
    if not error:
        return f"{value:.5g}"
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{places}f} ± {error:,.{places}f}".replace(" ", "\N{NO-BREAK SPACE}")


def _markdown_cell(cell: Mapping[str, str]) -> str:
    return f"{cell['text']} ({cell['small'].strip('()')})" if cell["small"] else cell["text"]


def _markdown(value: Any) -> Any:
    r"""Write what stands in the place of a variable so that it opens no cell, no tag and no line.

    Examples
    --------
    >>> print(_markdown("a|b\n# <c>"))
    a\|b # &lt;c>
    """
    if not isinstance(value, str):
        return value
    text = " ".join(value.splitlines())
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


# --- charts ---


def _chart(section: Mapping[str, Any], level: float, unit: str, scale: float) -> Any:
    """Draw a section as one chart; None if it has none or too many classes for one."""
    table = _drawn_table(section, scale)
    if table is None:
        return None
    if section["measure"] == "price_comparison":
        return draw_price_comparison(table, level=level, unit=unit)
    return draw(section["measure"], table, unit=unit)


def _charts(section: Mapping[str, Any], level: float, unit: str, scale: float) -> list[Any]:
    """Draw a section as one chart for each panel, so that a printed page can end between them."""
    table = _drawn_table(section, scale)
    if table is None:
        return []
    if section["measure"] == "price_comparison":
        return draw_classes(table, level=level, unit=unit)
    return draw_panels(section["measure"], table, unit=unit)


def _drawn_table(section: Mapping[str, Any], scale: float) -> pd.DataFrame | None:
    """Return the numbers of a chart in the unit of the report; None for a section without a chart."""
    if section["measure"] in _WITHOUT_CHART or not section["records"]:
        return None
    table = pd.DataFrame(section["records"])
    if "risk_class" in table and table["risk_class"].nunique() > MAX_CLASSES:
        return None
    if section["measure"] == "price_comparison":
        numbers = [c for c in ("mean", "low", "high", "truth") if c in table]
        table = table.astype(dict.fromkeys(numbers, float))
        table[numbers] *= scale
        return table
    numbers = [c for c in table.columns if c.endswith(("_low", "_high")) or f"{c}_low" in table]
    amounts = [c["key"] for c in section.get("columns", ()) if c["form"] == "price"]
    scaled = [name for key in amounts for name in (key, f"{key}_low", f"{key}_high") if name in table]
    table = table.astype(dict.fromkeys([*numbers, *scaled], float))
    table[scaled] *= scale
    return table if table[numbers].notna().to_numpy().any() or not numbers else None


def _picture(svg: str) -> dict[str, Any]:
    """Return a picture and its width, with which letters have the same size in all pictures."""
    found = re.search(r'<svg[^>]*? width="([\d.]+)"', svg)
    if found is None:
        raise AssertionError("a chart without a width")
    return {"svg": svg, "width": float(found[1])}
