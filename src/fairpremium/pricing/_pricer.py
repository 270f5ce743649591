"""The pricer: from features, losses and (privatized) attributes to discrimination-free premiums."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream, count_codes, source_kind
from fairpremium.corrections import CandidateResult, FitInput, ReportChannel, corrected_risk
from fairpremium.documents import load_json, whole_file
from fairpremium.families import Family, get_family
from fairpremium.models import (
    Design,
    GroupModel,
    LinearModel,
    check_cluster,
    check_volume,
    frame_like,
    is_whole,
    warn_if_counts,
)
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._certificate import certify_prices, check_segments
from fairpremium.pricing._explain import explain_prices
from fairpremium.pricing._fit_arguments import (
    check_counts,
    check_features,
    check_importable,
    check_merge,
    check_models,
    check_pooling,
    check_unreported,
    encode_reports,
    resolve_channel,
    some_rows,
    terms_of,
    warn_exposure_not_scored,
    warn_groups_not_scored,
    warn_if_refuted,
    warn_if_sources_depend,
)
from fairpremium.pricing._level import check_level
from fairpremium.pricing._model_file import NOUN, from_document, to_document
from fairpremium.pricing._model_selection import balance_on, candidates_table, correction_for, select_model
from fairpremium.pricing._onnx_graph import to_onnx
from fairpremium.pricing._predict_to import Priced, predict_to
from fairpremium.pricing._prices import LinearPrices, ModelPrices, Prices, Reference
from fairpremium.pricing._sensitivity import sensitivity_band
from fairpremium.pricing._source_portfolio import SourcePortfolio
from fairpremium.pricing._summary import essentials_html, feature_tests, summary_table, without_samples
from fairpremium.pricing._tariff_mixin import TariffMixin
from fairpremium.privacy import Channel
from fairpremium.progress import Progress, listening, section


class Interval(NamedTuple):
    """Lower and upper limits, one of each per row."""

    lower: Array
    upper: Array


def group_interval(prices: Prices, matrix: Callable[[], Any], level: float, group: Any, against: Any) -> Interval:
    """Compute the interval of the premium, of a group or of a difference, after checking the groups."""
    for name, given in (("group", group), ("against", against)):
        if given is not None and given not in prices.groups:
            raise ValueError(f"Got {name}={given!r}, but expected one of the groups {list(prices.groups)}.")
    if group is None and against is not None:
        raise ValueError(f"Got against={against!r} without a group to compare with it. Pass group= too.")
    if group is not None and group == against:
        raise ValueError(f"Got group={group!r} and against={against!r}, but expected two different groups.")
    if group is None:
        return Interval(*prices.interval(matrix(), level))
    return Interval(*prices.group_interval(matrix(), level, group, against))


@dataclass(eq=False, repr=False)
class DiscriminationFreePricer(TariffMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
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
    model : str, model object or list
        What mu(x, d) may look like on the scale of the family's link: "linear", "neural", "boosted", a model object of
        `fairpremium.models` with its own settings, or any scikit-learn regressor that takes sample weights. A list
        lets the checks choose among several.
    channel : None, Channel, noise estimator, or a mapping of keys to these
        What `sensitive` holds. None: the true attribute D (Algorithm MPTP). A `Channel`: reports S that went
        through it (Algorithm MPTP-LDP). A noise estimator: reports whose noise is estimated first. A mapping: rows came
        from several sources, each with a channel of its own; `channel_key` of `fit` says which (None in the mapping:
        the source holds D itself).
    correction : {"auto", "inverse", "score", "posterior", "likelihood"}
        How the noise of the reports is undone. "inverse" is the paper's unbiased risk; "score" gives its moments their
        best weights; "posterior" learns P(D given x, y) from the reports; "likelihood" uses the law of the outcome
        too. "auto" is "inverse", or a likelihood if all rows agree with it and it is clearly more precise; other model
        classes compare candidates on held-out rows. See `candidates_`.
    pooling : "auto" or float >= 0
        How the groups' coefficients are pulled together. "auto" is empirical Bayes: how far the groups' levels and each
        feature's effects differ is learned from the data. A number is a strength in rows: with 100 it is as if 100
        rows said that the groups do not differ. 0 is the paper.
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
    unreported : {"exclude", "include"}
        Whether rows without a report take part in the groups' fits of "likelihood" and "posterior", by what their
        features and outcome say about their group. More precise if having no report does not depend on the group given
        features and outcome, wrong if it does; `fit` tests whether it depends on the outcome, and warns. "inverse" and
        "score" leave such rows out either way.
    verbose : bool or function
        Whether `fit`, `sensitivity` and `predict_to` say on stderr what they do. A function gets the fraction that is
        done and a few words instead.
    random_state : None, int, RandomState
        Seed of the folds and of the training of model classes other than the linear one, and of the folds that compare
        a list of them.

    Attributes
    ----------
    design_ : Design
        The map from columns to features, with the levels of text columns.
    groups_ : tuple
        The groups, in the order of all columns and weights.
    channel_ : Channel, mapping (`KeyedChannels`) or None
        The channel that was used, or those of the sources by key.
    noise_ : noise estimator, dict or None
        The fitted noise estimator, if `channel` was one; if a mapping held some, a dict of them by key.
    group_distribution_ : array of shape (K,)
        Unbiased estimate of P(D) by volume.
    reference_distribution_ : array of shape (K,)
        P*.
    model_ : model object
        The model class that was used, with its settings.
    correction_ : str
        The correction that was used; "none" for the true attribute.
    pooling_ : float or dict
        The pooling strength that was given, or the standard deviations that empirical Bayes found, on the scale of the
        link: ``{"main": of the groups' levels, "slopes": {column: of its effects}}``.
    candidates_ : pandas.DataFrame
        What was compared: model, correction, detail, pooling strength (NaN: empirical Bayes), corrected risk and report
        log-loss with standard errors, the choice and the reason. The losses of the linear class are those of its own
        rows (evenly spaced ones if there are more than 100,000); other classes, and several of them, are compared on
        held-out rows. NaN: the candidate was not fitted or has no P(D given x, y), equal rows were merged, or a source
        with a given pooling would have to be read once more.
    coefficients_ : pandas.DataFrame
        Coefficients of the groups and of the unaware price on the scale of the features (linear predictor).
    history_ : dict of lists or None
        Learning curves of a neural model: `train_loss` and `held_loss` after each epoch.
    has_intervals_ : bool
        Whether `predict_interval` works.
    n_rows_, n_missing_reports_ : int
    n_sampled_rows_ : int or None
        How many random rows of a source larger than memory a model class other than the linear one was fitted to; None
        if it was fitted to all rows.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> portfolio = zhang_liu_shi_2025(n=5000, rng=0)
    >>> from fairpremium import RandomizedResponse
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> reports = channel.privatize(portfolio.sensitive, rng=0)  # a seed is for simulations only
    >>> pricer = DiscriminationFreePricer(channel=channel, random_state=0)
    >>> pricer = pricer.fit(portfolio.X, portfolio.y, sensitive=reports)
    >>> premiums = pricer.predict(portfolio.X)
    >>> premiums.shape
    (5000,)
    """

    family: str | Family = "normal"
    model: Any = "linear"
    channel: Channel | NoiseEstimator | Mapping[Any, Any] | None = None
    correction: str = "auto"
    pooling: Literal["auto"] | float = "auto"
    reference: Any = "marginal"
    intervals: bool = True
    classifier: Any = None
    unseen_levels: Literal["error", "base"] = "error"
    unreported: Literal["exclude", "include"] = "exclude"
    verbose: bool | Progress = False
    random_state: Any = None

    # What scikit-learn passes on to the methods once metadata routing is enabled; no set_fit_request is needed.
    _in_score = ("sensitive", "channel_key", "sample_weight", "exposure")
    __metadata_request__fit = dict.fromkeys((*_in_score, "cluster"), True)
    __metadata_request__score = dict.fromkeys(_in_score, True)

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any = None,
        channel_key: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        cluster: Any = None,
        features: Sequence[str] | None = None,
        merge: bool | Literal["auto"] = "auto",
    ) -> Self:
        """Learn the prices.

        Parameters
        ----------
        X : data frame (pandas, polars, Arrow) or array of shape (n, features)
            Non-sensitive features; text and boolean columns are encoded.
        y : array of shape (n,)
            Outcome: per unit of volume (claims a year, mean claim amount), or with `exposure` a total (claim counts).
        sensitive : array of shape (n,)
            The true attribute (`channel=None`) or reports of it; None and NaN stand for "not reported". For several
            attributes, or several reports of one person, a data frame with one column each, or tuples.
        channel_key : array of shape (n,), optional
            The source of each row, if `channel` is a mapping: one of its keys. It may be missing where the report is.
        sample_weight : array of shape (n,), optional
            Volume that y was divided by: years for frequencies and pure premiums, number of claims for mean severities.
        exposure : array of shape (n,), optional
            If y holds totals over an exposure (counts, amounts): then y / exposure is fitted with the exposure as its
            volume, and prices are per unit of exposure. For "poisson" this is the fit with the offset log(exposure).
        cluster : array of shape (n,), optional
            Who a row belongs to, if one person has several rows: they share one report, so that standard errors (those
            of the checks too) add up per person, and cross-validation puts a person's rows into one fold.
        features : sequence of str, optional
            Columns of a source (see Notes) to price with; by default all that have no other role.
        merge : bool or "auto"
            Whether the inverse correction with a given strength of pooling first merges rows that agree in features and
            report, which saves passes of a generalised linear model over portfolios of rating factors and changes no
            price. "auto" does so from 100,000 rows on if at most a quarter of them is left.

        Returns
        -------
        self

        Notes
        -----
        Data larger than memory: X may name a source instead of being a table - a Parquet file or folder, a
        `pyarrow.dataset`, a Dask or a Spark data frame. `y`, `sensitive`, `channel_key`, `sample_weight`, `exposure`
        and `cluster` are then names of its columns (a list of them for several attributes or several reports of one
        person). Rows are read piece by piece, as often as the fit needs to see them: once for squared loss with the
        inverse correction, a given pooling strength and ``intervals=False``. The column of an exposure is checked
        first.

        A `classifier` is then trained on 100,000 to 200,000 evenly spaced rows, and its predictions are made for all.
        A model class other than the linear one, and every class of a list, is fitted to 200,000 random rows (fewer with
        more than 100 features; `random_state` decides which), or to all rows of a smaller source. Its prices are then
        shifted together on the scale of the link, so that the unaware price reproduces the total of all rows. If the
        linear class of a list is chosen, it is fitted again to all rows. `n_sampled_rows_` tells how many were used.

        A given channel is checked against the reports of at most 20,000 rows, one of each person:
        `fairpremium.check_declared_channel` at level 0.999 says what can be seen. Of a source the first rows of some
        pieces are looked at. With several sources `fairpremium.check_sources` tests at the same level, on as many rows,
        whether the source of a row depends on the outcome or the attribute beyond the features.

        Raises
        ------
        ValueError, TypeError
            An argument is not what it should be; the message says which and what helps.
        RiskUnboundedError
            The reports carry too little information about a group.
        NotIdentifiedError
            `channel` is a noise estimator and the data do not tell the noise.

        Warns
        -----
        ChannelRefutedWarning
            The reports are sharper than the channel permits, as if `sensitive` were the true attribute.
        SourcesDependWarning
            The source of a row depends on the outcome or the attribute beyond the features.
        ExposureWarning
            y holds counts and `sample_weight` varies, as if it were their exposure.
        """
        if self.unseen_levels not in ("error", "base"):
            raise ValueError(f'Got unseen_levels={self.unseen_levels!r}, but expected "error" or "base".')
        everyone = check_unreported(self.unreported)
        models = check_models(self.model, self.correction, self.channel)
        terms = terms_of(models)
        family = get_family(self.family)
        pooling = check_pooling(self.pooling)
        merges = check_merge(merge, self.correction, self.channel, pooling)
        make = partial(FitInput, family, self.correction, pooling, self.classifier, merges)
        if source_kind(X) is not None:
            roles = (y, sensitive, sample_weight, features, terms, exposure, channel_key, cluster)
            with SourcePortfolio(X, *roles) as portfolio:
                seen = portfolio.preview(self.channel, np.random.default_rng(0))
                channel = replace(resolve_channel(self.channel, *seen), everyone=everyone)
                simple = self.correction == "inverse" and pooling is not None
                penalised = not channel.truth and not simple  # in units of the columns' scale
                found = portfolio.rows(channel, family, thorough=penalised)
                if isinstance(found, Stream):
                    check_importable(self.classifier, *models)
                if sample_weight is not None:
                    some = some_rows(found)
                    warn_if_counts(some.y, some.weight, family)
                return self._fit(make(found, portfolio.design, channel, self._seed()), models, exposure is not None)
        if features is not None:
            raise ValueError("Got features=..., which chooses columns of a source; select the columns of a table.")
        design, matrix = Design.learn_transform(X, least_rows=2, terms=terms)
        n = len(matrix)
        outcome, weight = check_volume(y, n, sample_weight, exposure, family)
        if exposure is None:
            warn_if_counts(outcome, weight, family)
        used = X if terms is None else design.select(X)
        channel = resolve_channel(self.channel, used, outcome, sensitive, weight, channel_key)
        channel = replace(channel, everyone=everyone)
        report = encode_reports(sensitive, channel, n, channel_key)
        rows = Rows(matrix, outcome, weight, report, cluster=check_cluster(cluster, n))
        return self._fit(make(rows, design, channel, self._seed()), models, exposure is not None)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _fit(self, inputs: FitInput, models: list[LinearModel | GroupModel], on_totals: bool) -> Self:
        """Fit the prices to rows with coded reports; `on_totals` if the outcomes were totals over an exposure."""
        channel, rows = inputs.channel, inputs.rows
        if isinstance(rows, Rows):
            check_counts(count_codes(rows.report, channel.n_codes), channel)
        some = some_rows(rows)
        check_features(inputs.design, some.X, [some.y])
        warn_if_refuted(some, channel)
        warn_if_sources_depend(some, channel)
        reference = Reference.of(self.reference, channel.groups)
        with listening(self.verbose):
            linear = all(isinstance(model, LinearModel) for model in models)
            most = (0.7 if linear else 0.4) if self.intervals else 1.0
            with section(0.0, most):
                best, results = select_model(inputs, models)
            with section(most, 1.0):
                prices = best.prices(reference, self.intervals)
                if isinstance(rows, Stream) and isinstance(prices, ModelPrices):
                    prices = balance_on(prices, rows)
        fit = best.fit
        self._set_learned(
            prices,
            best.model,
            channel=channel.channel,
            correction=fit.correction,
            pooling=fit.pooling,
            group_distribution=fit.shares,
            candidates=results,
            n_rows=len(rows),
            n_missing_reports=best.n_missing,
            n_sampled_rows=len(best.inputs.rows) if len(best.inputs.rows) < len(rows) else None,
            noise=channel.estimator,
        )
        self._fitted_on_totals = on_totals
        if on_totals and isinstance(rows, Rows) and rows.weight is not None:
            self._mean_exposure = float(rows.weight.mean())
        return self

    @classmethod
    def from_prices(
        cls,
        prices: Prices,
        model: LinearModel | GroupModel,
        *,
        channel: Channel | Mapping[Any, Channel | None] | None,
        correction: str,
        pooling: float | dict[str, Any],
        group_distribution: Array,
        candidates: list[CandidateResult] | pd.DataFrame,
        n_rows: int,
        n_missing_reports: int,
        n_sampled_rows: int | None = None,
        reference: Any = "marginal",
        unseen_levels: Literal["error", "base"] = "error",
    ) -> Self:
        """Build a fitted pricer from prices, such as those of a model file or of noised sums.

        Parameters
        ----------
        prices : Prices
            The three prices with their family, columns, groups and P*.
        model : model object
            The model class of the prices.
        channel, correction, pooling, group_distribution, candidates, n_rows, n_missing_reports, n_sampled_rows
            What the fitted attributes of these names are to be. `candidates` may be a list of results.
        reference, unseen_levels
            As for the constructor.

        Returns
        -------
        DiscriminationFreePricer
        """
        pricer = cls(
            family=prices.family,
            model=model,
            channel=channel,
            correction=correction_for(model, correction),
            pooling=pooling if isinstance(pooling, float) else "auto",
            reference=reference,
            intervals=prices.has_intervals,
            unseen_levels=unseen_levels,
        )
        pricer._set_learned(
            prices, model, channel, correction, pooling, group_distribution, candidates, n_rows, n_missing_reports,
            n_sampled_rows,
        )  # fmt: skip
        return pricer

    def _set_learned(
        self,
        prices: Prices,
        model: LinearModel | GroupModel,
        channel: Channel | Mapping[Any, Channel | None] | None,
        correction: str,
        pooling: float | dict[str, Any],
        group_distribution: Array,
        candidates: list[CandidateResult] | pd.DataFrame,
        n_rows: int,
        n_missing_reports: int,
        n_sampled_rows: int | None = None,
        noise: NoiseEstimator | dict[Any, NoiseEstimator] | None = None,
    ) -> None:
        """Set the attributes that a fit learns; nothing of an earlier fit stays."""
        prices.design.name_features(self)
        self.design_ = prices.design
        self.groups_ = prices.groups
        self.channel_: Any = channel
        self.noise_: Any = noise
        self.model_ = model
        self.correction_ = "none" if ReportChannel.of(channel, prices.groups).truth else correction
        self.pooling_ = pooling
        if isinstance(candidates, list):
            candidates = candidates_table(candidates, self.correction_)
        self.candidates_ = candidates
        self.group_distribution_ = group_distribution
        self.reference_distribution_ = prices.reference
        self.history_ = getattr(prices, "history", None)
        self.n_rows_ = n_rows
        self.n_missing_reports_ = n_missing_reports
        self.n_sampled_rows_ = n_sampled_rows
        self.has_intervals_ = prices.has_intervals
        self._prices = prices

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

    def predict_interval(self, X: Any, level: float = 0.95, *, group: Any = None, against: Any = None) -> Interval:
        """Compute a confidence interval of the premium h*(x), of a group's best estimate, or of a difference.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
        level : float
            Confidence level.
        group : optional
            A group, whose best estimate mu(x, group) gets the interval instead of the premium.
        against : optional
            A second group: the interval is that of mu(x, group) - mu(x, against).

        Returns
        -------
        Interval
            Named tuple of arrays ``lower`` and ``upper``. It covers the uncertainty of coefficients and P* (and of
            an estimated channel, to first order), not that of the model's form, nor the bias of a ridge or of a pooling
            strength that was given. The linear model has a sandwich covariance; for every other model it is a
            delete-a-group jackknife.

        Notes
        -----
        With pooling by empirical Bayes the interval of a group or a difference of the linear model allows for what
        pooling may have hidden: it is wider than the learned scales of the groups' differences say.
        """
        level, prices = check_level(level), self._fitted()
        return group_interval(prices, lambda: self._matrix(X), level, group, against)

    def predict_to(
        self, source: Any, path: str | PathLike[str], *, columns: Sequence[str] = (), level: float | None = None
    ) -> Priced:
        """Price a source that may be larger than memory, and write the premiums as Parquet.

        Parameters
        ----------
        source : str, path, pyarrow.dataset.Dataset, dask.dataframe.DataFrame or pyspark.sql.DataFrame
            Rows with the features.
        path : str or path
            A file to write if it ends in ``.parquet``, else a folder with one file per partition (always a folder
            for Spark, whose executors write it). Rows stay in their order. If pricing is interrupted, nothing is left.
        columns : sequence of str
            Columns of the source to copy, such as the policy number.
        level : float, optional
            Confidence level; adds the columns ``low`` and ``high`` to ``premium``.

        Returns
        -------
        Priced
            Named tuple: ``rows``, and ``mean``, ``smallest`` and ``largest`` premium.
        """
        prices, level = self._fitted(), None if level is None else check_level(level)
        with listening(self.verbose):
            return predict_to(prices, source, path, columns, level, self.unseen_levels)

    def certificate(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any,
        channel_key: Any = None,
        by: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        cluster: Any = None,
        level: float = 0.95,
    ) -> pd.DataFrame:
        """Estimate the mean of h* over a portfolio and by segment, without a law for y.

        The estimate is right if the best estimates are, or if P(D given x), a logit in the features and their products,
        is. Give rows that the fit has not seen: on its own rows a flexible model looks better than it is.
        `fairpremium.audit.certify` does the same for prices from elsewhere.

        Parameters
        ----------
        X, y, sensitive, channel_key, sample_weight, cluster
            As for `fit`; tables in memory.
        by : array of shape (n,) or name of a column of X, optional
            Segment of each row, such as the region or an age band.
        exposure : array of shape (n,), optional
            If y holds totals over an exposure (counts, amounts): then y / exposure is certified, with the exposure as
            its volume.
        level : float
            Confidence level.

        Returns
        -------
        pandas.DataFrame
            One row for all and one per segment: ``rows``, ``volume``, the mean ``premium``, the ``level`` of h* with
            its ``standard_error`` and interval (``lower``, ``upper``), whether the premium lies ``inside``,
            ``effective_reports`` (how many rows the estimate rests on) and ``note``. Where they are fewer than 50
            there is a note instead of an estimate.

        Notes
        -----
        With e_d(x) = P(D = d given x) among those who reported and r(x) the probability of a report,

            xi_i = sum_d P*(d) [mu_d(x_i) + T^-1[d, s_i] / (e_d(x_i) r(x_i)) (y_i - mu_d(x_i))]

        has the mean h*(x_i) if mu is right or e and r are: it is doubly robust. The level is the mean of xi over the
        segment. e and r are cross-fitted. P* is that of the pricer, `reference_distribution_`, and taken as given.
        Missing reports may depend on the features and on the group, but not on the loss beyond these; nor may the
        source that a row came through, whose T is used for it.
        """
        prices, matrix = self._fitted(), self._matrix(X)
        n = len(matrix)
        channel = ReportChannel.of(self.channel_, self.groups_)
        report = encode_reports(sensitive, channel, n, channel_key)
        outcome, weight = check_volume(y, n, sample_weight, exposure, prices.family)
        if exposure is None:
            warn_if_counts(outcome, weight, prices.family)
        return certify_prices(
            prices.premium(matrix),
            prices.best_estimate(matrix),
            Rows(matrix, outcome, weight, report, cluster=check_cluster(cluster, n)),
            channel,
            reference=self.reference_distribution_,
            segment=check_segments(by, X, n),
            level=check_level(level),
        )

    def score(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any = None,
        channel_key: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
    ) -> float:
        """Compute minus the corrected risk: the mean deviance of mu(x, D), estimated from the reports.

        Higher is better. The risk is unbiased for the one under the true attribute, so that cross-validation and
        grid search use the right criterion without ever seeing the attribute.

        Parameters
        ----------
        X, y, channel_key, sample_weight, exposure
            As for `fit`; tables in memory.
        sensitive : array of shape (n,), optional
            As for `fit`. Without it the score is minus the mean deviance of the unaware price, which does not see the
            groups and does not depend on correction, pooling and reference.

        Notes
        -----
        Searches and cross-validation of scikit-learn pass `sensitive` and the volumes on if metadata routing is
        enabled: ``sklearn.set_config(enable_metadata_routing=True)``. Nothing needs to be requested.

        Warns
        -----
        GroupsNotScoredWarning
            `sensitive` is missing. Every score says so: a filter of `warnings` makes it once.
        ExposureWarning
            The pricer was fitted with an exposure, and neither it nor `sensitive` is given, as in a search without
            metadata routing. The score then takes every row for one with the mean exposure.
        """
        prices, matrix = self._fitted(), self._matrix(X)
        n, channel = len(matrix), ReportChannel.of(self.channel_, self.groups_)
        if getattr(self, "_fitted_on_totals", False) and sample_weight is None and exposure is None:
            if sensitive is not None or not hasattr(self, "_mean_exposure"):
                raise ValueError(
                    "Got neither exposure nor sample_weight, but the pricer was fitted with an exposure. Pass "
                    "exposure, which searches of scikit-learn do after "
                    "sklearn.set_config(enable_metadata_routing=True)."
                )
            warn_exposure_not_scored()
            exposure = np.full(n, self._mean_exposure)
        outcome, weight = check_volume(y, n, sample_weight, exposure, prices.family)
        if exposure is None:
            warn_if_counts(outcome, weight, prices.family)
        if sensitive is None:
            warn_groups_not_scored()
            deviance = prices.family.unit_deviance(outcome, prices.unaware_price(matrix))
            return -float(np.average(deviance, weights=weight))
        report = encode_reports(sensitive, channel, n, channel_key)
        check_counts(np.bincount(report, minlength=channel.n_codes), channel, every_group=False)
        risk, _ = corrected_risk(prices.family, outcome, prices.best_estimate(matrix), report, channel.table, weight)
        return -risk

    def sensitivity(
        self,
        X: Any,
        y: Any,
        *,
        sensitive: Any,
        rows: Any,
        channel_key: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        cluster: Any = None,
        keeps: Any = None,
        keep: tuple[float, float] | None = None,
        channels: Any = None,
        level: float | None = None,
    ) -> pd.DataFrame:
        """Refit with other channels and compute the premiums of some risks.

        The pricer must be fitted with a channel, given or estimated; for values of keep with a `RandomizedResponse`.
        With several sources the channel of one after the other is changed, and those of several together.

        Parameters
        ----------
        X, y, sensitive, channel_key, sample_weight, exposure, cluster
            What `fit` was given.
        rows : data frame or array
            The risks to price: a table like X, or positions in X.
        keeps : sequence of float, or a mapping of a source's key to one, optional
            The values of keep; the one in use is always among them. With several sources a mapping chooses those to
            change; a sequence is for each of them. By default a band around it, wider upwards, because
            a keep that is too high is the error that no check sees.
        keep : (low, high), optional
            An interval of keeps instead, such as that of a noise estimator; with several sources one for each of them,
            or a mapping of a key to one.
        channels : sequence or mapping of str to Channel, optional
            Or the channels that are possible, with the groups and reports of the one in use; with several sources a
            mapping of a key to such channels.
        level : float, optional
            Adds intervals of this level at each channel, which take it as given.

        Returns
        -------
        pandas.DataFrame
            One row per risk and keep, ascending: ``row`` (position of the risk), ``keep``, ``premium`` (nan where the
            fit has no solution, as happens when keep is far too low), ``unaware`` (which does not depend on keep) and
            ``used`` (whether this is the keep of the pricer); with `level` also ``low`` and ``high``; with `channels`
            the column ``channel`` instead of ``keep``. With several sources the column ``source`` before it says whose
            it is; rows of the source "together" change several of them, as ``combination`` says.
            `fairpremium.pricing.premium_band` reduces it to the lowest and highest premium of each risk, and
            `fairpremium.audit.plot_sensitivity` draws it, of several sources one.

        Notes
        -----
        Model class, correction and a given pooling strength stay those of the fit; empirical Bayes learns again how far
        groups differ. A model class that stopped at its linear start chooses its correction again. With keep = 1 the
        reports are taken for the truth: that end of the band is the price without a correction.

        A premium need not rise or fall with keep throughout. In an interval it is computed at five values, at all their
        middles, and beside the lowest and highest premium of each risk until these move by less than a hundredth of
        the band. What happens between two neighbours of that grid is not seen.

        The channels of several sources may be wrong together. All combinations of their channels are computed, or of
        the ends of their keeps and those with the lowest or highest premium of a risk, if these are at most 64; else
        those of the ends alone, and none if these are too many.

        Examples
        --------
        >>> from fairpremium import RandomizedResponse
        >>> from fairpremium.portfolios import zhang_liu_shi_2025
        >>> p = zhang_liu_shi_2025(n=3000, rng=0, age_band=True)
        >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
        >>> S = channel.privatize(p.sensitive, rng=0)
        >>> pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0)
        >>> pricer = pricer.fit(p.X, p.y, sensitive=S)
        >>> table = pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0, 1], keeps=[0.75, 0.8, 0.9, 1.0])
        >>> table.columns.tolist(), len(table)
        (['row', 'keep', 'premium', 'unaware', 'used'], 8)
        """
        return sensitivity_band(
            self, X, y, sensitive=sensitive, rows=rows, channel_key=channel_key, sample_weight=sample_weight,
            exposure=exposure, cluster=cluster, keeps=keeps, keep=keep, channels=channels, level=level,
        )  # fmt: skip

    def explain(self, X: Any, *, points: int = 20, max_rows: int = 1000) -> pd.DataFrame:
        """Compute the effect of each feature on the premium and on the differences between groups.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
            The portfolio over which the other features are averaged.
        points : int
            Largest number of values of a numeric feature, at equal steps of its distribution.
        max_rows : int
            A larger portfolio is represented by so many random rows.

        Returns
        -------
        pandas.DataFrame
            One row per feature and value: ``feature``, ``value``, ``premium`` and ``unaware`` (mean of h* and of the
            unaware price over the portfolio if all rows had this value), and for each group ``gap <group>``, the mean
            of f_k - f_0: how far its best estimate is above the unaware price on the scale of the link.

        Notes
        -----
        These are partial dependences: they answer "what if only this feature changed", also where such rows are
        rare, and they say nothing about causes.
        """
        if not (is_whole(points, 2) and is_whole(max_rows, 1)):
            raise ValueError(
                f"Got points={points!r} and max_rows={max_rows!r}, but expected integers, points >= 2 and rows >= 1."
            )
        if not len(self._matrix(X)):  # which checks X
            raise ValueError("Got X without a row, but expected a portfolio to average over.")
        prices = self._fitted()
        values, rng = prices.design.read(X), np.random.default_rng(0)
        return explain_prices(prices, values, points=points, max_rows=max_rows, unseen=self.unseen_levels, rng=rng)

    def summary(self, level: float = 0.95) -> pd.DataFrame:
        """Return coefficients with standard errors and intervals, deviance explained, and AIC.

        Parameters
        ----------
        level : float
            Confidence level.

        Returns
        -------
        pandas.DataFrame
            One row per price and feature, on the scale of the link:

            - ``price``: "best_estimate" (with its ``group``), "unaware" or "discrimination_free"; ``group`` is None
              for all rows;
            - ``feature``: "intercept" or a feature; None where a price has no coefficients, as h* on a log scale and
              the prices of boosted and neural models have none;
            - ``coefficient``, ``standard_error``, ``lower``, ``upper``;
            - ``deviance_explained``, ``aic``: of the price, the same in all its rows; that of the best estimates of all
              groups together is in the row without group and feature.

            NaN: the pricer was fitted with ``intervals=False``, is from a file of version 0.1.0, or has no such number.

        Notes
        -----
        Standard errors are those of `predict_interval`: the sandwich covariance, for groups that were pooled by
        empirical Bayes the wide one that allows for what pooling may have hidden. Deviance explained is one minus the
        deviance over that of the mean outcome. For groups it is estimated from the reports (the corrected risk), and
        may leave [0, 1] by chance.

        There is an AIC where there is a likelihood: for the unaware price and, with the true attribute of every row,
        for the best estimates (Poisson, Bernoulli, normal and gamma; the dispersion is the mean deviance). With the
        likelihood correction that of the best estimates is the AIC of outcomes and reports together, which compares
        with other fits of that kind only. Coefficients that were pooled by empirical Bayes count by the trace of
        their shrinkage. There is none with a ridge, or for groups with a pooling strength.
        """
        return summary_table(self._fitted(), check_level(level))

    def feature_tests(self) -> pd.DataFrame:
        """Test of each feature whether it has an effect: Wald tests with all other features in the model (type III).

        Returns
        -------
        pandas.DataFrame
            One row per price and column of X (with terms: per term): ``price`` and ``group`` as in `summary`;
            ``feature``, ``statistic``, ``degrees_of_freedom`` and ``p_value``. ``price="between_groups"`` tests whether
            all groups have the same effect: the interaction of the feature with the attribute.

        Notes
        -----
        With b the coefficients of a column and V their covariance, that of `summary`, b'V^-1 b is compared with a
        chi-squared distribution. The sandwich covariance needs no law for y, and it contains the noise of the reports.

        If groups are pooled by empirical Bayes, b is shrunk towards the other groups and V is wide enough for what
        shrinkage may have hidden. The test of a group is then cautious: a small p-value says that the group has the
        effect, a large one does not say that it has none. Best estimates of groups that are pooled with a given
        strength, or with a ridge, are tested without their bias.
        """
        prices = self._fitted()
        if not isinstance(prices, LinearPrices):
            raise AttributeError(
                f"A {self.model_.kind} model has no coefficients to test; `explain` shows the effect of each feature."
            )
        return feature_tests(prices)

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients on the scale of the features: a column per group, and one for the unaware price."""
        prices = self._fitted()
        if not isinstance(prices, LinearPrices):
            raise AttributeError(
                f"A {self.model_.kind} model has no coefficients; `explain` shows the effect of each feature."
            )
        table = pd.DataFrame(
            prices.coefficients,
            index=["intercept", *prices.design.features],
            columns=pd.Index(self.groups_, tupleize_cols=False),
        )
        table["unaware"] = prices.unaware
        return table

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted pricer to a JSON file; `load` reads it back and never executes code."""
        text = json.dumps(to_document(self), indent=1, allow_nan=False) + "\n"
        with whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8")

    def to_onnx(self, path: str | PathLike[str], *, precision: Literal["float32", "float64"] = "float32") -> None:
        """Write an ONNX file that computes the premium h*(x) in other programs; needs the extra ``onnx``.

        Parameters
        ----------
        path : str or path
            The file to write.
        precision : {"float32", "float64"}
            Type of the inputs that hold numbers. The arithmetic is in double precision either way: with inputs that
            single precision holds exactly the premium is that of `predict` but for rounding.

        Notes
        -----
        There is one input for each column, with its name and the shape (n, 1): numbers, text (``string``), whole
        numbers as levels (``int64``) or booleans. A pricer that was fitted on an array has one input ``X``. The
        output ``premium`` has the shape (n,) and double precision.

        A level that was not seen in the fit stops the runtime, or has the base level's price if the pricer was made
        with ``unseen_levels="base"``. Where `predict` refuses a row for another reason, the premium is NaN: a number is
        missing, or the row is so far from those of the fit that it has no price. Linear, boosted and neural models can
        be written, a scikit-learn regressor cannot.
        """
        model = to_onnx(self._fitted(), self.unseen_levels, precision)
        Path(path).write_bytes(model.SerializeToString())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a pricer that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is damaged, is not a model, or is from an unknown version.
        """
        pricer: Self = from_document(cls, load_json(path, NOUN), str(path))
        return pricer

    def _html_repr(self) -> str:
        """Return what a notebook shows: the essentials of the fit above scikit-learn's own diagram."""
        diagram = str(BaseEstimator._html_repr(without_samples(self)))
        return f"{essentials_html(self)}{diagram}" if hasattr(self, "_prices") else diagram

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return str(BaseEstimator.__repr__(without_samples(self), N_CHAR_MAX))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        tags.regressor_tags.poor_score = True  # the score is minus a deviance, not an R^2
        return tags

    def _fitted(self) -> Prices:
        check_is_fitted(self, "_prices")
        prices: Prices = self._prices
        return prices

    def _matrix(self, X: Any) -> npt.NDArray[Any]:
        return self._fitted().design.transform(X, unseen=self.unseen_levels)
