"""How the reports were drawn: what the options say, what the file of the reports says, and whether they agree."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from fairpremium.cli._channel_file import Described, EpsilonOption, KeepOption, load_channel, noise_option
from fairpremium.cli._parsing import split_list, split_pairs, split_weights
from fairpremium.cli._portfolio import Data
from fairpremium.cli.tables import TableFormat, as_labels, as_text, read_table
from fairpremium.labels import infer_labels
from fairpremium.noise import AnchorNoise, MarginNoise, NoiseEstimator, RetestNoise, ValidationNoise
from fairpremium.privacy import Channel, RandomizedResponse

_CLOSE = 1e-3  # an option is typed with a few digits
_KNOWN = "none"  # --channel source=none: its rows hold the true attribute
_PAIRS = "app=channel.json, or consent=none where the attribute is known"

Found = Channel | NoiseEstimator | dict[str, Channel | NoiseEstimator | None] | None


class NoiseMethod(StrEnum):
    """Ways to estimate an unknown channel."""

    anchor = "anchor"
    margin = "margin"
    validation = "validation"
    retest = "retest"


@dataclass(frozen=True)
class ReportSource:
    """The options that say how reports were drawn: a known channel, or a sample to estimate it from."""

    keep: KeepOption = None
    epsilon: EpsilonOption = None
    channel: Annotated[
        list[str] | None,
        noise_option(
            help="JSON file that describes the channel. With --channel-key one for each source: app=channel.json, "
            "consent=none (the attribute is known), or survey=retest with a sample of its own. May be repeated."
        ),
    ] = None
    groups: Annotated[str | None, noise_option(help="All groups, such as F,M; the distinct reports if left out.")] = (
        None
    )
    true_attribute: Annotated[
        bool, noise_option("--true-attribute", help="The column holds the truth, not reports.")
    ] = False
    margin: Annotated[str | None, noise_option(help="Known shares, such as F=0.45,M=0.55.")] = None
    validation: Annotated[Path | None, noise_option(help="File of people with truth and report.")] = None
    true_column: Annotated[str, noise_option(help="Truth in the validation file.")] = "true"
    report_column: Annotated[str, noise_option(help="Report in the validation file.")] = "report"
    retest: Annotated[Path | None, noise_option(help="File of people with two fresh reports.")] = None
    first_column: Annotated[str, noise_option(help="First report in the retest file.")] = "first"
    second_column: Annotated[str, noise_option(help="Second report in the retest file.")] = "second"

    @cached_property
    def labels(self) -> list[str] | None:
        """The groups, if they are given."""
        return split_list(self.groups, "--groups")

    @cached_property
    def given(self) -> Described | None:
        """The channel that ``--channel`` describes, for reports of one source."""
        if not self.channel:
            return None
        if len(self.channel) > 1:
            raise ValueError("Got --channel more than once, but expected --channel-key, which says whose it is.")
        return load_channel(Path(self.channel[0]))

    @cached_property
    def by_key(self) -> dict[str, str]:
        """What ``--channel`` says for each source."""
        if not self.channel:
            raise ValueError(f"--channel-key needs --channel for each source: {_PAIRS}.")
        return split_pairs(self.channel, "--channel", _PAIRS)

    def files(self, channel_key: str | None) -> list[Path]:
        """Return the files that ``--channel`` names."""
        names = (self.channel or []) if channel_key is None else list(self.by_key.values())
        return [Path(name) for name in names]

    def _samples(self) -> list[str]:
        """Return the names of the samples that are given to estimate a channel from."""
        return [name for name in ("margin", "validation", "retest") if getattr(self, name) is not None]

    def estimator(
        self,
        noise: NoiseMethod | None = None,
        random_state: int | None = None,
        anchor_group: str | None = None,
        anchor_share: float | None = None,
        files: TableFormat = TableFormat(),  # noqa: B008, it cannot change
        channel_key: str | None = None,
    ) -> NoiseEstimator | dict[str, NoiseEstimator] | None:
        """Return the estimator that ``--noise`` or a sample asks for, or None; raise if the options contradict.

        With several sources they are by key, those whose ``--channel`` names a method.
        """
        if channel_key is not None:
            return self._estimators(noise, random_state, anchor_group, anchor_share, files)
        samples = self._samples()
        kinds = sorted({*samples, *([noise.value] if noise else [])})
        if len(kinds) > 1:
            raise ValueError(f"Got {', '.join(kinds)}, but expected one way to estimate the noise.")
        if noise not in (None, NoiseMethod.anchor) and not samples:
            raise ValueError(f"--noise {noise} needs --{noise}, which says what to estimate from.")
        known = {
            "--keep": self.keep is not None,
            "--epsilon": self.epsilon is not None,
            "--channel": bool(self.channel),
            "--true-attribute": self.true_attribute,
        }
        named = [name for name, is_given in known.items() if is_given]
        named += ["--noise"] if noise else [f"--{name}" for name in samples]
        if len(named) > 1:
            raise ValueError(f"Got {' and '.join(named)}, but expected one way to say how the reports were drawn.")
        if noise is NoiseMethod.anchor:
            return AnchorNoise(
                groups=self.labels, group=anchor_group, anchor_share=anchor_share, random_state=random_state
            )
        if anchor_group is not None or anchor_share is not None:
            raise ValueError("--anchor-group and --anchor-share belong to --noise anchor.")
        if self.margin is not None:
            return MarginNoise(split_weights(self.margin, "--margin") or {})
        if self.validation is not None:
            pair = _pair(self.validation, files, self.true_column, self.report_column)
            return ValidationNoise(*pair, groups=self.labels)
        if self.retest is not None:
            return RetestNoise(*_pair(self.retest, files, self.first_column, self.second_column), groups=self.labels)
        return None

    def _estimators(
        self,
        noise: NoiseMethod | None,
        random_state: int | None,
        anchor_group: str | None,
        anchor_share: float | None,
        files: TableFormat,
    ) -> dict[str, NoiseEstimator]:
        """Return the estimators of several sources, each from the sample that its method is given."""
        for option, given in (
            ("--keep", self.keep), ("--epsilon", self.epsilon), ("--noise", noise),
            ("--true-attribute", self.true_attribute or None),
        ):  # fmt: skip
            if given is not None:
                raise ValueError(f"Got {option} with --channel-key, but expected --channel for each source: {_PAIRS}.")
        methods = {key: word for key, word in self.by_key.items() if word in NoiseMethod.__members__}
        repeated = next((word for word in methods.values() if list(methods.values()).count(word) > 1), None)
        if repeated is not None and repeated != NoiseMethod.anchor:
            raise ValueError(f"Got --channel with {repeated} for two sources, but there is one --{repeated}.")
        unused = [name for name in self._samples() if name not in methods.values()]
        if unused:
            raise ValueError(f"--{unused[0]} needs a source that it belongs to: --channel source={unused[0]}.")
        found = {}
        for key, word in methods.items():
            own: dict[str, Any] = {
                name: getattr(self, name) if name == word else None for name in ("margin", "validation", "retest")
            }
            alone = replace(self, channel=None, **own)
            anchor = (anchor_group, anchor_share) if word == NoiseMethod.anchor else (None, None)
            made = alone.estimator(NoiseMethod(word), random_state, *anchor, files)
            assert isinstance(made, NoiseEstimator)
            found[key] = made
        return found

    def resolve(
        self, data: Data, estimator: NoiseEstimator | dict[str, NoiseEstimator] | None
    ) -> tuple[Found, pd.Series | pd.DataFrame, str]:
        """Return the channel or its estimator, the reports in the type of its labels, and who says so.

        With a second report of the same person they are a table of two columns.
        """
        if data.second is None:
            return self._resolve(data, estimator)
        if self.true_attribute or isinstance(estimator, NoiseEstimator):
            raise ValueError(
                "--second-report needs a channel that is known, through which both reports of a person went: --keep, "
                "--epsilon or --channel. If it is to be estimated from people with two reports, give them as --retest."
            )
        n, second = len(data.reports), data.second.rename(data.reports.name)
        stacked = pd.concat([data.reports, second], ignore_index=True)
        found, reported, said_by = self._resolve(replace(data, reports=stacked), estimator)
        if isinstance(found, dict):
            found = {key: ask_twice(each) if isinstance(each, Channel) else each for key, each in found.items()}
        elif isinstance(found, Channel):
            found = ask_twice(found)
        pairs = {"first": reported[:n].to_numpy(), "second": reported[n:].to_numpy()}
        return found, pd.DataFrame(pairs) if len(second) == n else reported, said_by

    def _resolve(
        self, data: Data, estimator: NoiseEstimator | dict[str, NoiseEstimator] | None
    ) -> tuple[Found, pd.Series, str]:
        found = data.described
        texts = as_text(data.reports, data.reports_path)
        if isinstance(estimator, dict):
            return self._resolve_sources(data, texts, estimator)
        if self.true_attribute or estimator is not None:
            if found is not None:
                option = "--true-attribute" if self.true_attribute else f"--{(self._samples() or ['noise'])[0]}"
                raise ValueError(
                    f"{option} contradicts {found.source}, which says that the reports went through a known channel."
                )
            if self.labels is not None and not set(infer_labels(texts, "sensitive")) <= set(self.labels):
                raise ValueError(f"Some rows hold a group that is not among --groups {','.join(self.labels)}.")
            return estimator, texts, "the true attribute" if estimator is None else "an estimate"
        declared = found or self.given
        if declared is not None:
            self._check_agreement(declared, found)
            channel, source = declared.channel, declared.source
        elif self.keep is None and self.epsilon is None:
            raise ValueError(
                f"Nothing says how the reports of {data.reports_path} were drawn. Give one of --keep, --epsilon, "
                "--channel, a sample to estimate it from (--margin, --validation, --retest), or --true-attribute if "
                "they are the truth."
            )
        else:
            groups = self.labels or list(infer_labels(texts, "sensitive"))
            channel = RandomizedResponse(groups, keep=self.keep, epsilon=self.epsilon)
            source = "the options" if self.labels else "the options; its groups are the distinct reports"
        labels = _single_labels(channel, data)
        if not all(isinstance(label, str) for label in labels):
            wrong = f"with a report that the channel cannot make; expected one of {list(map(str, labels))}"
            texts = as_labels(texts, labels, data.reports_path, wrong)
        return channel, texts, source

    def _resolve_sources(
        self, data: Data, texts: pd.Series, estimators: dict[str, NoiseEstimator]
    ) -> tuple[Found, pd.Series, str]:
        """Return what each source did to the attribute, by key."""
        if data.described is not None:
            raise ValueError(
                f"--channel-key contradicts {data.described.source}, which says that all reports went through one "
                "channel."
            )
        sources: dict[str, Channel | NoiseEstimator | None] = {}
        for key, word in self.by_key.items():
            known = None if word == _KNOWN or key in estimators else load_channel(Path(word)).channel
            sources[key] = estimators.get(key, known)
        channels = [each for each in sources.values() if isinstance(each, Channel)]
        labels = {label for each in channels for label in _single_labels(each, data)}
        for key, each in sources.items():
            if isinstance(each, Channel) and self.labels is not None and set(map(str, each.groups)) != set(self.labels):
                raise ValueError(f"--groups {','.join(self.labels)} contradicts --channel {key}={self.by_key[key]}.")
        if labels and not all(isinstance(label, str) for label in labels):
            wrong = "with a report that no channel can make"
            texts = as_labels(texts, labels, data.reports_path, wrong)
        words = (f"{key}: {'the true attribute' if word == _KNOWN else word}" for key, word in self.by_key.items())
        return sources, texts, "; ".join(words)

    def _check_agreement(self, declared: Described, found: Described | None) -> None:
        """Raise if the options contradict the description of a channel."""
        channel, given = declared.channel, self.given
        if found is not None and given is not None and found.channel != given.channel:
            raise ValueError(f"--channel {given.source} contradicts {found.source}: they describe other channels.")
        for option, typed, said in (
            ("--keep", self.keep, channel.keep),
            ("--epsilon", self.epsilon, channel.epsilon),
        ):
            if typed is not None and not math.isclose(typed, said, rel_tol=_CLOSE):
                raise ValueError(
                    f"{option} {typed:g} contradicts {declared.source}, which says {said:.6g}. Leave the option out "
                    "if the file is right."
                )
        if self.labels is not None and sorted(self.labels) != sorted(map(str, channel.groups)):
            raise ValueError(
                f"--groups {','.join(self.labels)} contradicts {declared.source}, which has the groups "
                f"{', '.join(map(str, channel.groups))}."
            )


def _single_labels(channel: Channel, data: Data) -> list[Any]:
    """Return what one report may be; raise if a person has more reports than the columns hold, or of other kinds."""
    labels = [label for each in channel.repeats for label in each.reports]
    if any(isinstance(label, tuple) for label in labels):
        raise ValueError(
            "The reports are of several attributes at once, and the command line prices one. Use the Python "
            "interface: DiscriminationFreePricer(channel=channel).fit(X, y, sensitive=frame)."
        )
    times, columns = len(channel.repeats), 1 if data.second is None else 2
    if times > columns:
        raise ValueError(
            f"The channel is that of {times} reports of one person, but there is a column for {columns}. Name the "
            "second one with --second-report; use the Python interface for more."
        )
    return list(dict.fromkeys(labels))


def ask_twice(channel: Channel) -> Channel:
    """Return the channel of two reports of one person, whose channel a file may describe already."""
    return channel if channel.repeats[1:] else Channel.repeated(channel, channel)


def _pair(path: Path, files: TableFormat, first: str, second: str) -> tuple[pd.Series, pd.Series]:
    frame = read_table(path, files, require=[first, second], text={first, second})
    return as_text(frame[first], path), as_text(frame[second], path)
