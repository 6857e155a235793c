"""The operations as clients have them: checked by the type checker."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import assert_type

from floodmark import Event, EventConsumer, StoredItem
from floodmark.client import AddJob, BlockingConsumer, BulkReport, Client, Page, PauseJob, SyncClient
from floodmark.model.job import Job
from floodmark.operations.declared import AsyncOperations
from floodmark.operations.local import LocalOperations


def local_operations_are_operations(local: LocalOperations) -> AsyncOperations:
    return local


async def a_client_has_all_operations(client: Client) -> AsyncOperations:
    assert_type(await client.jobs(limit=3), Page[Job])
    assert_type(client.each_job(), AsyncIterator[Job])
    assert_type(client.read_items("news", since="7d"), AsyncGenerator[StoredItem, None])
    assert_type(client.read_events(consumer="mailer"), AsyncGenerator[Event, None])
    async with client.consumer("indexer") as events:
        assert_type(events, EventConsumer)
    return client


def a_blocking_client_returns_results(client: SyncClient) -> None:
    assert_type(client.jobs(limit=3), Page[Job])
    assert_type(client.job("news"), Job)
    assert_type(client.each_job(), Iterator[Job])
    assert_type(client.last_position(), int)
    assert_type(client.bulk_jobs([AddJob(job={}), PauseJob(name="news")], atomic=True), BulkReport)
    assert_type(client.read_items("news"), Iterator[StoredItem])
    assert_type(client.read_events(after=1, follow=True), Iterator[Event])
    with client.consumer("indexer") as events:
        assert_type(events, BlockingConsumer)
        assert_type(next(iter(events)), Event)
        events.commit()
