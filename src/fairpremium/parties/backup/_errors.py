"""What can be wrong with a backup or with its place."""

from fairpremium.errors import FairPremiumError


class BackupError(FairPremiumError):
    """A backup cannot be made or restored: its place is taken or full, or it is not what was written."""
