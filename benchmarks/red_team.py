"""How much an insurer that shapes its data learns about single reports: every attack against every defence.

    python benchmarks/red_team.py [--scale 1.0] [--attacks NAME;...] [--json PATH]
    python benchmarks/red_team.py --service [--scale 1.0] [--database URL] [--parts NAME;...] [--models NAME;...]

Two groups of equal size, keep 0.8, 1,500 rows, epsilon 1 and delta 1e-6 for the reports. Figures are the rate of right
guesses, with its standard error; a blind guess is right in half of the cases. The bound is what the stated guarantee
allows at most from even odds, after as many distinct fits as the attack uses. See ``_attacks.py`` for each attack.

With --service the attacks go through the service, over time and over studies; see ``_service_attacks.py``. The exit
code is 1 if a rate contradicts its bound, by the test in ``_bounds.py``, or if an attack reads little without noise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import _ledger_attacks
from _attacks import ATTACKS, DEFENCES, bound, run
from _bounds import RULE, is_beyond, lower_limit

import fairpremium

ENOUGH = 50  # worlds where there is no bound to test
SHARP = 0.7  # rate of right guesses without noise from which an attack counts as one that would find a leak


def rows() -> int:
    """Return the number of figures that have a bound."""
    return sum(bound(attack, defence) < 1 for attack in ATTACKS for defence in DEFENCES.values())


def beyond(results: list[dict]) -> list[dict]:
    """Return the figures that contradict their bounds."""
    return [r for r in results if is_beyond(round(r["rate"] * r["guesses"]), r["guesses"], r["bound"], rows())]


def table(results: list[dict]) -> str:
    """Render the results as Markdown: a row per attack, a column per defence, bounds below the figures."""
    found = {(r["attack"], r["defence"]): r for r in results}
    lines = [
        "# What an insurer can read",
        "",
        __doc__.split("\n\n")[2].replace("\n", " "),
        "",
        "| attack | " + " | ".join(DEFENCES) + " |",
        "| --- " * (1 + len(DEFENCES)) + "|",
    ]
    for attack in ATTACKS:
        cells = []
        for defence in DEFENCES:
            r = found.get((attack, defence))
            if r is None:
                cells.append("")
                continue
            text = f"{100 * r['rate']:.0f} ± {100 * r['error']:.0f} %"
            text = f"**{text}**" if r["rate"] > 0.5 + 4 * r["error"] else text
            if r["bound"] < 1:
                text += f" (≤ {100 * r['bound']:.0f})"
            if r["refused"] == r["worlds"]:
                text = "refused"
            cells.append(text)
        lines.append(f"| {attack} | " + " | ".join(cells) + " |")
    names = [f"{r['attack']} ({r['defence']})" for r in beyond(results)]
    lines += [
        "",
        "Bold: certainly better than a blind guess. In brackets: the most that the guarantee allows. "
        f"{RULE} Beyond: {', '.join(names) or 'none'}.",
        "",
    ]
    return "\n".join(lines)


def run_service(scale: float, database: str | None, parts: list[str], models: list[str]) -> bool:
    """Run the attacks through the service, write each figure at once, and return whether one is not as it should be.

    - `parts`, `models`: Of the attacks; the figures of the others stay.
    """
    from _service_attacks import MODELS, PARTS, ROWS, Tally, run_all

    path = Path(__file__).parent / "results" / "red_team_service.json"
    kind, both = "SQLite" if database is None else "PostgreSQL", 2 * ROWS
    known = json.loads(path.read_text())["results"] if path.exists() else []
    is_all = set(parts) == set(PARTS) and set(models) == set(MODELS)
    results = [r for r in known if r["database"] != kind or not is_all]
    for r in (r for r in results if r["bound"] < 1):  # by the number of rows of today
        right = round(r["rate"] * r["guesses"])
        r["at_least"] = round(lower_limit(right, r["guesses"], both), 4)
        r["beyond"] = is_beyond(right, r["guesses"], r["bound"], both)

    def fails(tally: Tally) -> bool:
        if tally.bound == 1:
            return tally.rate < SHARP
        return is_beyond(tally.right, tally.guesses, tally.bound, both)

    def tell(attack: str, model: str, tally: Tally) -> None:
        r = {
            "attack": attack,
            "model": model,
            "database": kind,
            "rate": round(tally.rate, 4),
            "error": round(tally.error, 4),
            "at_least": round(lower_limit(tally.right, tally.guesses, both), 4),
            "bound": round(tally.bound, 4),
            "beyond": fails(tally),
            "guesses": tally.guesses,
            "blind": tally.blind,
        }
        same = ("attack", "model", "database")
        results[:] = [
            old for old in results if any(old[n] != r[n] for n in same) or (old["bound"] < 1) != (r["bound"] < 1)
        ]
        results.append(r)
        print(
            f"{attack:52s} {model:8s} {r['rate']:.3f} ± {r['error']:.3f}  bound {r['bound']:.3f}  {_verdict(r)}",
            flush=True,
        )
        path.write_text(json.dumps({"fairpremium": fairpremium.__version__, "results": results}, indent=1) + "\n")
        path.with_suffix(".md").write_text(service_table(results))

    run_all(scale, tell, database, parts, models)
    return any(r["beyond"] for r in results)


def service_table(results: list[dict]) -> str:
    """Render the figures of the service as Markdown."""
    from _service_attacks import EPSILON
    from _service_attacks import __doc__ as about

    lines = [
        "# What an insurer can read through the service",
        "",
        f"Epsilon {EPSILON:g} for the second randomization of an epoch, and 0.4 in each of nine studies. Rules 1 to 4 "
        "are declared as loose as they can be. The rate of right guesses from even odds, with its standard error. "
        "The last column is the rate of the same attack where noise hides nothing (epsilon 15; rule 9 off "
        "for noised sums), on either database: it "
        f"says whether the attack would find a leak. {RULE}",
        "",
        "| attack | model | database | right guesses | at most, by the guarantee | guesses | | without noise |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    plain = {(r["attack"], r["model"]): f"{100 * r['rate']:.0f} %" for r in results if r["bound"] == 1}
    for r in (r for r in results if r["bound"] < 1):
        figure = f"{100 * r['rate']:.0f} ± {100 * r['error']:.0f} %"
        where = f"| {r['attack']} | {r['model']} | {r['database']} "
        sharp = plain.get((r["attack"], r["model"]), "")
        lines.append(f"{where}| {figure} | {100 * r['bound']:.0f} % | {r['guesses']} | {_verdict(r)} | {sharp} |")
    findings = about[about.index("What a security review") :].strip()
    return "\n".join([*lines, "", findings, ""])


def _verdict(r: dict) -> str:
    blind = f", {r['blind']} blindly" if r.get("blind") else ""
    if r["bound"] == 1:
        return ("**blunt**" if r["beyond"] else "sharp") + blind
    return ("**beyond**" if r["beyond"] else "within") + blind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full number of worlds")
    parser.add_argument("--attacks", default="", help="names, separated by semicolons")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "red_team.json")
    parser.add_argument("--service", action="store_true", help="attack the service instead")
    parser.add_argument("--database", help="with --service: address of an empty PostgreSQL database; else SQLite")
    parts, models = "models;forks;near zero;studies;controls", "linear;boosted;neural"
    parser.add_argument("--parts", default=parts, help="with --service: which attacks, separated by semicolons")
    parser.add_argument("--models", default=models, help="with --service: of which models, separated by semicolons")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.service:
        sys.exit(run_service(args.scale, args.database, args.parts.split(";"), args.models.split(";")))
    wanted = [name.strip() for name in args.attacks.split(";") if name.strip()] or list(ATTACKS)
    known = json.loads(args.json.read_text())["results"] if args.json.exists() else []
    results = [r for r in known if r["attack"] not in wanted]
    for attack in wanted:
        for name, defence in DEFENCES.items():
            started = time.perf_counter()
            worlds = max(2, round(args.scale * ATTACKS[attack][2]))
            if bound(attack, defence) == 1:
                worlds = min(worlds, ENOUGH)
            outcome = run(attack, defence, worlds)
            results.append(
                {
                    "attack": attack,
                    "defence": name,
                    "rate": round(outcome.rate, 4),
                    "error": round(outcome.error, 4),
                    "guesses": outcome.guesses,
                    "worlds": worlds,
                    "refused": outcome.refused,
                    "bound": round(bound(attack, defence), 4),
                }
            )
            r = results[-1]
            print(
                f"{attack:45s} {name:22s} {r['rate']:.3f} ± {r['error']:.3f}  bound {r['bound']:.3f}  refused "
                f"{r['refused']}/{worlds}  {time.perf_counter() - started:.0f} s",
                flush=True,
            )
        args.json.parent.mkdir(parents=True, exist_ok=True)
        document = {"fairpremium": fairpremium.__version__, "results": results}
        args.json.write_text(json.dumps(document, indent=1) + "\n")
        args.json.with_suffix(".md").write_text(table(results))
    if not args.attacks:
        _ledger_attacks.write(args.json.with_name("red_team_ledger.json"))
    sys.exit(bool(beyond(results)))


if __name__ == "__main__":
    main()
