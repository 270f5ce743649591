"""From the data of a fit to what may leave the third party, with a stated privacy guarantee for the reports.

The neighbouring relation of every statement here: one person's report S is replaced by any other. Features, outcomes,
volumes, settings and everything released before are known to whoever receives the release.

Two mechanisms, and none:

- "gaussian": linear models with the inverse correction. Sums over reports are released with Gaussian noise, and the
  prices are computed from them (`fairpremium.parties.release._gaussian`).
- "randomized": everything else, and claims. Reports are randomized once more, and all is computed from the new ones
  (`fairpremium.parties.release._randomized`).
- "none": the prices as they are. Exact coefficients tell an insurer that shapes its data every report.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairpremium.blocks import open_source
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.labels import decode_labels
from fairpremium.models import LinearModel
from fairpremium.noise import NoiseEstimator
from fairpremium.parties.protocol import Rules
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, count_labels, is_source
from fairpremium.privacy import Channel, RandomizedResponse, check_epsilon
from fairpremium.progress import Progress as Listener
from fairpremium.progress import listening

from ._accounting import check_delta
from ._disclosure import NOTHING, RuleResult, check_count_rules, measure, refuse, round_missing
from ._fit_data import ClaimData, ClaimSettings, FitData, FitSettings, Part
from ._number_range import check_number_range
from ._public_data import public_problem
from ._randomized import missing_share, randomize_reports, seen_channel
from ._released_reports import ReleasedReports, check_released
from ._several_attributes import SecondDraws

MECHANISMS = ("gaussian", "randomized", "none")
Progress = Callable[[str, float], None]


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
    - `reports_used`: The reports S' that audits and reports of this fit may use as well, at no further cost; None
      unless reports were randomized.
    - `noise` (dict): A summary of the noise, for the manifest.
    - `reported`: Number of rows with a report, as far as it may be shown: estimated from what was released, and
      rounded.
    """

    pricer: DiscriminationFreePricer | FrequencySeverityPricer
    mechanism: str
    epsilon: float
    statement: str
    rule_results: tuple[RuleResult, ...]
    channel_used: Channel | None
    noise: dict[str, Any]
    reported: int
    delta: float = 0.0
    reports_used: ReleasedReports | None = None


def default_release(model: Any, correction: str, n: int, *, claims: bool = False) -> Literal["gaussian", "randomized"]:
    """Return the mechanism for a fit that does not ask for one.

    - `model` (str or model object)
    - `n`: Rows of the portfolio.
    - `claims`: Whether frequency and severity are fitted, which noised sums do not serve.

    Notes
    -----
    What costs accuracy is less the mechanism than the correction that it allows. Randomized reports allow all of them,
    and the efficient ones lose little (benchmarks/results/release.md): with correction="auto" they come first, up to
    the size at which comparing corrections takes long and noise on sums, whose error falls like 1 / n, no longer
    matters. Who asks for the inverse correction of a linear model gets noised sums.
    """
    linear = isinstance(model, LinearModel) or model == "linear"
    least = {"inverse": _GAUSSIAN_FROM, "auto": _AUTO_UP_TO}.get(correction)
    return "gaussian" if linear and not claims and least is not None and n >= least else "randomized"


_GAUSSIAN_FROM = 2_000  # rows; with fewer the noise on sums leaves little
_AUTO_UP_TO = 1_000_000


