"""All operations."""

from .accounts import AccountOperations
from .budgets import BudgetOperations
from .declaration import AsyncCaller
from .executions import DeadLetterOperations, ExecutionOperations
from .fleet import FleetOperations, InstallationOperations
from .freshness import FreshnessOperations
from .handover import HandoverOperations
from .jobs import JobOperations
from .limits import LimitOperations
from .reports import ReportOperations
from .streams import StreamOperations
from .sync import SyncOperations
from .tokens import TokenOperations
from .triggers import TriggerOperations
from .watches import WatchOperations


class Operations(
    JobOperations,
    ExecutionOperations,
    StreamOperations,
    ReportOperations,
    DeadLetterOperations,
    LimitOperations,
    BudgetOperations,
    FreshnessOperations,
    TriggerOperations,
    WatchOperations,
    FleetOperations,
    AccountOperations,
    InstallationOperations,
    TokenOperations,
    SyncOperations,
    HandoverOperations,
):
    """All operations of an installation.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. A refused operation raises a
    `FloodmarkError` with a hint and changes nothing.
    """


class AsyncOperations(Operations, AsyncCaller):
    """The operations of an installation, on its store or over HTTP."""
