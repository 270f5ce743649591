"""How a key is spelled: what stays of it when programs and people write it otherwise."""

import re
import unicodedata
from decimal import Decimal

_MIDNIGHT = re.compile(r"(?<=\d)t?00:00(:00(\.0+)?)?(z|\+00:?00)?$")  # of a date with a time
_LARGE_NUMBER = re.compile(r"\d(\.\d+)?e\+?\d{1,2}")  # as spreadsheets write it
_DECIMAL_ZEROS = re.compile(r"(?<=\d)[.,]0+$")
_THOUSANDS = re.compile(r"\d{1,3}([.,'\u2019]\d{3})+")
_SEPARATORS = re.compile(r"[\W_]+")
_NEEDLESS = re.compile(r"^-|-$|(?<=[^\d-])-|-(?=[^\d-])")  # separators that do not keep two numbers apart
_LEADING_ZEROS = re.compile(r"(?<![\d-])0+(?=\d)")


def spelling_of(key: str) -> str:
    """Return a key without what programs and people change in it, for the question whether two keys are one person's.

    It leaves out case, accents, invisible characters, blanks, separators that do not keep two numbers apart, the
    midnight of a date, and zeros that do not change a number. Two other people may share it: that costs a question.
    """
    if not key.isalnum() or not key.isascii():
        key = _plain(key)
    return _LEADING_ZEROS.sub("", key.casefold())


def _plain(key: str) -> str:
    """Return a key that has letters and digits alone, and signs between numbers."""
    letters = unicodedata.normalize("NFKD", key.casefold())
    kept = (letter for letter in letters if unicodedata.category(letter) not in ("Mn", "Cf", "Cc"))
    text = "".join(str(unicodedata.decimal(letter, letter)) for letter in kept)
    text = _MIDNIGHT.sub("", "".join(text.split()))
    if _LARGE_NUMBER.fullmatch(text):
        text = format(Decimal(text), "f")
    text = _DECIMAL_ZEROS.sub("", text)
    if _THOUSANDS.fullmatch(text):
        text = "".join(filter(str.isdigit, text))
    return _NEEDLESS.sub("", _SEPARATORS.sub("-", text)) or key
