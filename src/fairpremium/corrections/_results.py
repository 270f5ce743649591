"""What the choice among corrections and model classes tells its reader."""

from dataclasses import dataclass

import numpy as np

from fairpremium.errors import FairPremiumError

CHECK_ROWS = 30_000  # rows on which model classes are compared
FAILURES = (FairPremiumError, np.linalg.LinAlgError, FloatingPointError)


@dataclass(frozen=True)
class CandidateResult:
    """What the checks found for one candidate, and why it was chosen or not."""

    correction: str
    detail: str
    pooling: float  # strength in rows; NaN: empirical Bayes
    chosen: bool
    reason: str
    risk: float = np.nan
    risk_error: float = np.nan
    report_loss: float = np.nan
    report_loss_error: float = np.nan
    model: str = "linear"