def fit_release(
    settings: FitSettings | ClaimSettings,
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
    drawn: ReleasedReports | None = None,
    progress: Progress | None = None,
    checkpoint: MutableMapping[str, Any] | None = None,
) -> Release:
    """Check the rules, fit, and return what may be released.

    - `X`, `y`, `sample_weight`: As for `DiscriminationFreePricer.fit`: a table and columns, or a source and names of
      its columns. With `ClaimSettings` y is `Claims`, and sample_weight their exposure.
    - `reports` (array of shape (n,), or the name of a column): S; None where there is no report. With `drawn` the name
      of the column that has them, or None.
    - `channel`: Of the reports; None if they are the true attribute. A noise estimator needs "randomized".
    - `keys` (sequence of length n, optional): One key per row, none twice; "randomized" needs them.
    - `groups` (sequence, optional): The groups, if `channel` is not a Channel.
    - `rules`: Rules 1 to 4 are applied to what the mechanism lets them see of the reports; None leaves them out.
    - `features`: Columns of a source to price with.
    - `drawn`: With "randomized": the reports, randomized already (see `randomize_reports`); needed with a source, and
      for several attributes (see `combine_draws`). "none" needs those of a study without rule 9 (`without_protection`).
    - `progress`: Gets a phase and the fraction that is done.
    - `checkpoint` (mutable mapping, optional): Plain data of steps that were released already; it is filled step by
      step, and a fit that starts with it takes those steps from it.

    Raises
    ------
    RefusedError
        A rule forbids the fit. It is decided before anything is fitted to reports.
    """
    tell = progress or (lambda phase, fraction: None)
    if drawn is not None or privacy.mechanism == "none":
        drawn = check_released(drawn)
        _check_drawn(drawn, privacy)
        if not is_source(X):
            reports = drawn.reports
    data = _data(settings, X, y, sample_weight, reports, features)
    if not is_source(X):
        check_number_range(data.numbers())
    if privacy.mechanism == "gaussian":
        from ._gaussian import release_gaussian

        if isinstance(settings, ClaimSettings) or isinstance(data, ClaimData):
            raise ValueError(
                'Got mechanism="gaussian" with claims, but its noised sums are those of one outcome; expected '
                'mechanism="randomized".'
            )
        return release_gaussian(settings, data, channel, groups, privacy, rules, tell, checkpoint)
    labels = labels_of_reports(channel, groups)
    effective, epsilon, statement, noise, hidden = channel, math.inf, _NONE, {}, False
    second: RandomizedResponse | SecondDraws | None = None
    if privacy.mechanism == "randomized":
        data, drawn = _randomize(data, channel, privacy, keys, labels, drawn, tell)
        second = drawn.second
        if isinstance(second, SecondDraws):
            effective, epsilon, noise, hidden = second.channel, second.epsilon, second.noise, True
        else:
            hidden, epsilon = len(drawn.one_draw.groups) > len(labels), drawn.one_draw.epsilon
            noise = {"keep": drawn.one_draw.keep, "epsilon": epsilon}
            if not isinstance(channel, NoiseEstimator):  # it estimates the whole way from D to the reports that it sees
                effective = seen_channel(drawn, channel, labels)
        statement = (_HIDDEN if hidden else _RANDOMIZED).format(epsilon)
    tell("rules", 0.1)
    rule_results = check_reports(settings, data, labels, rules)
    refuse(rule_results)
    tell("fit", 0.2)
    pricer = settings.make_pricer(effective)
    with warnings.catch_warnings():
        if hidden:  # the channel is then an average over the rows, and some are sharper
            warnings.simplefilter("ignore", ChannelRefutedWarning)
        with listening(_in_steps(lambda fraction: tell("fit", 0.2 + 0.7 * fraction))):
            data.fit(pricer)
    for part in _parts_and_whole(pricer):
        missing = part.n_missing_reports_
        if isinstance(second, SecondDraws):
            missing = round(part.n_rows_ * second.missing)
        elif second is not None and hidden:
            missing = round(part.n_rows_ * missing_share(second, missing / part.n_rows_))
        part.n_missing_reports_ = round_missing(part.n_rows_, missing, rules)
    tell("done", 1.0)
    return Release(
        pricer=pricer,
        mechanism=privacy.mechanism,
        epsilon=epsilon,
        statement=statement,
        rule_results=tuple(rule_results),
        channel_used=pricer.channel_,
        reports_used=drawn,
        noise=noise,
        reported=pricer.n_rows_ - pricer.n_missing_reports_,
    )


def _data(
    settings: FitSettings | ClaimSettings, X: Any, y: Any, volume: Any, reports: Any, features: Sequence[str] | None
) -> FitData | ClaimData:
    return (ClaimData if isinstance(settings, ClaimSettings) else FitData)(X, y, volume, reports, features)


def _in_steps(tell: Callable[[float], None]) -> Listener:
    """Hear how much of a fit is done, in steps of 5 %; its words stay here."""
    told = 0.0

    def hear(fraction: float, _: str) -> None:
        nonlocal told
        if fraction >= told + 0.05:
            told = fraction
            tell(fraction)

    return hear


def _parts_and_whole(pricer: DiscriminationFreePricer | FrequencySeverityPricer) -> list[Any]:
    """Return all that says how many rows have no report."""
    if isinstance(pricer, DiscriminationFreePricer):
        return [pricer]
    return [part for pair in pricer.parts_.values() for part in pair] + [pricer]


_NONE = "The prices are exact: whoever shaped the features or outcomes can read single reports from them."
_HIDDEN = (
    "Everything in this bundle is computed from reports that the third party randomized once more, the same for every "
    "fit of an epoch: for any single report, its value and whether there is one, it is {:.4g}-differentially private, "
    "however many fits of the epoch there are and whatever their features, outcomes and settings. Epochs add up."
)
_RANDOMIZED = (
    "Everything in this bundle is computed from reports that the third party randomized once more, the same for every "
    "fit of an epoch: for the value of any single report it is {:.4g}-differentially private, however many fits of the "
    "epoch there are and whatever their features, outcomes and settings. Epochs add up. Whether a key reported at all "
    "is not covered."
)


