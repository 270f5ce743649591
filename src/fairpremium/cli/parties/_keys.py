"""``fairpremium keys``: the keys that parties sign with, and the secret that names policies."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._command import Answer, make_group
from fairpremium.cli._terminal import new_table, print_facts, print_fields, print_table
from fairpremium.cli.parties._service import ServiceFolder, party_command

_KEY = ("party", "role", "key_id", "added", "revoked")


@party_command
def new(
    paths: Annotated[
        list[Path], typer.Argument(help="Files for keys; the public half goes to the same name with .pub.")
    ],
) -> Answer:
    """Make a key to sign with. The file stays with you; the operator of the service gets the one that ends in .pub.

    Example: fairpremium keys new insurer.key
    """
    from fairpremium.parties.protocol import new_key, write_key

    made = []
    for path in paths:
        key = new_key()
        write_key(path, key)
        made.append({"key_id": key.key_id, "public_key": key.public_key, "key": str(path), "public": f"{path}.pub"})
    return Answer({"keys": made}, _render_new)


def _render_new(result: dict[str, Any]) -> None:
    for key in result["keys"]:
        print_facts(
            {
                "Key id": key["key_id"],
                "Private": f"{key['key']}  (keep it)",
                "Public": f"{key['public']}  (give it to the operator of the service)",
            }
        )


@party_command
def secret(path: Annotated[Path, typer.Argument(help="File for the secret.")]) -> Answer:
    """Make the secret of a study, which turns policy numbers into keys.

    Collectors and insurers of the study share it, and the third party never gets it. Compare the fingerprint after you
    have passed it on.

    Example: fairpremium keys secret motor.secret
    """
    from fairpremium.parties.protocol import new_secret, write_secret

    made = new_secret()
    write_secret(path, made)
    facts = {"Fingerprint": made.fingerprint, "Secret": f"{path}  (for collectors and insurers, nobody else)"}
    return Answer({"fingerprint": made.fingerprint, "secret": str(path)}, facts)


@party_command
def add(
    public: Annotated[Path, typer.Argument(help="Public key of the party, the file that ends in .pub.")],
    party: Annotated[str, typer.Option(help="Name of the party, such as acme.")],
    role: Annotated[
        Literal["operator", "collector", "insurer", "auditor"], typer.Option(help="What the party may do.")
    ],
    folder: ServiceFolder,
) -> Answer:
    """Register a party's public key with the service. A party has one role and may have several keys.

    Runs where the third party's folder is; a service that runs accepts the key within a second.

    Example: fairpremium keys add insurer.key.pub --party acme --role insurer --folder third-party
    """
    from fairpremium.parties.protocol import read_public_key

    key = read_public_key(public)
    with folder.open(new=True) as service:
        service.add_key(key.public_key, party=party, role=role)
    result = {"party": party, "role": role, "key_id": key.key_id, "folder": str(folder.folder)}
    return Answer(result, {"Registered": f"{party} as {role}", "Key id": key.key_id, "Folder": folder.folder})


@party_command
def revoke(
    key_id: Annotated[str, typer.Argument(help="Id of the key, as keys show prints it.")], folder: ServiceFolder
) -> Answer:
    """Refuse a key from now on. What it signed before stays; the party may register another one.

    Example: fairpremium keys revoke ed25519-0123456789abcdef --folder third-party
    """
    with folder.open() as service:
        service.revoke_key(key_id)
    return Answer({"revoked": key_id}, {"Revoked": key_id})


@party_command
def show_keys(
    folder: ServiceFolder,
    path: Annotated[
        Path | None, typer.Argument(help="A key, its public half, or a secret; without it those in the folder.")
    ] = None,
) -> Answer:
    """Show what a file is, without its secret, or all keys that are registered with the service.

    Example: fairpremium keys show insurer.key.pub
    """
    if path is not None:
        return Answer(_describe(path), print_fields)
    with folder.open() as service:
        listed = [
            {**{name: getattr(key, name) for name in _KEY[:3]}, **{name: _iso(getattr(key, name)) for name in _KEY[3:]}}
            for key in service.list_keys()
        ]
        result = {"service": service.public_key, "file": str(folder.folder / "service.key.pub"), "keys": listed}
    return Answer(result, _render)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _describe(path: Path) -> dict[str, Any]:
    from fairpremium.parties.protocol import read_key, read_public_key, read_secret

    head = path.read_bytes()[:20]
    if head.startswith(b"linkage-secret:"):
        return {"kind": "secret of a study", "fingerprint": read_secret(path).fingerprint}
    is_public = head.startswith(b"ed25519:")
    key = read_public_key(path) if is_public else read_key(path)
    return {"kind": "public key" if is_public else "key", "key_id": key.key_id, "public_key": key.public_key}


def _render(result: dict[str, Any]) -> None:
    print_facts({"Service": result["service"], "File": result["file"]})
    table = new_table()
    for name in _KEY:
        table.add_column(name.replace("_", " "))
    for key in result["keys"]:
        table.add_row(*(key[name] or "" for name in _KEY))
    print_table(table)


keys = make_group(
    "The keys that parties sign with, and the secret that names policies.",
    {"new": new, "secret": secret, "add": add, "show": show_keys, "revoke": revoke},
)
