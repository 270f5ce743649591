"""What the parties say to each other, typed; what a party must not learn has no field in what it receives."""

import math
import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from fairpremium.documents import canonical_json
from fairpremium.privacy import Channel, SubsetSelection

from ._problems import Problem
from ._rules import Rules

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

FAMILIES = ("normal", "poisson", "negative_binomial", "gamma", "tweedie", "bernoulli")
MODELS = ("linear", "boosted", "neural")
CORRECTIONS = ("auto", "inverse", "score", "posterior", "likelihood")

Role = Literal["operator", "collector", "insurer", "auditor"]
Label = str | bool | int
Family = Literal[FAMILIES]  # type: ignore[valid-type]
Model = Literal[MODELS]  # type: ignore[valid-type]


def check_id(value: str) -> str:
    """Return an id, or say what one looks like."""
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError("expected 1 to 64 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")
    return value


def _check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("a name is repeated")
    return names


Id = Annotated[str, AfterValidator(check_id)]
Ids = Annotated[tuple[Id, ...], AfterValidator(_check_names), Field(max_length=1000)]
Column = Annotated[str, Field(min_length=1, max_length=200)]
Amount = Annotated[float, Field(gt=0, le=1e100)]
Groups = Annotated[tuple[Label, ...], AfterValidator(_check_names), Field(min_length=2, max_length=100)]


class Message(BaseModel):
    """A message: no field more and none less, of the stated types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read a message from JSON, or raise the problem that names the fields that are wrong."""
        try:
            return cls.model_validate_json(body)
        except (ValidationError, RecursionError) as error:
            raise Problem("malformed", _describe(error, cls)) from None


def _describe(error: Exception, cls: type[Message]) -> str:
    """Name the fields that are wrong, as far as they are ours."""
    if not isinstance(error, ValidationError):
        return "it is nested too deeply"
    known = set(cls.model_fields)
    tops = {str(e["loc"][0]) if e["loc"] else "" for e in error.errors(include_input=False, include_url=False)}
    ours = sorted(tops & known)
    if ours:
        return f"see {', '.join(ours)}"
    return "it has unknown fields" if tops - {""} else "it is not a JSON object"


_LATER = frozenset(
    {"attributes", "claims", "epoch", "exposure", "report", "retention", "terms"}
)  # fields that messages of 0.1 did not have


def stored_fields(message: Message) -> dict[str, Any]:
    """Return a message as JSON has it, without later fields that say nothing: what was stored before stays the same."""
    fields = message.model_dump(mode="json")
    return {name: value for name, value in fields.items() if value or name not in _LATER}


# --- the study -------------------------------------------------------------------------------------------------------


def _check_channel(descriptor: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(label, tuple) for label in Channel.from_descriptor(descriptor).reports):
        raise ValueError("the channel of one attribute, not a product; a study declares several attributes by name")
    return descriptor


class KnownChannel(Message):
    """Reports are drawn through a known channel (MPTP-LDP)."""

    kind: Literal["known"] = "known"
    channel: Annotated[dict[str, Any], AfterValidator(_check_channel)]


class DeclaredAnchor(Message):
    """A share of the rows, those where its report is most likely, are known to belong to a group."""

    group: Label
    share: Annotated[float, Field(gt=0, le=1)]


class EstimatedChannel(Message):
    """Reports are noisy, nobody knows how much: the noise is estimated at each fit.

    The method "anchor" needs a declared anchor; without one no fit identifies the noise.
    """

    kind: Literal["estimated"] = "estimated"
    groups: Groups
    method: Literal["anchor", "likelihood"] = "anchor"
    n_splits: Annotated[int, Field(ge=1, le=100)] = 4
    anchor: DeclaredAnchor | None = None

    @model_validator(mode="after")
    def _check_anchor(self) -> Self:
        if self.anchor is not None and (self.method != "anchor" or self.anchor.group not in self.groups):
            raise ValueError("an anchor belongs to the method anchor, and to one of the groups")
        return self


class TrueAttribute(Message):
    """The true attribute is sent (MPTP, Algorithm 1); the manifest of every bundle says so."""

    kind: Literal["true"] = "true"
    groups: Groups


class NamedAttribute(Message):
    """One of several attributes of a study, with the known channel of its reports."""

    name: Id
    channel: Annotated[dict[str, Any], AfterValidator(_check_channel)]


_MOST_GROUPS, _MOST_CODES = 100, 1 << 16  # of all attributes together; a code says what a person told of each


