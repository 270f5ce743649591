"""Backups of a third party: made while it runs, and restored into a fresh place."""

from ._backup import make_backup
from ._errors import BackupError
from ._manifest import Manifest
from ._restore import restore_backup

__all__ = ["BackupError", "Manifest", "make_backup", "restore_backup"]
