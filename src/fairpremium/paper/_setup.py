"""What all experiments share: their size, the names of the methods, and choices where the paper is silent."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from fairpremium import __version__

KEEPS = (0.9, 0.8, 0.7)
SEED = 2025
MPTP, PAPER, NAIVE, OURS = "true D", "paper", "naive", "ours"


@dataclass(frozen=True)
class RunSize:
    """The size of a reproduction.

    Parameters
    ----------
    name : str
        "quick" or "full".
    seeds : int
        Repetitions of every experiment.
    ours_seeds : int
        How many of them also fit `correction="auto"`, which takes most of the time and is not the paper's.
    synthetic_rows : int
        Policyholders of the synthetic portfolio; the paper has 5,000.
    net_epochs : int
        Passes over the rows when a net of the synthetic experiments is trained.
    real_rows : int or None
        Rows of a real portfolio, drawn at random for each seed; None takes all.
    representation_epochs : int
        Most passes over the rows when X~ is learned.
    descent_epochs : int
        Steps of gradient descent on the corrected risk.
    lemma_rows : int
        Draws behind one Monte Carlo value of Lemma 4.2.
    theorem_runs : int
        Samples in which the bounds of Theorems 4.3 and 4.6 are checked, for each seed.
    """

    name: str
    seeds: int
    ours_seeds: int
    synthetic_rows: int
    net_epochs: int
    real_rows: int | None
    representation_epochs: int
    descent_epochs: int
    lemma_rows: int
    theorem_runs: int

    def __post_init__(self) -> None:
        if not 1 <= self.ours_seeds <= self.seeds:
            raise ValueError(f"Got ours_seeds={self.ours_seeds}, but expected 1 to seeds = {self.seeds}.")

    def fingerprint(self) -> str:
        """Return eight characters that change with the version and with every setting but the number of seeds."""
        body = {**asdict(self), "version": __version__, "seed": SEED}
        del body["seeds"]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]


QUICK = RunSize(
    name="quick",
    seeds=2,
    ours_seeds=1,
    synthetic_rows=800,
    net_epochs=10,
    real_rows=700,
    representation_epochs=15,
    descent_epochs=60,
    lemma_rows=20_000,
    theorem_runs=50,
)
FULL = RunSize(
    name="full",
    seeds=20,
    ours_seeds=5,
    synthetic_rows=5000,
    net_epochs=100,
    real_rows=None,
    representation_epochs=200,
    descent_epochs=300,
    lemma_rows=200_000,
    theorem_runs=500,
)

# Where the paper is silent. The page of statements prints them.
CHOICES = {
    "age in the synthetic portfolio": "whole years from 18 to 80, all equally likely",
    "training of the synthetic nets": "three hidden layers of five neurons as in the paper; tanh, Adam with step 0.05 "
    "falling along a cosine, mini-batches of 512, 100 epochs, the best epoch on held-out rows is used; chosen because "
    "the fit with the true attribute is then close to the truth for every seed",
    "error of a synthetic price": "root mean square of the estimated minus the true mu(x, d) over the true "
    "distribution of (x, d), enumerated and not sampled",
    "test loss": "mean loss of f_d(x) on the test rows with their true d, that is of the best estimate; the paper's "
    "file names say mu",
    "split": "80 % training and 20 % test rows, drawn anew for every seed; half the sample means a random half of "
    "the training rows, with the same test rows",
    "columns": "text columns one-hot, all columns standardised with the training rows, an intercept",
    "gradient descent": "full batches, start at zero, constant step 1/L with L the largest curvature of the pooled "
    "risk (the largest eigenvalue of X'X/n, a quarter of it for cross-entropy), one step an epoch, "
    "300 epochs; nothing stops it early",
    "X~": "the last hidden layer (8 tanh units) of a net with layers 32 and 8 that is trained on the training rows, a "
    "fifth of them held out to stop it; with half the sample it is trained on that half",
    "randomized response": "one uniform number a row and seed, shared by all values of keep: a report that is true at "
    "0.7 is true at 0.8 as well, so that values of keep are compared on the same luck",
    "estimated keep": "logistic classifier on the raw columns for both X and X~, the group with the highest estimate, "
    "average of keep over the parts (Section 6), estimated on the training rows",
    "ours": '`correction="auto"` on the same columns with the same (known, wrong or estimated) keep; it is no '
    "descent and has no epochs, hence a level line; ridge 1 for cross-entropy; on the first 5 of the 20 seeds, "
    "because it takes most of the time; pictures show means over these 5, statements of the paper rest on all 20",
    "naive": "the same fit with the report taken for the truth",
    "auto data": "the 8,149 complete rows of 10,000 (the paper says 8,150); the postal code is a label, not a number",
    "convergence": "the first epoch from which on the test loss stays within 5 % of its value after the last epoch; it "
    "depends on the step, which is 1/L for each representation",
    "bounded loss in the theorems": "squared loss of prices in [0, 1] for outcomes 0 and 1 (M = 1); f_k from 21 "
    "constants on each of two halves of five risk classes, so that the best f and the Rademacher complexity can be "
    "computed",
}
