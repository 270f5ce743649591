"""The panel that opens an audit report: each question with an answer, a number, its interval and what to decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pandas as pd

from ..disparity import ALL_PAIRS, compute_threshold_check
from ..drawing import choose_places, format_percent, format_price
from ._proxy_effect import ProxyEffect

MATERIAL_PROXY = 0.01  # of the mean premium: a smaller difference between groups does not matter
MATERIAL_BALANCE = 0.05  # of the losses
FOUR_FIFTHS = 0.8  # ratio of two groups' mean premiums, or of favourable decisions
SMALL_DIFFERENCE = 0.2  # in standard deviations: what Cohen calls a small effect
Tables = Mapping[str, list[dict[str, Any]]]
Row = dict[str, Any]
Verdict = Literal["within", "beyond", "cannot tell"]


class Judged(NamedTuple):
    """A number with its limits, and whether it keeps thresholds."""

    value: float
    low: float
    high: float
    answer: Verdict
    rows_needed: float  # with which there would be an answer; infinite if nobody can say

    @classmethod
    def of(cls, value: float, low: float, high: float, thresholds: tuple[float, float], rows: int) -> Judged:
        """Judge a number by `compute_threshold_check`."""
        table = pd.DataFrame({"value": [value], "value_low": [low], "value_high": [high]})
        least, most = thresholds
        found = compute_threshold_check(table, "value", at_least=least, at_most=most, rows=rows).iloc[0]
        return cls(value, low, high, found["answer"], float(found["rows_needed"]))

    @property
    def numbers(self) -> tuple[float, float, float]:
        """The number and its limits."""
        return self.value, self.low, self.high

    def more_rows(self, head: Mapping[str, Any]) -> str:
        """What would give an answer."""
        if not math.isfinite(self.rows_needed):
            return _more(head)
        digits = 10 ** max(0, math.floor(math.log10(self.rows_needed)) - 1)
        needed = digits * math.ceil(self.rows_needed / digits)
        if not _is_noisy(head):
            return f"About {needed:,} policies would tell."
        return f"About {needed:,} policies at this epsilon would tell, or reports with a larger epsilon."


def build_panel(
    tables: Tables,
    head: Mapping[str, Any],
    effects: Mapping[str, ProxyEffect | None],
    *,
    is_model: bool,
) -> list[Row]:
    """Return the rows of the panel, as plain data.

    - `tables`: records of the sections by name.
    - `head`: what stands above the tables of the report.
    - `effects`: the proxy effect of each price: "unaware" or "current", the price in use, and "premiums", the audited
      list; empty if no features were given.
    - `is_model`: whether the audited prices are the discrimination-free ones of a pricer.
    """
    threshold = next((row["at_least"] for row in tables.get("threshold_check", [])), FOUR_FIFTHS)
    rows = [
        *_proxy_rows(effects, head, is_model),
        _balance_row(tables, head, is_model),
        _ratio_row(tables, head, threshold),
        _standardized_row(
            tables.get(f"standardized_difference{ALL_PAIRS}", []), tables.get("disparity_drivers", []), head
        ),
        _decision_row(tables.get(f"adverse_impact{ALL_PAIRS}", []), head, threshold),
        _privacy_row(head),
    ]
    return [row for row in rows if row]


def _row(
    name: str,
    question: str,
    answer: str,
    tone: str,
    number: str,
    decide: str,
    numbers: Sequence[float | None] = (None, None, None),
    verdict: str = "",
) -> Row:
    value, low, high = numbers
    return {
        "id": name, "question": question, "answer": answer, "tone": tone, "number": number, "decide": decide,
        "verdict": verdict, "value": value, "low": low, "high": high,
    }  # fmt: skip


_TONES = {"within": "good", "beyond": "attention", "cannot tell": "unclear"}


def _is_noisy(head: Mapping[str, Any]) -> bool:
    return head.get("privacy") is not None


def _more(head: Mapping[str, Any]) -> str:
    what = "more reports, or reports with a larger epsilon," if _is_noisy(head) else "more rows of the rarer groups"
    return f"Collect {what} before relying on either answer."


def _unknown(head: Mapping[str, Any]) -> str:
    return f"Cannot tell at this {'epsilon and ' * _is_noisy(head)}size"


class Pairwise(NamedTuple):
    """What all pairs of groups say together: beyond if one pair is, within if all are, otherwise cannot tell."""

    answer: Verdict
    shown: Judged | None  # of the pair that decides
    record: Mapping[str, Any]  # of this pair
    unknown: dict[str, list[str]]  # pairs without numbers, by the reason

    @classmethod
    def of(
        cls, records: Sequence[Mapping[str, Any]], measure: str, thresholds: tuple[float, float], rows: int
    ) -> Pairwise:
        """Judge the column `measure` of the records of pairs."""
        known: list[tuple[Judged, Mapping[str, Any]]] = []
        unknown: dict[str, list[str]] = {}
        for record in records:
            numbers = [record[f"{measure}{end}"] for end in ("", "_low", "_high")]
            if None in numbers[:2]:
                reason = record.get("note") or "the estimates have no limits"
                unknown.setdefault(reason, []).append(f"{record['group']} against {record['against']}")
                continue
            value, low, high = (math.inf if number is None else number for number in numbers)
            known.append((Judged.of(value, low, high, thresholds, rows), record))
        for answer in ("beyond", "cannot tell", "within"):
            found = [(judged, record) for judged, record in known if judged.answer == answer]
            if found:
                judged, record = max(found, key=lambda pair: _distance(pair[0].value, thresholds))
                return cls("cannot tell" if unknown and answer == "within" else judged.answer, judged, record, unknown)
        return cls("cannot tell", None, {}, unknown)

    @property
    def lack(self) -> str:
        """Which pairs have no numbers, as a part of a sentence; empty if all have."""
        return "; ".join(f"no numbers for {', '.join(pairs)}: {reason}" for reason, pairs in self.unknown.items())

    def explain(self, number: str) -> str:
        """Put the pairs without numbers behind a number."""
        return "; ".join(part for part in (number, self.lack) if part)

    def more_rows(self, head: Mapping[str, Any]) -> str:
        """What would give an answer."""
        return _more(head) if self.unknown or self.shown is None else self.shown.more_rows(head)


def _distance(value: float, thresholds: tuple[float, float]) -> float:
    """How far a value is from the middle of thresholds; ratios on the log scale."""
    if thresholds[0] < 0:
        return abs(value)
    return math.inf if value <= 0 else abs(math.log(value))


# --- proxies ---


def _proxy_rows(effects: Mapping[str, ProxyEffect | None], head: Mapping[str, Any], is_model: bool) -> list[Row]:
    rows = []
    if "unaware" in effects:
        question = "Would a price that only leaves the attribute out charge for the group through proxies?"
        rows.append(_proxy_row("proxy_effect", question, effects["unaware"], head, _DECIDE_UNAWARE))
    if "current" in effects:
        question = "Does the list in force charge for the group through proxies?"
        rows.append(_proxy_row("proxy_effect", question, effects["current"], head, _DECIDE_LIST))
    if is_model:
        rows.append(_removed_row(head))
    elif "premiums" in effects:
        question = "Does this list charge for the group through proxies?"
        rows.append(_proxy_row("proxy_effect_of_list", question, effects["premiums"], head, _DECIDE_LIST))
    else:
        question = "Does this list charge for the group through proxies?"
        decide = "Give the features that the tariff may use (--features, or X=...): without them nobody can tell."
        rows.append(_row("proxy_effect_of_list", question, "Not measured", "unclear", "", decide))
    return rows


_DECIDE_UNAWARE = {
    "beyond": "Leaving the attribute out is not enough for this portfolio. Use the discrimination-free premium, or "
    "justify the difference.",
    "within": "Proxies do little here: leaving the attribute out gives nearly the same premiums.",
}
_DECIDE_LIST = {
    "beyond": "Replace the list by a discrimination-free one with the same total, or justify the difference.",
    "within": "Nothing to do about proxies; test again when the portfolio or the tariff changes.",
}


_WHICH_PART = "Say which part of the cost the list is meant to charge; more reports would not tell."


def _proxy_row(
    name: str, question: str, effect: ProxyEffect | None, head: Mapping[str, Any], decide: Mapping[str, str]
) -> Row:
    if effect is None:
        few = "too few reports in a group"
        return _row(name, question, "Cannot tell", "unclear", few, _more(head), verdict="cannot tell")
    share, low, high = (number / effect.mean for number in (effect.value, effect.low, effect.high))
    judged = Judged.of(share, low, high, (-MATERIAL_PROXY, MATERIAL_PROXY), head["rows"])
    verdict = judged.answer
    limit = format_percent(MATERIAL_PROXY, 0)
    answer = {"beyond": f"Yes, more than {limit}", "within": f"No, less than {limit}", "cannot tell": _unknown(head)}[
        verdict
    ]
    number = (
        f"{effect.group} pays {_amount(effect.value, effect.low, effect.high, head)} more than {effect.against} "
        f"through proxies, beyond what the features say about the cost: {format_percent(share)} of the mean premium "
        f"({_percents(low, high)})"
    )
    numbers = (effect.value, effect.low, effect.high)
    if effect.note and verdict == "cannot tell":
        number += f"; {effect.note}"
    unsure = _WHICH_PART if effect.note else judged.more_rows(head)
    what = unsure if verdict == "cannot tell" else decide[verdict]
    return _row(name, question, answer, _TONES[verdict], number, what, numbers, verdict)


def _removed_row(head: Mapping[str, Any]) -> Row:
    return _row(
        "removed",
        "Does the discrimination-free premium remove it?",
        "Yes",
        "good",
        "0, by construction: the groups' costs are averaged with the same weights for everybody",
        "Check that the weights and the rating factors are those that were approved.",
        (0.0, None, None),
        "within",
    )


# --- balance and disparity ---


def _balance_row(tables: Tables, head: Mapping[str, Any], is_model: bool) -> Row:
    record = tables["balance"][-1]
    ratio, low, high = record["ratio"], record["ratio_low"], record["ratio_high"]
    if low is None or high is None:
        return {}
    judged = Judged.of(ratio, low, high, (1 - MATERIAL_BALANCE, 1 + MATERIAL_BALANCE), head["rows"])
    answer = {
        "within": f"Yes, within {format_percent(MATERIAL_BALANCE, 0)}",
        "beyond": "No, they are lower" if ratio < 1 else "No, they are higher",
        "cannot tell": "Cannot tell at this size",
    }[judged.answer]
    number = f"premiums are {format_percent(ratio)} of losses ({_percents(low, high)})"
    is_above = judged.answer == "beyond" and ratio > 1
    decide = {
        "within": "No change of the level is needed.",
        "beyond": "Decide whether expenses and margins explain it."
        if is_above
        else 'Raise the level, such as with reference="balanced" or a loading.',
        "cannot tell": "Judge the level with more years of losses.",
    }[judged.answer]
    tone = "plain" if is_above and not is_model else _TONES[judged.answer]
    question = "Do premiums add up to losses?"
    return _row("balance", question, answer, tone, number, decide, judged.numbers, judged.answer)


def _ratio_row(tables: Tables, head: Mapping[str, Any], threshold: float) -> Row:
    question = f"Is a group's mean premium below {_share(threshold)} of another's?"
    records = [_smaller_first(r) for r in tables["demographic_disparity"] if r["against"] is not None]
    if not records:
        return {}
    found = Pairwise.of(records, "ratio", (threshold, 1 / threshold), head["rows"])
    number = ""
    if found.shown is not None:
        r, judged = found.record, found.shown
        number = (
            f"{r['group']} pays {format_percent(judged.value)} of what {r['against']} pays "
            f"({_percents(judged.low, judged.high)})"
        )
    decide = {
        "within": f"The mean premiums of all groups keep the limit of {_share(threshold)}.",
        "beyond": _JUSTIFY,
        "cannot tell": found.more_rows(head),
    }
    return _pairs_row("premium_ratio", question, found, number, decide, head)


def _pairs_row(
    name: str, question: str, found: Pairwise, number: str, decide: Mapping[str, str], head: Mapping[str, Any]
) -> Row:
    answer = {"within": "No", "beyond": "Yes", "cannot tell": _unknown(head)}[found.answer]
    numbers = (None, None, None) if found.shown is None else found.shown.numbers
    told = decide[found.answer]
    return _row(name, question, answer, _TONES[found.answer], found.explain(number), told, numbers, found.answer)


_JUSTIFY = "Say which rating factors carry the difference, and whether the cost justifies it."


def _standardized_row(records: list[dict[str, Any]], drivers: list[dict[str, Any]], head: Mapping[str, Any]) -> Row:
    if not records:
        return {}
    limit = f"{SMALL_DIFFERENCE:g}"
    question = f"Do groups' mean premiums differ by more than {limit} standard deviations?"
    found = Pairwise.of(records, "standardized", (-SMALL_DIFFERENCE, SMALL_DIFFERENCE), head["rows"])
    number = ""
    if found.shown is not None:
        r, (value, low, high) = found.record, found.shown.numbers
        more = "more" if value > 0 else "less"
        shown = sorted((abs(low), abs(high))) if low * high > 0 else [low, high] if value > 0 else [-high, -low]
        number = (
            f"{r['group']} pays {abs(value):.2f} standard deviations ({shown[0]:.2f} to {shown[1]:.2f}) {more} than "
            f"{r['against']}{_largest_driver(drivers, r, head)}"
        )
    decide = {
        "within": "The groups' premiums are close, compared with how premiums vary.",
        "beyond": _JUSTIFY,
        "cannot tell": found.more_rows(head),
    }
    return _pairs_row("standardized_difference", question, found, number, decide, head)


def _largest_driver(drivers: list[dict[str, Any]], pair: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """Say which rating factor carries most of a difference."""
    names = (pair["group"], pair["against"])
    own = [r for r in drivers if (r["group"], r["against"]) in (names, names[::-1])]
    numbers = ("contribution", "contribution_low", "contribution_high")
    known = [r for r in own if r["factor"] not in ("remainder", "total") and None not in (r[name] for name in numbers)]
    if not known:
        return ""
    sign = 1 if (pair["standardized"] > 0) == (known[0]["group"] == names[0]) else -1
    top = max(known, key=lambda r: sign * r["contribution"])
    low, high = sorted((sign * top["contribution_low"], sign * top["contribution_high"]))
    if low <= 0:
        return ""
    amount = _amount(sign * top["contribution"], low, high, head)
    total = next((r["contribution"] for r in own if r["factor"] == "total"), None)
    if total is not None and sign * top["contribution"] > 1.01 * sign * total:
        return f"; the factor {top['factor']} alone makes {amount}, and others take a part back"
    return f"; the factor {top['factor']} carries {amount} of it"


def _decision_row(records: list[dict[str, Any]], head: Mapping[str, Any], threshold: float) -> Row:
    if not records:
        return {}
    question = f"Do favourable decisions reach a group less than {_share(threshold)} as often as another?"
    found = Pairwise.of(records, "ratio", (threshold, 1 / threshold), head["rows"])
    number = ""
    if found.shown is not None:
        r, (value, low, high) = found.record, found.shown.numbers
        to = f"{low:.2f} to {high:.2f}" if math.isfinite(high) else f"{low:.2f} or more"
        number = f"adverse impact ratio of {r['group']} against {r['against']}: {value:.2f} ({to})"
    decide = {
        "within": f"The decisions keep the limit of {_share(threshold)}.",
        "beyond": "Say what the decision rests on, and look for a less discriminatory alternative.",
        "cannot tell": found.more_rows(head),
    }
    return _pairs_row("adverse_impact", question, found, number, decide, head)


def _smaller_first(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Turn a ratio above one around."""
    ratio, low, high = record["ratio"], record["ratio_low"], record["ratio_high"]
    if ratio is None or low is None or high is None or not low > 0 or ratio <= 1:
        return record
    turned = {"ratio": 1 / ratio, "ratio_low": 1 / high, "ratio_high": 1 / low}
    return {**record, "group": record["against"], "against": record["group"], **turned}


