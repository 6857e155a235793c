"""Everything that watches need, one step at a time: a job that collects, the relay, the evaluator and the sender."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from floodmark.coordination.signals.port import Bell
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done, Outcome
from floodmark.model.watches import WatchFields, WatchRow
from floodmark.operations.local import LocalOperations
from floodmark.testing.factories import Opened, given_executions, given_job, settle, take
from floodmark.watches.services import build_evaluator, build_sender
from floodmark.wiring.resources import Resources
from notifying.receivers import Receiver


class WatchDesk:
    """One installation. Jobs are named by what they collect; their stream is `test:<name>`."""

    def __init__(self, resources: Resources, receiver: Receiver) -> None:
        self.resources, self.receiver = resources, receiver
        self.operations = LocalOperations(resources, Actor(who="test", via="cli"))
        self.evaluator, self.sender = build_evaluator(resources, Bell()), build_sender(resources)
        self._jobs: dict[str, str] = {}

    async def watch(self, query: str | None = None, **fields: Any) -> WatchRow:
        """Add a watch that notifies the webhook."""
        named = {"query": query, "notify": ("webhook",), **fields}
        return await self.operations.add_watch(WatchFields(**named))

    async def collect(
        self, *items: Item | str, job: str = "news", outcome: Outcome | None = None, **columns: Any
    ) -> None:
        """Run a job that keeps these items; a text is an item with this text, and its own key."""
        if job not in self._jobs:
            self._jobs[job] = await given_job(self.resources, name=job, **columns)
        await given_executions(self.resources, [self._jobs[job]])
        [lease] = await take(self.resources)
        made = [Item(one, {"text": one}) if isinstance(one, str) else one for one in items]
        if made:
            await self.resources.keeping.keep(lease, Batch(made))
        assert await settle(self.resources, lease, outcome or Done())

    async def relay(self) -> None:
        """Number the events."""

        async def publish(_: object) -> None:
            pass

        while await self.resources.keeping.relay(publish, limit=1000):
            pass

    async def evaluate(self) -> None:
        """Evaluate everything that is new."""
        await self.relay()
        while await self.evaluator.step() is not None:
            pass

    async def send(self) -> None:
        """Send everything that is due."""
        while await self.sender.step() is not None:
            pass

    async def work(self) -> None:
        """Evaluate, then send."""
        await self.evaluate()
        await self.send()

    @property
    def sent(self) -> list[Any]:
        """The messages that the webhook has received."""
        return [post.json for post in self.receiver.posts if post.path.startswith("/hook")]

    @property
    def texts(self) -> list[list[str]]:
        """The texts of the matches in each message."""
        return [[match["text"] for match in message["matches"]] for message in self.sent]

    async def show(self, name: str) -> WatchRow:
        return await self.operations.watch(name)


def settings_for(receiver: Receiver) -> dict[str, Any]:
    """Settings that name channels of the receiver."""
    return {
        "notify_webhook_url": f"{receiver.url}/hook?key=canary-hook",
        "notify_slack_url": f"{receiver.url}/services/canary-slack",
        "notify_discord_url": f"{receiver.url}/api/webhooks/canary-discord",
        "notify_telegram_bot_token": "123456:canary-telegram",
        "notify_telegram_chat": "@room",
        "notify_telegram_api_url": f"{receiver.url}",
    }


@asynccontextmanager
async def open_desk(opened: Opened, receiver: Receiver, **settings: Any) -> AsyncIterator[WatchDesk]:
    """A desk whose job `news` has run before: what it collects from now on is new."""
    async with opened(**settings_for(receiver), **settings) as resources:
        desk = WatchDesk(resources, receiver)
        await desk.collect()
        try:
            yield desk
        finally:
            await desk.sender.close()


def posts(*texts: str, **data: Any) -> Sequence[Item]:
    """Items with these texts."""
    return [Item(text, {"text": text, **data}) for text in texts]


SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
