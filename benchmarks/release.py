"""What the protection of the reports costs in accuracy: both mechanisms, none, the true attribute, no attribute.

    python benchmarks/release.py [--cases paper,motor,large] [--seeds N] [--json PATH]

Root mean square error of the premium h*(x) on fresh rows, in per cent of the mean true premium; mean over portfolios
with its standard error. "noised sums" is the mechanism "gaussian" (linear model, inverse correction, delta 1e-6),
"randomized" a second randomized response that also hides who reported, with the inverse correction and with
correction="auto". Results are added to those in the file, so that long cases can be run one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import time
import warnings
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

import fairpremium
from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.parties.release._release import FitSettings, ReleaseSettings, fit_release
from fairpremium.parties.release._released_reports import without_protection
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025

EPSILONS = (0.5, 1.0, 2.0, 4.0)
OFF = {"noised sums": "off, inverse", "randomized, inverse": "off, inverse", "randomized, auto": "off, auto"}
CASES: dict[str, tuple[str, Callable, dict, bool, int]] = {
    "paper": (
        "the paper's portfolio, 5,000 rows, K = 2, keep 0.8",
        lambda n, rng: zhang_liu_shi_2025(n or 5_000, rng=rng, age_band=True),
        {"keep": 0.8},
        True,
        20,
    ),
    "motor": (
        "Poisson, 100,000 rows, K = 3, shares .7/.2/.1, epsilon 2",
        lambda n, rng: unbalanced_poisson(n or 100_000, rng=rng),
        {"epsilon": 2.0},
        True,
        4,
    ),
    "large": (
        "Poisson, 1,000,000 rows, K = 3, shares .7/.2/.1, epsilon 2",
        lambda n, rng: unbalanced_poisson(n or 1_000_000, rng=rng),
        {"epsilon": 2.0},
        False,
        2,
    ),
}


def errors(case: str, seed: int) -> dict[str, float]:
    """Errors of all contestants on one portfolio."""
    _, make, noise, with_auto, _ = CASES[case]
    p, fresh = make(0, seed), make(20_000, 10_000 + seed)
    channel = RandomizedResponse(p.groups, **noise)
    S = channel.privatize(p.sensitive, rng=seed)
    truth = np.asarray(fresh.discrimination_free(fresh.X))
    secret = secrets.token_bytes(32)
    keys = range(len(p))

    def error(prices: np.ndarray) -> float:
        return 100 * float(np.sqrt(np.mean((prices - truth) ** 2)) / truth.mean())

    def released(mechanism: str, correction: str, epsilon: float = 1.0) -> float:
        started = time.perf_counter()
        release = fit_release(
            FitSettings(p.family, correction=correction, intervals=False),
            p.X, p.y, p.sample_weight, S, channel,
            ReleaseSettings(mechanism, epsilon, secret=secret),
            keys=keys,
            drawn=without_protection(np.asarray(S, dtype=object), channel) if mechanism == "none" else None,
        )  # fmt: skip
        found = error(release.pricer.predict(fresh.X))
        print(
            f"  {mechanism} {correction} {epsilon:g}: {found:.2f} ({time.perf_counter() - started:.0f} s)", flush=True
        )
        return found

    exact = DiscriminationFreePricer(p.family, pooling=0, intervals=False)
    exact.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
    found = {
        "true D": error(exact.predict(fresh.X)),
        "unaware": error(exact.predict_unaware(fresh.X)),
        "off, inverse": released("none", "inverse"),
    }
    for epsilon in EPSILONS:
        found[f"noised sums, {epsilon:g}"] = released("gaussian", "inverse", epsilon)
        found[f"randomized, inverse, {epsilon:g}"] = released("randomized", "inverse", epsilon)
    if with_auto:
        found["off, auto"] = released("none", "auto")
        for epsilon in EPSILONS:
            found[f"randomized, auto, {epsilon:g}"] = released("randomized", "auto", epsilon)
    return found


def summary(runs: list[dict[str, float]]) -> dict[str, list[float]]:
    """Mean, standard error and median of each contestant."""
    found = {}
    for name in runs[0]:
        if name == "seed":
            continue
        values = np.array([run[name] for run in runs])
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
        found[name] = [round(float(values.mean()), 3), round(error, 3), round(float(np.median(values)), 3)]
    return found


def table(results: dict[str, dict]) -> str:
    """Render all cases as Markdown."""
    lines = ["# What the protection of the reports costs", "", __doc__.split("\n\n")[2].replace("\n", " "), ""]
    for case, (title, *_) in CASES.items():
        if case not in results:
            continue
        found = summary(results[case]["runs"])

        def cell(name: str, found: dict = found) -> str:
            if name not in found:
                return ""
            mean, error, _ = found[name]
            return f"{mean:.2f}" + ("" if np.isnan(error) else f" ± {error:.2f}")

        lines += [f"## {title} ({len(results[case]['runs'])} portfolios)", ""]
        lines += [f"True D {cell('true D')}, unaware {cell('unaware')}.", ""]
        lines += ["| | no protection | " + " | ".join(f"epsilon {e:g}" for e in EPSILONS) + " |"]
        lines += ["| --- " * (2 + len(EPSILONS)) + "|"]
        for label, off in OFF.items():
            cells = [cell(off), *(cell(f"{label}, {e:g}") for e in EPSILONS)]
            if any(cells):
                lines.append(f"| {label} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def known(path: Path) -> dict[str, dict]:
    """The cases of a file, if they are of this version."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return found["cases"] if found.get("fairpremium") == fairpremium.__version__ else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--seeds", type=int, default=0, help="portfolios per case; by default as many as are useful")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "release.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    for case in args.cases.split(","):
        for seed in range(args.first, args.first + (args.seeds or CASES[case][-1])):
            print(f"{case}, seed {seed}", flush=True)
            run = {"seed": seed, **errors(case, seed)}
            results = known(args.json)
            entry = results.setdefault(case, {"title": CASES[case][0], "runs": []})
            entry["runs"] = [other for other in entry["runs"] if other["seed"] != seed] + [run]
            for entry in results.values():
                entry["summary"] = summary(entry["runs"])
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.write_text(
                json.dumps({"fairpremium": fairpremium.__version__, "cases": results}, indent=1) + "\n"
            )
            args.json.with_suffix(".md").write_text(table(results))


if __name__ == "__main__":
    main()