# --- privacy ---


def _privacy_row(head: Mapping[str, Any]) -> Row:
    privacy, question = head["privacy"], "Is the attribute protected?"
    if privacy is None:
        decide = "Limit who may see this report and its data: the true attribute was used."
        return _row("privacy", question, "No", "attention", "the true attribute was used", decide, verdict="beyond")
    collected, release = privacy["collected"], privacy["release"]
    epsilon = collected["epsilon"]
    if epsilon is None:
        decide = "Collect reports through a channel that rules no group out."
        number = "some report rules a group out"
        return _row("privacy", question, "No", "attention", number, decide, verdict="beyond")
    number = f"each report is {epsilon:.3g}-differentially private where it was collected"
    if release is not None and release["epsilon"] is not None:
        delta = "" if not release["delta"] else f" (delta {release['delta']:.0e})"
        number += f"; the third party added noise of epsilon {release['epsilon']:.3g}{delta}"
    elif release is not None:
        number += "; the third party added no noise"
    decide = (
        f"Check epsilon {epsilon:.3g} against your privacy policy: one report changes the odds on any group by a "
        f"factor of at most {collected['odds']:.3g}."
    )
    answer, tone = "Yes", "good"
    if privacy["estimated"]:
        answer, tone = "Yes, as estimated", "unclear"
        decide = "The noise was estimated, not declared: have it declared. " + decide
    return _row("privacy", question, answer, tone, number, decide, (epsilon, None, None), "within")


# --- numbers as text ---


def _share(threshold: float) -> str:
    return "four fifths" if threshold == FOUR_FIFTHS else format_percent(threshold, 0)


def _amount(value: float, low: float, high: float, head: Mapping[str, Any]) -> str:
    scale = head["scale"]
    places = choose_places([scale * value], [scale * (high - low) / 4])
    shown = [format_price(scale * number, places=places) for number in (value, low, high)]
    unit = f" {head['amounts']}" if head["amounts"] else ""
    return f"{shown[0]}{unit} ({shown[1]} to {shown[2]})"


def _percents(low: float, high: float) -> str:
    return " to ".join(f"{format_price(100 * limit, places=1)}\N{NO-BREAK SPACE}%" for limit in (low, high))
