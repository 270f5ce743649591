"""The tables of an audit report that supervisors ask for."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from .._audit_data import AuditData, as_pandas
from .._groups import compute_demographic_disparity
from ._decisions import compute_adverse_impact, impact_of_pairs
from ._drivers import REMAINDER, TOTAL, compute_disparity_drivers
from ._regression import compute_marginal_effect
from ._standardized import compute_standardized_difference, differences_of_pairs
from ._thresholds import FOUR_FIFTHS, compute_threshold_check

ALL_PAIRS = "_of_pairs"


def disparity_tables(
    premiums: Any,
    y: Any,
    roles: Mapping[str, Any],
    *,
    X: Any = None,
    decisions: Any = None,
    favourable: Any = None,
    controls: Any = None,
    against: Any = None,
    threshold: float | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield names of measures and their tables: differences and drivers always, others where they are asked for.

    `roles` are the arguments `sensitive`, `channel`, `channel_key`, `sample_weight`, `exposure`, `cluster` and `level`.
    Thresholds are checked where there are decisions or a threshold, four fifths by default: ratios between it and its
    inverse, of all pairs of groups. Names that end in `ALL_PAIRS` are of tables of all pairs, for the panel.
    """
    if (decisions is None) != (favourable is None):
        raise ValueError("Got decisions without favourable, or the reverse, but expected both or none.")
    data = AuditData.read({"premiums": premiums}, by=None, **roles)
    compared = {**roles, "against": against}
    checked: dict[str, Any] = {}
    if decisions is not None:
        impact = compute_adverse_impact(decisions, favourable=favourable, **compared)
        checked["decision"] = impact_of_pairs(decisions, favourable, **roles)
        yield "adverse_impact", impact
        yield f"adverse_impact{ALL_PAIRS}", checked["decision"]
    if decisions is not None or threshold is not None:
        pairs = as_pandas(compute_demographic_disparity(premiums, **roles))
        checked["premium"] = pairs[[group is not None for group in pairs["against"]]]
        limit = FOUR_FIFTHS if threshold is None else _check_share(threshold)
        checks = [
            as_pandas(compute_threshold_check(table, at_least=limit, at_most=1 / limit, rows=len(data.reports)))
            .assign(quantity=name)
            for name, table in checked.items()
        ]  # fmt: skip
        yield "threshold_check", pd.concat(checks, ignore_index=True)
    with_losses = bool((data["premiums"] > 0).all())
    yield "standardized_difference", compute_standardized_difference(premiums, y if with_losses else None, **compared)
    yield f"standardized_difference{ALL_PAIRS}", differences_of_pairs(premiums, **roles)
    if controls is not None:
        yield "marginal_effect", compute_marginal_effect(premiums, controls, **compared)
    if X is not None and not {REMAINDER, TOTAL} & set(map(str, getattr(X, "columns", ()))):
        yield "disparity_drivers", compute_disparity_drivers(premiums, X, **compared)


def _check_share(threshold: float) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
        raise ValueError(f"Got threshold={threshold!r}, but expected a ratio between 0 and 1, such as 0.8.")
    return float(threshold)
