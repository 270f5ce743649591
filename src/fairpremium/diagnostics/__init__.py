"""How well prices describe losses: observed against expected by factor, lift and double lift.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it. Where reports of a sensitive attribute
are given, tables have a row for every true group besides that for everybody. The Gini index is
`fairpremium.audit.compute_gini`, coefficients and tests are `DiscriminationFreePricer.summary` and `feature_tests`.
"""

from ._drawings import plot_double_lift, plot_lift, plot_observed_expected
from ._holdout import evaluate, hold_out
from ._lift import compute_double_lift, compute_lift
from ._observed_expected import compute_observed_expected

__all__ = [
    "compute_double_lift",
    "compute_lift",
    "compute_observed_expected",
    "evaluate",
    "hold_out",
    "plot_double_lift",
    "plot_lift",
    "plot_observed_expected",
]
