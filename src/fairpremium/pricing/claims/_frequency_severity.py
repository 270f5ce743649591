"""The pricer of claims: frequency times severity, summed over perils, with one reference distribution."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream, source_kind
from fairpremium.corrections import FitInput, ReportChannel
from fairpremium.documents import load_json, whole_file
from fairpremium.errors import FairPremiumError
from fairpremium.families import ZERO_OR_ONE, Family, get_family
from fairpremium.models import Design, GroupModel, LinearModel, check_cluster, check_volume, frame_like, is_number
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._fit_arguments import (
    check_counts,
    check_features,
    check_merge,
    check_models,
    check_pooling,
    encode_reports,
    resolve_channel,
    some_rows,
    terms_of,
    warn_if_refuted,
    warn_if_sources_depend,
)
from fairpremium.pricing._level import check_level
from fairpremium.pricing._model_file import NOUN
from fairpremium.pricing._model_file import from_document as pricer_from_document
from fairpremium.pricing._model_file import to_document as pricer_to_document
from fairpremium.pricing._model_selection import ClassFit, select_model
from fairpremium.pricing._predict_to import Priced, predict_to
from fairpremium.pricing._pricer import DiscriminationFreePricer, Interval, group_interval
from fairpremium.pricing._prices import Reference
from fairpremium.pricing._source_portfolio import is_small
from fairpremium.pricing._summary import claim_essentials_html, without_samples
from fairpremium.pricing._tariff_mixin import TariffMixin
from fairpremium.pricing.claims._claim_file import FORMAT, from_document, to_document
from fairpremium.pricing.claims._claim_rows import KINDS, ClaimLayout, Kind, Peril, by_peril, check_claims
from fairpremium.pricing.claims._claim_source import ClaimSource, part_of_stream
from fairpremium.pricing.claims._joint_fit import JointFit, Totals
from fairpremium.pricing.claims._product_prices import ProductPrices
from fairpremium.privacy import Channel
from fairpremium.progress import Progress, listening, section, tell


class Parts(NamedTuple):
    """The two fitted parts of a peril."""

    frequency: DiscriminationFreePricer
    severity: DiscriminationFreePricer


@dataclass(eq=False, repr=False)
class FrequencySeverityPricer(TariffMixin, BaseEstimator):  # type: ignore[misc]
    """Discrimination-free premiums from the number and the amount of claims.

    Learns how many claims a unit of exposure has, lambda(x, d), and how much a claim costs, s(x, d), for each group d
    of each peril. The premium per unit of exposure is

        h*(x) = sum_d P*(d) sum over perils of lambda(x, d) s(x, d),

    with one P* for all parts. The product of two discrimination-free prices is another number, as is a price with the
    P* of those who had claims.

    Parameters
    ----------
    frequency : str, Family, DiscriminationFreePricer or dict
        Distribution of the number of claims. A `DiscriminationFreePricer` also says model, correction, pooling and
        classifier of this part. Several perils: a dict from the name of a peril to ``(frequency, severity)``.
    severity : str, Family or DiscriminationFreePricer
        Distribution of the mean amount of a row's claims, with their number as its weight.
    channel : None, Channel or noise estimator
        What `sensitive` holds; see `DiscriminationFreePricer`. A noise estimator is fitted once, to the frequency of
        the first peril.
    reference : {"marginal", "uniform", "balanced"} or dict
        P* of all parts. "marginal" is the distribution of D by exposure. "balanced" makes premiums and amounts agree in
        total.
    cap : float, dict or None
        Amount per claim above which claims are large; a dict has one for each peril that is capped. Severities are
        learned from the amounts up to the cap. What is above it is spread over all policies in proportion to their
        capped expected loss: `excess_` tells the factor.
    model, correction, pooling
        Of every part that is not a `DiscriminationFreePricer`; see there.
    intervals : bool
        Whether to estimate standard errors.
    verbose : bool or function
        Whether `fit` says on stderr what it does. A function gets the fraction that is done and a few words instead.
    random_state : None, int, RandomState
        Seed of the folds and of the training of model classes other than the linear one.
    unseen_levels : {"error", "base"}
        What to do at prediction with a level of a text column that was not seen in fit.

    Attributes
    ----------
    parts_ : dict
        By peril, the fitted `frequency` and `severity`, each a `DiscriminationFreePricer` with the P* of all parts.
        ``pricer.parts_["all"].severity.coefficients_`` are coefficients of the severity if there is but one peril.
    excess_ : pandas.DataFrame
        By peril (index): ``cap``, ``large_rows`` (rows whose mean claim is above it), ``amount``, ``excess`` (the part
        of it above the cap) and ``loading``, the factor amount / (amount - excess) of the peril's premium.
    groups_, channel_, noise_, design_, reference_distribution_, has_intervals_, n_rows_, n_missing_reports_
        As for `DiscriminationFreePricer`.
    group_distribution_ : array of shape (K,)
        Estimate of P(D) by exposure, from all rows.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from fairpremium import RandomizedResponse
    >>> rng = np.random.default_rng(0)
    >>> sex, age = rng.choice(["F", "M"], 5000), rng.uniform(20, 70, 5000)
    >>> exposure = rng.uniform(0.5, 1, 5000)
    >>> claims = rng.poisson(exposure * np.where(sex == "M", 0.3, 0.2))
    >>> amount = rng.gamma(2 * claims, np.where(sex == "M", 500, 400))
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> reports = channel.privatize(sex, rng=0)  # a seed is for simulations only
    >>> pricer = FrequencySeverityPricer(channel=channel)
    >>> X = pd.DataFrame({"age": age})
    >>> pricer = pricer.fit(X, claims, amount, sensitive=reports, exposure=exposure)
    >>> pricer.predict(X).shape
    (5000,)
    """

    frequency: Any = "poisson"
    severity: Any = "gamma"
    channel: Channel | NoiseEstimator | Mapping[Any, Any] | None = None
    reference: Any = "marginal"
    cap: Any = None
    model: Any = "linear"
    correction: str = "auto"
    pooling: Literal["auto"] | float = "auto"
    intervals: bool = True
    verbose: bool | Progress = False
    random_state: Any = None
    unseen_levels: Literal["error", "base"] = "error"

    def fit(
        self,
        X: Any,
        counts: Any,
        amounts: Any,
        *,
        sensitive: Any = None,
        channel_key: Any = None,
        exposure: Any = None,
        cluster: Any = None,
        features: Sequence[str] | None = None,
    ) -> Self:
        """Learn the prices.

        Parameters
        ----------
        X : data frame (pandas, polars, Arrow) or array of shape (n, features)
            Non-sensitive features.
        counts : array of shape (n,), or several by peril: a dict or data frame
            Number of claims of each row, over its exposure.
        amounts : array of shape (n,), or several by peril: a dict or data frame
            Total amount of each row's claims; zero without a claim.
        sensitive : array of shape (n,)
            The true attribute (`channel=None`) or reports of it; None and NaN stand for "not reported". Several reports
            of one person are a data frame with one column each.
        channel_key : array of shape (n,), optional
            The source of each row, if `channel` is a mapping: one of its keys.
        exposure : array of shape (n,), optional
            Exposure of each row, such as years; one for each row if left out.
        cluster : array of shape (n,), optional
            Who a row belongs to, if one person has several rows.
        features : sequence of str, optional
            Columns of a source to price with; by default all that have no other role.

        Returns
        -------
        self

        Notes
        -----
        A claim without an amount has no place in a gamma distribution, and leaving it out silently would inflate the
        severity or the frequency. Such rows are errors that the message names. Count paid claims only; or take a
        severity family that has zeros, such as "tweedie".

        Only a row's total is known, not its single claims. A row with m claims is capped at m times the cap.

        Data larger than memory: X may name a source, and `counts`, `amounts`, `sensitive`, `channel_key`, `exposure`
        and `cluster` are then names of its columns (by peril: dicts of names). Claims are read into memory if they are
        few, as they usually are. The linear class prices them; others need a table in memory.
        `DiscriminationFreePricer.fit` has more about sources, and the errors and warnings of a fit.
        """
        if self.unseen_levels not in ("error", "base"):
            raise ValueError(f'Got unseen_levels={self.unseen_levels!r}, but expected "error" or "base".')
        counts, amounts = by_peril(counts, "counts"), by_peril(amounts, "amounts")
        perils = self._perils(counts, amounts)
        _check_exposure(perils, exposure)
        terms = _terms_of_parts(perils)
        if source_kind(X) is not None:
            with ClaimSource(X, counts, amounts, sensitive, exposure, features, terms, channel_key, cluster) as source:
                channel = resolve_channel(self.channel, *source.preview(self.channel, np.random.default_rng(0)))
                layout = ClaimLayout(len(source.design.features), tuple(each.peril for each in perils))
                stream = source.stream(layout, channel, thorough=not channel.truth)
                small = is_small(len(stream), layout.width)
                rows = stream.take(np.arange(len(stream))) if small else stream
                return self._fit(perils, rows, layout, source.design, channel)
        if features is not None:
            raise ValueError("Got features=..., which chooses columns of a source; select the columns of a table.")
        design, matrix = Design.learn_transform(X, least_rows=2, terms=terms)
        n = len(matrix)
        layout = ClaimLayout(matrix.shape[1], tuple(each.peril for each in perils))
        numbers, paid = _check_all_claims(counts, amounts, n)
        frequency, volume = check_volume(numbers[0], n, None, exposure)
        used = X if terms is None else design.select(X)
        channel = resolve_channel(self.channel, used, frequency, sensitive, volume, channel_key)
        report = encode_reports(sensitive, channel, n, channel_key)
        rows = layout.pack(matrix, numbers, paid, volume, report, check_cluster(cluster, n))
        return self._fit(perils, rows, layout, design, channel)

    @contextmanager
    def open_parts(
        self,
        X: Any,
        counts: Any,
        amounts: Any,
        *,
        sensitive: Any,
        labels: tuple[Any, ...],
        exposure: Any = None,
        features: Sequence[str] | None = None,
    ) -> Iterator[Iterator[PartRows]]:
        """Read the rows of every part without a fit, such as for rules about them.

        Parameters are those of `fit`; `labels` are the values of the reports, in the order of their codes.
        """
        counts, amounts = by_peril(counts, "counts"), by_peril(amounts, "amounts")
        perils = self._perils(counts, amounts)
        _check_exposure(perils, exposure)
        terms, settings = _terms_of_parts(perils), tuple(each.peril for each in perils)

        def read(rows: Rows | Stream, layout: ClaimLayout, design: Design) -> Iterator[PartRows]:
            for p, peril in enumerate(perils):
                for kind in KINDS:
                    part: _PartSettings = getattr(peril, kind)
                    yield PartRows(
                        peril.name, kind, part.family, part.models, _part_rows(rows, layout, p, kind), design
                    )

        if source_kind(X) is not None:
            with ClaimSource(X, counts, amounts, sensitive, exposure, features, terms) as source:
                layout = ClaimLayout(len(source.design.features), settings)
                yield read(source.stream(layout, ReportChannel.of(None, labels), thorough=False), layout, source.design)
            return
        design, matrix = Design.learn_transform(X, least_rows=2, terms=terms)
        n = len(matrix)
        layout = ClaimLayout(matrix.shape[1], settings)
        numbers, paid = _check_all_claims(counts, amounts, n)
        volume = check_volume(numbers[0], n, None, exposure)[1]
        rows = layout.pack(matrix, numbers, paid, volume, encode_reports(sensitive, ReportChannel.of(None, labels), n))
        yield read(rows, layout, design)

    def _perils(self, counts: Mapping[str, Any], amounts: Mapping[str, Any]) -> list[_PerilSettings]:
        """Check the settings of every part."""
        given = self.frequency if isinstance(self.frequency, Mapping) else None
        names = list(map(str, given)) if given is not None else list(counts)
        for name, found in (("counts", counts), ("amounts", amounts)):
            if set(found) != set(names):
                what = f"a dict or data frame with the perils {names}" if len(names) > 1 else f"those of {names}"
                raise ValueError(f"Got {name} of {list(found)}, but expected {what}.")
        pairs = dict.fromkeys(names, (self.frequency, self.severity))
        for name, pair in (given or {}).items():
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise ValueError(
                    f"Got frequency with {pair!r} for peril {name!r}, but expected a pair (frequency, severity)."
                )
            pairs[str(name)] = tuple(pair)
        caps = self._caps(names)
        return [
            _PerilSettings(name, self._part(pairs[name][0]), self._part(pairs[name][1]), caps[name]) for name in counts
        ]

    def _caps(self, names: list[str]) -> dict[str, float | None]:
        caps = dict.fromkeys(names, self.cap)
        if isinstance(self.cap, Mapping):
            unknown = [name for name in self.cap if str(name) not in names]
            if unknown:
                raise ValueError(f"Got cap for {unknown}, but expected some of the perils {names}.")
            caps = {name: self.cap.get(name) for name in names}
        for cap in caps.values():
            if cap is not None and not (is_number(cap) and 0 < cap < np.inf):
                raise ValueError(f"Got cap={cap!r}, but expected an amount above zero, or None for no cap.")
        return caps

    def _part(self, given: Any) -> _PartSettings:
        if not isinstance(given, DiscriminationFreePricer):
            given = DiscriminationFreePricer(
                given, model=self.model, channel=self.channel, correction=self.correction, pooling=self.pooling
            )
        if given.channel is not None and given.channel != self.channel:
            raise ValueError(
                "Got a part with a channel of its own, but expected none: all parts have the channel of the "
                "FrequencySeverityPricer."
            )
        if given.unreported != "exclude":
            raise ValueError(
                f"Got a part with unreported={given.unreported!r}, but expected none: claims are priced from the rows "
                "with a report."
            )
        if given.reference not in ("marginal", self.reference):
            raise ValueError(
                f"Got a part with reference={given.reference!r}, but expected none: all parts have one P*, that of the "
                "FrequencySeverityPricer."
            )
        models = check_models(given.model, given.correction, self.channel)
        pooling = check_pooling(given.pooling)
        merge = check_merge("auto", given.correction, self.channel, pooling)
        return _PartSettings(get_family(given.family), models, given.correction, pooling, given.classifier, merge)

    def _fit(
        self,
        perils: list[_PerilSettings],
        rows: Rows | Stream,
        layout: ClaimLayout,
        design: Design,
        channel: ReportChannel,
    ) -> Self:
        """Fit the parts to rows with claims, and their products."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        totals = Totals.of(rows, layout)
        for p, peril in enumerate(perils):
            if not totals.claims[p]:
                raise ValueError(f"Got counts without a single claim of peril {peril.name!r}; expected some.")
            if totals.large[p] == totals.rows[p]:
                raise ValueError(
                    f"Got cap={peril.cap:g} for peril {peril.name!r}, which is below the mean claim of every row, so "
                    "that all capped claims are equal and no severity can be learned; but expected an amount that only "
                    "large claims exceed. Take a higher cap."
                )
        reference = Reference.of(self.reference, channel.groups)
        first = _part_rows(rows, layout, 0, "frequency")
        some = some_rows(rows)
        every = [*(layout.claims(some.X, p)[0] for p in range(len(perils))), some.y]
        check_features(design, layout.features(some.X), every)
        warn_if_refuted(first, channel)
        warn_if_sources_depend(first, channel)
        fits: list[ClassFit] = []
        for p, peril in enumerate(perils):
            for kind in KINDS:
                settings: _PartSettings = getattr(peril, kind)
                with _named(kind, peril.name if len(perils) > 1 else None):
                    own = _part_rows(rows, layout, p, kind)
                    if isinstance(own, Rows):
                        check_counts(np.bincount(own.report, minlength=channel.n_codes), channel)
                    done = 0.4 * len(fits) / len(perils)
                    with listening(self.verbose), section(done, done + 0.4 / len(perils)):
                        tell(0.0, " ".join(filter(None, (kind, peril.name if len(perils) > 1 else None))))
                        inputs = settings.inputs(own, design, channel, seed)
                        if not all(isinstance(model, LinearModel) for model in settings.models):
                            inputs.rows_in_memory()  # replicates of all parts leave out the same rows
                        fits.append(select_model(inputs, settings.models)[0])
        joint = JointFit(rows, layout, tuple(fits), reference, totals, seed)
        with listening(self.verbose):
            tell(0.8, "prices and intervals of all parts")
            prices = joint.prices(self.intervals)
        weights = dict(zip(channel.groups, prices.reference.tolist(), strict=True))
        parts = {}
        for p, priced in enumerate(prices.perils):
            pair = [
                DiscriminationFreePricer.from_prices(
                    own,
                    fit.model,
                    channel=channel.channel,
                    correction=fit.fit.correction,
                    pooling=fit.fit.pooling,
                    group_distribution=fit.fit.shares,
                    candidates=fit.results,
                    n_rows=len(fit.inputs.rows),
                    n_missing_reports=fit.n_missing,
                    reference=weights,
                    unseen_levels=self.unseen_levels,
                )
                for own, fit in zip(priced.parts, fits[2 * p : 2 * p + 2], strict=True)
            ]
            parts[priced.name] = Parts(*pair)
        excess = pd.DataFrame(
            {
                "cap": [np.nan if peril.cap is None else float(peril.cap) for peril in perils],
                "large_rows": totals.large.astype(int),
                "amount": totals.amounts,
                "excess": totals.amounts - totals.capped,
                "loading": totals.loading,
            },
            index=pd.Index([peril.name for peril in perils], name="peril"),
        )
        self._set_learned(prices, parts, excess, channel.channel, channel.estimator)
        return self

    def _set_learned(
        self,
        prices: ProductPrices,
        parts: dict[str, Parts],
        excess: pd.DataFrame,
        channel: Channel | Mapping[Any, Channel | None] | None,
        noise: NoiseEstimator | dict[Any, NoiseEstimator] | None = None,
    ) -> None:
        """Set the attributes that a fit learns; nothing of an earlier fit stays."""
        first = next(iter(parts.values())).frequency
        prices.design.name_features(self)
        self.parts_ = parts
        self.excess_ = excess
        self.design_ = prices.design
        self.groups_ = prices.groups
        self.channel_: Any = channel
        self.noise_: Any = noise
        self.group_distribution_ = first.group_distribution_
        self.reference_distribution_ = prices.reference
        self.n_rows_ = first.n_rows_
        self.n_missing_reports_ = first.n_missing_reports_
        self.has_intervals_ = prices.has_intervals
        self._prices = prices

    @property
    def candidates_(self) -> pd.DataFrame:
        """What was compared in each part: `candidates_` of the parts, with the columns ``peril`` and ``section``."""
        check_is_fitted(self, "_prices")
        tables = []
        for peril, pair in self.parts_.items():
            for kind, part in zip(KINDS, pair, strict=True):
                table = part.candidates_.copy()
                table.insert(0, "peril", peril)
                table.insert(1, "part", kind)
                tables.append(table)
        return pd.concat(tables, ignore_index=True)

    def summary(self) -> pd.DataFrame:
        """Return one row per part: its rows, family, model class, correction, and the peril's loading above the cap.

        Returns
        -------
        pandas.DataFrame
            ``peril``, ``section``, ``rows`` (of the severity: those with claims), ``missing_reports``, ``family``,
            ``model``, ``correction``, ``reason`` (of the choice), ``cap`` and ``loading`` (of the peril).
        """
        check_is_fitted(self, "_prices")
        rows = []
        for peril, pair in self.parts_.items():
            for kind, part in zip(KINDS, pair, strict=True):
                chosen = part.candidates_[part.candidates_["chosen"]].iloc[0]
                rows.append(
                    {
                        "peril": peril,
                        "part": kind,
                        "rows": part.n_rows_,
                        "missing_reports": part.n_missing_reports_,
                        "family": get_family(part.family).name,
                        "model": part.model_.kind,
                        "correction": part.correction_,
                        "reason": chosen["reason"],
                        "cap": self.excess_.loc[peril, "cap"],
                        "loading": self.excess_.loc[peril, "loading"],
                    }
                )
        return pd.DataFrame(rows)

    def predict(self, X: Any) -> Array:
        """Compute the discrimination-free premium h*(x) per unit of exposure.

        Parameters
        ----------
        X : data frame or array of shape (n, features)

        Returns
        -------
        array of shape (n,)
        """
        return self._fitted().premium(self._matrix(X))

    def predict_best_estimate(self, X: Any) -> Any:
        """Compute mu(x, d), the sum over perils of lambda(x, d) s(x, d): a data frame with one column per group."""
        return frame_like(X, self._fitted().best_estimate(self._matrix(X)), self.groups_)

    def predict_unaware(self, X: Any) -> Array:
        """Compute the unaware price: the sum over perils of unaware frequency times unaware severity."""
        return self._fitted().unaware_price(self._matrix(X))

    def predict_interval(self, X: Any, level: float = 0.95, *, group: Any = None, against: Any = None) -> Interval:
        """Compute a confidence interval of the premium h*(x), of a group's best estimate, or of a difference.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
        level : float
            Confidence level.
        group, against : optional
            Groups; see `DiscriminationFreePricer.predict_interval`.

        Returns
        -------
        Interval
            Named tuple of arrays ``lower`` and ``upper``. It covers the joint uncertainty of all parts, of P* and of
            the factor above the cap (and of an estimated channel, to first order).
        """
        level, prices = check_level(level), self._fitted()
        return group_interval(prices, lambda: self._matrix(X), level, group, against)

    def predict_to(
        self, source: Any, path: str | PathLike[str], *, columns: Sequence[str] = (), level: float | None = None
    ) -> Priced:
        """Price a source that may be larger than memory, and write the premiums as Parquet.

        Parameters and result are those of `DiscriminationFreePricer.predict_to`.
        """
        prices, level = self._fitted(), None if level is None else check_level(level)
        return predict_to(prices, source, path, columns, level, self.unseen_levels)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted pricer to a JSON file; `load` reads it back and never executes code."""
        text = json.dumps(to_document(self), indent=1, allow_nan=False) + "\n"
        with whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a pricer that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is damaged, is not a model of frequency and severity, or is from an unknown version.
        """
        pricer: Self = from_document(cls, load_json(path, NOUN), str(path))
        return pricer

    @classmethod
    def from_prices(
        cls,
        prices: ProductPrices,
        parts: dict[str, Parts],
        excess: pd.DataFrame,
        *,
        channel: Channel | Mapping[Any, Channel | None] | None,
        reference: Any = "marginal",
        unseen_levels: Literal["error", "base"] = "error",
    ) -> Self:
        """Build a fitted pricer from fitted parts, such as those of a model file."""
        caps = {name: float(cap) for name, cap in excess["cap"].items() if not np.isnan(cap)}
        settings = {"channel": None, "reference": "marginal"}  # of the parts: those of this pricer
        pricer = cls(
            {name: tuple(clone(part).set_params(**settings) for part in pair) for name, pair in parts.items()},
            channel=channel,
            reference=reference,
            cap=caps or None,
            intervals=prices.has_intervals,
            unseen_levels=unseen_levels,
        )
        pricer._set_learned(prices, parts, excess, channel)
        return pricer

    def _html_repr(self) -> str:
        """Return what a notebook shows: the essentials of the fit above scikit-learn's own diagram."""
        diagram = str(BaseEstimator._html_repr(without_samples(self)))
        return f"{claim_essentials_html(self)}{diagram}" if hasattr(self, "_prices") else diagram

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return str(BaseEstimator.__repr__(without_samples(self), N_CHAR_MAX))

    def _fitted(self) -> ProductPrices:
        check_is_fitted(self, "_prices")
        prices: ProductPrices = self._prices
        return prices

    def _matrix(self, X: Any) -> npt.NDArray[Any]:
        return self._fitted().design.transform(X, unseen=self.unseen_levels)


