"""The paper's auto data."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from fairpremium.portfolios._files import DataFile
from fairpremium.portfolios._portfolio import Portfolio

__all__ = ["load_auto"]

FILE = DataFile(
    filename="car_insurance_claim.csv",
    sha256="f33708d6e65178b2b18576ba678b82976ff766dadb3b94077dc013f464298971",
    source='Kaggle, "Car Insurance Data" by Sagnik Roy (10,000 rows, 19 columns)',
)
GROUPS = {"GENDER": ("female", "male"), "RACE": ("majority", "minority")}


def load_auto(
    path: str | os.PathLike[str] | None = None,
    *,
    sensitive: Literal["GENDER", "RACE"] = "GENDER",
    missing: Literal["drop", "keep"] = "drop",
) -> Portfolio:
    """Load the paper's auto data (Roy 2021): 10,000 drivers, claim or none, sensitive attribute sex or race.

    Parameters
    ----------
    path : path of a file or of the folder with car_insurance_claim.csv, optional
        Default: the folder that the environment variable FAIRPREMIUM_DATA names.
    sensitive : {"GENDER", "RACE"}
        The column that becomes `sensitive`. The other one stays in X, as in the paper; drop it if you must
        not use it.
    missing : {"drop", "keep"}
        What to do with the 1,851 rows in which CREDIT_SCORE or ANNUAL_MILEAGE is missing. "drop" leaves
        8,149 complete rows (the paper says 8,150) and counts the others in `dropped_rows`; "keep" leaves NaN.

    Returns
    -------
    Portfolio
        X without ID, POSTAL_CODE as text since it is a label; y = OUTCOME, 0 or 1; family "bernoulli".

    References
    ----------
    S. Roy (2021), "Car Insurance Data", Kaggle; Zhang, Liu and Shi (2025), appendix
    "Data Analysis - Auto Insurance".
    """
    if sensitive not in GROUPS:
        raise ValueError(f"Got sensitive={sensitive!r}, but expected one of {sorted(GROUPS)}.")
    if missing not in ("drop", "keep"):
        raise ValueError(f"Got missing={missing!r}, but expected 'drop' or 'keep'.")
    place = FILE.find(path)
    frame = FILE.read(place.read_bytes(), place)
    total = len(frame)
    if missing == "drop":
        frame = frame.dropna(ignore_index=True)
    X = frame.drop(columns=["ID", "OUTCOME", sensitive])
    X["POSTAL_CODE"] = X["POSTAL_CODE"].astype(str)
    return Portfolio(
        name="auto",
        X=X,
        y=frame["OUTCOME"].to_numpy(dtype=np.float64),
        sensitive=frame[sensitive].to_numpy(dtype=object),
        groups=GROUPS[sensitive],
        family="bernoulli",
        dropped_rows=total - len(frame),
    )
