"""Answers of people who were invited: is an invitation open, one answer for each, and how many there are."""

from ._answers import OpenInvitation, check_answer, find_invitation, take_answer
from ._counts import count_answers, read_answered

__all__ = ["OpenInvitation", "check_answer", "count_answers", "find_invitation", "read_answered", "take_answer"]
