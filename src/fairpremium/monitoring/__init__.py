"""Watch prices over renewals: measures by true group from reports, with intervals that hold at every look.

`Monitor` takes one period after another. Its intervals are confidence sequences: with probability 95 % all of them, of
all measures and at all looks, hold the truth. `plot_monitor` draws them over time.
"""

from ._chart import plot_monitor
from ._measures import MEASURES
from ._monitor import Monitor

__all__ = ["MEASURES", "Monitor", "plot_monitor"]
