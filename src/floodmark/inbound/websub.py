"""WebSub (W3C Recommendation): hubs tell when a feed has something new. Table: `feed_subscriptions`.

The leader subscribes at the hubs of adaptive feeds, and the API verifies and receives what they send. A push is a hint:
its signature is checked and its content is not used, so a hub decides when a feed is collected, never what.
"""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import urlencode

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.errors import Conflict, NotFound, SourceError, Unavailable
from floodmark.observability.events import Events, HintRefused, HintsGiven
from floodmark.outbound.client import Http, ResponseLimits
from floodmark.rules.backoff import backoff_bound
from floodmark.security.vault import Vault
from floodmark.sources.feed.hubs import is_signed
from floodmark.sources.feed.subscriptions import SUBSCRIBED, FeedSubscription, FeedSubscriptions, SubscriptionState
from floodmark.wiring.resources import Resources

# The path of callbacks, under the public URL of the API.
CALLBACKS = "/api/v2/websub"
STEP_EVERY = timedelta(seconds=10)

_TYPE = "websub"
_AT_ONCE = 20
_LIMITS = ResponseLimits(
    body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=timedelta(seconds=20), head=timedelta(seconds=20)
)
_LEASE = timedelta(days=10)
# Whatever lease a hub names: renew no more often than this, and at least so often that a forgetful hub is found out.
_SHORTEST_RENEWAL, _LONGEST_RENEWAL = timedelta(minutes=10), timedelta(days=7)
_FIRST_RETRY, _LONGEST_RETRY = timedelta(minutes=10), timedelta(days=1)
# A hub that has not confirmed by then has forgotten us, or will at the end of the lease.
_LEAVING = timedelta(hours=1)
_LONGEST_ERROR, _LONGEST_CHALLENGE = 300, 2000


