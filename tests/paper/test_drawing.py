"""Labels keep their distance and their order."""

from __future__ import annotations

import itertools
from xml.sax.saxutils import escape

from hypothesis import given
from hypothesis import strategies as st

from fairpremium.paper.figures import FIGURES
from fairpremium.paper.figures._style import spread_labels


@given(st.lists(st.floats(0, 200), min_size=1, max_size=8))
def test_labels_do_not_touch_and_keep_their_order(positions):
    placed = spread_labels(positions, 18, 0, 200)
    ordered = [y for _, y in sorted(zip(positions, placed, strict=True))]
    gaps = [b - a for a, b in itertools.pairwise(ordered)]
    assert all(gap > 17.999 for gap in gaps)
    assert min(placed) > -0.001
    assert max(placed) < 200.001


def test_labels_that_have_room_stay():
    assert spread_labels([10, 50, 120], 18, 0, 200) == [10, 50, 120]


def test_the_diagram_says_in_words_what_it_shows():
    diagram = FIGURES["parties"]
    table = diagram.tabulate({})
    svg = diagram.draw(table)
    for row in table.itertuples(index=False):
        assert escape(f"{row[0]} to {row[1]}: {row[2]} ({row[3]})") in svg
    assert svg.count("marker-end") == 6
