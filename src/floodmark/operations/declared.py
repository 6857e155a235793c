"""All operations."""

from .accounts import AccountOperations
from .budgets import BudgetOperations
from .bulk import BulkOperations
from .completeness import CompletenessOperations
from .consumers import ConsumerOperations
from .declaration import AsyncCaller
from .engagement import EngagementOperations
from .executions import DeadLetterOperations, ExecutionOperations
from .exports import ExportOperations
from .fleet import FleetOperations, InstallationOperations
from .freshness import FreshnessOperations
from .handover import HandoverOperations
from .jobs import JobOperations
from .limits import LimitOperations
from .logins import LoginOperations
from .media import MediaOperations
from .notifications import NotificationOperations
from .previews import PreviewOperations
from .readers import ReaderOperations
from .reports import ReportOperations
from .runs import RunOperations
from .search import SearchOperations
from .secrets import SecretOperations
from .sinks import SinkOperations
from .streams import StreamOperations
from .sync import SyncOperations
from .tokens import TokenOperations
from .triggers import TriggerOperations
from .watches import WatchOperations


class Operations(
    JobOperations,
    RunOperations,
    BulkOperations,
    PreviewOperations,
    ExecutionOperations,
    StreamOperations,
    EngagementOperations,
    MediaOperations,
    CompletenessOperations,
    SearchOperations,
    ExportOperations,
    ConsumerOperations,
    ReaderOperations,
    SinkOperations,
    ReportOperations,
    DeadLetterOperations,
    LimitOperations,
    BudgetOperations,
    FreshnessOperations,
    TriggerOperations,
    WatchOperations,
    NotificationOperations,
    FleetOperations,
    AccountOperations,
    LoginOperations,
    InstallationOperations,
    TokenOperations,
    SecretOperations,
    SyncOperations,
    HandoverOperations,
):
    """All operations of an installation.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. A refused operation raises a
    `FloodmarkError` with a hint and changes nothing.
    """


class AsyncOperations(Operations, AsyncCaller):
    """The operations of an installation, on its store or over HTTP."""
