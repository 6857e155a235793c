"""`kill -9` between sending a notification and recording that it was sent."""

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.fleet import Fleet
from chaos.process import Order
from floodmark.model.outcome import Dead
from floodmark.notifications.loading import build_notifier
from floodmark.process.failpoints import NOTIFY_POINT
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_lease, settle
from floodmark.wiring.resources import Resources
from notifying.receivers import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


@pytest.mark.spec("T16")
@pytest.mark.thorough
async def test_a_leader_that_is_killed_after_sending_tells_once_more_and_then_no_more(
    sqlite: Opened, receiver: Receiver, fleet: Fleet
) -> None:
    channel = {"notify_webhook_url": f"{receiver.url}/hook", "notify_debounce": "0s", "notify_group_wait": "0s"}
    async with sqlite(**channel) as resources:
        # The first look finds where things stand.
        notifier = build_notifier(resources, SimpleNamespace(is_leader=True))
        assert notifier is not None
        await notifier.step()
        await notifier.close()
        await dies(resources, "news")
        settings = {
            **channel,
            "database_url": str(resources.settings.database_url),
            # How long the survivor waits for the lease of the dead.
            "scheduler_leader_ttl": "1",
        }
        process = partial(Order, settings=settings, folder=str(fleet.folder), scheduler=True, worker=False)
        fleet.start(process(name="victim", failpoint=f"{NOTIFY_POINT}:kill"))
        assert await fleet.ended("victim", 180) == -9, fleet.tails()
        # Taken while no scheduler runs: it would fire the job itself.
        other_lease = await given_lease(resources, name="tides")
        fleet.start(process(name="survivor"))
        await eventually(lambda: len(hooks(receiver)) == 2)
        assert await settle(resources, other_lease, Dead(error="TimeoutError: no answer"))
        await eventually(lambda: len(hooks(receiver)) > 2)
        fleet.stop_all()

    first, again, other = hooks(receiver)
    assert first == again
    assert [told["title"].partition(" ")[0] for told in (first, other)] == ["news", "tides"]


async def dies(resources: Resources, name: str) -> None:
    """A job fails permanently."""
    lease = await given_lease(resources, name=name)
    assert await settle(resources, lease, Dead(error="TimeoutError: no answer"))


def hooks(receiver: Receiver) -> list[Any]:
    return [post.json for post in receiver.posts if post.path.startswith("/hook")]
