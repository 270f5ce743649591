"""Tables go back to the caller in the caller's type."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.models._design import as_frame


def frame_like(X: Any, values: npt.NDArray[np.float64], columns: tuple[Any, ...]) -> Any:
    """Return values of shape (n, columns) as a data frame of X's library; pandas for arrays."""
    frame = as_frame(X)
    if frame is None or isinstance(X, pd.DataFrame):
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(values, index=index, columns=pd.Index(columns, tupleize_cols=False))
    data = {str(column): values[:, j] for j, column in enumerate(columns)}
    return nw.from_dict(data, backend=frame.implementation).to_native()
