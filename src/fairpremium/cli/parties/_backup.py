"""``fairpremium backup`` and ``fairpremium restore``: the third party's state, out of its folder and back."""

from pathlib import Path
from typing import Annotated

import typer

from fairpremium.cli._command import Answer
from fairpremium.cli._terminal import add_note, progress
from fairpremium.cli.parties._service import ServiceFolder, party_command


@party_command
def backup(
    folder: ServiceFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write, which must not exist.")],
) -> Answer:
    """Copy a third party's folder and database while it runs: a folder of one moment.

    The service and its workers go on. The backup has the key of the service and all reports: protect it like the folder
    itself. What a storage key encrypts stays encrypted, and the backup needs that key. Exit code 1 if the log is not
    intact.

    Example: fairpremium backup --folder third-party -o backup-2026-11-18
    """
    from fairpremium.parties.backup import make_backup

    with folder.ready(), progress("Copying", bar=True) as tell:
        made = make_backup(folder.folder, output, database=folder.database, tell=tell)
    add_note(f"{output} holds the key of the service and all reports: protect it like the folder of the third party.")
    size = sum(content.size for content in made.manifest.files.values())
    result = {
        "backup": str(output),
        "files": len(made.manifest.files),
        "bytes": size,
        "version": made.manifest.version,
        "schema_version": made.manifest.schema_version,
        "log": made.log._asdict(),
    }
    facts = {
        "Backup": output,
        "Files": f"{len(made.manifest.files):,} ({size / 1e6:,.1f} MB)",
        "Schema version": made.manifest.schema_version,
        "Log": _describe(made.log),
    }
    return Answer(result, facts, exit_code=0 if made.log.intact else 1)


@party_command
def restore(
    backup: Annotated[Path, typer.Argument(help="Folder that `fairpremium backup` wrote.")], folder: ServiceFolder
) -> Answer:
    """Restore a backup into a fresh place, and check it and its log.

    The folder must not exist or be empty, and so must the database, if one is named. All digests, the signature of the
    service and the log are checked before anything can be seen there. What came after the backup is lost; what was
    erased, withdrawn or revoked since is back, and that must be done again. Exit code 1 if the log is not intact.

    Example: fairpremium restore backup-2026-11-18 --folder third-party-2
    """
    from fairpremium.parties.backup import restore_backup

    with folder.ready(new=True), progress("Copying", bar=True) as tell:
        done = restore_backup(backup, folder.folder, database=folder.database, tell=tell)
    made = done.manifest.made
    add_note(
        f"This is the state of {made[:19]} UTC. What came later is lost. What was erased, withdrawn or revoked "
        "since is back: do it again before the service runs."
    )
    if not done.is_complete:
        add_note(
            f"The database has schema version {done.manifest.schema_version}, as an earlier version wrote it. The "
            "first start of this version migrates it."
        )
    result = {
        "folder": str(folder.folder),
        "database": "PostgreSQL" if folder.database else "SQLite",
        "made": made,
        "version": done.manifest.version,
        "schema_version": done.manifest.schema_version,
        "log": done.log._asdict(),
    }
    facts = {
        "Restored": folder.folder,
        "Database": result["database"],
        "State of": f"{made[:19]} UTC",
        "Made by": f"fairpremium {done.manifest.version}, schema version {done.manifest.schema_version}",
        "Log": _describe(done.log),
    }
    return Answer(result, facts, exit_code=0 if done.log.intact else 1)


def _describe(log: object) -> str:
    """Say what a check of the log found."""
    from fairpremium.parties.store.log import Verification

    assert isinstance(log, Verification)
    if log.intact:
        return f"intact, {log.entries:,} entries"
    return f"NOT intact: entry {log.first_bad}: {log.reason}"
