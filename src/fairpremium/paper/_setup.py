"""What all experiments share: their size, the names of the methods, and choices where the paper is silent."""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from fairpremium import __version__

KEEPS = (0.9, 0.8, 0.7)
SEED = 2025
MPTP, PAPER, NAIVE, OURS = "true D", "paper", "naive", "ours"


@dataclass(frozen=True)
class RunSize:
    """The size of a reproduction.

    Attributes
    ----------
    name : str
        "quick" or "full".
    seeds : int
        Repetitions of every experiment.
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
    synthetic_rows: int
    net_epochs: int
    real_rows: int | None
    representation_epochs: int
    descent_epochs: int
    lemma_rows: int
    theorem_runs: int

    def fingerprint(self) -> str:
        """Return eight characters that change with the version and with every setting but the number of seeds."""
        body = {**asdict(self), "version": __version__, "seed": SEED}
        del body["seeds"]
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:8]


QUICK = RunSize(
    name="quick",
    seeds=2,
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
    synthetic_rows=5000,
    net_epochs=100,
    real_rows=None,
    representation_epochs=200,
    descent_epochs=300,
    lemma_rows=200_000,
    theorem_runs=500,
)

# Where the paper is silent. The page of statements prints them.
CHOICES: dict[str, str] = tomllib.loads(Path(__file__).with_name("choices.toml").read_text(encoding="utf-8"))
