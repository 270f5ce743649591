"""The spectrum of fair prices, from reports: five prices between accuracy and parity, and what they are measured by.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it.
"""

from ._comparison import compute_spectrum
from ._drawings import plot_multicalibration, plot_parity_distance, plot_spectrum
from ._multicalibration import compute_multicalibration, draw_largest_z
from ._parity_distance import compute_parity_distance
from ._price_spectrum import PriceSpectrum

__all__ = [
    "PriceSpectrum",
    "compute_multicalibration",
    "compute_parity_distance",
    "compute_spectrum",
    "draw_largest_z",
    "plot_multicalibration",
    "plot_parity_distance",
    "plot_spectrum",
]