class HubSubscriber:
    """Subscribes adaptive feeds at their hubs, renews, and unsubscribes. Runs on the leader."""

    def __init__(
        self,
        subscriptions: FeedSubscriptions,
        http: Http,
        vault: Vault,
        public_url: str,
        *,
        limits: ResponseLimits = _LIMITS,
    ) -> None:
        self._subscriptions, self._http, self._vault, self._limits = subscriptions, http, vault, limits
        self._callbacks = public_url.rstrip("/") + CALLBACKS

    async def step(self) -> timedelta | None:
        """Send the requests that are due; returns zero if there are more."""
        due = await self._subscriptions.find_due(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for row in due:
                group.create_task(self._maintain(row))
        return timedelta() if len(due) == _AT_ONCE else None

    async def _maintain(self, row: FeedSubscription) -> None:
        if row.state == SubscriptionState.LEAVING:
            await self._subscriptions.end(row, again_after=timedelta())
        elif row.is_wanted:
            await self._subscribe(row)
        elif row.state in SUBSCRIBED:
            await self._unsubscribe(row)
        else:
            await self._subscriptions.forget(row)

    async def _subscribe(self, row: FeedSubscription) -> None:
        secret = self._find_secret(row)
        sealed = self._vault.seal(secret, label=secret_label(row.callback))
        again_after = backoff_bound(row.tries + 1, base=_FIRST_RETRY, longest=_LONGEST_RETRY)
        if await self._subscriptions.ask(row, sealed, again_after=again_after):
            lease = str(int(_LEASE.total_seconds()))
            await self._send(row, {"hub.mode": "subscribe", "hub.secret": secret, "hub.lease_seconds": lease})

    async def _unsubscribe(self, row: FeedSubscription) -> None:
        if await self._subscriptions.leave(row, give_up_after=_LEAVING):
            await self._send(row, {"hub.mode": "unsubscribe"})

    def _find_secret(self, row: FeedSubscription) -> str:
        """Return the stored secret, so that pushes during a renewal stay valid; otherwise a new one."""
        try:
            return open_secret(self._vault, row)
        except Conflict:
            return secrets.token_hex(32)

    async def _send(self, row: FeedSubscription, fields: dict[str, str]) -> None:
        form = {"hub.topic": row.topic, "hub.callback": f"{self._callbacks}/{row.callback}", **fields}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = await self._http.post(row.hub, body=urlencode(form).encode(), headers=headers, limits=self._limits)
        except SourceError as error:
            return await self._subscriptions.note_error(row, str(error)[:_LONGEST_ERROR])
        if answer.status // 100 != 2:
            text = " ".join(answer.body.decode(errors="replace").split())
            problem = f"the hub answers with status {answer.status}{text and ': '}{text}"
            await self._subscriptions.note_error(row, problem[:_LONGEST_ERROR])
        return None


class HubCallbacks:
    """Answers hubs. Knowing the callback is not enough for a hint: a push has to be signed."""

    def __init__(self, subscriptions: FeedSubscriptions, vault: Vault, signals: Signals, events: Events) -> None:
        self._subscriptions, self._vault, self._signals, self._events = subscriptions, vault, signals, events

    async def verify(self, callback: str, query: Mapping[str, str]) -> str:
        """Return the challenge that confirms a request of ours; `NotFound` if there was none."""
        row = await self._find(callback)
        mode, challenge = query.get("hub.mode", ""), query.get("hub.challenge", "")
        if query.get("hub.topic") != row.topic or len(challenge) > _LONGEST_CHALLENGE:
            raise _unknown()
        match mode:
            case "subscribe" if row.is_asked and row.state in SUBSCRIBED and challenge:
                lease = read_lease(query.get("hub.lease_seconds"))
                renew_after = min(max(0.75 * lease, _SHORTEST_RENEWAL), _LONGEST_RENEWAL)
                is_done = await self._subscriptions.activate(row, lease=lease, renew_after=renew_after)
            case "unsubscribe" if row.state == SubscriptionState.LEAVING and challenge:
                is_done = await self._subscriptions.end(row, again_after=timedelta())
            case "denied":
                reason = f"the hub denies the subscription: {query.get('hub.reason', '')}".rstrip(": ")
                is_done = await self._subscriptions.end(row, reason[:_LONGEST_ERROR], again_after=_LONGEST_RETRY)
                challenge = ""
            case _:
                is_done = False
        if not is_done:
            raise _unknown()
        return challenge

    async def receive(self, callback: str, body: bytes, signature: str | None) -> bool:
        """Turn a push into a hint, and return whether there still is a subscription.

        A push with a bad signature is only counted: its sender must not learn the difference.
        """
        row = await self._find(callback)
        if row.state not in SUBSCRIBED:
            return False
        try:
            secret = open_secret(self._vault, row)
        except Conflict as error:
            hint = "give every process the same FLOODMARK_SECRET_KEY"
            raise Unavailable(f"the secret of the feed {row.target} cannot be decrypted: {error}", hint=hint) from error
        if not is_signed(signature, secret, body):
            self._events.emit(HintRefused(_TYPE, "unsigned" if signature is None else "altered"))
            return True
        hinted = await self._subscriptions.give_hint(row)
        if hinted:
            self._events.emit(HintsGiven(_TYPE, hinted))
            # If the process dies here, the leader finds the hint at its next check.
            await self._signals.notify(Topic.JOBS)
        return True

    async def _find(self, callback: str) -> FeedSubscription:
        row = await self._subscriptions.find(callback)
        if row is None:
            raise _unknown()
        return row


def build_subscriber(resources: Resources) -> HubSubscriber | None:
    """Return the subscriber of a process; None if hubs cannot reach the API."""
    public_url = resources.settings.api_public_url
    if public_url is None:
        return None
    return HubSubscriber(
        FeedSubscriptions(resources.database, resources.clock), resources.http, Vault.of(resources.settings), public_url
    )


def build_callbacks(resources: Resources) -> HubCallbacks:
    """Return the callbacks of a process that serves the API."""
    subscriptions, vault = FeedSubscriptions(resources.database, resources.clock), Vault.of(resources.settings)
    return HubCallbacks(subscriptions, vault, resources.signals, resources.events)


def read_lease(text: str | None) -> timedelta:
    """Return the lease that a hub grants; the requested one if it names none or an absurd one."""
    is_number = text is not None and text.isascii() and text.isdecimal() and 0 < len(text) <= 9
    seconds = int(text) if is_number and text else 0
    return timedelta(seconds=seconds) if seconds else _LEASE


def secret_label(callback: str) -> str:
    """Return the label with which the secret of a subscription is encrypted."""
    return f"websub:{callback}"


def open_secret(vault: Vault, row: FeedSubscription) -> str:
    """Return the secret of a subscription; `Conflict` if it has none that can be decrypted."""
    if row.secret is None:
        raise Conflict(f"the feed {row.target} has no secret yet")
    return vault.open(row.secret, label=secret_label(row.callback))


def _unknown() -> NotFound:
    return NotFound("there is no such subscription, or it was not asked for")
