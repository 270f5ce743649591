"""What the parties say to each other, and the files they exchange: messages, problems, keys, signatures, batches.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._attributes import channel_of as channel_of
    from ._attributes import descriptor_of as descriptor_of
    from ._attributes import labels_of as labels_of
    from ._batch_file import NO_MEANING as NO_MEANING
    from ._batch_file import ReportBatch as ReportBatch
    from ._batch_file import batch_header as batch_header
    from ._batch_file import batch_pieces as batch_pieces
    from ._batch_file import code_width as code_width
    from ._batch_file import find_codes as find_codes
    from ._batch_file import match as match
    from ._batch_file import open_batch as open_batch
    from ._batch_file import plain_bytes as plain_bytes
    from ._batch_file import sort_batch as sort_batch
    from ._keys import SigningKey as SigningKey
    from ._keys import VerifyKey as VerifyKey
    from ._keys import load_or_create_key as load_or_create_key
    from ._keys import new_key as new_key
    from ._keys import read_key as read_key
    from ._keys import read_public_key as read_public_key
    from ._keys import write_key as write_key
    from ._linkage import LinkageSecret as LinkageSecret
    from ._linkage import make_key as make_key
    from ._linkage import make_keys as make_keys
    from ._linkage import new_secret as new_secret
    from ._linkage import read_secret as read_secret
    from ._linkage import write_secret as write_secret
    from ._messages import ENDED as ENDED
    from ._messages import ID as ID
    from ._messages import Checkpoint as Checkpoint
    from ._messages import CollectorStudy as CollectorStudy
    from ._messages import Entry as Entry
    from ._messages import EstimatedChannel as EstimatedChannel
    from ._messages import Feature as Feature
    from ._messages import Fit as Fit
    from ._messages import FitSpec as FitSpec
    from ._messages import InsurerStudy as InsurerStudy
    from ._messages import KnownChannel as KnownChannel
    from ._messages import LogPage as LogPage
    from ._messages import Message as Message
    from ._messages import OperatorStudy as OperatorStudy
    from ._messages import PartTaken as PartTaken
    from ._messages import Portfolio as Portfolio
    from ._messages import PortfolioSpec as PortfolioSpec
    from ._messages import PublicKey as PublicKey
    from ._messages import Refusal as Refusal
    from ._messages import ReleaseRules as ReleaseRules
    from ._messages import Report as Report
    from ._messages import ReportsTaken as ReportsTaken
    from ._messages import Role as Role
    from ._messages import StudySpec as StudySpec
    from ._messages import TrueAttribute as TrueAttribute
    from ._messages import check_id as check_id
    from ._policy_keys import KEY as KEY
    from ._policy_keys import as_keys as as_keys
    from ._policy_keys import has_repeats as has_repeats
    from ._policy_keys import read_keys as read_keys
    from ._policy_keys import sort_words as sort_words
    from ._portfolio_part import PORTFOLIO_TYPE as PORTFOLIO_TYPE
    from ._portfolio_part import check_portfolio_part as check_portfolio_part
    from ._portfolio_part import write_portfolio_part as write_portfolio_part
    from ._problems import PROBLEMS as PROBLEMS
    from ._problems import Problem as Problem
    from ._report_batch import BATCH_TYPE as BATCH_TYPE
    from ._report_batch import check_batch as check_batch
    from ._report_batch import meaning as meaning
    from ._report_batch import write_batches as write_batches
    from ._rules import Rules as Rules
    from ._rules import round_count as round_count
    from ._safe_files import settle as settle
    from ._safe_files import sync_folder as sync_folder
    from ._signatures import Verified as Verified
    from ._signatures import content_digest as content_digest
    from ._signatures import request_url as request_url
    from ._signatures import sign_request as sign_request
    from ._signatures import verify_request as verify_request

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_attributes": "channel_of descriptor_of labels_of",
        "_batch_file": (
            "NO_MEANING ReportBatch batch_header batch_pieces code_width find_codes match open_batch plain_bytes "
            "sort_batch"
        ),
        "_keys": "SigningKey VerifyKey load_or_create_key new_key read_key read_public_key write_key",
        "_linkage": "LinkageSecret make_key make_keys new_secret read_secret write_secret",
        "_messages": (
            "Checkpoint CollectorStudy ENDED Entry EstimatedChannel Feature Fit FitSpec ID InsurerStudy "
            "KnownChannel LogPage Message OperatorStudy PartTaken Portfolio PortfolioSpec PublicKey Refusal "
            "ReleaseRules Report ReportsTaken Role StudySpec TrueAttribute check_id"
        ),
        "_policy_keys": "KEY as_keys has_repeats read_keys sort_words",
        "_portfolio_part": "PORTFOLIO_TYPE check_portfolio_part write_portfolio_part",
        "_problems": "PROBLEMS Problem",
        "_report_batch": "BATCH_TYPE check_batch meaning write_batches",
        "_rules": "Rules round_count",
        "_safe_files": "settle sync_folder",
        "_signatures": "Verified content_digest request_url sign_request verify_request",
    },
)
