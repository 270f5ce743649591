"""report.js against Python: the same words give the same reports, every integer is tried; in Node and in Chromium."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import chi2

from fairpremium.privacy import Channel, RandomizedResponse, draw_from_words
from helpers import browser as browser_tools
from helpers import scripts

CHANNELS = scripts.channels()


def slow_draw(channel, value, words):
    """The sampler word by word, in Python's integers: what both implementations are compared with."""
    queue = iter(words)
    labels = []
    parts = len(channel.components)
    for j, component in enumerate(channel.components):
        word = next(w for w in queue if w < 2**32 - 2**32 % component.total)
        u = word % component.total
        own = channel.groups[channel.groups.index(value)]
        group = split(own, channel)[j] if parts > 1 else own
        d = component.groups.index(group)
        if isinstance(component, RandomizedResponse):
            others = [g for g in component.groups if g != group]
            labels.append(group if u < component.a else others[(u - component.a) // component.b])
        else:
            ends = np.cumsum([row[d] for row in component.weights.tolist()]).tolist()
            labels.append(next(r for r, end in zip(component.reports, ends, strict=True) if u < end))
    return labels[0] if parts == 1 else sum((x if isinstance(x, tuple) else (x,) for x in labels), ())


def split(value, channel):
    """The labels of a flat tuple, component by component."""
    found, start = [], 0
    for component in channel.components:
        width = len(component.groups[0]) if isinstance(component.groups[0], tuple) else 0
        found.append(value[start : start + width] if width else value[start])
        start += width or 1
    return found


@pytest.mark.parametrize("name", CHANNELS)
def test_python_draws_from_words_as_the_slow_sampler(name):
    channel = CHANNELS[name]
    rng = np.random.default_rng(1)
    values = [channel.groups[i] for i in rng.integers(0, len(channel.groups), 300)]
    words = rng.integers(0, 2**32, (300, 64))
    drawn = draw_from_words(channel, values, words)
    expected = [slow_draw(channel, v, row) for v, row in zip(values, words.tolist(), strict=True)]
    assert [tuple(r) if isinstance(channel.reports[0], tuple) else r for r in drawn.tolist()] == expected


def test_python_draws_from_words_as_from_the_operating_system(monkeypatch):
    channel = CHANNELS["product"]
    words = np.random.default_rng(2).integers(0, 2**32, (1, 6))
    rest = iter(words[0].tolist())
    take = lambda size: b"".join(next(rest).to_bytes(4, "little") for _ in range(size // 4))  # noqa: E731
    monkeypatch.setattr("fairpremium.privacy._sampling.os.urandom", take)
    assert list(channel.privatize([("F", True)])[0]) == list(draw_from_words(channel, [("F", True)], words)[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([[0.5]], "expected integers of shape"),
        ([1], "expected integers of shape"),
        ([[1], [2]], "expected integers of shape"),
        ([[-1]], "32-bit"),
        ([[2**32]], "32-bit"),
        ([[2**32 - 1]], "used up"),
    ],
)
def test_other_words_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        draw_from_words(CHANNELS["two groups"], ["F"], words)


def check_vectors(run, n):
    """n reports from random words in Python, and the same from the script."""
    rng = np.random.default_rng(3)
    for channel in CHANNELS.values():
        case, expected = scripts.make_case(channel, n // len(CHANNELS) + 1, rng)
        assert scripts.positions(run("runCases", [case])[0]) == expected


@pytest.mark.simulation
def test_vectors_in_node(repetitions):
    check_vectors(scripts.run_in_node, repetitions(20_000, 1_000_000))


SMALL = {
    **{
        f"epsilon {epsilon}, {K} groups, {bits} bits": RandomizedResponse(range(K), epsilon=epsilon, _bits=bits)
        for epsilon, K, bits in [
            (0.3, 2, 6),
            (0.7, 3, 6),
            (0.7, 7, 9),
            (1.0, 2, 4),
            (1.0, 4, 9),
            (2.0, 3, 9),
            (2.0, 7, 9),
        ]
    },
    **{f"keep {keep}": RandomizedResponse(["F", "M"], keep=keep) for keep in (0.51, 0.8, 0.95)},
    "general": CHANNELS["general"],
    "product": Channel.product(CHANNELS["two groups"], Channel([[0.5, 0.25], [0.5, 0.75]], groups=[0, 1])),
}


@pytest.fixture(scope="module")
def counted():
    """Counts over all integers, for all small channels."""
    counts = scripts.run_in_node("enumerate", [channel.descriptor() for channel in SMALL.values()])
    return dict(zip(SMALL, counts, strict=True))


@pytest.mark.parametrize("name", SMALL)
def test_every_integer_is_used_once_and_rightly(name, counted):
    assert counted[name] == SMALL[name].weights.T.tolist()


MUTANTS = {
    "the last integer of the truth is a lie": ("if (u < a) return", "if (u < a - 1) return"),
    "a lie that may be the truth": ("other >= truth ? 1 : 0", "other > truth ? 1 : 0"),
    "weights of another group": ("row[truth]", "row[0]"),
    "intervals one too long": ("u < (end +=", "u <= (end +="),
    "all words are accepted": ("if (value < limit)", "if (value <= limit)"),
    "epsilon doubled": ("const total = a +", "a *= a; const total = a +"),
    "attributes exchanged": ("positions.unshift", "positions.push"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name, tmp_path):
    old, new = MUTANTS[name]
    source = (scripts.STATIC / "report.js").read_text(encoding="utf-8")
    assert source.count(old) == 1, name
    mutant = tmp_path / "report.mjs"
    mutant.write_text(source.replace(old, new), encoding="utf-8")
    channels = [SMALL["general"], SMALL["product"], SMALL["epsilon 0.7, 3 groups, 6 bits"]]
    rejecting = [["draw", CHANNELS["two groups"].descriptor(), "F", [2**32 - 1, 4]]]
    try:
        counts = scripts.run_in_node("enumerate", [c.descriptor() for c in channels], script=mutant)
        drawn = scripts.run_in_node("attempt", rejecting, script=mutant)
    except AssertionError:
        return  # it refused to run
    assert counts != [c.weights.T.tolist() for c in channels] or drawn != [{"value": "M"}]


def attempt(*calls):
    return scripts.run_in_node("attempt", calls)


def edited(name="two groups", **changes):
    return {**CHANNELS[name].descriptor(), **changes}


def without(field):
    return {key: value for key, value in CHANNELS["two groups"].descriptor().items() if key != field}


BAD_DESCRIPTORS = {
    "nothing": None,
    "a list": [],
    "an unknown scheme": edited(scheme="subset-selection/1"),
    "no scheme": without("scheme"),
    "no epsilon": without("epsilon"),
    "a further field": edited(keep=0.8),
    "another epsilon": edited(epsilon=1.0),
    "epsilon as text": edited(epsilon=str(CHANNELS["two groups"].epsilon)),
    "no finite epsilon": edited(epsilon=None),
    "a common divisor": edited(a=8, b=2),
    "more lies than truth": edited(a=1, b=4),
    "no lie": edited(a=4, b=0),
    "a fraction": edited(a=4.5),
    "text": edited(a="4"),
    "more than 32 bits": edited(a=2**32, b=1, epsilon=float(np.log(2.0**32))),
    "one group": edited(groups=["F"], reports=["F"]),
    "the same group twice": edited(groups=["F", "F"], reports=["F", "F"]),
    "true and one": edited(groups=[1, True], reports=[1, True]),
    "other reports": edited(reports=["M", "F"]),
    "a missing label": edited(groups=["F", None], reports=["F", None]),
    "a zero weight": edited("general", weights=[[1, 0, 1], [1, 2, 1], [1, 1, 1], [1, 1, 1]]),
    "columns of other totals": edited("general", weights=[[1, 2, 1], [1, 2, 1], [1, 1, 1], [1, 1, 1]]),
    "a row too few": edited("general", weights=CHANNELS["general"].descriptor()["weights"][:3]),
    "doubled weights": edited("general", weights=(2 * CHANNELS["general"].weights).tolist()),
    "one component": edited("product", components=CHANNELS["product"].descriptor()["components"][:1]),
    "groups in another order": edited("product", groups=CHANNELS["product"].descriptor()["groups"][::-1]),
    "a broken component": edited("product", components=[None, None]),
}


def test_whatever_protects_nobody_is_refused():
    found = attempt(*(["readChannel", bad] for bad in BAD_DESCRIPTORS.values()))
    answers = dict(zip(BAD_DESCRIPTORS, found, strict=True))
    accepted = [name for name, answer in answers.items() if answer.get("error") != "TypeError"]
    assert not accepted
    assert all("No report was drawn" in answer["message"] for answer in answers.values())
    assert "subset selection is not known here" in answers["an unknown scheme"]["message"]


@pytest.mark.parametrize("name", BAD_DESCRIPTORS)
def test_python_refuses_them_too(name):
    with pytest.raises(ValueError, match="descriptor"):
        Channel.from_descriptor(BAD_DESCRIPTORS[name])


def test_an_answer_that_is_no_group_is_refused_and_not_repeated():
    wrong = ["f", "", "F ", None, 0, True, ["F"], {"group": "F"}, "Ｆ"]
    found = attempt(*(["privatize", CHANNELS["two groups"].descriptor(), answer] for answer in wrong))
    message = "The answer is not one of the groups; no report was drawn."
    assert found == [{"error": "RangeError", "message": message}] * len(wrong)


def test_other_words_are_refused_by_the_script():
    wrong = [[], [2**32 - 1], [-1], [2**32], [0.5], ["0"], [None]]
    for found in attempt(*(["draw", CHANNELS["two groups"].descriptor(), "F", words] for words in wrong)):
        assert found["error"] == "RangeError"
        assert "no report was drawn" in found["message"]


def test_the_largest_belief_is_that_of_the_exact_integers():
    cases = [(channel, percent) for channel in CHANNELS.values() for percent in (0, 1, 10, 50, 99, 100)]
    found = attempt(*(["largestBelief", channel.descriptor(), percent] for channel, percent in cases))
    for (channel, percent), answer in zip(cases, found, strict=True):
        ratio = channel._worst_ratio
        exact = percent * ratio / (percent * ratio + 100 - percent)
        assert exact * 100 <= answer["value"] < exact * 100 + 1
    assert attempt(["largestBelief", CHANNELS["two groups"].descriptor(), 50]) == [{"value": 80}]


# --- in a browser ---


@pytest.fixture(scope="module")
def browser():
    with browser_tools.open_browser() as found:
        yield found


@pytest.fixture(scope="module")
def address():
    with scripts.serve_scripts() as found:
        yield found


@pytest.fixture
def page(browser):
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.simulation
def test_vectors_in_chromium(page, address, repetitions):
    check_vectors(partial(scripts.run_in_page, page, address), repetitions(20_000, 1_000_000))


def test_every_integer_in_chromium(page, address):
    counts = scripts.run_in_page(page, address, "enumerate", [channel.descriptor() for channel in SMALL.values()])
    assert counts == [channel.weights.T.tolist() for channel in SMALL.values()]


def test_a_hundred_thousand_draws_agree_with_the_channel(page, address):
    """Chi-square of the reports of every group, at level 1e-6 in all: a right sampler fails once in a million runs."""
    channels = [CHANNELS[name] for name in ("two groups", "general", "product")]
    groups = sum(len(c.groups) for c in channels)
    n = 100_000 // groups + 1
    for channel in channels:
        counts = np.array(scripts.run_in_page(page, address, "countDraws", channel.descriptor(), n))
        expected = n * channel.matrix.T
        statistic = ((counts - expected) ** 2 / expected).sum(axis=1)
        assert (statistic < chi2.isf(1e-6 / groups, len(channel.reports) - 1)).all()


def test_no_randomness_no_report(page, address):
    page.goto(f"{address}/parties/collect/")
    for broken in ("undefined", "{getRandomValues: () => { throw new Error('no entropy') }}",
                   "{getRandomValues: () => new Uint32Array([0xffffffff])}"):  # fmt: skip
        message = page.evaluate(
            """async ([url, descriptor, broken]) => {
                const report = await import(url);
                Object.defineProperty(globalThis, "crypto", {value: eval(`(${broken})`), configurable: true});
                try { report.privatize(descriptor, "F"); return "drawn"; } catch (error) { return error.message; }
            }""",
            [f"{address}/static/report.js", CHANNELS["two groups"].descriptor(), broken],
        )
        assert any(word in message for word in ("no secure randomness", "no entropy", "repeats itself"))
