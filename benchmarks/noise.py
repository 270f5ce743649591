"""What a wrong keep costs, and how near the estimators of an unknown keep come to it, on the paper's portfolio.

    python benchmarks/noise.py [--seeds 25] [--json PATH]

5,000 rows with an age-band column, groups F and M. "wrong keep": error of mu(x, d) of the inverse correction when keep
is 0.8 and another value is believed; 1 takes the reports for the truth. "likelihood": `LikelihoodNoise` where the law
of y is right, and where exponential noise is taken for normal. "anchor": `AnchorNoise` on age and smoking, which have
no anchor point, and on five features that say nothing (1,338 rows, two equal groups, keep 0.9), without a declared
anchor; on age and smoking with smokers declared an anchor of F, which one in five is not; and on a product that a
tenth of the women have and no man. 3 % of the rows are declared. With four times the seeds. Means over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from sklearn.base import clone

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.noise import AnchorNoise, LikelihoodNoise
from fairpremium.portfolios import Portfolio, zhang_liu_shi_2025

GROUPS = ["F", "M"]
KEEPS = (0.9, 0.8, 0.7, 0.6)


def portfolios(keep: float, seeds: int) -> Iterator[tuple[int, Portfolio, np.ndarray]]:
    """Portfolios with reports."""
    channel = RandomizedResponse(GROUPS, keep=keep)
    for seed in range(seeds):
        p = zhang_liu_shi_2025(n=5000, rng=seed, age_band=True)
        yield seed, p, np.asarray(channel.privatize(p.sensitive, rng=seed))


def wrong_keep(seeds: int) -> list[dict[str, Any]]:
    """Root mean square error of mu(x, d) over P(x, d), by the keep that is believed."""
    errors: dict[float, list[float]] = {0.7: [], 0.8: [], 0.9: [], 1.0: []}
    for _, p, S in portfolios(0.8, seeds):
        truth, q = p.best_estimate(p.X)[GROUPS].to_numpy(), p.propensity(p.X)[GROUPS].to_numpy()
        for believed, found in errors.items():
            channel = None if believed == 1 else RandomizedResponse(GROUPS, keep=believed)
            pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, intervals=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ChannelRefutedWarning)
                pricer.fit(p.X, p.y, sensitive=S)
            prices = pricer.predict_best_estimate(p.X)[GROUPS].to_numpy()
            found.append(float(np.sqrt((q * (prices - truth) ** 2).sum(axis=1).mean())))
    return [{"keep": 0.8, "believed": keep, **mean_of("error", found)} for keep, found in errors.items()]


def likelihood(seeds: int, noise: str) -> list[dict[str, Any]]:
    """Estimates of keep by `LikelihoodNoise` with the normal law."""
    rows = []
    for keep in KEEPS[:3] if noise == "normal" else (0.7,):
        found, errors, gaps, identified = [], [], [], 0
        for seed, p, S in portfolios(keep, seeds):
            y = p.y
            if noise == "exponential":
                own = p.best_estimate(p.X)[GROUPS].to_numpy()[np.arange(len(y)), (p.sensitive == "M").astype(int)]
                y = own + 100 * (np.random.default_rng([seed, 9]).exponential(size=len(y)) - 1)
            fitted = LikelihoodNoise(random_state=0).fit(p.X, y, sensitive=S)
            found.append(fitted.keep_)
            errors.append(fitted.standard_error_)
            gaps.append(fitted.keep_ - float(np.mean(p.sensitive == S)))
            identified += fitted.identified_
        rows.append(
            {
                "keep": keep,
                "noise": noise,
                **mean_of("estimate", found),
                "smallest": min(found),
                "largest": max(found),
                "claimed_standard_error": float(np.mean(errors)),
                "sd_to_share_of_true_reports": float(np.std(gaps, ddof=1)),
                "identified": identified,
            }
        )
    return rows


def anchor(seeds: int) -> list[dict[str, Any]]:
    """Estimates of keep by `AnchorNoise`, and the lower end of its interval."""
    rows = []
    for keep in KEEPS:
        fits: dict[str, list[AnchorNoise]] = {"age, smoker": [], "age, smoker; declared": [], "product; declared": []}
        for seed, p, S in portfolios(keep, seeds):
            X = p.X[["age", "smoker"]]
            product = (p.sensitive == "F") & (np.random.default_rng([seed, 6]).random(len(p)) < 0.1)
            declared = AnchorNoise(group="F", anchor_share=0.03, random_state=seed)
            fits["age, smoker"].append(AnchorNoise(random_state=seed).fit(X, None, sensitive=S))
            fits["age, smoker; declared"].append(clone(declared).fit(X, None, sensitive=S))
            fits["product; declared"].append(clone(declared).fit(product[:, None], None, sensitive=S))
        rows += [{"keep": keep, "features": name, **anchor_row(found, keep)} for name, found in fits.items()]
    useless, channel = [], RandomizedResponse(GROUPS, keep=0.9)
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 5])
        S = channel.privatize(rng.choice(GROUPS, size=1338), rng=seed)
        useless.append(AnchorNoise(random_state=seed).fit(rng.normal(size=(1338, 5)), None, sensitive=S))
    rows.append({"keep": 0.9, "features": "five that say nothing", **anchor_row(useless, 0.9)})
    return rows


def anchor_row(fits: list[AnchorNoise], keep: float) -> dict[str, Any]:
    accepted = [fit.anchor_interval_ for fit in fits if fit.identified_]
    return {
        "seeds": len(fits),
        **mean_of("estimate", [fit.keep_ for fit in fits]),
        "lower_limit": float(np.mean([fit.interval_[0] for fit in fits])),
        "lower_limit_below_keep": sum(fit.interval_[0] <= keep for fit in fits),
        "identified": len(accepted),
        "anchor_interval_covers": sum(low <= keep <= high for low, high in accepted),
    }


def mean_of(name: str, values: list[float]) -> dict[str, float]:
    return {
        name: float(np.mean(values)),
        f"{name}_sd": float(np.std(values, ddof=1)),
        f"{name}_median": float(np.median(values)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "noise.json")
    options = parser.parse_args()
    results = {}
    for section, run in {
        "wrong keep": lambda: wrong_keep(options.seeds),
        "likelihood": lambda: likelihood(options.seeds, "normal") + likelihood(options.seeds, "exponential"),
        "anchor": lambda: anchor(4 * options.seeds),
    }.items():
        print(f"-- {section}", flush=True)
        results[section] = run()
        for row in results[section]:
            print("   ", {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    about = {"fairpremium": __version__, "rows": 5000, "seeds": options.seeds}
    options.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
