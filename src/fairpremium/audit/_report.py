"""The report: numbers to a dict (`_summary`), the dict to HTML, Markdown or JSON, the text to a file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.audit._charts import MAX_CLASSES, draw
from fairpremium.audit._comparison import BEST_ESTIMATE, DISCRIMINATION_FREE, UNAWARE
from fairpremium.audit._plots import draw_price_comparison, format_price, import_vl_convert, to_svg
from fairpremium.audit._summary import summarize_pricer
from fairpremium.audit._words import MEASURES, PRICE_NAMES, percent
from fairpremium.errors import MissingExtraError
from fairpremium.pricing import DiscriminationFreePricer

_WITHOUT_CHART = {"gini", "group_deviance"}
_LONG = 12  # a table with more rows is folded


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
    """Audit a pricer and write its report to a file.

    Parameters
    ----------
    pricer, X, y, sensitive
        As in `summarize_pricer`, which takes further `settings`: `sample_weight`, `cluster`, `by`, `level`, `title`,
        `unit`, `notes`, `hashes`, `truth`.
    path : str or path
        Ends in .html, .md or .json, which decides the format.
    interactive : bool
        Whether charts of an HTML page answer to the mouse; the page then carries the drawing library (0.9 MB).

    Returns
    -------
    dict
        What the report says, as plain data.

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
    _renderer(path, interactive)  # says what is wrong with the name before any work is done
    summary = summarize_pricer(pricer, X, y, sensitive=sensitive, **settings)
    save_report(summary, path, interactive=interactive)
    return summary


def save_report(summary: Mapping[str, Any], path: str | PathLike[str], *, interactive: bool = False) -> None:
    """Write a summary as HTML, Markdown or JSON, by the ending of the file's name."""
    Path(path).write_text(_renderer(path, interactive)(summary), encoding="utf-8")


def _renderer(path: str | PathLike[str], interactive: bool) -> Callable[[Mapping[str, Any]], str]:
    suffix = Path(path).suffix.lower()
    if suffix in (".html", ".htm"):
        return lambda summary: render_report(summary, interactive=interactive)
    if suffix == ".md":
        return render_markdown
    if suffix == ".json":
        return render_json
    raise ValueError(f"Got path={str(path)!r}, but expected a name that ends in .html, .md or .json.")


def render_report(summary: Mapping[str, Any], *, interactive: bool = False) -> str:
    """Return the page of a summary as one HTML string that needs nothing from elsewhere.

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
    charts = {s["id"]: chart for s in summary["sections"] if (chart := _chart(s, summary)) is not None}
    script = ""
    if interactive:
        specs = json.dumps({name: chart.to_dict() for name, chart in charts.items()}).replace("<", "\\u003c")
        bundle = re.sub("</(?=script)", r"<\\/", import_vl_convert().javascript_bundle(), flags=re.IGNORECASE)
        script = f"{bundle}\nconst specs = {specs};"
    template = _environment().get_template("report.html")
    return str(
        template.render(
            summary,
            shown=[_shown(section, summary) for section in summary["sections"]],
            charts={name: _fluid(to_svg(chart)) for name, chart in charts.items()},
            candidates=_candidates(summary),
            script=script,
        )
    )


def render_markdown(summary: Mapping[str, Any]) -> str:
    """Return the same words and numbers as Markdown, without the charts."""
    template = _environment(finalize=_markdown).get_template("report.md")
    shown = [_shown(section, summary) for section in summary["sections"]]
    return str(template.render(summary, shown=shown, candidates=_candidates(summary)))


def render_json(summary: Mapping[str, Any]) -> str:
    """Return the same numbers as JSON."""
    return json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _environment(finalize: Callable[[Any], Any] | None = None) -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingExtraError('Reports need jinja2. Install it with: pip install "fairpremium[report]"') from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairpremium.audit"),
        autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["price"] = format_price
    environment.filters["percent"] = percent
    environment.filters["cell"] = _markdown_cell
    return environment


# --- tables as text ---


def _shown(section: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with its table as text: headers, and rows of cells with their limits apart."""
    columns, rows, text = section["columns"], section["records"], section["text"]
    if section["measure"] == "price_comparison":
        columns, rows = _comparison_columns(section), _comparison_rows(section)
        if any(column.get("truth") for column in columns):
            text += " In brackets the truth, which is known of a simulated portfolio."
    table = [[_cell(row, column, column is columns[0]) for column in columns] for row in rows]
    _say_lack(table, rows, columns)
    return {
        "id": section["id"],
        "title": section["title"],
        "text": text,
        "headers": [column["label"] for column in columns],
        "words": [column["form"] in _WORDS or column["key"] == "risk_class" for column in columns],
        "rows": table,
        "folded": len(table) > _LONG,
    }


