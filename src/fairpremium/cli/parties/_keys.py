"""``fairpremium keys``: the keys that parties sign with, and the secret that names policies."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fairpremium.cli._command import Answer, make_group
from fairpremium.cli._terminal import new_table, print_facts, print_table
from fairpremium.cli.parties._service import ServiceFolder, iso_time, party_command

_KEY = ("party", "role", "key_id", "added", "ends")


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
                "Fingerprint": key["key_id"],
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
def storage(path: Annotated[Path, typer.Argument(help="File for the storage key.")]) -> Answer:
    """Make a storage key, with which the service encrypts its own key and the secrets of studies where it stores them.

    Name the file in FAIRPREMIUM_STORAGE_KEY_FILE for every command of the third party, or its line in
    FAIRPREMIUM_STORAGE_KEY. Plain secrets are encrypted at the next start. To change the key, put the line of a new one
    above the old line, and start again.

    Example: fairpremium keys storage storage.key
    """
    from fairpremium.parties.protocol import STORAGE_KEY_FILE, write_storage_key

    write_storage_key(path)
    facts = {"Storage key": f"{path}  (keep it apart from the folder and its backups)", "Named by": STORAGE_KEY_FILE}
    return Answer({"storage_key": str(path)}, facts)


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
    return Answer(result, {"Registered": f"{party} as {role}", "Fingerprint": key.key_id, "Folder": folder.folder})


@party_command
def revoke(
    key_id: Annotated[str, typer.Argument(help="Fingerprint of the key, as keys show prints it.")],
    folder: ServiceFolder,
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
        found = _describe(path)
        facts = {"Kind": found["kind"], "Fingerprint": found.get("key_id", found.get("fingerprint"))}
        return Answer(found, {**facts, "Public key": found.get("public_key")})
    with folder.open() as service:
        listed = [
            {
                **{name: getattr(key, name) for name in _KEY[:3]},
                **{name: iso_time(getattr(key, name)) for name in _KEY[3:]},
            }
            for key in service.list_keys()
        ]
        own = [one.model_dump(include={"key_id", "since", "until"}) for one in service.public_keys()]
        public = str(folder.folder / "service.key.pub")
        result = {"service": service.public_key, "file": public, "service_keys": own, "keys": listed}
    return Answer(result, _render)


@party_command
def rotate(
    folder: ServiceFolder,
    what: Annotated[
        Literal["service", "party", "study"],
        typer.Argument(help="The service's key, the key of a party, or the secret of a study."),
    ],
    public: Annotated[Path | None, typer.Argument(help="With party: its new public key.")] = None,
    party: Annotated[str | None, typer.Option(help="With party: its name.")] = None,
    days: Annotated[
        float, typer.Option(min=0, max=3650, help="With party: days for which its old keys are still accepted.")
    ] = 30.0,
    study: Annotated[str | None, typer.Option(help="With study: its id.")] = None,
    lost: Annotated[bool, typer.Option("--lost", help="With service: its key is lost and cannot sign.")] = False,
) -> Answer:
    """Change a key. What was signed before stays verifiable.

    service: a new key signs from now on. The old one signs the new one, so that everybody who trusts one of them can
    check what the other signed. Processes that run take it up by themselves.

    party: the new key is accepted beside the old ones, which end after some days.

    study: the secret that draws noise. It can be changed as long as there is no epoch, no fit, no released count, no
    batch of reports and no withdrawn answer; later a new one would draw the same noise a second time, and is refused.

    Example: fairpremium keys rotate party new.key.pub --party acme --days 30 --folder third-party
    """
    needed = {"service": (), "party": ("PUBLIC", "--party"), "study": ("--study",)}[what]
    given = {"PUBLIC": public, "--party": party, "--study": study, "--lost": lost or None}
    for name, value in given.items():
        if value is None and name in needed:
            raise ValueError(f"Got keys rotate {what} without {name}, but expected it.")
        if value is not None and name not in needed and (what, name) != ("service", "--lost"):
            raise ValueError(f"Got keys rotate {what} with {name}, but expected it without.")
    if what == "party":
        return _rotate_party(folder, public or Path(), party or "", days)
    if what == "study":
        with folder.open() as service:
            service.rotate_study_secret(study or "")
        return Answer({"study": study, "rotated": True}, {"Rotated": f"the secret of {study}"})
    return _rotate_service(folder, lost)


def _rotate_party(folder: ServiceFolder, public: Path, party: str, days: float) -> Answer:
    from fairpremium.parties.protocol import read_public_key

    key = read_public_key(public)
    with folder.open() as service:
        ends = service.context.now() + days * 86400
        found = service.rotate_party_key(key.public_key, party=party, ends=ends)
    listed = [{"key_id": one.key_id, "added": iso_time(one.added), "ends": iso_time(one.ends)} for one in found]
    facts = {one.key_id: "in force" if one.ends is None else f"ends {iso_time(one.ends)}" for one in found}
    return Answer({"party": party, "keys": listed}, {"Party": party, **facts})


def _rotate_service(folder: ServiceFolder, lost: bool) -> Answer:
    from fairpremium.parties.service import replace_lost_key

    if lost:
        with folder.ready(new=True):
            if not folder.folder.is_dir():
                raise ValueError(f"There is no folder {folder.folder}. Name that of the third party with --folder.")
            key = replace_lost_key(folder.folder, database=folder.database)
    else:
        with folder.open() as service:
            key = service.rotate_service_key()
    public = folder.folder / "service.key.pub"
    chain = [{"key_id": one.key_id, "since": one.since, "until": one.until} for one in key.chain.public_keys()]
    facts = {
        "Key in force": key.key_id,
        "Before": chain[-2]["key_id"],
        "Public": f"{public}  (give it to those who check bundles and the log)",
    }
    return Answer({"key_id": key.key_id, "public": str(public), "keys": chain}, facts)


def _describe(path: Path) -> dict[str, Any]:
    from fairpremium.parties.protocol import read_key, read_public_key, read_secret

    head = path.read_bytes()[:20]
    if head.startswith(b"storage-key:"):
        return {"kind": "storage key"}
    if head.startswith(b"linkage-secret:"):
        return {"kind": "secret of a study", "fingerprint": read_secret(path).fingerprint}
    is_public = head.startswith(b"ed25519:")
    key = read_public_key(path) if is_public else read_key(path)
    return {"kind": "public key" if is_public else "key", "key_id": key.key_id, "public_key": key.public_key}


def _render(result: dict[str, Any]) -> None:
    former = {one["key_id"]: f"until {one['until']}" for one in result["service_keys"][:-1]}
    print_facts({"Service": result["service_keys"][-1]["key_id"], "File": result["file"], **former})
    table = new_table()
    for name in _KEY:
        table.add_column(name.replace("key_id", "fingerprint"))
    for key in result["keys"]:
        table.add_row(*(key[name] or "" for name in _KEY))
    print_table(table)


keys = make_group(
    "The keys that parties sign with, and the secret that names policies.",
    {
        "new": new,
        "secret": secret,
        "storage": storage,
        "add": add,
        "show": show_keys,
        "rotate": rotate,
        "revoke": revoke,
    },
)
