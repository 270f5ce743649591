"""Invitations and answers over the wire: one answer per person, and refusals that tell nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import threading
import time
from collections import Counter
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from sqlalchemy import select

from fairpremium import Channel, RandomizedResponse, SubsetSelection
from fairpremium.parties import StudySpec
from fairpremium.parties.collect import _answers
from fairpremium.parties.protocol._invitations import invitation_key, read_token, write_token
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.release import CountNoise
from fairpremium.parties.service._context import ServiceLimits
from fairpremium.parties.service._fit_inputs import find_reports, read_job
from fairpremium.parties.service.reports import _compaction, _queue, page_of
from fairpremium.parties.store import _database
from fairpremium.parties.store.schema import answer_counts, answers, batch_files, log, reports
from helpers import places, wire
from helpers.old_schema import downgrade
from helpers.processes import wait_until

KEY = wire.policy_key("a person")
ORIGIN = "https://app.example"
ATTEMPT = "a" * 22
TEXT = {"question": "Your sex?", "groups": ["Female", "Male"], "purpose": "Fair prices."}


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request, tmp_path):
    database = None if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    with wire.World(tmp_path / "third-party", database, collect=True, collect_origins=(ORIGIN,)) as world:
        world.declare(question=wire.QUESTION)
        yield world


def token_of(world, key=KEY, study="motor", expires=None, signer="app", service=None):
    expires = int(world.clock()) + 3600 if expires is None else expires
    sealed_to = invitation_key(service or world.context.key)
    signing = world.keys[signer] if isinstance(signer, str) else signer
    return write_token(signing, sealed_to, study=study, key=key, expires=expires)


def post(world, path, body, origin=None, method="POST"):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"host": "third.party", "content-type": "application/json", "content-length": str(len(content))}
    if origin:
        headers["origin"] = origin
    raw = tuple((name.encode(), value.encode()) for name, value in headers.items())
    return world.send(wire.Wire(method, f"/collect/v1/{path}".encode(), raw, content))


def is_open(world, token):
    return post(world, "open", {"token": token}).json()["open"]


def report(world, token, value, **more):
    return post(world, "report", {"token": token, "report": value, "attempt": ATTEMPT, **more}).json()["accepted"]


def rows(world, table):
    return world.context.database.read(lambda c: c.execute(select(table)).all())


# --- what an open invitation says ---


def test_an_open_invitation_says_what_is_asked(world):
    answer = post(world, "open", {"token": token_of(world)}).json()
    assert answer == {
        "open": True,
        "study": "motor",
        "question": {"language": "en", "texts": {"en": TEXT}},
        "channel": wire.CHANNEL.descriptor(),
        "purpose": "Fair prices.",
        "collector": "App Ltd",
        "closes": "2027-01-15T09:00:00+00:00",
    }


def test_the_language_for_others_is_the_declared_one(world):
    """The order of the texts is lost when a study is stored."""
    texts = {name: wire.QUESTION.texts["en"].model_copy(update={"purpose": name}) for name in ("fr", "de", "es")}
    world.declare("french", question=wire.Question(collector="App Ltd", language="fr", texts=texts))
    answer = post(world, "open", {"token": token_of(world, study="french")}).json()
    assert answer["question"]["language"] == answer["purpose"] == "fr"
    assert set(answer["question"]["texts"]) == set(texts)


def test_an_answer_is_taken_once_and_its_repetition_changes_nothing(world):
    token = token_of(world)
    sent = {"token": token, "report": "M", "attempt": ATTEMPT}
    assert is_open(world, token)
    assert post(world, "report", sent).body == b'{"accepted":true}'
    before = world.dump()
    assert not is_open(world, token)
    assert post(world, "report", sent).body == b'{"accepted":true}'  # the first answer was lost
    for other in ("F", None, True, 1, "X"):
        assert not report(world, token, other)
    assert not report(world, token, "M", attempt="b" * 22)  # whoever guesses the report is not told that it is right
    assert not report(world, token_of(world), "M")  # another link to the same person
    assert world.dump() == before
    assert [(bytes(r.key), r.code, r.collector) for r in rows(world, reports)] == [(KEY, 1, "@app")]


def test_a_report_of_another_channel_is_refused(world):
    token = token_of(world)
    before = world.dump()
    for other in ("", "0" * 64, wire.CHANNEL.descriptor()["sha256"].upper()):
        assert not report(world, token, "M", channel=other)
    assert world.dump() == before
    assert report(world, token, "M", channel=wire.CHANNEL.descriptor()["sha256"])


def test_who_prefers_not_to_say_leaves_nothing_about_the_attribute(world):
    token = token_of(world)
    assert report(world, token, None)
    assert report(world, token, None)
    assert not report(world, token, "F")
    assert not is_open(world, token)
    assert rows(world, reports) == []
    assert len(rows(world, answers)) == 1


def test_a_report_that_the_study_does_not_know_leaves_the_invitation_open(world):
    token = token_of(world)
    before = world.dump()
    for value in ("X", "f", "", 0, 1, True, False, "F "):
        assert not report(world, token, value)
    assert world.dump() == before
    assert report(world, token, "F")


# --- tokens that are worth nothing ---


def bad_tokens(world):
    """Tokens that cannot be used, by why."""
    good = token_of(world, wire.policy_key("another"))
    raw = bytearray(base64.urlsafe_b64decode(good + "=" * (-len(good) % 4)))
    raw[60] ^= 1
    used = token_of(world, wire.policy_key("used"))
    assert report(world, used, "F")
    world.declare("marine", ("app2",), ("other",), question=wire.QUESTION)
    world.declare("silent", ("app",))
    world.declare("closed", ("app",), question=wire.QUESTION)
    assert world.ask("op", "POST", "/v1/studies/closed/close").status == 200
    draft = StudySpec.model_validate_json(wire.text(wire.study_spec(title="Draft")))
    assert world.ask("op", "PUT", "/v1/studies/draft", wire.text(draft)).status == 200
    world.add("lost", "collector", "app")
    world.third_party.revoke_key(world.keys["lost"].key_id)
    return {
        "used": used,
        "expired": token_of(world, expires=int(world.clock())),
        "changed": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "cut": good[:-2],
        "longer": good + "AAAA",
        "empty": "",
        "text": "hello",
        "not ASCII": "é" * 100,
        "unknown signer": token_of(world, signer=new_key()),
        "revoked signer": token_of(world, signer="lost"),
        "insurer as signer": token_of(world, signer="acme"),
        "for another service": token_of(world, service=new_key()),
        "unknown study": token_of(world, study="nowhere"),
        "study of another collector": token_of(world, study="marine"),
        "study without a question": token_of(world, study="silent"),
        "closed study": token_of(world, study="closed"),
        "study that is not open yet": token_of(world, study="draft"),
    }


def test_all_tokens_that_cannot_be_used_get_the_same_answers(world, capfd, caplog):
    bad = bad_tokens(world)
    before = world.dump()
    said = {}
    for why, token in bad.items():
        opened = post(world, "open", {"token": token})
        other = "M" if why == "used" else "F"  # the same as before would be its repetition
        reported = post(world, "report", {"token": token, "report": other, "attempt": ATTEMPT})
        said[why] = [(a.status, sorted(a.headers.items()), a.body) for a in (opened, reported)]
    assert len({repr(answer) for answer in said.values()}) == 1
    assert said["expired"][0][2] == b'{"open":false}'
    assert said["expired"][1][2] == b'{"accepted":false}'
    assert world.dump() == before
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_answers_come_at_the_beat_of_a_clock(world):
    tokens = {"good": token_of(world), **bad_tokens(world)}
    beats = {}
    for why, token in tokens.items():
        start = time.monotonic()
        is_open(world, token)
        beats[why] = (time.monotonic() - start) / 0.05
    assert min(beats.values()) >= 1.0


@pytest.mark.parametrize(("work", "beats"), [(0.0, 1), (0.001, 1), (0.049, 1), (0.051, 2), (0.24, 5)])
def test_how_long_the_work_took_shows_in_whole_beats_only(monkeypatch, work, beats):
    now = [100.0]

    async def sleep(seconds):
        now[0] += seconds

    monkeypatch.setattr(_answers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_answers.asyncio, "sleep", sleep)

    async def run():
        async with _answers._on_beat():
            now[0] += work

    asyncio.run(run())
    assert now[0] - 100.0 == pytest.approx(0.05 * beats)


def test_no_refusal_waits_for_the_disk(world, monkeypatch):
    """What writes takes as long as the disk does: then a used token would take longer than a forged one."""
    bad, good = bad_tokens(world), token_of(world)
    monkeypatch.setattr(world.third_party, "_write", lambda *_: pytest.fail("it opened a transaction that writes"))
    for token in bad.values():
        assert not report(world, token, "M")
    assert not report(world, good, "X")
    assert not report(world, good, "F", channel="0" * 64)
    assert report(world, bad["used"], "F")  # its repetition


def test_a_token_shows_nothing_and_no_two_are_alike(world):
    first, second = token_of(world), token_of(world)
    assert len(first) == len(second) < 210
    raw = [base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)) for token in (first, second)]
    for content in raw:
        for hidden in (KEY, b"motor", KEY.hex().encode(), bytes.fromhex(world.keys["app"].key_id[8:])):
            assert hidden not in content
    assert sum(a == b for a, b in zip(*raw, strict=True)) < 10  # of 150 random bytes: by chance once in 10^9
    found = read_token(first, world.context.key)
    assert (found.study, found.key, found.key_id) == ("motor", KEY, world.keys["app"].key_id)
    assert read_token(first, new_key()) is None


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed"),
        (b"[]", "malformed"),
        (b'{"token": 7}', "malformed"),
        (b'{"token": "a", "more": 1}', "malformed"),
        (b'{"token": "a", "report": "aaa", "more": "' + b"a" * 30 + b'"}', "malformed"),
        (b'{"token": "' + b"a" * 600 + b'"}', "malformed"),
        (b'{"token": "' + b"a" * 5000 + b'"}', "too-large"),
    ],
)
def test_bodies_of_another_form_are_problems_that_echo_nothing(world, body, code):
    for path in ("open", "report"):
        answer = post(world, path, body)
        assert answer.code == code
        assert b"aaa" not in answer.body


@pytest.mark.parametrize("attempt", [{}, {"attempt": None}, {"attempt": ""}, {"attempt": "a" * 21}])
def test_an_answer_without_a_random_text_is_not_taken(world, attempt):
    """Whoever has the link could otherwise repeat the request with every report, and see which one is known."""
    token = token_of(world)
    assert post(world, "report", {"token": token, "report": "F", **attempt}).code == "malformed"
    assert is_open(world, token)


def test_an_address_that_asks_too_often_waits(tmp_path):
    limits = ServiceLimits(answers_per_second=2.0)
    with wire.World(tmp_path / "third-party", collect=True, limits=limits) as world:
        statuses = Counter(post(world, "open", {"token": "a"}).status for _ in range(20))
    assert statuses[429] >= 6
    assert statuses[200] >= 10


def test_without_the_setting_there_is_no_such_page(tmp_path):
    with wire.World(tmp_path / "third-party") as world:
        assert post(world, "open", {"token": "a"}).status == 404
        assert post(world, "report", {"token": "a", "report": None, "attempt": ATTEMPT}).status == 404


# --- pages of other origins ---


def test_only_named_origins_may_read_answers(world):
    token = token_of(world)
    for origin in (ORIGIN, "https://evil.example", "null", None):
        asked = post(world, "report", b"", origin, "OPTIONS")
        told = post(world, "open", {"token": token}, origin)
        allowed = ORIGIN if origin == ORIGIN else None
        assert asked.headers.get("access-control-allow-origin") == allowed
        assert told.headers.get("access-control-allow-origin") == allowed
        assert told.headers["vary"] == "Origin"
    assert post(world, "open", b"", ORIGIN, "OPTIONS").headers["access-control-allow-headers"] == "content-type"
    signed = world.sign("app", "GET", "/v1/studies/motor").plus("origin", ORIGIN)
    assert "access-control-allow-origin" not in world.send(signed).headers


@pytest.mark.parametrize(
    "origin", ["http://app.example", "https://app.example/", "app.example", "*", "https://", "null"]
)
def test_origins_are_checked(tmp_path, origin):
    with pytest.raises(ValueError, match="expected one such as https"):
        wire.ServiceSettings(folder=tmp_path, collect=True, collect_origins=(origin,))


# --- what the collector is told ---


def test_what_people_answered_does_not_show_in_answers_to_the_collector(world):
    """Its own report of the same person is stored beside the person's own, whatever that was."""
    keys = {value: wire.policy_key(value) for value in ("F", "M", None)}
    for value, key in keys.items():
        assert report(world, token_of(world, key), value)
    for key in (*keys.values(), wire.policy_key("nobody")):
        sent = world.ask("app", "PUT", f"/v1/studies/motor/reports/{key.hex()}", wire.report("F"))
        assert (sent.status, sent.body) == (200, b"{}")
    assert world.ask("app", "GET", "/v1/studies/motor").json()["accepted"] is None  # its own four, too few to be told
    world.clock.now += 10
    assert not any(entry["event"] == "answer" for entry in world.ask("app", "GET", "/v1/log").json()["entries"])