def load_pricer(path: str | PathLike[str]) -> DiscriminationFreePricer | FrequencySeverityPricer:
    """Read a model file of either kind.

    Raises
    ------
    ModelFileError
        If the file is damaged, is not a model, or is from an unknown version.
    """
    return read_pricer(load_json(path, NOUN), str(path))


def read_pricer(document: Any, where: str = "The document") -> DiscriminationFreePricer | FrequencySeverityPricer:
    """Build the pricer of a model file's content, of the kind that its `format` says."""
    if isinstance(document, dict) and document.get("format") == FORMAT:
        claims: FrequencySeverityPricer = from_document(FrequencySeverityPricer, document, where)
        return claims
    pricer: DiscriminationFreePricer = pricer_from_document(DiscriminationFreePricer, document, where)
    return pricer


def write_pricer(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> dict[str, Any]:
    """Return the content of the model file of a fitted pricer of either kind."""
    return to_document(pricer) if isinstance(pricer, FrequencySeverityPricer) else pricer_to_document(pricer)


@dataclass(frozen=True)
class _PartSettings:
    """How one part is fitted."""

    family: Family
    models: list[LinearModel | GroupModel]
    correction: str
    pooling: float | None
    classifier: Any
    merge: bool | None

    def inputs(self, rows: Rows | Stream, design: Design, channel: ReportChannel, seed: int) -> FitInput:
        return FitInput(
            self.family, self.correction, self.pooling, self.classifier, self.merge, rows, design, channel, seed
        )


@dataclass(frozen=True)
class _PerilSettings:
    """How the parts of a peril are fitted."""

    name: str
    frequency: _PartSettings
    severity: _PartSettings
    cap: float | None

    @property
    def peril(self) -> Peril:
        return Peril(self.name, self.frequency.family, self.severity.family, self.cap)


class PartRows(NamedTuple):
    """The rows that one part is fitted to: all with claims per exposure, or those with claims and their mean amount."""

    peril: str
    kind: Kind
    family: Family
    models: list[LinearModel | GroupModel]
    rows: Rows | Stream
    design: Design


def _terms_of_parts(perils: list[_PerilSettings]) -> str | None:
    parts = [part for peril in perils for part in (peril.frequency, peril.severity)]
    return terms_of([model for part in parts for model in part.models])


def _check_exposure(perils: list[_PerilSettings], exposure: Any) -> None:
    """Refuse an exposure where the number of claims is 0 or 1, which is no total over it."""
    for peril in perils:
        if exposure is not None and peril.frequency.family.outcome == ZERO_OR_ONE:
            raise ValueError(
                f"Got exposure with frequency={peril.frequency.family.name!r}, whose outcome is 0 or 1 and no total; "
                "expected a family of totals. Use poisson for counts over an exposure."
            )


def _check_all_claims(counts: dict[str, Any], amounts: dict[str, Any], n: int) -> tuple[list[Array], list[Array]]:
    """Return numbers and amounts by peril, in the order of the former."""
    numbers = [check_claims(counts[name], "counts", n) for name in counts]
    return numbers, [check_claims(amounts[name], "amounts", n) for name in counts]


def _part_rows(rows: Rows | Stream, layout: ClaimLayout, peril: int, kind: Kind) -> Rows | Stream:
    return layout.part(rows, peril, kind) if isinstance(rows, Rows) else part_of_stream(rows, peril, kind)


@contextmanager
def _named(kind: Kind, peril: str | None) -> Iterator[None]:
    """Say in errors and warnings which part they are about."""
    part = kind.capitalize() + ("" if peril is None else f" of peril {peril!r}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            yield
        except (FairPremiumError, ValueError) as error:
            error.args = (f"{part}: {error}", *error.args[1:])
            raise
    for each in told:
        warnings.warn(f"{part}: {each.message}", each.category, stacklevel=5)
