"""The three parties: collectors that send reports, insurers that send features and losses, and the one that learns.

Each name is loaded when it is first used, so that a collector does not need what a service needs.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from .backup import *
    from .bundle import *
    from .clients import *
    from .http import *
    from .protocol import *
    from .service import *

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "backup": "BackupError Manifest make_backup restore_backup",
        "bundle": "Bundle load_bundle",
        "clients": (
            "AppTransport AuditState Client Collector Insurer LogAudit Operator ServiceUnreachable audit_log "
            "charge_invitations draw_reports make_links"
        ),
        "http": "create_app",
        "protocol": (
            "Answered ClaimFit CollectorStudy DeclaredAnchor EstimatedChannel Feature Fit FitSpec InsurerStudy "
            "KnownChannel LinkageSecret NamedAttribute OperatorStudy PerilColumns Portfolio PortfolioSpec Problem "
            "Question QuestionText ReportSpec Retention SeveralAttributes SigningKey StudySpec TrueAttribute VerifyKey "
            "new_key new_secret read_key read_public_key read_secret read_trusted_keys write_key write_secret"
        ),
        "service": "Party ServiceLimits ServiceSettings ThirdParty",
    },
)
