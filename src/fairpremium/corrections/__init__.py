"""Ways to learn group prices from privatized reports, and the judge that compares them."""

from fairpremium.corrections._auto import (
    FAILURES,
    JUDGE_ROWS,
    Chosen,
    Verdict,
    fit_correction,
)
from fairpremium.corrections._boosted_classifier import BoostedClassifier
from fairpremium.corrections._candidates import Noise
from fairpremium.corrections._contest import (
    ModelChosen,
    fit_model,
    held_persons,
    held_risk,
    held_volumes,
    plausible_range,
)
from fairpremium.corrections._entries import ModelFit
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._inverse import fit_inverse, pad_missing
from fairpremium.corrections._pooling import Judged
from fairpremium.corrections._referee import corrected_risk, mean_and_error, paired_z
from fairpremium.corrections._sandwich import Statistics, portfolio_means, sandwich
from fairpremium.corrections._shares import estimate_shares
from fairpremium.corrections._stage import Setting

__all__ = [
    "FAILURES",
    "JUDGE_ROWS",
    "BoostedClassifier",
    "Chosen",
    "GroupFit",
    "Judged",
    "ModelChosen",
    "ModelFit",
    "Noise",
    "Setting",
    "Statistics",
    "Verdict",
    "corrected_risk",
    "estimate_shares",
    "fit_correction",
    "fit_inverse",
    "fit_model",
    "held_persons",
    "held_risk",
    "held_volumes",
    "mean_and_error",
    "pad_missing",
    "paired_z",
    "plausible_range",
    "portfolio_means",
    "sandwich",
]