class SeveralAttributes(Message):
    """People report several attributes, each through its own known channel; a person may leave some of them out.

    Groups are the combinations, the first attribute varying slowest.
    """

    kind: Literal["several"] = "several"
    attributes: Annotated[tuple[NamedAttribute, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _check_attributes(self) -> Self:
        _check_names(tuple(attribute.name for attribute in self.attributes))
        channels = [Channel.from_descriptor(attribute.channel) for attribute in self.attributes]
        if math.prod(len(channel.groups) for channel in channels) > _MOST_GROUPS:
            raise ValueError(f"at most {_MOST_GROUPS} combinations of groups")
        if math.prod(len(channel.reports) + 1 for channel in channels) > _MOST_CODES:
            raise ValueError(f"at most {_MOST_CODES} combinations of reports and of none")
        return self


Attribute = Annotated[KnownChannel | EstimatedChannel | TrueAttribute | SeveralAttributes, Field(discriminator="kind")]


class ReleaseRules(Message):
    """Rule 9: what releases may tell about a report. None in a study switches the noise off.

    `epsilon` and `delta` bound all releases to an insurer together, for all attributes of a person;
    `randomized_epsilon` is what the second randomization of the reports costs, once per epoch and attribute.
    `count_epsilon` is what the numbers of reports of all epochs together cost, which operator and auditor see.
    """

    epsilon: Annotated[float, Field(gt=0, le=100)] = 4.0
    delta: Annotated[float, Field(gt=0, le=1e-3)] = 1e-6
    fit_epsilon: Annotated[float, Field(gt=0, le=100)] = 1.0
    randomized_epsilon: Annotated[float, Field(gt=0, le=100)] = 2.0
    count_epsilon: Annotated[float, Field(gt=0, le=100)] = 0.1

    def model_post_init(self, _: Any) -> None:
        """Refuse a budget that the first fit would break."""
        if self.randomized_epsilon > self.epsilon:
            raise ValueError("the second randomization costs more than the budget")


_LONGEST_SOURCE = 63  # reports from the page, or of one of several attributes, are stored under names and a sign
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Z]{2})?")
Text = Annotated[str, Field(min_length=1, max_length=1000)]


class QuestionText(Message):
    """The question in one language: `groups` are the answers in the order of the study's groups."""

    question: Text
    groups: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=100)], ...], Field(min_length=2)]
    purpose: Text

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        _check_names(self.groups)
        return self


class Question(Message):
    """How people with an invitation are asked on the page that draws their report on their own device.

    - `collector`: Who asks, in words.
    - `texts` (dict by language, such as "de" or "pt-BR"): The question, its answers and its purpose.
    - `language`: The one of them that is shown to people who read none.
    - `count_seconds`: The released number of answers moves once in such a time.
    - `count_epsilon`, `count_delta`: What all released numbers of answers together may tell about whether one person
      has answered.
    """

    collector: Annotated[str, Field(min_length=1, max_length=200)]
    texts: Annotated[dict[str, QuestionText], Field(min_length=1, max_length=50)]
    language: str = "en"
    count_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 3600
    count_epsilon: Annotated[float, Field(gt=0, le=100)] = 1.0
    count_delta: Annotated[float, Field(gt=0, le=1e-3)] = 1e-6

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        if not all(LANGUAGE.fullmatch(language) for language in self.texts):
            raise ValueError('a language is written like "de" or "pt-BR"')
        if self.language not in self.texts:
            raise ValueError("language names one of the texts")
        return self


_Days = Annotated[int, Field(ge=1, le=36_500)]


class Retention(Message):
    """How long the third party keeps what it has; what is None stays until somebody erases it.

    - `reports_until`: All reports of the study are erased then. A report has no date of its own.
    - `portfolios_days`: So many days after it was declared, a portfolio is erased with the bundles of its fits.
    - `bundles_days`: So many days after the fit ended, its bundle is erased.
    """

    reports_until: AwareDatetime | None = None
    portfolios_days: _Days | None = None
    bundles_days: _Days | None = None


