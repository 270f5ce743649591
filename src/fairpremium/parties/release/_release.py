"""From the data of a fit to what may leave the third party, with a stated privacy guarantee for the reports.

The neighbouring relation of every statement here: one person's report S is replaced by any other. Features, outcomes,
volumes, settings and everything released before are known to whoever receives the release.

Two mechanisms, and none:

- "gaussian": linear models with the inverse correction. Sums over reports are released with Gaussian noise, and the
  prices are computed from them (`fairpremium.parties.release._gaussian`).
- "randomized": everything else. Reports are randomized once more, and all is computed from the new ones
  (`fairpremium.parties.release._randomized`).
- "none": the prices as they are. Exact coefficients tell an insurer that shapes its data every report.
"""

import math
import warnings
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairpremium.blocks import open_source
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.families import get_family
from fairpremium.models import LinearModel
from fairpremium.noise import NoiseEstimator
from fairpremium.parties.protocol import Rules
from fairpremium.pricing import DiscriminationFreePricer, count_labels, is_source
from fairpremium.privacy import Channel, RandomizedResponse, check_epsilon

from ._accounting import check_delta
from ._disclosure import RuleResult, check_count_rules, measure, refuse, round_missing
from ._public_data import FitData, public_problem
from ._randomized import missing_share, randomize_reports, seen_channel

MECHANISMS = ("gaussian", "randomized", "none")
Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class FitSettings:
    """What is to be fitted; the fields are those of `DiscriminationFreePricer`."""

    family: Any = "normal"
    model: Any = "linear"
    correction: str = "auto"
    pooling: Literal["auto"] | float = "auto"
    reference: Any = "marginal"
    intervals: bool = True


@dataclass(frozen=True)
class ReleaseSettings:
    """How the reports are protected.

    - `epsilon`: What this release may cost; for "randomized" it is paid once in a study.
    - `delta`: For "gaussian" alone.
    - `secret`: Secret of the study, at least 16 bytes from ``secrets.token_bytes``, held by the third party alone. All
      noise comes from it, by keyed hashing, so that the same fit asked for again is the same to the last bit.
    """

    mechanism: Literal["gaussian", "randomized", "none"]
    epsilon: float = 1.0
    delta: float = 1e-6
    secret: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise ValueError(f"Got mechanism={self.mechanism!r}, but expected one of {list(MECHANISMS)}.")
        if self.mechanism == "none":
            return
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        if not isinstance(self.secret, bytes) or len(self.secret) < 16:
            raise ValueError("Got a short secret, but expected at least 16 bytes. secrets.token_bytes(32) makes one.")


@dataclass(frozen=True)
class Release:
    """What may leave the third party.

    - `pricer`: Fitted; it is saved and loaded as any other.
    - `epsilon`, `delta`: The realised guarantee; epsilon is inf for "none".
    - `statement`: The guarantee in words, for the manifest.
    - `channel_used`: From D to the reports that were used.
    - `reports_used` (array or None): The reports S' that audits and reports of this fit may use as well, at no further
      cost; None for "gaussian", whose shares are in the pricer.
    - `noise` (dict): A summary of the noise, for the manifest.
    - `reported`: Number of rows with a report, as far as it may be shown: estimated from what was released, and
      rounded.
    """

    pricer: DiscriminationFreePricer
    mechanism: str
    epsilon: float
    statement: str
    rule_results: tuple[RuleResult, ...]
    channel_used: Channel | None
    noise: dict[str, Any]
    reported: int
    delta: float = 0.0
    reports_used: npt.NDArray[Any] | None = None


def default_release(model: Any, correction: str, n: int) -> Literal["gaussian", "randomized"]:
    """Return the mechanism for a fit that does not ask for one.

    - `model` (str or model object)
    - `n`: Rows of the portfolio.

    Notes
    -----
    What costs accuracy is less the mechanism than the correction that it allows. Randomized reports allow all of them,
    and the efficient ones lose little (benchmarks/results/release.md): with correction="auto" they come first, up to
    the size at which comparing corrections takes long and noise on sums, whose error falls like 1 / n, no longer
    matters. Who asks for the inverse correction of a linear model gets noised sums.
    """
    linear = isinstance(model, LinearModel) or model == "linear"
    least = {"inverse": _GAUSSIAN_FROM, "auto": _AUTO_UP_TO}.get(correction)
    return "gaussian" if linear and least is not None and n >= least else "randomized"


