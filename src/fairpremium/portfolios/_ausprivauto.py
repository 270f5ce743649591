"""Australian private motor insurance."""

from __future__ import annotations

import os

import numpy as np

from fairpremium.portfolios._files import DataFile
from fairpremium.portfolios._portfolio import Portfolio

__all__ = ["load_ausprivauto"]

FILE = DataFile(
    filename="ausprivauto0405.csv",
    sha256="b05ef186f9f8ef9eec0a8f2d6d6cd4a7793932587bd63bf416f47aa1718c8795",
    source="the R package CASdatasets, data set ausprivauto0405, as CSV (67,856 rows, 9 columns)",
)


def load_ausprivauto(path: str | os.PathLike[str] | None = None) -> Portfolio:
    """Load Australian private motor policies of 2004/05: 67,856 rows, claim frequency, by sex.

    Parameters
    ----------
    path : path of a file or of the folder with ausprivauto0405.csv, optional
        Default: the folder that the environment variable FAIRPREMIUM_DATA names.

    Returns
    -------
    Portfolio
        X with the columns VehValue, VehAge, VehBody, DrivAge; y = ClaimNb / Exposure,
        `sample_weight` = Exposure; `sensitive` "Female" or "Male"; family "poisson".

    Notes
    -----
    ClaimOcc and ClaimAmount are outcomes, not features: they are left out.

    References
    ----------
    C. Dutang and A. Charpentier, R package CASdatasets; P. de Jong and G. Heller (2008), "Generalized Linear
    Models for Insurance Data".
    """
    place = FILE.find(path)
    frame = FILE.read(place.read_bytes(), place)
    exposure = frame["Exposure"].to_numpy(dtype=np.float64)
    return Portfolio(
        name="ausprivauto",
        X=frame[["VehValue", "VehAge", "VehBody", "DrivAge"]].copy(),
        y=frame["ClaimNb"].to_numpy(dtype=np.float64) / exposure,
        sensitive=frame["Gender"].to_numpy(dtype=object),
        groups=("Female", "Male"),
        family="poisson",
        sample_weight=exposure,
    )