class StudySpec(Message):
    """What the operator declares; it cannot change once the study was opened.

    A policy that reported to several collectors counts with its report to the first of them, as they are listed here.
    All that is released in an epoch comes from the reports at its beginning; it lasts `epoch_seconds`.
    """

    title: Annotated[str, Field(min_length=1, max_length=200)]
    attribute: Attribute
    collectors: Ids
    insurers: Ids
    families: tuple[Family, ...] = FAMILIES
    models: tuple[Model, ...] = MODELS
    rules: Rules = Rules()
    release: ReleaseRules | None = ReleaseRules()
    opens: AwareDatetime | None = None
    closes: AwareDatetime | None = None
    epoch_seconds: Annotated[int, Field(ge=1, le=315_360_000)] = 30 * 86_400
    question: Question | None = None
    retention: Retention | None = None

    def model_post_init(self, _: Any) -> None:
        """Refuse a party on both sides, which would see features and reports of the same keys, and wrong questions."""
        if set(self.collectors) & set(self.insurers):
            raise ValueError("a party is collector and insurer")
        if isinstance(self.attribute, SeveralAttributes):
            if self.question is not None:
                raise ValueError("the page asks for one attribute; a study of several has no question")
            names, rule = [attribute.name for attribute in self.attribute.attributes], self.release
            if max(map(len, names)) + max(map(len, self.collectors), default=0) > _LONGEST_SOURCE:
                raise ValueError(
                    f"the names of a collector and an attribute have at most {_LONGEST_SOURCE} characters together"
                )
            if rule is not None and len(names) * rule.randomized_epsilon > rule.epsilon * (1 + 1e-9):
                raise ValueError(
                    f"the second randomization of {len(names)} attributes costs more than the budget; raise its "
                    "epsilon, or lower randomized_epsilon, which each of them costs"
                )
        if self.question is not None:
            if not isinstance(self.attribute, KnownChannel):
                raise ValueError("people are asked through a known channel only")
            channel = Channel.from_descriptor(self.attribute.channel)
            groups = channel.groups
            if math.isinf(channel.epsilon):  # the page would refuse to draw
                raise ValueError("people are asked through a channel with a finite epsilon, in which no weight is zero")
            if any(isinstance(component, SubsetSelection) for component in channel.components):
                raise ValueError("people are asked for one group, and the page cannot draw sets of groups")
            if not all(_is_sendable(label) for label in (*groups, *channel.reports)):
                raise ValueError("people are asked for groups that are text, true or false, or integers below 2^53")
            if any(len(text.groups) != len(groups) for text in self.question.texts.values()):
                raise ValueError("each language of the question names every group of the study once")
            if any(len(name) > _LONGEST_SOURCE for name in self.collectors):
                raise ValueError(f"a collector that asks has a name of at most {_LONGEST_SOURCE} characters")


def _is_sendable(label: Any) -> bool:
    """Does a browser read and send this label unchanged?"""
    return isinstance(label, str) or (isinstance(label, int) and abs(label) < 2**53)


class StudyState(Message):
    """What every participant sees of a study."""

    id: str
    title: str
    attribute: Attribute
    state: Literal["draft", "open", "closed"]


class CollectorStudy(StudyState):
    """A collector's view: how many of its own reports were taken, for each of several attributes, too.

    `invitation_key` is the public key to which invitations are sealed; None if the study asks nobody on a page.
    """

    accepted: int | None
    accepted_by_attribute: dict[str, int | None] | None = None
    invitation_key: str | None = None


class Answered(Message):
    """How many people of a collector have answered on the page, as a released number.

    It has noise with a stated standard error and moves once in the study's time step: asked again, it is the same.
    """

    study: str
    answered: int
    standard_error: float
    releases: int
    released: str
    epsilon: float
    delta: float


class Spent(Message):
    """What releases have cost an insurer (rule 9): for all attributes of a person together, and for each of several.

    A Gaussian release of several attributes counts for each of them, and once in the total. `with_other_studies` adds
    what the insurer's other studies with one of these collectors cost, should the same people have reported there.
    None, for no bound, if one of them has released without noise.
    """

    epsilon: float
    by_attribute: dict[str, float] | None = None
    with_other_studies: float | None


class Epoch(Message):
    """A numbered snapshot of the reports of a study, from which all is computed that is released in the epoch.

    - `closed`: When the epoch began. The snapshot is taken by its first fit, or by the operator.
    - `ends`: From when on the next fit begins another one.
    """

    number: int
    closed: str
    ends: str


class CountedEpoch(Epoch):
    """An epoch with the number of reports, as it was released: with noise of a stated standard error.

    `reports` are those taken until the snapshot; one that was withdrawn still counts, or the number would tell that
    it was. Where rule 9 is off they are those of the snapshot, rounded, or None if they are too few to be told.

    - `counted`: Whether the snapshot was taken; before that there is no number of reports.
    """

    counted: bool
    reports: int | None
    standard_error: float


