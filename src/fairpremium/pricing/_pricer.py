"""The pricer: from features, losses and (privatized) attributes to premiums that discriminate neither way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from fairpremium._labels import encode_labels, infer_labels
from fairpremium.blocks import Rows, Stream
from fairpremium.corrections import (
    Chosen,
    GroupFit,
    Noise,
    Statistics,
    Verdict,
    corrected_risk,
    fit_correction,
    pad_missing,
    portfolio_means,
    sandwich,
)
from fairpremium.families import Family, get_family
from fairpremium.models import Design, LinearModel, prepare
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._frames import frame_like
from fairpremium.pricing._inputs import check_cluster, check_level, check_outcome, check_weight
from fairpremium.pricing._prices import LinearPrices
from fairpremium.pricing._reference import balanced, check_reference, marginal, reference_jacobian
from fairpremium.pricing._sources import SourcePortfolio, is_source
from fairpremium.privacy import Channel, RandomizedResponse

if TYPE_CHECKING:
    from fairpremium.pricing._predict_to import Priced

Array = npt.NDArray[np.float64]

_CORRECTIONS = ("auto", "inverse", "score", "posterior", "likelihood")


class Interval(NamedTuple):
    """Lower and upper limits, one of each per row."""

    lower: Array
    upper: Array


class DiscriminationFreePricer(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Discrimination-free premiums from the true or a privatized sensitive attribute.

    Learns the best estimate mu(x, d) = E[Y given X = x, D = d] of each group d and averages it with weights
    that do not depend on x,

        h*(x) = sum_d mu(x, d) P*(d),

    so that the premium depends on the attribute neither directly nor through features that reveal it.

    Parameters
    ----------
    family : str or Family
        Outcome distribution: "normal", "poisson", "gamma", "tweedie" (power 1.5), "bernoulli", or an object of
        `fairpremium.families`.
    model : str or LinearModel
        What mu(x, d) may look like: "linear" (on the scale of the family's link), or a model object with
        its own settings.
    channel : None, Channel or noise estimator
        What `sensitive` holds. None: the true attribute D (Algorithm MPTP). A `Channel`: reports S that went
        through it (Algorithm MPTP-LDP). A noise estimator: reports whose noise is estimated first.
    correction : {"auto", "inverse", "score", "posterior", "likelihood"}
        How the noise of the reports is undone. "inverse" is the paper's unbiased risk; "score" gives its moments their
        best weights; "posterior" learns P(D given x, y) from the reports; "likelihood" uses the law of the outcome
        too. "auto" takes the most efficient one that neither of two referees rejects; see `candidates_`.
    pooling : "auto" or float >= 0
        Strength with which the groups' coefficients are pulled together, in rows: with strength 100 it is as if
        100 rows said that the groups do not differ. 0 is the paper; "auto" chooses by the cross-validated
        corrected risk.
    reference : {"marginal", "uniform", "balanced"} or dict
        P*: the estimated distribution of D (by volume), equal weights, the distribution closest to the
        marginal for which premiums and losses agree in total, or given weights.
    intervals : bool
        Whether to estimate standard errors (one more pass over the rows).
    classifier : scikit-learn classifier, optional
        A further candidate for P(D given x, y) of the "posterior" correction, besides the built-in logits: anything
        with `predict_proba` and `fit(X, y, sample_weight)`. It is trained through the channel by EM and taken if it
        predicts held-out reports best.
    unseen_levels : {"error", "base"}
        What to do at prediction with a level of a text column that was not seen in fit.
    random_state : None, int, RandomState
        Divides the rows for cross-validation.

    Attributes
    ----------
    groups_ : tuple
        The groups, in the order of all columns and weights.
    channel_ : Channel or None
        The channel that was used.
    noise_ : noise estimator or None
        The fitted noise estimator, if `channel` was one.
    group_distribution_ : array of shape (K,)
        Unbiased estimate of P(D) by volume.
    reference_distribution_ : array of shape (K,)
        P*.
    correction_ : str
        The correction that was used; "none" for the true attribute.
    pooling_ : float
        The pooling strength that was used.
    candidates_ : pandas.DataFrame
        What was compared: model, correction, detail, pooling, corrected risk and report log-loss on held-out rows
        with standard errors, the choice and the reason.
    coefficients_ : pandas.DataFrame
        Coefficients of the groups and of the unaware price on the scale of the features (linear predictor).
    n_rows_, n_missing_reports_ : int

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> portfolio = zhang_liu_shi_2025(n=5000, rng=0)
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> reports = channel.privatize(portfolio.sensitive, rng=0)  # a seed is for simulations only
    >>> pricer = DiscriminationFreePricer(channel=channel, random_state=0)
    >>> pricer = pricer.fit(portfolio.X, portfolio.y, sensitive=reports)
    >>> premiums = pricer.predict(portfolio.X)
    >>> premiums.shape
    (5000,)
    """

    def __init__(
        self,
        family: str | Family = "normal",
        model: str | LinearModel = "linear",
        channel: Channel | NoiseEstimator | None = None,
        correction: str = "auto",
        pooling: Literal["auto"] | float = "auto",
        reference: Any = "marginal",
        intervals: bool = True,
        classifier: Any = None,
        unseen_levels: Literal["error", "base"] = "error",
        random_state: Any = None,
    ):
        self.family = family
        self.model = model
        self.channel = channel
        self.correction = correction
        self.pooling = pooling
        self.reference = reference
        self.intervals = intervals
        self.classifier = classifier
        self.unseen_levels = unseen_levels
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any = None,
        sample_weight: Any = None,
        cluster: Any = None,
        features: Sequence[str] | None = None,
    ) -> DiscriminationFreePricer:
        """Learn the prices.

        Parameters
        ----------
        X : data frame (pandas, polars, Arrow) or array of shape (n, features)
            Non-sensitive features; text and boolean columns are encoded.
        y : array of shape (n,)
            Outcome; for frequencies and pure premiums per unit of exposure.
        sensitive : array of shape (n,)
            The true attribute (`channel=None`) or reports of it; None and NaN stand for "not reported". For several
            attributes a data frame with one column each, or tuples.
        sample_weight : array of shape (n,), optional
            Volume: exposure for frequencies and pure premiums, number of claims for mean severities.
        cluster : array of shape (n,), optional
            Who a row belongs to, if one person has several rows: they share one report, so that standard errors add
            up per person, and cross-validation keeps a person's rows together.
        features : sequence of str, optional
            Columns of a source (see Notes) to price with; by default all that have no other role.

        Returns
        -------
        self

        Notes
        -----
        Data larger than memory: X may name a source instead of being a table - a Parquet file or folder, a
        `pyarrow.dataset`, a Dask or a Spark data frame. `y`, `sensitive` and `sample_weight` are then names of its
        columns, and rows are read piece by piece, as often as the fit needs to see them: once for squared loss with
        the inverse correction and ``intervals=False``.

        Raises
        ------
        ValueError, TypeError
            An argument is not what it should be; the message says which and what helps.
        RiskUnboundedError
            The reports carry too little information about a group.
        NotIdentifiedError
            `channel` is a noise estimator and the data do not tell the noise.
        """
        family, _, _ = self._check_settings()
        if is_source(X):
            return self._fit_source(X, y, sensitive, sample_weight, cluster, features)
        if features is not None:
            raise ValueError("Got features=..., which chooses columns of a source; select the columns of a table.")
        design, matrix = Design.learn_transform(X)
        n = len(matrix)
        if n < 2:
            raise ValueError(f"Got X with {n} sample, but expected at least two rows (n_samples = {n}).")
        outcome = check_outcome(y, n, family)
        weight = check_weight(sample_weight, n)
        noise, channel, groups = self._resolve_channel(X, outcome, sensitive, weight)
        report = _encode_reports(sensitive, channel, groups, n)
        rows = Rows(matrix, outcome, weight, report, cluster=check_cluster(cluster, n))
        self._learn(rows, design, noise, channel, groups)
        if isinstance(X, np.ndarray) or not design.named:
            validate_data(self, X=matrix, skip_check_array=True)
        return self

    def _fit_source(
        self, X: Any, y: Any, sensitive: Any, sample_weight: Any, cluster: Any, features: Sequence[str] | None
    ) -> DiscriminationFreePricer:
        """Learn from rows that are read piece by piece."""
        family, _, _ = self._check_settings()
        for name, value in (("cluster", cluster), ("classifier", self.classifier)):
            if value is not None:
                raise ValueError(f"Got {name}=..., which needs all rows in memory; expected None with a source.")
        with SourcePortfolio(X, y, sensitive, sample_weight, features) as portfolio:
            seen = portfolio.preview(self.channel, np.random.default_rng(0))
            noise, channel, groups = self._resolve_channel(*seen)
            penalised = channel is not None and self.correction != "inverse"  # in units of the columns' scale
            rows = portfolio.rows(groups if channel is None else channel.reports, family, thorough=penalised)
            self._learn(rows, portfolio.design, noise, channel, groups)
        return self

    def _learn(
        self,
        rows: Rows | Stream,
        design: Design,
        noise: NoiseEstimator | None,
        channel: Channel | None,
        groups: tuple[Any, ...],
    ) -> None:
        """Fit the prices to rows with coded reports."""
        family, model, pooling = self._check_settings()
        n = len(rows)
        fixed_reference = check_reference(self.reference, groups)
        inverse = np.eye(len(groups)) if channel is None else channel.inverse
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        n_parts = 1 if pooling is not None else _n_parts(n)
        if n_parts > 1:
            rows = rows.with_parts(rows.draw_parts(n_parts, rng))  # type: ignore[arg-type]
        problem = prepare(rows, inverse.shape[1] + 1, n_parts, family, model, design.features)
        counts = problem.moments.counts.sum(axis=0)
        _check_counts(counts[:-1], groups if channel is None else channel.reports, groups)
        table = pad_missing(inverse)
        matrix_t = np.eye(len(groups)) if channel is None else channel.matrix
        correction = "inverse" if channel is None else self.correction
        chosen = fit_correction(problem, Noise(matrix_t, table, groups), correction, pooling, rng, self.classifier)
        fit = chosen.fit
        statistics = _statistics(fit, self.intervals, need_means=self.reference == "balanced")
        if self.intervals and noise is not None:
            statistics = _add_channel_error(statistics, chosen, noise, groups)
        reference = _resolve_reference(self.reference, fixed_reference, statistics, groups)
        covariance = _premium_covariance(self.reference, reference, statistics)

        if design.named:
            self.feature_names_in_ = np.asarray(design.names, dtype=object)
            self.n_features_in_ = len(design.names)
        self.groups_ = groups
        self.channel_ = channel
        self.noise_ = noise
        self.correction_ = "none" if channel is None else fit.correction
        self.pooling_ = fit.strength
        self.candidates_ = _candidates(chosen.verdicts, self.correction_)
        self.group_distribution_ = fit.shares
        self.reference_distribution_ = reference
        self.n_rows_ = n
        self.n_missing_reports_ = int(counts[-1])
        self._prices = LinearPrices(
            family, design, groups, fit.coefficients, fit.unaware_coefficients[:, 0], reference, covariance
        )

    def predict(self, X: Any) -> Array:
        """Compute the discrimination-free premium h*(x).

        There is no place for the sensitive attribute: neither quoting nor renewing needs it.

        Parameters
        ----------
        X : data frame or array of shape (n, features)

        Returns
        -------
        array of shape (n,)
        """
        return self._fitted().premium(self._matrix(X))

    def predict_best_estimate(self, X: Any) -> Any:
        """Compute mu(x, d) for every group: a data frame with one column per group."""
        return frame_like(X, self._fitted().best_estimate(self._matrix(X)), self.groups_)

    def predict_unaware(self, X: Any) -> Array:
        """Compute the unaware price mu(x), which leaves the attribute out and lets its proxies in."""
        return self._fitted().unaware_price(self._matrix(X))

    def predict_interval(self, X: Any, level: float = 0.95) -> Interval:
        """Compute a confidence interval of the premium h*(x).

        Parameters
        ----------
        X : data frame or array of shape (n, features)
        level : float
            Confidence level.

        Returns
        -------
        Interval
            Named tuple of arrays ``lower`` and ``upper``. It covers the uncertainty of coefficients and P* (and of
            an estimated channel, to first order), not that of the model's form, nor the bias of pooling or ridge.
        """
        return Interval(*self._fitted().interval(self._matrix(X), check_level(level)))

    def predict_to(
        self,
        source: Any,
        path: str | PathLike[str],
        *,
        columns: Sequence[str] = (),
        level: float | None = None,
    ) -> Priced:
        """Price a source that may be larger than memory, and write the premiums as Parquet.

        Parameters
        ----------
        source : str, path, pyarrow.dataset.Dataset, dask.dataframe.DataFrame or pyspark.sql.DataFrame
            Rows with the features.
        path : str or path
            A file to write if it ends in ``.parquet``, else a folder with one file per partition (always a folder
            for Spark, whose executors write it). Rows keep their order.
        columns : sequence of str
            Columns of the source to copy, such as the policy number.
        level : float, optional
            Confidence level; adds the columns ``low`` and ``high`` to ``premium``.

        Returns
        -------
        Priced
            Named tuple: ``rows``, and ``mean``, ``smallest`` and ``largest`` premium.
        """
        from fairpremium.pricing._predict_to import predict_to

        prices, level = self._fitted(), None if level is None else check_level(level)
        return predict_to(prices, source, path, columns, level, self.unseen_levels)

    def score(self, X: Any, y: Any, *, sensitive: Any = None, sample_weight: Any = None) -> float:
        """Compute minus the corrected risk: the mean deviance of mu(x, D), estimated from the reports.

        Higher is better. The risk is unbiased for the one under the true attribute, so that cross-validation and
        grid search judge what is wanted without ever seeing it.
        """
        prices = self._fitted()
        matrix = self._matrix(X)
        outcome = check_outcome(y, len(matrix), prices.family)
        weight = check_weight(sample_weight, len(matrix))
        inverse = np.eye(len(self.groups_)) if self.channel_ is None else self.channel_.inverse
        report = _encode_reports(sensitive, self.channel_, self.groups_, len(matrix), every_group=False)
        risk, _ = corrected_risk(
            prices.family, outcome, prices.best_estimate(matrix), report, pad_missing(inverse), weight
        )
        return -risk

    def sensitivity(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any,
        rows: Any,
        sample_weight: Any = None,
        keeps: Any = None,
    ) -> pd.DataFrame:
        """Refit with other values of keep and compute the premiums of some risks.

        Parameters
        ----------
        X, y, sensitive, sample_weight
            What `fit` was given.
        rows : data frame or array
            The risks to price: a table like X, or positions in X.
        keeps : sequence of float, optional
            The values of keep; by default a band around the one used, wider upwards, because a keep that is too high
            is the error that no referee sees.

        Returns
        -------
        pandas.DataFrame
            One row per risk and keep: ``row``, ``keep``, ``premium``, ``unaware``, ``used``;
            `fairpremium.audit.plot_sensitivity` draws it.
        """
        from fairpremium.pricing._sensitivity import sensitivity_band

        return sensitivity_band(self, X, y, sensitive=sensitive, rows=rows, sample_weight=sample_weight, keeps=keeps)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients on the scale of the features: a column per group, and one for the unaware price."""
        prices = self._fitted()
        table = pd.DataFrame(
            prices.coefficients,
            index=["intercept", *prices.design.features],
            columns=pd.Index(self.groups_, tupleize_cols=False),
        )
        table["unaware"] = prices.unaware
        return table

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted pricer to a JSON file; `load` reads it back and never executes code."""
        from fairpremium.pricing._model_file import write_model

        write_model(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> DiscriminationFreePricer:
        """Read a pricer that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is damaged, is not a model, or is from an unknown version.
        """
        from fairpremium.pricing._model_file import read_model

        pricer: DiscriminationFreePricer = read_model(cls, path)
        return pricer

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        tags.regressor_tags.poor_score = True  # the score is minus a deviance, not an R^2
        return tags

    def _fitted(self) -> LinearPrices:
        check_is_fitted(self, "_prices")
        return self._prices

    def _matrix(self, X: Any) -> npt.NDArray[Any]:
        return self._fitted().design.transform(X, unseen=self.unseen_levels)

    def _check_settings(self) -> tuple[Family, LinearModel, float | None]:
        if self.correction not in _CORRECTIONS:
            raise ValueError(f"Got correction={self.correction!r}, but expected one of {list(_CORRECTIONS)}.")
        if self.unseen_levels not in ("error", "base"):
            raise ValueError(f'Got unseen_levels={self.unseen_levels!r}, but expected "error" or "base".')
        if isinstance(self.model, str) and self.model != "linear":
            raise ValueError(f'Got model={self.model!r}, but expected "linear" or a model object.')
        model = LinearModel() if isinstance(self.model, str) else self.model
        if not isinstance(model, LinearModel):
            raise TypeError(f'Got model of type {type(model).__name__}, but expected "linear" or a LinearModel.')
        model.check()
        return get_family(self.family), model, _check_pooling(self.pooling)

    def _resolve_channel(
        self, X: Any, y: Array, sensitive: Any, weight: Array | None
    ) -> tuple[NoiseEstimator | None, Channel | None, tuple[Any, ...]]:
        if sensitive is None:
            raise ValueError(
                "fit needs sensitive=...: the reports that went through `channel`, or the true attribute with "
                "channel=None."
            )
        if self.channel is None:
            groups = infer_labels(sensitive, "sensitive")
            if len(groups) < 2:
                raise ValueError(f"Got sensitive with {len(groups)} group(s), but expected at least two.")
            return None, None, groups
        if isinstance(self.channel, Channel):
            return None, self.channel, self.channel.groups
        if not isinstance(self.channel, NoiseEstimator):
            raise TypeError(
                f"Got channel of type {type(self.channel).__name__}, but expected None (sensitive is the true "
                "attribute), a Channel such as RandomizedResponse, or a noise estimator such as ValidationNoise."
            )
        noise = clone(self.channel).fit(X, y, sensitive=sensitive, sample_weight=weight)
        channel = noise.require_channel()
        return noise, channel, channel.groups


def _check_pooling(pooling: Any) -> float | None:
    if isinstance(pooling, str):
        if pooling == "auto":
            return None
    elif not isinstance(pooling, bool) and isinstance(pooling, int | float | np.number) and 0 <= pooling < np.inf:
        return float(pooling)
    raise ValueError(f'Got pooling={pooling!r}, but expected "auto" or a finite strength >= 0 in rows.')


def _n_parts(n: int) -> int:
    return int(min(n, 10 if n < 20_000 else 5))


def _encode_reports(
    sensitive: Any, channel: Channel | None, groups: tuple[Any, ...], n: int, *, every_group: bool = True
) -> npt.NDArray[np.uint16]:
    """Turn reports into codes, the number of reports standing for a missing one."""
    if sensitive is None:
        raise ValueError("Got sensitive=None, but expected the reports (or the true attribute) of these rows.")
    labels = groups if channel is None else channel.reports
    codes = encode_labels(sensitive, labels, name="sensitive", missing="code")
    if len(codes) != n:
        raise ValueError(f"Got sensitive with {len(codes)} rows, but X has {n}; expected the same number.")
    counts = np.bincount(codes + 1, minlength=len(labels) + 1)[1:]
    _check_counts(counts, labels, groups if every_group else ())
    if counts.sum() < n:
        codes = np.where(codes < 0, len(labels), codes)
    return codes.astype(np.uint16)


def _check_counts(counts: npt.NDArray[Any], labels: tuple[Any, ...], groups: tuple[Any, ...]) -> None:
    """Raise if nobody reported, or nobody a group that reports name."""
    if not counts.any():
        raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
    if labels == groups and (counts == 0).any():
        absent = [group for group, count in zip(groups, counts, strict=True) if count == 0]
        raise ValueError(
            f"Got sensitive without a single report of the group(s) {absent}; expected reports of each of "
            f"{list(groups)}. Leave a group out of the channel only if nobody could have reported it."
        )


def _statistics(fit: GroupFit, intervals: bool, *, need_means: bool) -> Statistics:
    if intervals:
        return sandwich(fit)
    K = len(fit.shares)
    H, _, loss = portfolio_means(fit) if need_means else (np.full(K, np.nan), None, np.nan)
    return Statistics(fit.coefficients, fit.shares, H, loss, np.empty((0, 0)))


def _add_channel_error(
    statistics: Statistics, chosen: Chosen, noise: NoiseEstimator, groups: tuple[Any, ...]
) -> Statistics:
    """Add the uncertainty of an estimated keep, by the delta method with a central difference.

    The estimate of keep is taken as independent of the fit given its own sample, which holds for
    validation and retest samples and to first order for the others.
    """
    keep, error, K = noise.keep_, noise.standard_error_, len(groups)
    if not (np.isfinite(error) and error > 0 and np.isfinite(keep)):
        return statistics
    delta = min(error / 2, (1 - keep) / 2, (keep - 1 / K) / 2)

    def stacked(pi: float) -> Array:
        channel = RandomizedResponse(groups, keep=pi)
        at_pi = Noise(channel.matrix, pad_missing(channel.inverse), groups)
        near = chosen.refit(at_pi)
        H = portfolio_means(near)[0]
        return np.concatenate([near.coefficients.T.ravel(), near.shares, H, [statistics.mean_loss]])

    slope = (stacked(keep + delta) - stacked(keep - delta)) / (2 * delta)
    return replace(statistics, covariance=statistics.covariance + error**2 * np.outer(slope, slope))


def _resolve_reference(reference: Any, fixed: Array | None, statistics: Statistics, groups: tuple[Any, ...]) -> Array:
    if fixed is not None:
        return fixed
    if reference == "marginal":
        return marginal(statistics.shares, groups)
    return balanced(statistics.shares, statistics.group_means, statistics.mean_loss, groups)


def _premium_covariance(reference: Any, weights: Array, statistics: Statistics) -> Array | None:
    """Reduce the covariance of all statistics to that of the coefficients and P*."""
    if not len(statistics.covariance):
        return None
    size = statistics.coefficients.size
    jacobian = reference_jacobian(
        reference if isinstance(reference, str) else "given",
        weights,
        statistics.shares,
        statistics.group_means,
        statistics.mean_loss,
    )
    L = np.zeros((size + len(weights), len(statistics.covariance)))
    L[:size, :size] = np.eye(size)
    L[size:, size:] = jacobian
    return np.asarray(L @ statistics.covariance @ L.T)


def _candidates(verdicts: list[Verdict], correction: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "model": "linear",
            "correction": [
                correction if v.correction == "inverse" and correction == "none" else v.correction for v in verdicts
            ],
            "detail": [v.detail for v in verdicts],
            "pooling": [v.pooling for v in verdicts],
            "corrected_risk": [v.risk for v in verdicts],
            "corrected_risk_se": [v.risk_error for v in verdicts],
            "report_log_loss": [v.report_loss for v in verdicts],
            "report_log_loss_se": [v.report_loss_error for v in verdicts],
            "chosen": [v.chosen for v in verdicts],
            "reason": [v.reason for v in verdicts],
        }
    )