def test_answers_leave_no_entry_in_the_log(world):
    before = len(rows(world, log))
    for i in range(5):
        assert report(world, token_of(world, wire.policy_key(i)), "F")
    assert len(rows(world, log)) == before


def test_the_number_of_answers_is_released_in_steps(world):
    get = lambda: world.ask("app", "GET", "/v1/studies/motor/answers")  # noqa: E731
    first = get()
    assert first.json()["standard_error"] == pytest.approx(4.22, abs=0.01)
    for i in range(30):
        assert report(world, token_of(world, wire.policy_key(i)), "F" if i % 2 else None)
        assert get().body == first.body
    entries = len(rows(world, log))
    world.clock.now += 3600
    second = get().json()
    assert second["releases"] == 2
    assert second["standard_error"] == pytest.approx(math.sqrt(2) * first.json()["standard_error"])
    assert abs(second["answered"] - 30) < 6 * second["standard_error"]
    assert get().json() == second
    assert len(rows(world, log)) == entries + 1  # the release, and nothing else
    told = json.loads(rows(world, log)[-1].body)
    assert told == {"study": "motor", "answered": second["answered"]}
    assert rows(world, answer_counts)[0].counted == 30


def test_the_noise_of_numbers_has_the_stated_law_and_is_drawn_once_per_count():
    noise = CountNoise(1.0, 1e-6)
    values = np.array([noise.add(100, b"s" * 16, b"%d" % i) * noise.grid for i in range(1500)])
    error = noise.sigma / math.sqrt(len(values))
    assert abs(values.mean() - 100) < 4.5 * error
    assert abs(values.std() / noise.sigma - 1) < 4.5 / math.sqrt(2 * len(values))
    same = {noise.add(100, b"s" * 16, b"7") for _ in range(3)}
    assert len(same) == 1
    shift = (noise.add(101, b"s" * 16, b"7") - same.pop()) * noise.grid
    assert abs(shift - 1) > 1e-3  # another count has other noise: a difference of two tells nothing exactly


