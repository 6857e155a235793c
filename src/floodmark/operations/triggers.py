"""External triggers: webhooks, and channels and streams of Redis that fire jobs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta

from floodmark.errors import InvalidInput
from floodmark.model.external_triggers import (
    LONGEST_DEBOUNCE,
    SHORTEST_SECRET,
    HubSubscription,
    Kind,
    NewTrigger,
    OfJobs,
    TriggersStatus,
    TriggerStatus,
)
from floodmark.model.page import Page

from .declaration import Body, Derived, Each, Path, delete, get, post
from .words import Cursor, Limit, Name, Text

_TAG = "Triggers"
_NO_PARAMS: Mapping[str, str] = {}
_TRIGGER_IN = ("TriggerIn", "A trigger that fires jobs.")
_EXAMPLE = {
    "pattern": "/sources/{source_id}/crawl",
    "jobs": ["news"],
    "params": {"title": "body.article.title"},
    "signed": True,
    "debounce_seconds": 10,
}

TriggerId = Annotated[Text, Path("Id of a trigger or the beginning of one, or its pattern with `/` written as `%2F`.")]
Pattern = Annotated[Text, Body("What to listen to.", examples=["content:new"])]
Jobs = Annotated[
    Sequence[str],
    Body(
        "The jobs it fires, by name or id, and jobs with a matching trigger_webhook or trigger_channel.",
        type=list[Name],
        send=list,
        max_length=1000,
        examples=[["news"]],
    ),
]
Params = Annotated[
    Mapping[str, str],
    Body(
        "The params of an execution, from the message: `path.1`, `path.NAME`, `body.FIELD`, `channel`.",
        type=dict[str, str],
        send=dict,
        examples=[{"title": "body.article.title"}],
    ),
]
Debounce = Annotated[
    timedelta,
    Body(
        "Messages within this time after a run become one more execution at its end.",
        name="debounce_seconds",
        ge=0,
        le=LONGEST_DEBOUNCE.total_seconds(),
    ),
]
Enabled = Annotated[bool, Body("Whether it fires jobs.")]
Replace = Annotated[bool, Body("Change the trigger of this pattern, if there is one.")]


class AddedTrigger(TriggerStatus, frozen=True, kw_only=True):
    """A new trigger."""

    secret: Annotated[str | None, Meta(description="The secret, if one was made. It is shown only once.")] = None


class TriggerPage(Page[TriggerStatus], frozen=True, kw_only=True):
    """A page of the registered triggers, and all patterns of jobs."""

    of_jobs: Annotated[list[OfJobs], Meta(description="The trigger_webhook or trigger_channel of jobs.")]


class TriggerOperations:
    """List, add and remove triggers."""

    @get("/triggers/status", tag=_TAG)
    async def triggers_status(self) -> TriggersStatus:
        """Show the status of triggers. Deliveries, refusals with reasons, the listener, and patterns of jobs."""

    @get("/triggers/hubs", tag=_TAG, operation_id="list_hubs")
    async def hubs(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[HubSubscription]:
        """List WebSub hubs. Each feed that names a hub, with the state of its subscription there."""

    each_hub = Each(hubs)

    @get("/triggers/webhooks", tag=_TAG, operation_id="list_webhooks")
    async def webhooks(self, *, cursor: Cursor = None, limit: Limit = 50) -> TriggerPage:
        """List webhooks. Registered ones in order of creation, and those of jobs; secrets are not shown."""

    @post(
        "/triggers/webhooks",
        role="admin",
        tag=_TAG,
        status=201,
        body=("WebhookIn", "A path that fires jobs.", {"examples": [_EXAMPLE]}),
    )
    async def add_webhook(
        self,
        pattern: Annotated[
            Text,
            Body(
                "`*` is one segment, `{name}` one that becomes a param, `**` the rest.",
                examples=["/sources/{source_id}/crawl"],
            ),
        ],
        *,
        jobs: Jobs = (),
        params: Params = _NO_PARAMS,
        debounce: Debounce = timedelta(),
        enabled: Enabled = True,
        replace: Replace = False,
        secret: Annotated[
            str | None,
            Body(
                "The key of the signatures. A trigger that is replaced keeps its own.",
                type=Annotated[str, Meta(min_length=SHORTEST_SECRET, max_length=200)] | None,
            ),
        ] = None,
        signed: Annotated[bool, Body("Make a secret; the answer shows it once.")] = False,
    ) -> AddedTrigger:
        """Register a webhook. Requests to its path fire jobs, at once and in every process."""

    @delete("/triggers/webhooks/{trigger}", tag=_TAG)
    async def remove_webhook(self, trigger: TriggerId) -> TriggerStatus:
        """Remove a webhook. Return what it was. Executions that it fired stay."""

    @get("/triggers/channels", tag=_TAG, operation_id="list_channels")
    async def channels(self, *, cursor: Cursor = None, limit: Limit = 50) -> TriggerPage:
        """List channels. These are the Redis Pub/Sub channels that are registered, and those of jobs."""

    @post("/triggers/channels", role="admin", tag=_TAG, status=201, body=_TRIGGER_IN)
    async def add_channel(
        self,
        pattern: Pattern,
        *,
        jobs: Jobs = (),
        params: Params = _NO_PARAMS,
        debounce: Debounce = timedelta(),
        enabled: Enabled = True,
        replace: Replace = False,
    ) -> AddedTrigger:
        """Register a channel. Its messages fire jobs within a second from now. `content:*` is a pattern."""

    @delete("/triggers/channels/{trigger}", tag=_TAG)
    async def remove_channel(self, trigger: TriggerId) -> TriggerStatus:
        """Remove a channel. Return what it was. Executions that it fired stay."""

    @get("/triggers/streams", tag=_TAG, operation_id="list_streams")
    async def stream_triggers(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[TriggerStatus]:
        """List streams. These are Redis streams, in order of creation."""

    @post("/triggers/streams", role="admin", tag=_TAG, status=201, body=_TRIGGER_IN, operation_id="add_stream")
    async def add_stream_trigger(
        self,
        pattern: Pattern,
        *,
        jobs: Jobs = (),
        params: Params = _NO_PARAMS,
        debounce: Debounce = timedelta(),
        enabled: Enabled = True,
        replace: Replace = False,
    ) -> AddedTrigger:
        """Register a stream. Entries of a Redis stream fire jobs from now on; none is lost while nobody listens."""

    @delete("/triggers/streams/{trigger}", tag=_TAG, operation_id="remove_stream")
    async def remove_stream_trigger(self, trigger: TriggerId) -> TriggerStatus:
        """Remove a stream. Return what it was. Executions that it fired stay."""

    @Derived
    async def triggers(self, kind: Kind, *, cursor: str | None = None, limit: int = 50) -> Page[TriggerStatus]:
        """List the triggers of one kind, in order of creation."""
        pages: Any = {"webhook": self.webhooks, "channel": self.channels, "stream": self.stream_triggers}[kind]
        found: Page[TriggerStatus] = await pages(cursor=cursor, limit=limit)
        return found

    @Derived
    async def add_trigger(self, new: NewTrigger, *, replace: bool = False) -> TriggerStatus:
        """Add a trigger, or with `replace` change the one of this pattern."""
        given: dict[str, Any] = {name: getattr(new, name) for name in ("jobs", "params", "debounce", "enabled")}
        given["replace"] = replace
        if new.kind == "webhook":
            return await self.add_webhook(new.pattern, secret=new.secret, **given)
        if new.secret is not None:
            raise InvalidInput(f"a {new.kind} has no secret", hint="guard your Redis with a password instead")
        add = self.add_channel if new.kind == "channel" else self.add_stream_trigger
        return await add(new.pattern, **given)

    @Derived
    async def remove_trigger(self, kind: Kind, trigger: str) -> TriggerStatus:
        """Remove a trigger, by its id or pattern; return what it was."""
        remove = {"webhook": self.remove_webhook, "channel": self.remove_channel, "stream": self.remove_stream_trigger}
        return await remove[kind](trigger)
