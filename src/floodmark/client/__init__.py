"""Floodmark from another program, over HTTP.

client.py     Client: the operations, for asyncio
waiting.py    SyncClient: the same for programs without it
caller.py     sends an operation, by its declaration (`floodmark.operations`)
requests.py   from arguments to a request, from an answer to a result
transport.py  time-outs, retries of what may be repeated, and errors
decoding.py   JSON back into the values that it was written from

    from floodmark.client import SyncClient

    with SyncClient("http://127.0.0.1:8060", token="...") as floodmark:
        for job in floodmark.each_job():
            print(job.name, job.next_run)
"""

from floodmark.model.fleet import FleetInfo as Fleet
from floodmark.model.page import Page
from floodmark.model.tokens import Visitor
from floodmark.operations.accounts import AccountShown, NewAccount
from floodmark.operations.executions import Letters
from floodmark.operations.jobs import JobFilter

from .client import Client, News
from .transport import Denied
from .waiting import SyncClient

__all__ = [
    "AccountShown",
    "Client",
    "Denied",
    "Fleet",
    "JobFilter",
    "Letters",
    "NewAccount",
    "News",
    "Page",
    "SyncClient",
    "Visitor",
]