def test_no_number_for_a_study_without_a_question(world):
    world.declare("silent", ("app",))
    answer = world.ask("app", "GET", "/v1/studies/silent/answers")
    assert (answer.status, answer.code) == (422, "not-allowed-here")
    assert world.ask("app2", "GET", "/v1/studies/motor/answers").code == "not-found"


# --- the declaration ---


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"texts": {}}, "at least 1"),
        ({"texts": {"english": TEXT}}, "is written like"),
        ({"texts": {"de": TEXT}}, "names one of the texts"),
        ({"texts": {"en": {**TEXT, "groups": ["A", "B", "C"]}}}, "every group"),
        ({"texts": {"en": {**TEXT, "groups": ["A", "A"]}}}, "repeated"),
        ({"texts": {"en": {**TEXT, "purpose": ""}}}, "at least 1"),
        ({"count_seconds": 0}, "greater than or equal"),
        ({"count_epsilon": 0.0}, "greater than 0"),
    ],
)
def test_questions_are_checked(changes, words):
    declared = wire.study_spec().model_dump(mode="json")
    declared["question"] |= changes
    with pytest.raises(ValueError, match=words):
        StudySpec.model_validate_json(json.dumps(declared))


def test_a_question_needs_a_known_channel_and_a_name_with_room_for_a_sign():
    declared = wire.study_spec().model_dump(mode="json")
    with pytest.raises(ValueError, match="known channel"):
        StudySpec.model_validate_json(json.dumps({**declared, "attribute": {"kind": "true", "groups": ["F", "M"]}}))
    with pytest.raises(ValueError, match="63 characters"):
        StudySpec.model_validate_json(json.dumps({**declared, "collectors": ["a" * 64]}))


