"""``fairpremium keys``: the keys that parties sign with, and the secret that names policies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.table import Table

from fairpremium.cli._group import make_group
from fairpremium.cli._output import JsonOption, print_facts, print_table, show
from fairpremium.cli._service import FOLDER, DatabaseOption, FolderOption, require_service, third_party

_RoleOption = Annotated[
    Literal["operator", "collector", "insurer", "auditor"], typer.Option(help="What the party may do.")
]
_PartyOption = Annotated[str, typer.Option(help="Name of the party, such as acme.")]


def new(
    paths: Annotated[
        list[Path], typer.Argument(help="Files for keys; the public half goes to the same name with .pub.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Make a key to sign with. The file stays with you; the operator of the service gets the one that ends in .pub.

    Example: fairpremium keys new insurer.key
    """
    require_service()
    from fairpremium.parties.protocol import new_key, write_key

    made = []
    for path in paths:
        key = new_key()
        write_key(path, key)
        made.append({"key_id": key.key_id, "public_key": key.public_key, "key": str(path), "public": f"{path}.pub"})
    show({"keys": made}, as_json, _render_new)


def _render_new(result: dict[str, Any]) -> None:
    for key in result["keys"]:
        print_facts(
            {
                "Key id": key["key_id"],
                "Private": f"{key['key']}  (keep it)",
                "Public": f"{key['public']}  (give it to the operator of the service)",
            }
        )


def secret(
    path: Annotated[Path, typer.Argument(help="File for the secret.")],
    as_json: JsonOption = False,
) -> None:
    """Make the secret of a study, which turns policy numbers into keys.

    Collectors and insurers of the study share it, and the third party never gets it. Compare the fingerprint after you
    have passed it on.

    Example: fairpremium keys secret motor.secret
    """
    require_service()
    from fairpremium.parties.protocol import new_secret, write_secret

    made = new_secret()
    write_secret(path, made)
    result = {"fingerprint": made.fingerprint, "secret": str(path)}
    show(
        result,
        as_json,
        lambda r: print_facts(
            {"Fingerprint": r["fingerprint"], "Secret": f"{r['secret']}  (for collectors and insurers, nobody else)"}
        ),
    )


def add(
    public: Annotated[Path, typer.Argument(help="Public key of the party, the file that ends in .pub.")],
    party: _PartyOption,
    role: _RoleOption,
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a party's public key with the service. A party has one role and may have several keys.

    Runs where the third party's folder is; a service that runs accepts the key within a second.

    Example: fairpremium keys add insurer.key.pub --party acme --role insurer --folder third-party
    """
    require_service()
    from fairpremium.parties.protocol import read_public_key

    key = read_public_key(public)
    with third_party(folder, database, new=True) as service:
        service.add_key(key.public_key, party=party, role=role)
    result = {"party": party, "role": role, "key_id": key.key_id, "folder": str(folder)}
    show(
        result,
        as_json,
        lambda r: print_facts(
            {"Registered": f"{r['party']} as {r['role']}", "Key id": r["key_id"], "Folder": r["folder"]}
        ),
    )


def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, as keys show prints it.")],
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a key from now on. What it signed before stays; the party may register another one.

    Example: fairpremium keys revoke ed25519-0123456789abcdef --folder third-party
    """
    require_service()
    with third_party(folder, database) as service:
        service.revoke_key(key_id)
    show({"revoked": key_id}, as_json, lambda r: print_facts({"Revoked": r["revoked"]}))


def show_keys(
    path: Annotated[
        Path | None, typer.Argument(help="A key, its public half, or a secret; without it those in the folder.")
    ] = None,
    folder: FolderOption = FOLDER,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a file is, without its secret, or all keys that are registered with the service.

    Example: fairpremium keys show insurer.key.pub
    """
    require_service()
    if path is not None:
        show(
            _describe(path), as_json, lambda r: print_facts({n.replace("_", " ").capitalize(): v for n, v in r.items()})
        )
        return
    with third_party(folder, database) as service:
        listed = [
            {
                "party": key.party,
                "role": key.role,
                "key_id": key.key_id,
                "added": _iso(key.added),
                "revoked": _iso(key.revoked),
            }
            for key in service.list_keys()
        ]
        result = {"service": service.public_key, "file": str(folder / "service.key.pub"), "keys": listed}
    show(result, as_json, _render)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _describe(path: Path) -> dict[str, Any]:
    from fairpremium.parties.protocol import read_key, read_public_key, read_secret

    head = path.read_bytes()[:20]
    if head.startswith(b"ed25519:"):
        public = read_public_key(path)
        return {"kind": "public key", "key_id": public.key_id, "public_key": public.public_key}
    if head.startswith(b"linkage-secret:"):
        return {"kind": "secret of a study", "fingerprint": read_secret(path).fingerprint}
    key = read_key(path)
    return {"kind": "key", "key_id": key.key_id, "public_key": key.public_key}


def _render(result: dict[str, Any]) -> None:
    print_facts({"Service": result["service"], "File": result["file"]})
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("party", "role", "key id", "added", "revoked"):
        table.add_column(name)
    for key in result["keys"]:
        table.add_row(key["party"], key["role"], key["key_id"], key["added"], key["revoked"] or "")
    print_table(table)


keys = make_group(
    "The keys that parties sign with, and the secret that names policies.",
    {"new": new, "secret": secret, "add": add, "show": show_keys, "revoke": revoke},
)
