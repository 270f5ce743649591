"""The collector's side: the attribute is privatized here, and only reports leave."""

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.csv_cells import unescape_formulas
from fairpremium.documents import digest
from fairpremium.parties.protocol import (
    BATCH_TYPE,
    KEY,
    Answered,
    CollectorStudy,
    LinkageSecret,
    Report,
    ReportsTaken,
    channel_of,
    choose_attributes,
    labels_of,
    make_key,
    make_keys,
    restrict_access,
    settle,
    write_batches,
)
from fairpremium.privacy import Channel, DrawnReports, MemoizedReports, PrivacyLedger, read_reports, write_reports

from ._client import Client

_ROWS_PER_BATCH = 1_000_000
_POLICY, _REPORT, _DRAW = "policy", "report", "draw"
_IS_A_DRAW = re.compile("[0-9a-f]{32}")


class Collector(Client):
    """A collector's requests; see `Client` for the parameters."""

    def study(self, study: str) -> CollectorStudy:
        """Look at a study: its channel above all."""
        return self.get(f"/v1/studies/{study}", CollectorStudy)

    def channel(self, study: str, attribute: str | None = None) -> Channel | None:
        """Return the channel that the study asks for; None if it takes the true attribute or an unknown channel.

        - `attribute`: The name of one of several attributes; by default the channel of all of them together.
        """
        return channel_of(choose_attributes(self.study(study).attribute, None if attribute is None else [attribute]))

    def answers(self, study: str) -> Answered:
        """Look how many of the people that were invited have answered: a released number, the same for a time."""
        return self.get(f"/v1/studies/{study}/answers", Answered)

    def report(
        self,
        study: str,
        secret: LinkageSecret,
        policy: str | int,
        report: Any,
        channel: Channel | None,
        attribute: str | None = None,
    ) -> None:
        """Send one report that was drawn already; in a study of several attributes, of the one that is named."""
        message = Report(report=report, channel=None if channel is None else channel.descriptor())
        target = f"/v1/studies/{study}/reports/{make_key(secret, policy).hex()}"
        self.send_message(target + _query(attribute), message)

    def withdraw(self, study: str, secret: LinkageSecret, policies: Any) -> int:
        """Withdraw what was reported of policies, here or on the page, and return how many were named.

        The service takes the reports out with the next epoch. It does not say whether there were any.

        - `policies` (list, array or column of str or int): Policy numbers.
        """
        keys = make_keys(secret, policies).to_pylist()
        for key in keys:
            self.send("DELETE", f"/v1/studies/{study}/reports/{key.hex()}")
        return len(keys)

    def submit(
        self,
        reports: pd.DataFrame,
        *,
        study: str,
        secret: LinkageSecret,
        channel: Channel | None,
        attribute: str | None = None,
        rows_per_batch: int = _ROWS_PER_BATCH,
        steps: Sequence[tuple[int, int]] | None = None,
        tell: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Send reports that were drawn already (`draw_reports`). Called again, it sends the same again.

        Parameters
        ----------
        reports : DataFrame
            Columns ``policy`` and ``report``. Policy numbers are turned into keys and not sent.
        study : str
        secret : LinkageSecret
            Of the study, shared with the insurers.
        channel : Channel or None
            That drew the reports.
        attribute : str, optional
            In a study of several attributes, the name of the one that was reported.
        rows_per_batch : int
        steps : sequence of (int, int), optional
            Up to which row the reports go that are sent together, and in how many batches, as `plan_batches`
            remembers it for a table that grows; instead of `rows_per_batch`.
        tell : callable
            Gets the number of batches that were sent, and that of all.

        Returns
        -------
        int
            Number of reports.
        """
        keys = np.frombuffer(make_keys(secret, reports[_POLICY]).buffers()[1], dtype=KEY)
        labels = channel.reports if channel is not None else labels_of(self.study(study).attribute)
        steps = _more_steps([], len(reports), rows_per_batch) if steps is None else steps

        def bodies() -> Iterator[bytes]:
            start = 0
            for end, batches in steps:
                rows = slice(start, end)
                some = (keys[rows], reports[_REPORT].iloc[rows], labels, channel)
                yield from write_batches(*some, batches=batches, attribute=attribute)
                start = end

        target, query = f"/v1/studies/{study}/report-parts", _query(attribute)
        files = ((f"{target}/{n}{query}", body) for n, body in enumerate(bodies()))
        total = sum(batches for _, batches in steps)
        for done, _ in enumerate(self.put_files(files, BATCH_TYPE, ReportsTaken), start=1):
            tell(done, total)
        return len(reports)


def _query(attribute: str | None) -> str:
    return "" if attribute is None else f"?attribute={attribute}"


def draw_reports(
    people: pd.DataFrame,
    path: str | os.PathLike[str],
    *,
    policy: str,
    column: str,
    memo: MemoizedReports,
    ledger: PrivacyLedger,
    person: str | None = None,
    declared: Collection[str] = (),
    confirm_new_draw: bool = False,
) -> DrawnReports:
    """Draw the report of every person once, and store it: who is asked again gives the same report.

    Parameters
    ----------
    people : DataFrame
        With the true attribute; it stays here.
    path : str or path
        Where the reports are stored, a .parquet or .csv file for its owner alone, with the name of the draw beside each
        report. Reports that are in it stay, and hold for all policies of their person. Other people are drawn and added
        before anything is sent.
    policy, column : str
        Columns of the policy number and of the attribute.
    memo : MemoizedReports
        From which reports are drawn. If the file is lost, the same memo draws the same reports again.
    ledger : PrivacyLedger
        It is charged for everyone who is drawn, before the draw, under the memo's name of the attribute. A repeat costs
        nothing more. Reports in a file of version 0.1.0 were drawn independently: each is charged when it is first
        seen, unless that version charged this ledger. Such a charge pays for the first reports that are seen.
    person : str, optional
        Column that identifies the person. All policies of a person have the same report, which is charged once.
        Without it a policy counts as a person, unless the ledger knows whose it is.
    declared : collection of str
        Names of attributes that are known to be others than this one, such as those of the study.
    confirm_new_draw : bool
        Whether to draw people afresh who have reported before. Without it they are refused, and nothing is drawn.

    Returns
    -------
    DrawnReports
        Reports with the columns ``policy`` and ``report``, in the order of `people`, and how many persons were charged.
    """
    for name in (policy, column, *([] if person is None else [person])):
        if name not in people.columns:
            raise ValueError(f"Got people with columns {list(people.columns)}, but expected a column {name!r}.")
    numbers = people[policy].astype(str)
    if people[policy].isna().any() or numbers.duplicated().any():
        raise ValueError(f"Got missing or repeated values in column {policy!r}, but expected every policy once.")
    persons = _find_persons(people, numbers, person, ledger)
    target = Path(path)
    restrict_reports(target)
    known = _read_named(target, memo)
    names = memo.draw_ids(persons, people[column])  # raises if a person has several values
    stored = numbers.isin(known[_POLICY])
    have_one = persons.isin(persons[stored])
    paid = _find_paid(target, known, ledger)
    existing = {
        number: None if name in paid else bytes.fromhex(name)
        for number, name in zip(known[_POLICY], known[_DRAW], strict=True)
    }
    named_by = policy if person is None else person
    unknown = ledger.charge_draws(
        persons[have_one].tolist(), [existing.get(number) for number in numbers[have_one]], attribute=memo.attribute,
        epsilon=memo.channel.epsilon, policies=None if person is None else numbers[have_one].tolist(),
        named_by=named_by if ledger.is_empty() else None, confirm_new_draw=True,
    )  # fmt: skip
    reports, charged = memo.draw(
        persons[~have_one].tolist(), people.loc[~have_one, column], ledger,
        policies=None if person is None else numbers[~have_one].tolist(), declared=declared,
        named_by=named_by, confirm_new_draw=confirm_new_draw,
    )  # fmt: skip
    by_policy = known.set_index(_POLICY)
    if not stored.all():
        first = by_policy.loc[numbers[stored]].set_axis(persons[stored])
        first = first[~first.index.duplicated()]
        more = pd.DataFrame(index=numbers[~stored], columns=[_REPORT, _DRAW], dtype=object)
        more.loc[numbers[~stored & have_one]] = first.loc[persons[~stored & have_one]].to_numpy()
        more.loc[numbers[~have_one], _REPORT] = np.asarray(reports, dtype=object)
        more.loc[numbers[~have_one], _DRAW] = [name.hex() for name in np.asarray(names, dtype=object)[~have_one]]
        by_policy = pd.concat([by_policy, more])
        _write_safely(target, by_policy.rename_axis(_POLICY).reset_index(), memo.channel)
    by_policy = by_policy[_REPORT]
    drawn = pd.DataFrame({_POLICY: numbers.to_numpy(), _REPORT: by_policy.loc[numbers].to_numpy()})
    return DrawnReports(drawn, unknown + charged)


def _find_persons(people: pd.DataFrame, numbers: pd.Series, person: str | None, ledger: PrivacyLedger) -> pd.Series:
    if person is None:
        return pd.Series(ledger.find_persons(numbers.tolist(), policies=True), index=people.index, dtype=object)
    if people[person].isna().any() or (people[person].astype(str) == "").any():
        raise ValueError(
            f"Got missing values in column {person!r}, but expected the key of a person beside each policy."
        )
    return people[person].astype(str)


def restrict_reports(path: Path) -> None:
    """Take away the rights of others to a file of reports that exists, and to what lies beside it."""
    for each in (path, Path(f"{path}.channel.json"), _plan_of(path)):
        if each.exists():
            restrict_access(each)


def read_drawn(path: str | os.PathLike[str], channel: Channel) -> pd.DataFrame:
    """Read the reports that `draw_reports` stores, in the order in which they were drawn."""
    return _read_stored(Path(path), channel)[[_POLICY, _REPORT]]


def _read_stored(target: Path, channel: Channel) -> pd.DataFrame:
    known, its_channel = read_reports(target)
    if its_channel != channel:
        raise ValueError(f"{target} holds reports of another channel. Keep them apart: choose another file.")
    if target.suffix.lower() == ".csv":  # a policy number is a text: 007 is not 7
        texts = pd.read_csv(target, usecols=lambda name: name in (_POLICY, _DRAW), dtype=str, keep_default_na=False)
        known[texts.columns] = unescape_formulas(texts)
    return known


def _read_named(target: Path, memo: MemoizedReports) -> pd.DataFrame:
    """Read the reports with the name of the draw beside each, in hexadecimal digits.

    A report without one was not drawn from a memo. It gets a name from the content of the file and its policy, which it
    keeps when the file grows.
    """
    if not target.exists():
        return pd.DataFrame({_POLICY: [], _REPORT: [], _DRAW: []}, dtype=object)
    known = _read_stored(target, memo.channel).reindex(columns=[_POLICY, _REPORT, _DRAW])
    content = hashlib.sha256(target.read_bytes()).hexdigest()
    origin = ["stored report", memo.attribute, memo.channel.descriptor()["sha256"], content]
    known[_DRAW] = [
        name
        if isinstance(name, str) and _IS_A_DRAW.fullmatch(name)
        else hashlib.sha256(json.dumps([*origin, policy]).encode()).hexdigest()[:32]
        for name, policy in zip(known[_DRAW], known[_POLICY], strict=True)
    ]
    return known


def _find_paid(target: Path, known: pd.DataFrame, ledger: PrivacyLedger) -> set[str]:
    """Return the draws of a file for which version 0.1.0 has charged the ledger, by study, path and policies.

    The charge is for the first reports that are seen here. Others of the same policies are draws of their own.
    """
    paid: set[str] = set()
    for study, steps in _read_plans(target).items():
        start = 0
        for end, _ in steps:
            some = known.iloc[start:end]
            once = "\n".join([study, str(target.resolve()), *some[_POLICY]])
            reports = digest([str(report) for report in some[_REPORT]])
            if ledger.bind_charge(hashlib.sha256(once.encode()).hexdigest(), reports):
                paid.update(some[_DRAW])
            start = end
    return paid


def plan_batches(path: str | os.PathLike[str], study: str, rows: int) -> list[tuple[int, int]]:
    """Return in which batches a table of reports is sent, and remember it beside the table.

    A batch that was sent cannot change. So the batches that were planned before stay as they are, and rows that
    were added since become batches of their own.

    - `path`: The table of reports; the plan is stored in the file of the same name with ``.parts.json``.
    - `rows`: Rows of the table now.

    Returns for each time that the table had grown: its rows then, and in how many batches the new ones are sent.
    """
    plans = _read_plans(path)
    before = [(end, batches) for end, batches in plans.get(study, [])]
    if before and before[-1][0] > rows:
        raise ValueError(f"{path} has fewer reports than were sent from it. Restore it: reports are not drawn twice.")
    steps = _more_steps(before, rows)
    if steps != before:
        plans[study] = steps
        target = _plan_of(path)
        draft = target.with_name(f".{target.name}.draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(plans) + "\n", encoding="utf-8")
        settle(draft, target)
    return steps


def _plan_of(path: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(path)}.parts.json")


def _read_plans(path: str | os.PathLike[str]) -> dict[str, list[Any]]:
    target = _plan_of(path)
    return dict(json.loads(target.read_bytes())) if target.exists() else {}


def _more_steps(
    before: Sequence[tuple[int, int]], rows: int, rows_per_batch: int = _ROWS_PER_BATCH
) -> list[tuple[int, int]]:
    more = rows - (before[-1][0] if before else 0)
    return [*before, (rows, math.ceil(more / rows_per_batch))] if more else list(before)


def _write_safely(target: Path, reports: pd.DataFrame, channel: Channel) -> None:
    draft = target.with_name(f".{target.stem}.draft{target.suffix}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # it has the policy numbers
    write_reports(draft, reports, channel)
    sidecar = Path(f"{draft}.channel.json")
    if sidecar.exists():
        sidecar.chmod(0o600)
        settle(sidecar, Path(f"{target}.channel.json"))
    settle(draft, target)
