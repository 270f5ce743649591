"""What a model file, its bundle and its audit say, as blocks of a document; card and record arrange the same blocks."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pandas
import scipy

from fairpremium import __version__
from fairpremium.labels import label_from_json
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, describe_pooling, to_document
from fairpremium.privacy import Channel

from ._document import Section, Table, facts, table

_LEVELS = 12  # that a table shows of a column
_REFERENCES = {
    "marginal": "the shares of the groups in the portfolio",
    "uniform": "the same weight for every group",
    "balanced": "chosen so that premiums and expected losses of the portfolio have the same total",
    "given": "given by the user",
}
_FIRST = ("model", "correction", "detail", "chosen", "reason")  # columns of the candidates

Block = str | Table


@dataclass(frozen=True)
class Evidence:
    """A fitted pricer, and what else is known about it."""

    pricer: DiscriminationFreePricer | FrequencySeverityPricer
    sha256: str  # of the model document
    source: str  # the name of the file
    manifest: Mapping[str, Any] | None  # of the signed bundle
    findings: Sequence[Mapping[str, Any]]  # of an audit
    insurer: str | None
    tariff: str | None

    @property
    def parts(self) -> list[tuple[str, DiscriminationFreePricer]]:
        """The pricers of one outcome with what each of them prices."""
        if isinstance(self.pricer, DiscriminationFreePricer):
            return [("premium", self.pricer)]
        several = len(self.pricer.parts_) > 1
        return [
            (f"{kind} of {peril}" if several else kind, getattr(pair, kind))
            for peril, pair in self.pricer.parts_.items()
            for kind in ("frequency", "severity")
        ]

    def documents(self) -> list[tuple[str, DiscriminationFreePricer, dict[str, Any]]]:
        """The parts with their model documents."""
        return [(name, part, to_document(part)) for name, part in self.parts]

    @property
    def first(self) -> DiscriminationFreePricer:
        """The first part, whose channel and reference distribution are those of all."""
        return self.parts[0][1]

    def identity(self) -> list[Block]:
        """Who and what."""
        manifest = self.manifest or {}
        study = manifest.get("study", {})
        return [
            facts(
                insurer=self.insurer,
                tariff=self.tariff,
                period=manifest.get("details", {}).get("period") or None,
                study=None if not study else f"{study['title']} ({study['id']})",
                fit=manifest.get("fit", {}).get("id"),
                file=self.source,
                sha256_inside_the_model_file=self.sha256,
                signed_by=manifest.get("key_id"),
                software=f"fairpremium {__version__} wrote this document",
                software_of_the_fit=_version_of(manifest),
            )
        ]

    def purpose(self) -> list[Block]:
        """What the model is for."""
        outcome = "of the expected losses"
        if isinstance(self.pricer, FrequencySeverityPricer):
            outcome = "of frequency times severity"
        return [
            f"The model gives the discrimination-free premium {outcome}, per unit of exposure: the mean of the best "
            f"estimates of the groups {_listed(self.first.groups_)}, with weights that do not depend on the person. It "
            "removes direct discrimination by the attribute, and proxy discrimination: the features do not stand in "
            "for the attribute.",
            "It is made for the prices of an insurance tariff. Prices need the features below and never the attribute. "
            "It is not made for decisions about single persons other than their price, and not to infer an attribute.",
        ]

    def features(self) -> list[Block]:
        """The columns."""
        rows = []
        for column in self.first.design_.columns:
            levels = column.levels
            words = "" if levels is None else ", ".join(map(str, levels[:_LEVELS]))
            more = "" if levels is None or len(levels) <= _LEVELS else f" and {len(levels) - _LEVELS} more"
            rows.append((column.name, "number" if levels is None else "category", words + more))
        unseen = self.pricer.unseen_levels
        return [
            table(("feature", "kind", "levels, the base level first"), rows),
            "A level that is not listed is "
            + ("an error." if unseen == "error" else "priced like the base level of its feature."),
        ]

    def data(self) -> list[Block]:
        """The rows that the model was fitted to."""
        manifest, part = self.manifest or {}, self.first
        n, missing = part.n_rows_, part.n_missing_reports_
        portfolio, sampled = manifest.get("portfolio", {}), part.n_sampled_rows_
        shares = ", ".join(
            f"{group} {share:.3f}" for group, share in zip(part.groups_, part.group_distribution_, strict=True)
        )
        return [
            facts(
                rows=f"{n:,}",
                rows_that_were_fitted=None if sampled is None else f"a random sample of {sampled:,}",
                rows_without_a_report=None
                if manifest
                else f"{missing:,} ({missing / n:.1%}); they inform totals and the unaware price",
                shares_of_the_groups=f"{shares}, estimates of the fit, which uses the reports with features and losses",
                rows_with_a_report_in_the_study=_rounded(manifest.get("matched")),
                sha256_of_the_portfolio=portfolio.get("sha256"),
            )
        ]

    def privacy(self) -> list[Block]:
        """The channel, and what is promised."""
        channel = self.first.channel_
        if channel is None:
            blocks: list[Block] = [
                "The model was fitted to the true attribute. No local differential privacy protects the persons."
            ]
        elif isinstance(channel, Mapping):
            several = "; ".join(f"{key}: {_channel(one)}" for key, one in channel.items())
            blocks = [f"Rows came through several channels: {several}."]
        else:
            blocks = [
                facts(channel=_channel(channel), sha256_of_its_description=channel.descriptor()["sha256"]),
                self._who_reported(channel),
            ]
        disclosure = (self.manifest or {}).get("disclosure")
        if disclosure:
            blocks.append(f"Promise of the third party: {disclosure['statement']}")
            rules = [(rule["title"], rule["limit"]) for rule in disclosure.get("passed", [])]
            if rules:
                blocks += ["Rules of disclosure that the release passed:", table(("rule", "limit"), rules)]
        blocks.append("The model holds no rows, no reports and no attribute of a person.")
        return blocks

    def _who_reported(self, channel: Channel) -> str:
        """Say what a report reveals, and to whom; a third party may have added noise of its own."""
        descriptor = (self.manifest or {}).get("channel")
        collected = channel if descriptor is None else Channel.from_descriptor(descriptor)
        reveals = (
            f"One report multiplies the odds of one group against another by at most {_odds(collected)} (local "
            "differential privacy), whoever sees it and whatever else they know."
        )
        if collected == channel:
            return f"Each person reported the attribute through this channel. {reveals}"
        return (
            f"Each person reported the attribute through {_channel(collected)}. {reveals} The third party saw these "
            "reports and randomized them once more; the channel above is both together, and the factor is "
            f"{_odds(channel)} for whoever sees only the reports that the model was fitted to."
        )

    def method(self) -> list[Block]:
        """Families, model classes, corrections and the weights of the groups."""
        rows = [
            (
                name,
                _family(document["family"]),
                document["model"]["kind"],
                part.correction_,
                describe_pooling(part.pooling_),
            )
            for name, part, document in self.documents()
        ]
        reference = self.pricer.reference if isinstance(self.pricer.reference, str) else "given"
        weights = ", ".join(
            f"{group} {weight:.4g}"
            for group, weight in zip(self.first.groups_, self.first.reference_distribution_, strict=True)
        )
        return [
            table(("part", "family", "model class", "correction of the noise", "pooling of the groups"), rows),
            f"Reference distribution: {_REFERENCES.get(reference, reference)} ({weights}).",
        ]

    def candidates(self) -> list[Block]:
        """What was compared, and why one was used."""
        blocks: list[Block] = []
        for name, part in self.parts:
            found = part.candidates_
            kept = [
                c
                for c in (*_FIRST, *found.columns.difference(_FIRST))
                if c in found and found[c].notna().any() and (found[c].astype(str) != "").any()
            ]
            if len(self.parts) > 1:
                blocks.append(f"Candidates of the {name}:")
            shown = [column for column in kept if not (column.endswith("_se") and column[:-3] in kept)]
            rows = [[_with_error(row, column) for column in shown] for row in found[kept].to_dict("records")]
            blocks.append(table([column.replace("_", " ") for column in shown], rows))
        return blocks

    def performance(self) -> list[Block]:
        """How well the prices describe the outcomes, and how certain they are."""
        blocks: list[Block] = []
        rows = []
        for name, _, document in self.documents():
            for quality in document["quality"]:
                deviance, null = quality["deviance"], quality["null_deviance"]
                explained = f"{1 - deviance / null:.2%}" if deviance is not None and null else ""
                group = "all" if quality["group"] is None else str(label_from_json(quality["group"]))
                rows.append((name, quality["price"].replace("_", " "), group, explained, quality["aic"]))
        if rows:
            blocks.append(table(("part", "price", "group", "deviance explained", "AIC"), rows))
        blocks.append(
            "Premiums have confidence intervals, computed from the covariance in the file."
            if self.pricer.has_intervals_
            else "The model was fitted without intervals."
        )
        return blocks

    def audit(self) -> list[Block]:
        """What an audit found: who pays what, balance, certificate."""
        if not self.findings:
            return ["No audit is part of this file. fairpremium audit with --model writes one."]
        return [table(("question", "answer"), [(finding["heading"], finding["text"]) for finding in self.findings])]

    def limits(self) -> list[Block]:
        """What the model does not promise."""
        found = [
            "Discrimination-free premiums remove what the attribute and its proxies add. They are not the same "
            "for all groups: groups with different features pay different means.",
            "Premiums are estimates from reports with noise. Where reports are few, intervals are wide.",
            "The model holds for the portfolio that it was fitted to. Another portfolio, and time, need a new fit; "
            "fairpremium monitor says when.",
        ]
        part = self.first
        if part.channel_ is not None:
            found.append("The correction of the noise is right if the reports went through the channel above.")
        if part.n_missing_reports_ and not self.manifest:
            found.append(
                f"{part.n_missing_reports_:,} rows have no report. Prices assume that within a group and given the "
                "features, reporting does not depend on losses."
            )
        return list(found)

    def integrity(self) -> list[Block]:
        """How the file can be checked."""
        manifest = self.manifest or {}
        log = manifest.get("log", {})
        size = log.get("size", log.get("seq"))  # the name of 0.1.0
        members = [(name, member["sha256"]) for name, member in manifest.get("members", {}).items()]
        blocks: list[Block] = [
            "The model is a JSON file with a checksum of its content in the field sha256; the file has another one. "
            "Reading it checks the sum and executes no code.",
            facts(
                sha256_inside_the_model_file=self.sha256,
                signed_by=manifest.get("key_id"),
                checkpoint_of_the_log=None if not log else f"{size}, signed by {log['key_id']}",
                python=platform.python_version(),
                libraries=f"numpy {numpy.__version__}, scipy {scipy.__version__}, pandas {pandas.__version__}",
            ),
        ]
        return [*blocks, table(("member of the bundle", "SHA-256"), members)] if members else blocks


def sign_off() -> Section:
    """Return the one thing that is left to fill in."""
    roles = ("Prepared by", "Reviewed by", "Approved by")
    return Section(
        "Sign-off", (table(("", "name and function", "date", "signature"), [(r, "", "", "") for r in roles]),)
    )


def _family(document: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name} {value:.4g}" for name, value in document.items() if isinstance(value, int | float))
    return f"{document['name']} ({settings})" if settings else str(document["name"])


def _odds(channel: Channel) -> str:
    return f"{math.exp(channel.epsilon) if channel.epsilon < 700 else math.inf:.3g}"


def _channel(channel: Any) -> str:
    if channel is None:
        return "the true attribute"
    kind = "general channel" if math.isnan(channel.keep) else f"randomized response, keep {channel.keep:.4g}"
    return f"{kind}, epsilon {channel.epsilon:.4g}, groups {_listed(channel.groups)}"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))


def _rounded(count: int | None) -> str | None:
    return None if count is None else f"about {count:,}"


def _version_of(manifest: Mapping[str, Any]) -> str | None:
    versions = manifest.get("versions")
    return None if not versions else ", ".join(f"{name} {version}" for name, version in versions.items())


def _with_error(row: Mapping[str, Any], column: str) -> Any:
    """Return a cell, with its standard error to two digits if the row has one."""
    value, error = _plain(row[column]), _plain(row.get(f"{column}_se"))
    if not isinstance(value, float) or not error or not math.isfinite(error):
        return value
    places = max(0, 1 - math.floor(math.log10(error)))
    return f"{value:,.{places}f} ± {error:,.{places}f}"


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, numpy.generic) else value
