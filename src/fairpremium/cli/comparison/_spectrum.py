"""``fairpremium spectrum``: a model and a portfolio in, five prices between accuracy and parity out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.audit.drawing import to_svg
from fairpremium.cli._command import Answer, command
from fairpremium.cli._portfolio import Roles, column_option
from fairpremium.cli._terminal import new_table, print_table, progress
from fairpremium.cli.comparison._columns import write_column
from fairpremium.cli.comparison._model_rows import read_model_rows
from fairpremium.cli.tables import TableFormat, check_output, write_table
from fairpremium.spectrum import PriceSpectrum, compute_spectrum, plot_spectrum


@command
def spectrum(
    model: Annotated[Path, typer.Argument(help="Model file that fit wrote.")],
    portfolio: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, Parquet or Excel file to write: all prices.")],
    roles: Roles,
    files: TableFormat,
    plot: Annotated[Path | None, typer.Option(help="Drawing to write, .svg.")] = None,
    cluster: Annotated[str | None, column_option(help="Column that says whose row it is.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
) -> Answer:
    """Compute the spectrum of fair prices: best estimate, unaware, aware, hyperaware and corrective.

    Writes the five prices of every row, in their order, and says what each costs in accuracy and how far the groups'
    prices are apart. The best estimate and the corrective price have a column for every group: they need the attribute
    when they are quoted. The reports are those that the model was fitted to, or others that went through the same
    channel.

    Example: fairpremium spectrum model.json portfolio.csv --outcome y --sensitive report -o prices.csv
    """
    check_output(output, inputs=[model, portfolio, roles.reports])
    if plot is not None:
        check_output(plot, suffixes=(".svg",), inputs=[model, portfolio, roles.reports])
    with progress("Reading"):
        rows = read_model_rows(model, portfolio, roles, files, [cluster])
        persons = None if cluster is None else rows.others[cluster]
    with progress("Learning the prices"):
        found = PriceSpectrum(rows.pricer).fit(rows.X, rows.y, sensitive=rows.reports, cluster=persons, **rows.volume)
        prices = found.predict(rows.X)
        write_table(prices, output)
    settings = {"sensitive": rows.reports, "cluster": persons, "level": level, **rows.volume}
    with progress("Measuring"):
        table = compute_spectrum(found, rows.X, rows.y, **settings)
        if plot is not None:
            plot.write_text(to_svg(plot_spectrum(found, rows.X, rows.y, **settings)), encoding="utf-8")
    result = {
        "rows": len(rows.X),
        "model": str(model),
        "prices": table.to_dict("records"),
        "columns": list(prices.columns),
        "output": str(output),
        "plot": None if plot is None else str(plot),
    }
    return Answer(result, _show)


def _show(result: dict[str, Any]) -> None:
    table = new_table()
    for name in ("price", "attribute", "mean", "deviance", "Kolmogorov", "from", "to", "Wasserstein", "p-value"):
        table.add_column(name, justify="left" if name in ("price", "attribute") else "right")
    prices = result["prices"]
    digits = {"premium": 4, "deviance": 5, "wasserstein": 3}
    written = {name: write_column([row[name] for row in prices], number) for name, number in digits.items()}
    for i, row in enumerate(prices):
        numbers = (row[c] for c in ("kolmogorov", "kolmogorov_low", "kolmogorov_high"))
        table.add_row(
            row["price"].replace("_", " "),
            "needed" if row["needs_attribute"] else "",
            written["premium"][i],
            written["deviance"][i],
            *(f"{number:.3f}" for number in numbers),
            written["wasserstein"][i],
            f"{row['p_value']:.3f}",
        )
    print_table(table)
    print(f"Written  {', '.join(filter(None, (result['output'], result['plot'])))}")