class InsurerStudy(StudyState):
    """An insurer's view: what may be fitted, from which snapshot, what was spent, and how much is left."""

    families: tuple[str, ...]
    models: tuple[str, ...]
    fits_left: int
    rules: Rules
    release: ReleaseRules | None
    spent: Spent | None = None
    epoch: Epoch | None = None


class OperatorStudy(StudyState):
    """The view of the operator and the auditor."""

    spec: StudySpec
    epochs: tuple[CountedEpoch, ...]
    fits: int


# --- reports ---------------------------------------------------------------------------------------------------------


def _check_plain(value: dict[str, Any]) -> dict[str, Any]:
    canonical_json(value)  # refuses numbers that JSON does not have
    return value


class Report(Message):
    """One report with the description of the channel that drew it; None where the study knows of no channel."""

    report: Label
    channel: Annotated[dict[str, Any], AfterValidator(_check_plain)] | None


class ReportsTaken(Message):
    """The answer to a batch: how many rows it had. It is the same whether they were new or sent before."""

    rows: int
    sha256: str


# --- the portfolio ---------------------------------------------------------------------------------------------------


class Feature(Message):
    """A column of X~."""

    name: Column
    kind: Literal["number", "category"] = "number"


class PerilColumns(Message):
    """The columns with the claims of a peril: their number in each row, and their total amount, zero without a claim.

    `name` tells perils apart where there are several.
    """

    name: Annotated[str, Field(min_length=1, max_length=100)] = "all"
    count: Column
    amount: Column


class PortfolioSpec(Message):
    """Columns of the parts and their roles. `key` is the column of keys.

    Losses are an `outcome` per unit of `weight`, or `claims`, which are totals over the `exposure`.
    """

    study: Id
    features: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=2000)]
    x_star: Annotated[tuple[Feature, ...], Field(max_length=2000)] = ()
    key: Column = "key"
    outcome: Column | None = None
    weight: Column | None = None
    claims: Annotated[tuple[PerilColumns, ...], Field(max_length=20)] = ()
    exposure: Column | None = None

    @property
    def losses(self) -> tuple[str, ...]:
        """The columns that are neither key nor feature: outcome and weight, or claims and exposure."""
        claims = (name for peril in self.claims for name in (peril.count, peril.amount))
        return tuple(name for name in (self.outcome, *claims, self.weight, self.exposure) if name is not None)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """All columns but that of keys: features, x_star, and those with the losses."""
        return (*self.features, *self.x_star, *(Feature(name=name) for name in self.losses))

    def model_post_init(self, _: Any) -> None:
        """Refuse a column with two roles, and roles that do not go together."""
        if (self.outcome is None) == (not self.claims):
            raise ValueError("a portfolio has an outcome, or claims")
        if self.weight is not None and self.claims:
            raise ValueError("a weight belongs to an outcome; claims have an exposure")
        if self.exposure is not None and not self.claims:
            raise ValueError("an exposure belongs to claims; an outcome has a weight")
        if len({peril.name for peril in self.claims}) != len(self.claims):
            raise ValueError("a peril is repeated")
        names = {self.key, *(column.name for column in self.columns)}
        if len(names) != len(self.columns) + 1:
            raise ValueError("a column has two roles")


class PartTaken(Message):
    """A part that is there."""

    n: int
    rows: int
    sha256: str


class Portfolio(Message):
    """An insurer's view of its portfolio."""

    id: str
    spec: PortfolioSpec
    state: Literal["open", "sealed", "deleted"]
    parts: tuple[PartTaken, ...]
    rows: int
    sha256: str | None


# --- the fit ---------------------------------------------------------------------------------------------------------


def _check_terms(text: str) -> str:
    from fairpremium.models import parse_terms  # with the models, which most messages do not need

    if not text.isprintable():
        raise ValueError("terms have a character that cannot be printed")
    parse_terms(text)
    return text


class ClaimFit(Message):
    """How claims are fitted: frequency times severity.

    - `frequency`, `severity`: Families of the number of claims, and of the mean amount of a row's claims.
    - `cap`: Amount per claim above which claims are large, for all perils or by peril; what is above it is spread over
      all policies in proportion to their premium.
    """

    frequency: Family = "poisson"
    severity: Family = "gamma"
    cap: Amount | Annotated[dict[str, Amount], Field(min_length=1, max_length=20)] | None = None


