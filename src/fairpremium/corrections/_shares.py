"""Shares of the groups in the portfolio, from the reports."""

from __future__ import annotations

import numpy as np

from fairpremium.arrays import Array
from fairpremium.models import Moments


def share_coefficients(moments: Moments, table: Array) -> Array:
    """Regress the corrected reports on the features, among the rows that reported.

    Parameters
    ----------
    moments : Moments
    table : array of shape (K, codes)
        The inverse channel with a zero column for the missing report.

    Returns
    -------
    array of shape (q, K)
        Least-squares coefficients of T^-1[k, s] on z: a linear model of P(D = k given x).
    """
    q = moments.q
    by_report = moments.by_report[:-1]
    gram = by_report[:, :q, :q].sum(axis=0)
    cross = by_report[:, 0, :q].T @ table[:, :-1].T  # sum of w z T^-1[k, s]
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0])


def estimate_shares(moments: Moments, table: Array) -> Array:
    """Estimate P(D = k), the distribution of volume over groups, without bias and without clipping.

    Parameters
    ----------
    moments : Moments
    table : array of shape (K, codes)
        The inverse channel with a zero column for the missing report.

    Notes
    -----
    The linear model of P(D = k given x) that the reporting rows give is averaged over **all** rows. If
    every row reported, this is the plain mean of T^-1[k, s_i]. If some did not, it corrects for
    reporting that depends on the features, where the plain mean over those who reported would be biased.
    """
    mean = moments.gram[0] / moments.total_weight  # mean of z over all rows
    return np.asarray(mean @ share_coefficients(moments, table))