_GAUSSIAN_FROM = 2_000  # rows; with fewer the noise on sums leaves little
_AUTO_UP_TO = 1_000_000


def fit_release(
    settings: FitSettings,
    X: Any,
    y: Any,
    sample_weight: Any,
    reports: Any,
    channel: Channel | NoiseEstimator | None,
    privacy: ReleaseSettings,
    *,
    keys: Any = None,
    groups: Sequence[Any] | None = None,
    rules: Rules | None = None,
    features: Sequence[str] | None = None,
    second: RandomizedResponse | None = None,
    progress: Progress | None = None,
    checkpoint: MutableMapping[str, Any] | None = None,
) -> Release:
    """Check the rules, fit, and return what may be released.

    - `X`, `y`, `sample_weight`: As for `DiscriminationFreePricer.fit`: a table and columns, or a source and names of
      its columns.
    - `reports` (array of shape (n,), or the name of a column): S; None where there is no report.
    - `channel`: Of the reports; None if they are the true attribute. A noise estimator needs "randomized".
    - `keys` (sequence of length n, optional): One key per row, none twice; "randomized" needs them.
    - `groups` (sequence, optional): The groups, if `channel` is not a Channel.
    - `rules`: Rules 1 to 4 are applied to what the mechanism lets them see of the reports; None leaves them out.
    - `features`: Columns of a source to price with.
    - `second`: With "randomized": the reports went through it already (see `randomize_reports`); needed with a source.
    - `progress`: Gets a phase and the fraction that is done.
    - `checkpoint` (mutable mapping, optional): Plain data of steps that were released already; it is filled step by
      step, and a fit that starts with it takes those steps from it.

    Raises
    ------
    RefusedError
        A rule forbids the fit. It is decided before anything is fitted to reports.
    """
    tell = progress or (lambda phase, fraction: None)
    data = FitData(X, y, sample_weight, reports, features)
    if privacy.mechanism == "gaussian":
        from ._gaussian import release_gaussian

        return release_gaussian(settings, data, channel, groups, privacy, rules, tell, checkpoint)
    labels = labels_of_reports(channel, groups)
    effective, epsilon, statement, noise = channel, math.inf, _NONE, {}
    if privacy.mechanism == "randomized":
        data, effective, second = _randomize(data, channel, privacy, keys, labels, second, tell)
        epsilon = second.epsilon
        noise = {"keep": second.keep, "epsilon": epsilon}
        statement = (_RANDOMIZED if len(second.groups) == len(labels) else _HIDDEN).format(epsilon)
    tell("rules", 0.1)
    rule_results = check_reports(settings, data, labels, rules)
    refuse(rule_results)
    tell("fit", 0.2)
    pricer = DiscriminationFreePricer(**vars(settings), channel=effective, random_state=0)
    hidden = second is not None and len(second.groups) > len(labels)
    with warnings.catch_warnings():
        if hidden:  # the channel is then an average over the rows, and some are sharper
            warnings.simplefilter("ignore", ChannelRefutedWarning)
        pricer.fit(X, y, sensitive=data.reports, sample_weight=sample_weight, features=features)
    missing = pricer.n_missing_reports_
    if second is not None and hidden:
        missing = round(pricer.n_rows_ * missing_share(second, missing / pricer.n_rows_))
    pricer.n_missing_reports_ = round_missing(pricer.n_rows_, missing, rules)
    tell("done", 1.0)
    return Release(
        pricer=pricer,
        mechanism=privacy.mechanism,
        epsilon=epsilon,
        statement=statement,
        rule_results=tuple(rule_results),
        channel_used=pricer.channel_,
        reports_used=None if is_source(X) else data.reports,
        noise=noise,
        reported=pricer.n_rows_ - pricer.n_missing_reports_,
    )


