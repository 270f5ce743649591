from __future__ import annotations

import pytest

from fairpremium.cli._parsing import split_list, split_numbers, split_weights


@pytest.mark.parametrize("text", ["", ",", "a,,b", " "])
def test_empty_names_are_refused(text):
    with pytest.raises(ValueError, match="Got --groups with"):
        split_list(text, "--groups")


@pytest.mark.parametrize("text", ["a", "a=1,b", "a=1,a=2", "=1", "a=x"])
def test_weights_need_a_name_and_a_number_each(text):
    with pytest.raises(ValueError, match="Got --margin with"):
        split_weights(text, "--margin")


def test_a_name_may_hold_an_equals_sign():
    assert split_weights("a=b=0.5,c=0.5", "--margin") == {"a=b": 0.5, "c": 0.5}


def test_left_out_options_stay_left_out():
    assert split_list(None, "--x") is split_numbers(None, "--x") is split_weights(None, "--x") is None
