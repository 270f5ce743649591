"""The limits of a study, and how counts are shown: what every party needs to know of the disclosure rules."""

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Rules:
    """The limits of a study.

    - `n_min`: Rows of a reported group among which no single one may stand out (rules 2 and 5).
    - `rows`, `effective_rows`: Least rows of each reported group, and least (sum w)^2 / sum w^2 among them (rule 1).
    - `rows_per_parameter`: Least rows of each reported group per coefficient (rule 3).
    - `score_share`: Largest part v of the squared score, in any direction, that one row may carry (rule 4). Whoever
      knows no other report guesses that row's report from exact coefficients right with probability Phi(sqrt(v / (1 -
      v))) for two groups of equal size, 0.79 at the default.
    - `fits`: Largest number of distinct fits (rule 6).
    - `round_to`, `suppress_up_to`: Counts are rounded to multiples of the first; up to the second they are not shown
      (rule 7).
    """

    # Where it is part of a message, it takes no field more and none of another type.
    __pydantic_config__: ClassVar = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    n_min: int = 10
    rows: int = 100
    effective_rows: int = 50
    rows_per_parameter: int = 10
    score_share: float = 0.4
    fits: int = 20
    round_to: int = 5
    suppress_up_to: int = 7

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            whole = name != "score_share"
            kind = int if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not value > 0:
                raise ValueError(f"Got {name}={value!r}, but expected a positive {'integer' if whole else 'number'}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the limits as plain data."""
        return asdict(self)


def round_count(count: float, rules: Rules | None = None) -> int | None:
    """Apply rule 7: round a count to the nearest 5, and do not tell one of at most 7.

    Examples
    --------
    >>> [round_count(n) for n in (0, 7, 8, 12, 13, 1001)]
    [None, None, 10, 10, 15, 1000]
    """
    rules = Rules() if rules is None else rules
    if count <= rules.suppress_up_to:
        return None
    return rules.round_to * math.floor(count / rules.round_to + 0.5)
