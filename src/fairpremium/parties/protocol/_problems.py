"""All that can go wrong between the parties: a closed list of problem documents (RFC 9457).

A problem has a code from this list and a sentence written here. It never carries a row number, a submitted value or
the message of another library, so that no error tells one party what another one sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from fairpremium.errors import FairPremiumError


class Kind(NamedTuple):
    """Status of HTTP and sentence of a problem; ``{}`` in the sentence takes names from this project's own lists."""

    status: int
    title: str


PROBLEMS = {
    # who asks
    "unsigned": Kind(401, "The request is not signed. Sign it with your party's key (RFC 9421)."),
    "bad-signature": Kind(401, "The signature does not fit the request, or its key is not registered."),
    "stale": Kind(
        401, "The request was signed more than 300 seconds ago or in the future. Set the clock and sign again."
    ),
    "replayed": Kind(401, "This request was received before. Sign every request anew."),
    "digest-mismatch": Kind(400, "The body is not what its Content-Digest says."),
    "not-found": Kind(404, "There is no such thing, or it is not yours."),
    "method-not-allowed": Kind(405, "This path does not know the method."),
    # what is sent
    "malformed": Kind(422, "The body does not have the documented form: {}."),
    "bad-id": Kind(
        422, "An id has 1 to 64 of the characters a-z, 0-9, '.', '_', '-', and begins with a letter or digit."
    ),
    "bad-key": Kind(422, "A key has 16 bytes: 32 hexadecimal digits in an address, fixed-size binary in Parquet."),
    "bad-query": Kind(422, "A query parameter is not of the documented form."),
    "too-large": Kind(413, "The body is larger than this service accepts. Send smaller parts."),
    "head-too-large": Kind(431, "The address and the headers are larger than this service accepts."),
    "too-many": Kind(429, "Too many requests. Wait a moment and try again."),
    "length-required": Kind(411, "The request needs a Content-Length."),
    "unsupported-media": Kind(415, "The body's Content-Type is not the documented one."),
    "bad-batch": Kind(422, "The body is not a batch of reports in the documented form: {}."),
    "bad-parquet": Kind(422, "The body is not a readable Parquet file: {}."),
    "bad-columns": Kind(422, "The columns are not those that were declared: {}."),
    "bad-values": Kind(422, "A column holds values that are not allowed: {}."),
    "bad-keys": Kind(422, "Keys are missing, repeated or not of 16 bytes."),
    # the state of things
    "conflict": Kind(409, "The same id was used before with another content."),
    "report-conflict": Kind(409, "A key has reported before with another value. The first report stays."),
    "wrong-channel": Kind(409, "The reports come from another channel than the one of the study."),
    "study-not-open": Kind(409, "The study does not take reports now."),
    "withdrawal-waits": Kind(
        409, "A report of this key is being withdrawn. It can be reported anew when that is done, within an hour."
    ),
    "reports-erased": Kind(410, "The reports of the study, or of this epoch, were erased."),
    "study-frozen": Kind(409, "The study was opened and cannot change any more."),
    "portfolio-sealed": Kind(409, "The portfolio is sealed and takes no more parts."),
    "portfolio-open": Kind(409, "The portfolio is not sealed yet."),
    "portfolio-deleted": Kind(410, "The rows of this portfolio were erased."),
    "portfolio-busy": Kind(409, "A fit of this portfolio has not ended. Cancel it first."),
    "portfolio-empty": Kind(409, "The portfolio has no rows."),
    "epoch-over": Kind(409, "Another epoch was named than the one that is allowed: {}."),
    "bundle-erased": Kind(410, "The bundle was erased, with its portfolio or because its time was over."),
    "not-finished": Kind(409, "The fit has not ended with a result."),
    "not-allowed-here": Kind(422, "The study does not allow this: {}."),
    "quota": Kind(409, "A quota is used up: {}."),
    # why a fit ended without a result
    "cannot-fit": Kind(422, "The data do not give a model of this kind: {}."),
    "no-match": Kind(
        422,
        "(Almost) no rows of the portfolio have a report in the study: {}. No model was fitted. Likely causes: another "
        "linkage secret than the collector's (compare fingerprints: fairpremium keys show FILE), policy numbers that "
        "are written in another way (leading zeros, blanks, letters), another study, or no reports before this epoch.",
    ),
    "gave-up": Kind(500, "The fit was tried 5 times and did not come to an end."),
    "storage-full": Kind(507, "The service has no room for this now. Nothing was stored."),
    "unavailable": Kind(503, "The service cannot answer now. Try again."),
    "internal": Kind(500, "The service failed. Nothing was changed."),
}


_NAMED = 20  # at most, of what is allowed


def list_allowed(names: Iterable[Any]) -> str:
    """Name what is allowed, for the detail of a problem.

    Examples
    --------
    >>> list_allowed(["normal", "gamma"])
    'normal, gamma'
    >>> list_allowed(range(25))[-21:]
    '17, 18, 19 and 5 more'
    """
    found = [str(name) for name in names]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more or "none"


class Problem(FairPremiumError):  # noqa: N818 (the name that RFC 9457 gives it)
    """Something that a party did or met, from the closed list.

    Parameters
    ----------
    code : str
        One of `PROBLEMS`.
    detail : str
        Fills the place in the sentence: words of this project (names of fields, rules and settings), and names that
        the party, or its study, declared before. Never a text or a value that came with the request.

    Examples
    --------
    >>> problem = Problem("quota", "distinct fits of a study")
    >>> problem.status, str(problem)
    (409, 'A quota is used up: distinct fits of a study.')
    """

    def __init__(self, code: str, detail: str = ""):
        kind = PROBLEMS[code]
        self.code = code
        self.status = kind.status
        self.detail = detail
        super().__init__(kind.title.format(detail) if "{}" in kind.title else kind.title)

    def to_dict(self) -> dict[str, Any]:
        """Return the problem document of RFC 9457."""
        return {"type": f"urn:fairpremium:problem:{self.code}", "title": str(self), "status": self.status}

    @classmethod
    def from_dict(cls, document: Any) -> Problem:
        """Read a problem document; one that is not ours becomes an internal failure."""
        code = str(document.get("type", "")).rpartition(":")[2] if isinstance(document, dict) else ""
        problem = cls(code if code in PROBLEMS else "internal")
        if code in PROBLEMS and isinstance(document.get("title"), str):
            problem.args = (document["title"],)
        return problem