def test_a_question_needs_a_channel_that_rules_no_group_out():
    declared = wire.study_spec().model_dump(mode="json")
    declared["attribute"]["channel"] = Channel([[1.0, 0.5], [0.0, 0.5]], groups=["F", "M"]).descriptor()
    with pytest.raises(ValueError, match="finite epsilon"):
        StudySpec.model_validate_json(json.dumps(declared))


def test_a_question_is_for_one_group():
    declared = wire.study_spec().model_dump(mode="json")
    declared["attribute"]["channel"] = SubsetSelection(["F", "M"], 1.0).descriptor()
    with pytest.raises(ValueError, match="cannot draw sets of groups"):
        StudySpec.model_validate_json(json.dumps(declared))


@pytest.mark.parametrize("groups", [[0.5, 1.5], [0, 2**53], [1, -(2**60)]])
def test_a_question_needs_groups_that_a_browser_sends_unchanged(groups):
    declared = wire.study_spec().model_dump(mode="json")
    declared["attribute"]["channel"] = RandomizedResponse(groups, keep=0.8).descriptor()
    with pytest.raises(ValueError, match="integers below 2"):
        StudySpec.model_validate_json(json.dumps(declared))
    StudySpec.model_validate_json(json.dumps({**declared, "question": None}))


# --- one answer per person under races ---