_NONE = "The prices are exact: whoever shaped the features or outcomes can read single reports from them."
_HIDDEN = (
    "Everything in this bundle is computed from reports that the third party randomized once more, the same for every "
    "fit of the study: for any single report, its value and whether there is one, it is {:.4g}-differentially private, "
    "however many fits there are and whatever their features, outcomes and settings."
)
_RANDOMIZED = (
    "Everything in this bundle is computed from reports that the third party randomized once more, the same for every "
    "fit of the study: for the value of any single report it is {:.4g}-differentially private, however many fits there "
    "are and whatever their features, outcomes and settings. Whether a key reported at all is not covered."
)


def _randomize(
    data: FitData,
    channel: Any,
    privacy: ReleaseSettings,
    keys: Any,
    labels: tuple[Any, ...],
    second: RandomizedResponse | None,
    tell: Progress,
) -> tuple[FitData, Any, RandomizedResponse]:
    """Return the data with the reports to use, the channel from D to them, and the second channel."""
    known = channel if isinstance(channel, Channel) else None
    if second is not None:
        drawn_from = labels if len(second.groups) == len(labels) else tuple(range(len(labels) + 1))
        if second.groups != drawn_from or second.epsilon > privacy.epsilon * (1 + 1e-12):
            raise ValueError("Got another second=..., but expected these reports randomized with at most this epsilon.")
    elif keys is None or is_source(data.X):
        raise ValueError(
            "Got no keys, but a second randomization needs one key per row; for a source, randomize the column "
            "of reports first (randomize_reports) and pass second=..."
        )
    else:
        tell("randomize", 0.0)
        drawn = randomize_reports(keys, data.reports, known, privacy.epsilon, privacy.secret, groups=labels)
        data, second = data._replace(reports=drawn.reports), drawn.second
    if isinstance(channel, NoiseEstimator):
        return data, channel, second  # it estimates the whole way from D to the reports that it sees
    missing = data.reports
    if is_source(data.X):  # the share of rows without a report
        with open_source(data.X) as source:
            counts = count_labels(source, data.reports)
        missing = counts[None] / sum(counts.values())
    return data, seen_channel(second, known, missing, labels), second


def labels_of_reports(channel: Any, groups: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values of the reports, in the order of their codes."""
    labels = channel.reports if isinstance(channel, Channel) else tuple(groups or ())
    if not labels:
        raise ValueError("Got no groups, but expected groups=... where there is no channel that names them.")
    return tuple(labels)


def check_fit_rows(
    settings: FitSettings, X: Any, y: Any, sample_weight: Any, labels: Sequence[Any], rules: Rules
) -> None:
    """Apply rules 1 to 4 as if the groups were of equal size, which is the best case: what fails now fails always.

    - `settings`, `X`, `y`, `sample_weight`: As for `fit_release`.
    - `labels` (sequence): The values of the reports.

    Raises
    ------
    RefusedError
        A rule forbids the fit, whatever was reported.
    """
    even = np.resize(np.asarray(labels, dtype=object), len(y))
    refuse(check_reports(settings, FitData(X, y, sample_weight, even), tuple(labels), rules))


def check_reports(
    settings: FitSettings, data: FitData, labels: tuple[Any, ...], rules: Rules | None
) -> list[RuleResult]:
    """Apply rules 1 to 4 to the data of a fit.

    The reports are those that the rules may see: after the second randomization, if there is one, so that a refusal is
    post-processing too. For nets and trees leverage and scores are those of a linear predictor in the features.
    """
    if rules is None:
        return []
    family = get_family(settings.family)
    model = settings.model if isinstance(settings.model, LinearModel) else None
    with data.rows(labels, family, model and model.terms) as (rows, design):
        counts = rows.reduce(partial(_count_reports, labels=len(labels)), block_rows=1 << 16)[0]
        return check_count_rules(measure(public_problem(rows, design, family, model)), counts, rules)


def _count_reports(block: Any, labels: int) -> tuple[npt.NDArray[np.float64]]:
    return (np.bincount(block.report, minlength=labels + 1)[:labels].astype(np.float64),)