def _randomize(
    data: FitData | ClaimData,
    channel: Any,
    privacy: ReleaseSettings,
    keys: Any,
    labels: tuple[Any, ...],
    drawn: ReleasedReports | None,
    tell: Progress,
) -> tuple[FitData | ClaimData, ReleasedReports]:
    """Return the data with the reports to use, and these reports."""
    if drawn is None:
        if keys is None or is_source(data.X):
            raise ValueError(
                "Got no keys, but a second randomization needs one key per row; for a source, randomize the column "
                "of reports first (randomize_reports) and pass drawn=..."
            )
        tell("randomize", 0.0)
        known = channel if isinstance(channel, Channel) else None
        drawn = randomize_reports(keys, data.reports, known, privacy.epsilon, privacy.secret, groups=labels)
        return data._replace(reports=drawn.reports), drawn
    if not isinstance(drawn.second, SecondDraws):
        groups = drawn.one_draw.groups
        if groups != (labels if len(groups) == len(labels) else tuple(range(len(labels) + 1))):
            raise ValueError("Got another drawn=..., but expected these reports randomized.")
    if is_source(data.X):
        with open_source(data.X) as source:
            counts = count_labels(source, data.reports)
        if {k: n for k, n in counts.items() if n} != Counter(drawn.reports.tolist()):
            raise ValueError("Got a column with other reports than drawn=..., but expected it to have these.")
    return data, drawn


def _check_drawn(drawn: ReleasedReports, privacy: ReleaseSettings) -> None:
    """Raise unless reports are what the mechanism needs, and their second draw costs at most what is paid."""
    second = drawn.second
    if privacy.mechanism == "gaussian" or (second is None) != (privacy.mechanism == "none"):
        raise ValueError(
            f"Got drawn=... with mechanism={privacy.mechanism!r}, but expected randomized reports with "
            '"randomized", and those of a study without rule 9 with "none".'
        )
    if second is not None and second.epsilon > privacy.epsilon * (1 + 1e-12):
        raise ValueError("Got drawn=... with a larger epsilon, but expected at most that of the release.")


def labels_of_reports(channel: Any, groups: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the values of the reports, in the order of their codes."""
    labels = channel.reports if isinstance(channel, Channel) else tuple(groups or ())
    if not labels:
        raise ValueError("Got no groups, but expected groups=... where there is no channel that names them.")
    return tuple(labels)


def check_fit_rows(
    settings: FitSettings | ClaimSettings, X: Any, y: Any, sample_weight: Any, labels: Sequence[Any], rules: Rules
) -> None:
    """Apply rules 1 to 4 as if the groups were of equal size, which is the best case: what fails now fails always.

    - `settings`, `X`, `y`, `sample_weight`: As for `fit_release`.
    - `labels` (sequence): The values of the reports.

    Raises
    ------
    RefusedError
        A rule forbids the fit, whatever was reported.
    """
    even = decode_labels(np.arange(len(X)) % len(labels), labels)
    refuse(check_reports(settings, _data(settings, X, y, sample_weight, even, None), tuple(labels), rules))


def check_reports(
    settings: Any, data: FitData | ClaimData, labels: tuple[Any, ...], rules: Rules | None
) -> list[RuleResult]:
    """Apply rules 1 to 4 to the data of a fit.

    The reports are those that the rules may see: after the second randomization, if there is one, so that a refusal is
    post-processing too. For nets and trees leverage and scores are those of a linear predictor in the features. Of
    claims every part is checked: all rows with their number, and the rows with claims with their mean amount.
    """
    if rules is None:
        return []
    found: list[RuleResult] = []
    with data.parts(settings, labels) as parts:
        for part in parts:
            of_part = _check_part(part, len(labels), rules)
            found += [replace(v, limit=f"{v.limit}, in {part.place}") for v in of_part] if part.place else of_part
    return found


def _check_part(part: Part, labels: int, rules: Rules) -> list[RuleResult]:
    """Apply rules 1 to 4 to the rows of one model."""
    if not len(part.rows):
        return check_count_rules(NOTHING, np.zeros(labels), rules)
    counts = part.rows.reduce(partial(_count_reports, labels=labels), block_rows=1 << 16)[0]
    if part.place and counts.min() < rules.rows:  # too few for a price that leverage and scores are measured at
        return check_count_rules(replace(NOTHING, rows=len(part.rows)), counts, rules)
    problem = public_problem(part.rows, part.design, part.family, part.model)
    return check_count_rules(measure(problem, part.design), counts, rules)


def _count_reports(block: Any, labels: int) -> tuple[npt.NDArray[np.float64]]:
    return (np.bincount(block.report, minlength=labels + 1)[:labels].astype(np.float64),)
