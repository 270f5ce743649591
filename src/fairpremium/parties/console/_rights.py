"""Who may see and do what in the console: one table. What a role may not do does not exist for it."""

from typing import NamedTuple

from fairpremium.parties.service import AccountRole

_OPERATOR: frozenset[AccountRole] = frozenset({"operator"})
_BOTH: frozenset[AccountRole] = frozenset({"operator", "auditor"})

RIGHTS: dict[str, frozenset[AccountRole]] = {
    "/": _BOTH,
    "/console": _BOTH,
    "/console/": _BOTH,
    "/console/studies/{study}": _BOTH,
    "/console/studies/{study}/fits/{party}/{fit}": _BOTH,
    "/console/budgets": _BOTH,
    "/console/keys": _BOTH,
    "/console/operation": _OPERATOR,
    "/console/log": _BOTH,
    "/console/log/verify": _BOTH,
    "/console/logins": _BOTH,  # the auditor sees and ends logins of the own account
    "/console/logins/end": _BOTH,
    "/console/{rest:path}": _BOTH,
}
OPEN_TO_ALL = frozenset({"/console/login", "/console/logout", "/console/static/{name}"})


class Viewer(NamedTuple):
    """Who looks at a page; without accounts it is somebody at the machine, whose `account` and `login` are empty."""

    account: str
    role: AccountRole
    login: str

    def may(self, path: str) -> bool:
        """Is a route there for this person?"""
        return self.role in RIGHTS[path]

    @property
    def seen_account(self) -> str | None:
        """The account whose logins this person sees and ends; None for all."""
        return None if self.role == "operator" else self.account


AT_THE_MACHINE = Viewer("", "operator", "")