def _cell(row: Mapping[str, Any], column: Mapping[str, Any], first: bool) -> dict[str, str]:
    key, form = column["key"], column["form"]
    if form == "measure":
        return {"text": MEASURES[row["measure"]][0], "small": "", "label": column["label"]}
    if form == "measure_value":
        form = MEASURES[row["measure"]][1]
    write = _FORMS[form]
    text, small = write(row.get(key)), ""
    if column["limits"] and text:
        low, high = row[f"{key}_low"], row[f"{key}_high"]
        if low is not None and high is not None:
            if abs(row[key]) < 1e-3 * (high - low):
                text = write(0.0)  # a difference of rounding errors
            small = f"{write(low)} to {write(high)}"
    elif column.get("truth") is not None:
        small = f"({write(column['truth'](row))})"
    return {"text": text, "small": small, "label": column["label"]}


def _say_lack(table: list[list[dict[str, str]]], rows: list[dict[str, Any]], columns: list[dict[str, Any]]) -> None:
    """Put the sentence of a row without numbers into its first cell that is empty."""
    for cells, row in zip(table, rows, strict=True):
        if row.get("note"):
            for cell, column in zip(cells, columns, strict=True):
                if not cell["text"] and column["form"] not in ("group", "text"):
                    cell["text"] = row["note"].split(" (")[0]
                    break


def _group(value: Any) -> str:
    return "everyone" if value is None else str(value)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


_FORMS: dict[str, Callable[[Any], str]] = {
    "price": format_price,
    "percent": percent,
    "ratio": _ratio,
    "group": _group,
    "text": lambda value: "" if value is None else str(value),
    "price_name": lambda value: PRICE_NAMES.get(value, str(value)),
}


_WORDS = {"group", "price_name", "measure"}  # forms of columns that are read, not compared


def _comparison_columns(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    first = section["classes"][0]
    has_truth = first[UNAWARE]["truth"] is not None
    names = [*(f"Best estimate {p['group']}" for p in first[BEST_ESTIMATE]), "Unaware", "Discrimination-free"]
    columns: list[dict[str, Any]] = [
        {"label": "Risk class", "key": "risk_class", "form": "text", "limits": False},
        {"label": "Policies", "key": "rows", "form": "price", "limits": False},
    ]
    for j, label in enumerate(names):
        truth = (lambda row, j=j: row[f"t{j}"]) if has_truth else None
        columns.append({"label": label, "key": f"p{j}", "form": "price", "limits": False, "truth": truth})
    if first[DISCRIMINATION_FREE]["low"] is not None:
        columns.append({"label": "Its interval", "key": "interval", "form": "text", "limits": False})
    return columns


def _comparison_rows(section: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for c in section["classes"]:
        row = {"risk_class": c["risk_class"], "rows": c["rows"]}
        for j, price in enumerate([*c[BEST_ESTIMATE], c[UNAWARE], c[DISCRIMINATION_FREE]]):
            row |= {f"p{j}": price["mean"], f"t{j}": price["truth"]}
        h = c[DISCRIMINATION_FREE]
        row["interval"] = f"{format_price(h['low'])} to {format_price(h['high'])}".replace(" ", "\N{NO-BREAK SPACE}")
        rows.append(row)
    return rows


def _candidates(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the candidates of a model as text."""
    found = []
    for row in (summary["model"] or {}).get("candidates", []):
        name = f"{row['correction']} ({row['detail']})" if row.get("detail") else str(row["correction"])
        found.append(
            {
                "name": f"{row['model']}, {name}",
                "pooling": _number(row["pooling"]),
                "risk": _with_error(row["corrected_risk"], row["corrected_risk_se"]),
                "loss": _with_error(row["report_log_loss"], row["report_log_loss_se"]),
                "verdict": ("chosen: " if row["chosen"] else "") + str(row["reason"] or ""),
            }
        )
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


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


def _chart(section: Mapping[str, Any], summary: Mapping[str, Any]) -> Any:
    if section["measure"] in _WITHOUT_CHART:
        return None
    if section["measure"] == "price_comparison":
        if len(section["classes"]) > MAX_CLASSES:
            return None
        return draw_price_comparison(_comparison(section), level=summary["level"], unit=summary["unit"])
    table = pd.DataFrame(section["records"])
    numbers = [c for c in table.columns if c.endswith(("_low", "_high")) or f"{c}_low" in table]
    table[numbers] = table[numbers].astype(float)
    if "risk_class" in table and table["risk_class"].nunique() > MAX_CLASSES:
        return None
    return draw(section["measure"], table, unit=summary["unit"])


def _fluid(svg: str) -> str:
    """Let a picture shrink with the page, and grow no further than letters of the text's size."""
    width = re.search(r'<svg[^>]*? width="([\d.]+)"', svg)
    return svg if width is None else svg.replace("<svg", f'<svg style="max-width:{1.15 * float(width[1]):.0f}px"', 1)


def _comparison(section: Mapping[str, Any]) -> pd.DataFrame:
    """Turn the classes of a summary back into the long table."""
    rows = [
        {"risk_class": c["risk_class"], **price}
        for c in section["classes"]
        for price in (*c[BEST_ESTIMATE], c[UNAWARE], c[DISCRIMINATION_FREE])
    ]
    table = pd.DataFrame(rows).astype({"mean": float, "low": float, "high": float, "truth": float})
    return table if table["truth"].notna().any() else table.drop(columns="truth")
