"""Nets: all groups together against one after the other, and how close prices come to the truth.

    python benchmarks/neural.py [--seeds 5] [--repeats 5] [--parts speed,error] [--json benchmarks/results/neural.json]

Speed: K = 4 nets of 64 and 64 units on the same rows for the same epochs, trained together (batched products, one
optimiser) and one after the other; the best time of several runs, processor time on the CPU with one thread and wall
time on a GPU, where there is one. Error: root mean square error of mu(x, d) over the paper's portfolio (5,000 rows, raw
age and smoker), nets trained on four fifths of the rows and stopped by the rest; mean over the seeds with its standard
error. `inverse` has signed weights; `likelihood` has the responsibilities of a normal law whose weight rises from 0
to 1 over 60 epochs. All build on the mean outcome.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import torch

from fairpremium import __version__
from fairpremium.blocks import Rows
from fairpremium.families import Normal
from fairpremium.models import Design, NeuralModel, TrainingData
from fairpremium.portfolios import zhang_liu_shi_2025

K = 4
SIZES = {5_000: 10, 100_000: 2}  # rows: epochs
BATCHES = (128, 256, "auto")
MODELS = {
    "64-64": NeuralModel(),
    "paper (5-5-5)": NeuralModel.paper(),
    "64-64, first layer shared": NeuralModel(shared=1),
}
KEEP = 0.8


class Weights:
    """Weights that do not follow the prices."""

    def __init__(self, weights, held_y=None, held_weights=None, signed=False):
        self.fixed, self.held_y, self.held_weights, self.signed = weights, held_y, held_weights, signed

    def weights(self, eta):
        return self.fixed

    def held_loss(self, eta):
        loss = Normal().loss_terms(self.held_y[:, None], eta)[0]
        return float((self.held_weights * loss).sum() / self.held_weights.sum())


class Responsibilities:
    """EM for a normal law, the propensity by smoker, the law's weight rising over some epochs."""

    signed, ramp = False, 60

    def __init__(self, T, train, held):
        self.T, self.train, self.held, self.epoch = T, train, held, 0
        self.q, self.phi = np.full((2, 2), 0.5), float(np.var(train.y))

    def joint(self, rows, eta, heat):
        log = -heat * (rows.y[:, None] - eta) ** 2 / (2 * self.phi)
        return np.log(self.T[rows.report] * self.q[rows.X[:, 1].astype(int)]) + log

    def weights(self, eta):
        self.epoch += 1
        for _ in range(2):
            log = self.joint(self.train, eta, min(1.0, self.epoch / self.ramp))
            r = np.exp(log - np.logaddexp.reduce(log, axis=1, keepdims=True))
            smoker = self.train.X[:, 1] > 0
            self.q = np.array([r[~smoker].mean(axis=0), r[smoker].mean(axis=0)])
            self.phi = float((r * (self.train.y[:, None] - eta) ** 2).sum() / len(r))
        return r

    def held_loss(self, eta):
        if self.epoch < self.ramp:
            return 1e6 - self.epoch
        density = np.logaddexp.reduce(self.joint(self.held, eta, 1.0), axis=1)
        return float(0.5 * np.log(self.phi) - density.mean())


def mean_of(rows: Rows, groups: int) -> np.ndarray:
    """The mean outcome for all rows and groups."""
    return np.full((len(rows), groups), rows.y.mean())


