"""The client of a Floodmark server, over HTTP.

client.py     Client: the operations, for asyncio
waiting.py    SyncClient: the same without asyncio
requests.py   from the declaration of an operation (`floodmark.operations`) to a request
decoding.py   from a response to the result of the operation
transport.py  time-outs, retries, and errors

    from floodmark.client import SyncClient

    with SyncClient("http://127.0.0.1:8060", token="...") as floodmark:
        for job in floodmark.each_job():
            print(job.name, job.next_run)
"""

from floodmark.errors import Denied
from floodmark.model.bulk import (
    AddJob,
    BulkReport,
    ChangeJob,
    PauseJob,
    PutJob,
    RemoveJob,
    ResumeJob,
    TagJob,
)
from floodmark.model.fleet import FleetInfo as Fleet
from floodmark.model.page import Page
from floodmark.model.tokens import Visitor
from floodmark.operations.accounts import AccountShown, NewAccount
from floodmark.operations.event_consumer import BlockingConsumer
from floodmark.operations.executions import Letters
from floodmark.operations.jobs import JobFilter

from .client import Client, News
from .waiting import SyncClient

__all__ = [
    "AccountShown",
    "AddJob",
    "BlockingConsumer",
    "BulkReport",
    "ChangeJob",
    "Client",
    "Denied",
    "Fleet",
    "JobFilter",
    "Letters",
    "NewAccount",
    "News",
    "Page",
    "PauseJob",
    "PutJob",
    "RemoveJob",
    "ResumeJob",
    "SyncClient",
    "TagJob",
    "Visitor",
]
