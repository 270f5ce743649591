"""``fairpremium reproduce``: the paper's experiments, figures and statements, measured again."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._command import Answer, command
from fairpremium.cli._terminal import progress
from fairpremium.paper import FULL, QUICK
from fairpremium.paper import reproduce as run_reproduction


@command
def reproduce(
    figure: Annotated[
        list[str] | None, typer.Option(help="A figure to draw; may be given several times. Default: all.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick/--full", help="Small samples and two seeds, or the paper's sizes and 20 seeds.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder to write to; what is finished there is not computed again.")] = Path(
        "results"
    ),
    jobs: Annotated[int, typer.Option(help="Worker processes; they do not change the numbers.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with car_insurance_claim.csv; default: the variable FAIRPREMIUM_DATA."),
    ] = None,
) -> Answer:
    """Run the paper's experiments; draw every figure, judge every statement.

    Writes a PNG, an SVG and a CSV for each figure, statements.md, statements.json and metadata.json. An interrupted run
    goes on where it stopped.

    Example: fairpremium reproduce --quick --figure health-by-keep --out results --jobs 2
    """
    if data is not None and not data.is_dir():
        raise ValueError(f"There is no folder {data}; --data names the folder with car_insurance_claim.csv.")
    with progress("Running", bar=True) as tell:
        done = run_reproduction(
            out, figures=figure, size=QUICK if quick else FULL, jobs=jobs, data=data,
            report=lambda what, done, total: tell(done / total, f"{done} of {total} tables {what}"),
        )  # fmt: skip
    verdicts = [statement["verdict"] for statement in done.statements]
    result = {
        "folder": str(done.folder),
        "figures": {name: str(done.folder / f"{name}.png") for name in done.figures},
        "statements": {statement["id"]: statement["verdict"] for statement in done.statements},
        "verdicts": {verdict: verdicts.count(verdict) for verdict in ("holds", "depends", "does not hold")},
        "tables_computed": done.effort.computed,
        "tables_found": done.effort.found,
        "quick": quick,
    }
    return Answer(result, _render)


def _render(result: dict[str, Any]) -> None:
    folder = result["folder"]
    print(
        f"{len(result['figures'])} figures in {folder} ({result['tables_computed']} tables computed, "
        f"{result['tables_found']} found from an earlier run)."
    )
    words = {"holds": "hold", "depends": "depend", "does not hold": "do not hold"}
    counts = ", ".join(f"{count} {words[verdict]}" for verdict, count in result["verdicts"].items())
    print(f"Of {len(result['statements'])} statements: {counts}. See {folder}/statements.md.")
    if result["quick"]:
        print("A quick run shows that everything works; its verdicts are no evidence. Run again with --full.")