ReportText = Annotated[str, Field(max_length=200)]


class ReportSpec(Message):
    """What the report of a fit shows; it changes nothing about the prices."""

    by: Column | None = None
    unit: ReportText = ""
    insurer: ReportText = ""
    tariff_version: ReportText = ""
    period: ReportText = ""
    prepared_by: ReportText = ""
    approved_by: ReportText = ""


class FitSpec(Message):
    """What an insurer asks for: prices of the portfolio's outcome in a `family`, or of its `claims`.

    - `terms`: What the features become, in the language of `LinearModel`; they are parsed and never evaluated.
    - `attributes`: Of which attributes of a study of several the prices are to be free; None: of all.
    - `epoch`: The number of the epoch, which must be the present one; None takes that one.
    """

    study: Id
    portfolio: Id
    family: Family = "normal"
    power: Annotated[float, Field(gt=1, lt=2)] | None = None
    model: Model = "linear"
    correction: Literal[CORRECTIONS] = "auto"  # type: ignore[valid-type]
    pooling: Literal["auto"] | Annotated[float, Field(ge=0, le=1e12)] = "auto"
    reference: Literal["marginal", "uniform", "balanced"] | dict[str, float] = "marginal"
    level: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    release: Literal["default", "gaussian", "randomized"] = "default"
    claims: ClaimFit | None = None
    terms: Annotated[str, Field(min_length=1, max_length=10_000), AfterValidator(_check_terms)] | None = None
    attributes: Annotated[Ids, Field(min_length=1)] | None = None
    report: ReportSpec | None = None
    epoch: Annotated[int, Field(ge=1)] | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """The families of all parts."""
        return (self.family,) if self.claims is None else (self.claims.frequency, self.claims.severity)

    @property
    def law(self) -> str:
        """The families in words."""
        if self.claims is None:
            return str(self.family)
        return f"{self.claims.frequency} frequency, {self.claims.severity} severity"

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.claims is not None and self.family != "normal":
            raise ValueError("claims have a frequency and a severity in the place of the family")
        if self.terms is not None and self.model != "linear":
            raise ValueError("terms belong to a linear model")
        return self


State = Literal["queued", "running", "succeeded", "refused", "failed", "cancelled"]
ENDED = ("succeeded", "refused", "failed", "cancelled")


class Refusal(Message):
    """Which disclosure rule forbids the result, and its limit.

    - `column`: The insurer's column, or term, by which a row stands out most (rules 2 and 4).
    """

    rule: int
    title: str
    limit: str
    column: str | None = None


class Fit(Message):
    """An insurer's view of a fit.

    `matched` is estimated from what was released, and rounded; it goes with the bundle when that is erased.
    """

    id: str
    spec: FitSpec
    epoch: int
    state: State
    phase: str
    progress: float
    refusal: Refusal | None
    problem: dict[str, Any] | None
    matched: int | None
    created: str
    ended: str | None
    sha256: str | None


# --- log and keys ----------------------------------------------------------------------------------------------------


class Entry(Message):
    """One event of the log; the salt keeps its hash from telling what it says."""

    seq: int
    time: str
    party: str
    event: str
    body: dict[str, Any]
    salt: str


class Checkpoint(Message):
    """The root of the tree of hashes (RFC 6962) over the first entries of the log, signed by the service."""

    size: int
    root: str
    key_id: str
    signature: str


class ChainCheckpoint(Message):
    """A checkpoint of 0.1.0: an entry of the log, by its hash, signed by the service."""

    seq: int
    hash: str
    key_id: str
    signature: str


class LogPage(Message):
    """Events after a position, and the checkpoint."""

    entries: tuple[Entry, ...]
    checkpoint: Checkpoint
    more: bool


class LogProof(Message):
    """Hashes that prove something about the tree over the log, in hexadecimal digits."""

    hashes: tuple[str, ...]


class PublicKey(Message):
    """A public key of the service, and the time in which it signs: since and until when, None where there is no end.

    - `until_size`: Entries of the log that it signed at most.
    - `by_previous`, `by_next`: Signatures of the change to this key, by the key before and by this one.
    """

    key_id: str
    algorithm: Literal["ed25519"] = "ed25519"
    public_key: str
    since: str | None = None
    until: str | None = None
    until_size: int | None = None
    by_previous: str | None = None
    by_next: str | None = None
