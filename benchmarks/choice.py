"""What `correction="auto"` chooses when the law of the outcome is right, and when it is wrong.

    python benchmarks/choice.py [--seeds 20] [--cases normal-0.7,gamma-0.7] [--json benchmarks/results/choice.json]

The paper's portfolio with an age-band column (n = 5,000) and other laws of the noise with the same means. The figure
is the root mean square error of mu(x, d) over the portfolio, mean over the seeds with its standard error; `worst` is
the largest ratio of the error of auto to that of the paper's estimator (inverse, no pooling) in one seed.
"""

from __future__ import annotations

import argparse
import collections
import json
from pathlib import Path

import numpy as np

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.portfolios import zhang_liu_shi_2025

N = 5000
LAWS = {
    "normal": lambda m, d, rng: m + rng.normal(0, 40, N),
    "normal, sd 400": lambda m, d, rng: m + rng.normal(0, 400, N),
    "normal, sd by group": lambda m, d, rng: m + rng.normal(0, np.where(d == 0, 120, 40), N),
    "Student t3": lambda m, d, rng: m + 40 * rng.standard_t(3, N),
    "gamma, sd 300": lambda m, d, rng: rng.gamma((m / 300) ** 2, 300**2 / m),
    "exponential, sd 300": lambda m, d, rng: m + rng.exponential(300, N) - 300,
    "two modes": lambda m, d, rng: m + rng.choice([-130, 130], N) + rng.normal(0, 20, N),
}
CASES = [("normal", keep) for keep in (0.9, 0.8, 0.7, 0.6)] + [(law, 0.7) for law in list(LAWS)[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cases", default="", help="comma separated law-keep pairs; all by default")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "choice.json")
    args = parser.parse_args()
    wanted = [case.strip() for case in args.cases.split(",") if case.strip()]
    results = []
    print(f"{'law of the noise':22s} keep   true D   inverse  auto (s.e.)     worst  chosen")
    for law, keep in CASES:
        if wanted and f"{law}-{keep}" not in wanted:
            continue
        errors, chosen = [], collections.Counter()
        for seed in range(args.seeds):
            row, name = one(law, keep, seed)
            errors.append(row)
            chosen[name] += 1
        errors = np.array(errors)
        mean, standard_error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(len(errors))
        worst = float((errors[:, 2] / errors[:, 1]).max())
        names = ", ".join(f"{name} {count}" for name, count in chosen.most_common())
        print(
            f"{law:22s} {keep:.1f} {mean[0]:8.2f} {mean[1]:9.2f} {mean[2]:6.2f} ({standard_error[2]:.2f})"
            f" {worst:9.2f}  {names}",
            flush=True,
        )
        results.append(
            {
                "law": law,
                "keep": keep,
                "error": dict(zip(("true D", "inverse", "auto"), mean.tolist(), strict=True)),
                "standard_error": dict(zip(("true D", "inverse", "auto"), standard_error.tolist(), strict=True)),
                "worst_ratio": worst,
                "chosen": dict(chosen),
            }
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(
        json.dumps({"fairpremium": __version__, "seeds": args.seeds, "results": results}, indent=1) + "\n"
    )


def one(law: str, keep: float, seed: int) -> tuple[list[float], str]:
    """Errors of the true-D fit, the paper's estimator and auto on one portfolio, and what auto chose."""
    p = zhang_liu_shi_2025(n=N, rng=1000 + seed, age_band=True)
    rng = np.random.default_rng([seed, int(100 * keep)])
    truth = p.best_estimate(p.X).to_numpy()
    d = (p.sensitive == p.groups[1]).astype(int)
    y = LAWS[law](truth[np.arange(N), d], d, rng)
    channel = RandomizedResponse(p.groups, keep=keep)
    S = channel.privatize(p.sensitive, rng=rng)
    settings = {"random_state": seed, "intervals": False}

    def error(pricer: DiscriminationFreePricer) -> float:
        gap = pricer.predict_best_estimate(p.X).to_numpy() - truth
        return float(np.sqrt(np.mean(gap[np.arange(N), d] ** 2)))

    oracle = DiscriminationFreePricer(pooling=0, **settings).fit(p.X, y, sensitive=p.sensitive)
    paper = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, **settings)
    auto = DiscriminationFreePricer(channel=channel, **settings)
    fits = [oracle, paper.fit(p.X, y, sensitive=S), auto.fit(p.X, y, sensitive=S)]
    return [error(fit) for fit in fits], auto.correction_


if __name__ == "__main__":
    main()
