"""Classifiers of the reports: features to numbers, reports to probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from fairpremium.noise._base import report_codes

MAX_LEVELS = 1000  # a column of text with more levels is taken for an identifier


@dataclass
class ReportClassifier:
    """A classifier of the reports S given x, fitted anew on any subset of the rows.

    It is cloned before each fit; None stands for a multinomial logistic regression on standardised columns.
    """

    classifier: Any
    design: NDArray[np.float64]  # (n_samples, n_columns), x as numbers
    s: NDArray[np.intp]  # (n_samples,), S as codes
    n_groups: int
    rng: np.random.Generator  # seeds those ``random_state`` parameters of the classifier that are None

    def __post_init__(self) -> None:
        if self.classifier is None:
            from sklearn.linear_model import LogisticRegression
            from sklearn.pipeline import make_pipeline
            from sklearn.preprocessing import StandardScaler

            self.classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            if not np.isfinite(self.design).all():
                raise ValueError(
                    "Got X with missing or infinite numbers, but the default classifier of AnchorNoise "
                    "expects finite ones. Fill them in, or pass classifier=HistGradientBoostingClassifier()."
                )
        elif not hasattr(self.classifier, "predict_proba") or isinstance(self.classifier, type):
            raise TypeError(
                f"Got classifier of type {type(self.classifier).__name__}, but expected a scikit-learn classifier "
                "with predict_proba, such as LogisticRegression()."
            )

    def fit(self, rows: NDArray[np.intp]) -> Any:
        """Return a copy of the classifier, fitted on these rows."""
        if len(np.unique(self.s[rows])) < 2:
            raise ValueError(
                f"Got a split of {len(rows)} rows whose reports are all the same, but expected at least two "
                "kinds. Use fewer n_splits, or more rows."
            )
        classifier = clone(self.classifier)
        seeds = {
            name: int(self.rng.integers(2**31))
            for name, value in sorted(classifier.get_params().items())
            if value is None and (name == "random_state" or name.endswith("__random_state"))
        }
        return classifier.set_params(**seeds).fit(self.design[rows], self.s[rows])

    def predict(self, fitted: Any, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return P(S | x), one row per row and one column per group; 0 for a group the fit never saw."""
        P = np.zeros((len(rows), self.n_groups))
        P[:, fitted.classes_] = fitted.predict_proba(self.design[rows])
        return P


def select_reports(
    X: Any, features: Sequence[Any] | None, sensitive: Any, groups: tuple[Any, ...]
) -> tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.bool_]]:
    """Return x as numbers and S as codes for the rows with a report, and which rows these are."""
    s = report_codes(sensitive, groups, "sensitive")
    data = select_features(X, features)
    if len(data) != len(s):
        raise ValueError(f"Got X with {len(data)} and sensitive with {len(s)} rows, but expected the same rows.")
    known = s >= 0
    return to_numbers(data[known]), s[known], known


def select_features(X: Any, features: Sequence[Any] | None) -> pd.DataFrame:
    """Return the columns that serve as x*: names for a data frame, positions for an array, None for all."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        data = frame.to_pandas()
    else:
        array = np.asarray(X)
        if array.ndim != 2:
            raise ValueError(
                f"Got X with {array.ndim} dimension(s), but AnchorNoise expects a data frame or a "
                "two-dimensional array, one row per report."
            )
        data = pd.DataFrame(array).infer_objects()
    if features is not None:
        if isinstance(features, (str, bytes)):
            raise TypeError("Got features as one text, but expected a list of columns, such as ['age'].")
        absent = [name for name in features if name not in data.columns]
        if absent:
            raise ValueError(f"Got features {absent}, but X has the columns {list(data.columns)}.")
        data = data[list(features)]
    if data.shape[1] == 0:
        raise ValueError("Got X without columns, but AnchorNoise expects at least one feature.")
    return data


def to_numbers(data: pd.DataFrame) -> NDArray[np.float64]:
    """Return numbers as they are, and one column of zeros and ones per level of text or categories.

    A missing text is a level of its own.
    """
    columns = []
    for j, name in enumerate(data.columns):
        column = data.iloc[:, j]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            columns.append(column.to_numpy(dtype=float, na_value=np.nan)[:, None])
        elif pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
            raise TypeError(
                f"Got column {name!r} of X with dates, but expected numbers or text. Turn it into a number."
            )
        else:
            codes, levels = pd.factorize(column, sort=True, use_na_sentinel=True)
            codes = np.where(codes < 0, len(levels), codes)
            n_levels = int(codes.max()) + 1 if len(codes) else 0
            if n_levels > MAX_LEVELS:
                raise ValueError(
                    f"Got column {name!r} of X with {n_levels} levels, but expected at most {MAX_LEVELS}. If "
                    "it is an identifier, leave it out with features=[...]."
                )
            columns.append(np.eye(n_levels)[codes])
    return np.hstack(columns)
