"""When a rate of right guesses contradicts its bound: a test that was fixed before anything ran.

Given all else, also all other reports, a guess is right with at most the probability that the guarantee allows. The
number of right guesses is then at most a binomial one, however the guesses depend on each other. A rate is beyond its
bound if the exact lower confidence limit is: that of Clopper and Pearson, at 99.9 % for all rows of a table together
(Bonferroni). A table of rates that attain their bounds exactly has such a row in one run of a thousand.
"""

from __future__ import annotations

from scipy.stats import beta

LEVEL = 0.001  # of a whole table
RULE = (
    "A rate is beyond its bound if its exact binomial lower confidence limit is, at 99.9 % for all rows together "
    "(Bonferroni)."
)


def lower_limit(right: int, guesses: int, rows: int) -> float:
    """Return what the probability of a right guess is at least, for one of so many rows of a table."""
    return float(beta.ppf(LEVEL / rows, right, guesses - right + 1)) if right else 0.0


def is_beyond(right: int, guesses: int, bound: float, rows: int) -> bool:
    """Return whether the guesses contradict the bound."""
    return lower_limit(right, guesses, rows) > bound