def test_two_devices_at_once_end_in_one_report(base, zygote, tmp_path):
    """Two web processes on one database, four devices of each of 25 people, all at the same time."""
    place = base.copy(tmp_path / "third-party")
    webs = [zygote.start("web", tmp_path / f"url-{i}", answers_per_second=1e6, **place.options) for i in range(2)]
    urls = [web.said() for web in webs]
    people = range(510, 535)
    party = place.open()
    tokens = {i: places.token(party, place.folder, i) for i in people}
    accepted, lock = Counter(), threading.Lock()
    sent_by: dict[int, list[str]] = {i: [] for i in people}

    def device(n):
        values = ["F", "M", "F", None]
        with httpx.Client(base_url=urls[n % 2], trust_env=False) as client:
            for i in people:
                body = {"token": tokens[i], "report": values[n], "attempt": f"{n:022}"}
                taken = [client.post("/collect/v1/report", json=body).json()["accepted"] for _ in range(2)]
                assert taken[0] == taken[1]  # a double click
                with lock:
                    accepted[i] += taken[0]
                    sent_by[i] += [values[n]] if taken[0] else []

    threads = [threading.Thread(target=device, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for web in webs:
        web.kill()
    assert accepted == dict.fromkeys(people, 1)
    with party.context.database.reading() as connection:
        stored = connection.execute(select(reports).where(reports.c.collector == page_of("app"))).all()
        assert len(connection.execute(select(answers)).all()) == len(people)
    keys = {bytes(places.name_keys(i, i + 1)[0]): i for i in people}
    codes = {keys[bytes(row.key)]: "FM"[row.code] for row in stored}
    assert codes == {i: value[0] for i, value in sent_by.items() if value[0] is not None}
    party.close()


# --- a fit ---


def test_a_fit_uses_reports_of_both_ways_alike(sqlite_base, tmp_path):
    """The same reports, all from the collector or some from the page: the same codes beside the rows."""
    found = {}
    for way in ("batches", "both"):
        place = sqlite_base.copy(tmp_path / way)
        party = place.open()
        some = [i for i in range(490, 600) if i != 500]
        if way == "both":
            for i in some:
                token = places.token(party, place.folder, i)
                assert party.take_answer(token, str(places.REPORTS[i]), f"{i:064x}")
        else:
            for i in some:
                party.put_report(places.APP, "motor", bytes(places.name_keys(i, i + 1)[0]), places.message(i))
        found[way] = find_reports(party.context, _job(party)).codes.tolist()
        if way == "both":
            party.cancel_fit(places.ACME, "look")
            assert party.work() == 1
            fit = party.get_fit(places.ACME, "waits")
            assert (fit.state, fit.epoch) == ("succeeded", 1)
        party.close()
    assert found["both"] == found["batches"]
    assert min(found["both"]) >= [0]  # every row has a report


def test_what_a_person_answered_counts_before_what_the_collector_sent(sqlite_base, tmp_path):
    place = sqlite_base.copy(tmp_path / "third-party")
    party = place.open()
    other = {"F": "M", "M": "F"}
    for i in range(20):
        assert party.take_answer(places.token(party, place.folder, i), other[str(places.REPORTS[i])], f"{i:064x}")
    joined = find_reports(party.context, _job(party))
    expected = ["FM".index(str(value)) for value in places.REPORTS[:490]]
    assert joined.codes[20:490, 0].tolist() == expected[20:]
    assert joined.codes[:20, 0].tolist() == [1 - code for code in expected[:20]]
    party.close()


def _job(party):
    """The inputs of a fit with all that was reported, as a worker has them."""
    party.begin_epoch(places.OP, "motor", 2)
    party.put_fit(places.ACME, "look", places.fit_spec(level=0.6))
    lease = SimpleNamespace(party="acme", fit="look")
    return party.context.database.read(lambda c: read_job(c, party.context, lease))


# --- many answers ---


def test_many_answers_become_a_file_and_stay_final(world, monkeypatch):
    for module in (_compaction, _queue):
        monkeypatch.setattr(module, "SINGLES", 10)
    tokens = [token_of(world, wire.policy_key(i)) for i in range(10)]
    for token in tokens:
        assert report(world, token, "F")
    wait_until(lambda: not rows(world, reports))
    assert [(row.collector, row.rows) for row in rows(world, batch_files)] == [("@app", 10)]
    for token in tokens[:2]:
        assert not is_open(world, token)
        assert report(world, token, "F")
        assert not report(world, token, "M")
    assert rows(world, reports) == []


# --- databases of earlier versions ---


def test_a_database_from_before_the_page_gets_its_tables(database_url):
    database = _database.Database(database_url)
    with database._engine.begin() as connection:
        downgrade(connection, 2)
    database.close()
    again = _database.Database(database_url)
    assert again.read(lambda c: c.execute(select(answers)).all()) == []
    again.close()
    _database.Database(database_url).close()