def speed(repeats: int) -> list[dict]:
    print(f"{'device':8s} {'rows':>8s} {'batch':>6s} {'together':>10s} {'apart':>10s} {'times faster':>13s}")
    found = []
    for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
        for n, epochs in SIZES.items():
            rng = np.random.default_rng(0)
            X = rng.normal(size=(n, 10))
            D = rng.integers(K, size=n)
            rows = Rows(X, X[:, 0] * (1 + D) + rng.normal(size=n), None, D)
            W = np.eye(K)[D]
            clock = time.process_time if device == "cpu" else time.perf_counter
            for batch in BATCHES:
                model = NeuralModel(shared=0, batch_size=batch, max_epochs=epochs, device=device)
                design = Design.learn(X)

                def fit(columns, model=model, design=design, rows=rows, W=W, clock=clock):
                    start = clock()
                    for k in columns:
                        data = TrainingData(design, Normal(), rows, mean_of(rows, len(k)), Weights(W[:, k]))
                        model.train(data, np.random.default_rng(0))
                    return clock() - start

                alone, every = [[k] for k in range(K)], [list(range(K))]
                fit([[0]])  # the first run loads torch
                times = np.array([(fit(every), fit(alone)) for _ in range(repeats)])
                together, apart = times.min(axis=0)
                print(
                    f"{device:8s} {n:8d} {batch!s:>6s} {together:9.2f}s {apart:9.2f}s {apart / together:13.2f}",
                    flush=True,
                )
                found.append(
                    {
                        "device": device if device == "cpu" else torch.cuda.get_device_name(),
                        "rows": n,
                        "batch_size": batch,
                        "epochs": epochs,
                        "together_s": together,
                        "apart_s": apart,
                        "times_faster": apart / together,
                    }
                )
    return found


def error(model: NeuralModel, correction: str, seed: int) -> tuple[float, float]:
    """Error of mu(x, d) on one portfolio, and the seconds of processor time that the fit took."""
    n = 5000
    p = zhang_liu_shi_2025(n=n, rng=1000 + seed)
    rng = np.random.default_rng(seed)
    D = (p.sensitive == p.groups[1]).astype(int)
    T = np.array([[KEEP, 1 - KEEP], [1 - KEEP, KEEP]])
    S = np.where(rng.random(n) < KEEP, D, 1 - D)
    rows = Rows(p.X.astype(float).to_numpy(), p.y, None, S)
    held = rng.permutation(n) < n // 5
    train, test = rows.take(~held), rows.take(held)
    if correction == "likelihood":
        objective = Responsibilities(T, train, test)
    else:
        W = {"true D": np.eye(2)[D], "S as D": np.eye(2)[S], "inverse": np.linalg.inv(T).T[S]}[correction]
        objective = Weights(W[~held], test.y, W[held], correction == "inverse")
    clock = time.process_time()
    start = mean_of(train, 2)
    held_start = np.full((len(test), 2), start[0, 0])
    data = TrainingData(Design.learn(p.X), Normal(), train, start, objective, test, held_start)
    prices = model.train(data, rng)
    seconds = time.process_time() - clock
    gap = prices.predictor(rows.X, np.full((n, 2), start[0, 0])) - p.truth.means(p.X)
    return float(np.sqrt(np.mean(gap[np.arange(n), D] ** 2))), seconds


def errors(seeds: int) -> list[dict]:
    print(f"\n{'nets':28s} {'correction':12s} {'error':>7s} {'(s.e.)':>8s} {'seconds':>8s}")
    found = []
    for name, model in MODELS.items():
        for correction in ("true D", "S as D", "inverse", "likelihood"):
            table = np.array([error(model, correction, seed) for seed in range(seeds)])
            mean, seconds = table.mean(axis=0)
            standard_error = table[:, 0].std(ddof=1) / np.sqrt(seeds)
            print(f"{name:28s} {correction:12s} {mean:7.2f} {f'({standard_error:.2f})':>8s} {seconds:8.1f}", flush=True)
            found.append(
                {
                    "nets": name,
                    "correction": correction,
                    "keep": None if correction == "true D" else KEEP,
                    "error": mean,
                    "standard_error": standard_error,
                    "seconds": seconds,
                }
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", default="speed,error")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "neural.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = json.loads(args.json.read_text()) if args.json.exists() else {}
    results |= {"fairpremium": __version__, "torch": torch.__version__, "processor": platform.machine()}
    if "speed" in args.parts:
        results["speed"] = speed(args.repeats)
    if "error" in args.parts:
        results |= {"seeds": args.seeds, "error": errors(args.seeds)}
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
