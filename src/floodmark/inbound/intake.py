"""Finds the jobs that an arrival concerns and their params, and fires or hints them."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.errors import InvalidInput
from floodmark.model.clean_text import clean
from floodmark.model.external_triggers import Kind
from floodmark.model.ids import new_id
from floodmark.model.job import Work
from floodmark.model.strict_json import NotJson, TooDeep, read_json
from floodmark.observability.events import Events, HintsGiven, TriggersFired, TriggersMatched
from floodmark.observability.tracing import Tracing, trace_trigger
from floodmark.process.grouping import GroupedCalls
from floodmark.queue.port import Publisher
from floodmark.security.vault import Vault
from floodmark.sources.python import UnknownCollector
from floodmark.sources.validation import Validation
from floodmark.triggers.matching import PathVariables, channel_matches, choose_params, is_glob, path_pattern, segments
from floodmark.wiring.resources import Resources

from .deliveries import Deliveries, JobGroup, Outcome, Shot, Taken
from .hops import check_hops
from .plain import ArrivedDelivery, JobFacts, PlainDeliveries, WantedJobs
from .refusals import Refusals
from .triggers import Rule, TriggerRules, Triggers

LONGEST_ID = 200
# One statement for so many deliveries takes a few milliseconds.
MOST_AT_ONCE = 100
KINDS: tuple[Kind, ...] = ("webhook", "channel", "stream")


class BadParams(InvalidInput):
    """A delivery whose params the source of one of its jobs refuses. Nothing was fired."""

    reason = "bad params"


class Arrival(Struct, frozen=True, kw_only=True):
    """A webhook or message. `subject` is the path, channel or stream; `body` its content, JSON or text."""

    kind: Kind
    subject: str
    body: Any = None
    path: tuple[str, ...] = ()
    delivery_id: str | None = None
    signature: str | None = None
    hops: int = 0


class Matches(Struct, frozen=True, kw_only=True):
    """The matching triggers, the most exact pattern first. `of_jobs`: matching patterns that only jobs name."""

    rules: tuple[Rule, ...]
    of_jobs: tuple[str, ...]


class Intake:
    """Turns arrivals into executions and hints. One per process, because the first use of a secret is slow."""

    def __init__(
        self,
        triggers: Triggers,
        deliveries: Deliveries,
        queue: Publisher,
        events: Events,
        validation: Validation,
        *,
        plain: PlainDeliveries,
        signals: Signals,
        body_max: int,
        tracing: Tracing | None = None,
    ) -> None:
        self.triggers, self.deliveries, self.refusals = triggers, deliveries, Refusals(triggers, events)
        self._queue, self._signals, self._events = queue, signals, events
        self._validation, self._tracing = validation, tracing
        self._plain = plain
        self._rules = {kind: GroupedCalls(partial(self._read_rules, kind), most=MOST_AT_ONCE) for kind in KINDS}
        self._calls = {kind: GroupedCalls(partial(self._take_all, kind), most=MOST_AT_ONCE) for kind in KINDS}
        # A message on Redis may be as large as a webhook.
        self.body_max = body_max

    async def matching(self, arrival: Arrival) -> Matches:
        """Return the enabled triggers and the patterns of jobs that match. Those that arrive together share a read."""
        known = await self._rules[arrival.kind].call(arrival.subject)
        fitting = [rule for rule in known.registered if variables_of(rule.pattern, arrival) is not None]
        return Matches(
            rules=tuple(sorted(fitting, key=lambda rule: _exactness(arrival.kind, rule.pattern))),
            of_jobs=tuple(text for text in known.of_jobs if variables_of(text, arrival) is not None),
        )

    async def take(self, arrival: Arrival, matches: Matches) -> Taken:
        """Fire or hint what matches. A delivery that was taken before gets its first answer again.

        Those that arrive while others are being written are written together.
        """
        if arrival.delivery_id is not None and not _is_id(arrival.delivery_id):
            hint = f"use 1 to {LONGEST_ID} printable characters, for example a UUID"
            raise InvalidInput("the delivery id is empty, too long or not printable", hint=hint)
        check_hops(arrival.hops)
        if not matches.rules and not matches.of_jobs:
            return self._ignore(arrival)
        with trace_trigger(self._tracing, arrival.kind, arrival.subject) as traceparent:
            outcome = await self._calls[arrival.kind].call(_GroupedArrival(arrival, matches, traceparent))
        if outcome is None:
            return self._ignore(arrival)
        if not outcome.taken.is_duplicate:
            self._events.emit(TriggersFired(arrival.kind))
            if outcome.written:
                self._events.emit(TriggersMatched(arrival.kind, outcome.written))
            if outcome.hinted:
                self._events.emit(HintsGiven(arrival.kind, outcome.hinted))
                # If the process dies here, the leader finds the hints at its next check.
                await self._signals.notify(Topic.JOBS)
        return outcome.taken

    def _ignore(self, arrival: Arrival) -> Taken:
        self._events.emit(TriggersFired(arrival.kind))
        self.refusals.unmatched(arrival.kind, arrival.subject)
        return Taken(delivery_id=arrival.delivery_id or new_id())

    async def _read_rules(self, kind: Kind, subjects: Sequence[str]) -> list[TriggerRules | Exception]:
        return [await self.triggers.rules(kind, list(dict.fromkeys(map(clean, subjects))))] * len(subjects)

    async def _take_all(self, kind: Kind, arrived: Sequence["_GroupedArrival"]) -> list[Outcome | Exception | None]:
        """Write all that have arrived together; None for those that concern no job."""
        wanted = WantedJobs(
            kind=kind,
            texts=list(dict.fromkeys(text for one in arrived for rule in one.matches.rules for text in rule.jobs)),
            patterns=list(dict.fromkeys(text for one in arrived for text in one.matches.of_jobs)),
        )
        found = await self._plain.find_jobs(wanted)
        outcomes: list[Outcome | Exception | None] = [None] * len(arrived)
        deliveries: dict[int, ArrivedDelivery] = {}
        for place, one in enumerate(arrived):
            try:
                shots = self._check(_shots(one.arrival, one.matches, found), found)
            except Exception as error:  # noqa: BLE001 - it is the answer to this one, not to the others
                outcomes[place] = error
                continue
            if shots:
                deliveries[place] = ArrivedDelivery(
                    subject=one.arrival.subject,
                    shots=shots,
                    delivery_id=one.arrival.delivery_id,
                    signature=one.arrival.signature,
                    traceparent=one.traceparent,
                    hops=one.arrival.hops,
                )
        by_id = {job.job_id: job for job in found}
        written = await self._plain.take(list(deliveries.values()), by_id)
        for (place, delivery), outcome in zip(deliveries.items(), written, strict=True):
            # One after the other: a debounce gives the params of the last one to the execution.
            outcomes[place] = outcome if outcome is not None else await self._take_alone(delivery)
        # If the process dies here, the requeuer puts them.
        await self._queue.put(
            [queued for outcome in outcomes if isinstance(outcome, Outcome) for queued in outcome.queued]
        )
        return outcomes

    async def _take_alone(self, delivery: ArrivedDelivery) -> Outcome | Exception:
        try:
            return await self.deliveries.take(
                delivery.subject,
                delivery.shots,
                delivery_id=delivery.delivery_id,
                signature=delivery.signature,
                traceparent=delivery.traceparent,
                hops=delivery.hops,
            )
        except Exception as error:  # noqa: BLE001 - it is the answer to this one, not to the others
            return error

    def _check(self, shots: Sequence[Shot], found: Sequence[JobFacts]) -> list[Shot]:
        """Return the shots with the jobs to which params make no difference.

        Refuse params that the source of one of the jobs refuses: then nothing is fired.
        """
        with_params = {job_id for shot in shots for group in shot.groups if group.params for job_id in group.job_ids}
        works = {job.job_id: job.read_work() for job in found if job.job_id in with_params}
        return [replace(shot, groups=tuple(self._check_group(group, works) for group in shot.groups)) for shot in shots]

    def _check_group(self, group: JobGroup, works: Mapping[str, Work]) -> JobGroup:
        indifferent: list[str] = []
        for work in (works[job_id] for job_id in group.job_ids if group.params and job_id in works):
            try:
                # Only workers may have the collector.
                with suppress(UnknownCollector):
                    self._validation.arrive(work, group.params)
            except InvalidInput as error:
                raise BadParams(f"{work.name} cannot run with these params: {error}", hint=error.hint) from error
            if not self._validation.uses_params(work, group.params):
                indifferent.append(work.job_id)
        return replace(group, indifferent=frozenset(indifferent))


class _GroupedArrival(Struct, frozen=True):
    """An arrival, its matches, and the parent of its executions in a trace."""

    arrival: Arrival
    matches: Matches
    traceparent: str | None


def _shots(arrival: Arrival, matches: Matches, found: Sequence[JobFacts]) -> list[Shot]:
    """Return what the matching triggers fire, or the patterns of jobs if there is no trigger."""
    named = {text: job.job_id for job in found for text in (job.name, job.job_id)}
    theirs = _by_pattern({job.job_id: job.pattern for job in found if job.pattern in matches.of_jobs})
    if not matches.rules:
        return [
            Shot(
                scope=_scope(arrival.kind, pattern),
                trigger=f"{arrival.kind}:{pattern}",
                groups=(JobGroup(params_of(pattern, {}, arrival), job_ids),),
                is_registered=False,
            )
            for pattern, job_ids in theirs.items()
        ]
    first, *others = matches.rules
    return [_shot(first, arrival, named, theirs), *(_shot(rule, arrival, named, {}) for rule in others)]


def build_intake(resources: Resources) -> Intake:
    """Return the intake of a process."""
    settings = resources.settings
    return Intake(
        Triggers(resources.database, resources.clock, Vault.of(settings)),
        Deliveries(resources.database, resources.clock, patience=settings.queue_patience),
        resources.queue,
        resources.events,
        resources.validation,
        plain=PlainDeliveries(resources.database, resources.clock, patience=settings.queue_patience),
        signals=resources.signals,
        body_max=settings.api_body_max,
        tracing=resources.tracing,
    )


def _shot(rule: Rule, arrival: Arrival, named: Mapping[str, str], theirs: Mapping[str, tuple[str, ...]]) -> Shot:
    """Return what a trigger fires: the jobs that it names, and those that name a matching pattern."""
    params = params_of(rule.pattern, rule.params, arrival)
    own = tuple(dict.fromkeys(named[text] for text in rule.jobs if text in named))
    adopted = [
        JobGroup({**params_of(pattern, rule.params, arrival), **params}, job_ids) for pattern, job_ids in theirs.items()
    ]
    return Shot(
        scope=rule.trigger_id,
        trigger=f"{arrival.kind}:{rule.pattern}",
        groups=(JobGroup(params, own), *adopted) if own else tuple(adopted),
        debounce=rule.debounce,
        unknown=tuple(text for text in rule.jobs if text not in named),
    )


def variables_of(pattern: str, arrival: Arrival) -> dict[str, Any] | None:
    """Return the variables for params; None if the pattern does not match or is invalid."""
    match arrival.kind:
        case "webhook":
            try:
                found = path_pattern(pattern).match(arrival.path)
            except InvalidInput:
                # Typed into the column by hand.
                return None
            if found is None:
                return None
            return {"path": PathVariables(arrival.subject, found), "body": arrival.body}
        case "channel":
            fits = channel_matches(pattern, arrival.subject)
        case "stream":
            fits = pattern == arrival.subject
    return {"channel": arrival.subject, "body": arrival.body} if fits else None


def params_of(pattern: str, mapping: Mapping[str, str], arrival: Arrival) -> dict[str, Any]:
    """Return the params of the executions. Without a mapping: the named segments of a path, or the whole message."""
    variables = variables_of(pattern, arrival) or {}
    if arrival.kind == "webhook":
        found = variables["path"].named | choose_params(mapping, variables)
    elif mapping:
        found = choose_params(mapping, variables)
    else:
        found = arrival.body if isinstance(arrival.body, dict) else {"message": arrival.body}
    cleaned: dict[str, Any] = clean(found)
    return cleaned


def read_message(data: bytes) -> Any:
    """Return the object of a message, or its text if it is no JSON object; `TooDeep` if it is nested too deeply."""
    try:
        value = read_json(data)
    except TooDeep:
        raise
    except NotJson:
        value = None
    return value if isinstance(value, dict) else data.decode("utf-8", "replace")


def _is_id(text: str) -> bool:
    return 0 < len(text) <= LONGEST_ID and text.isprintable()


def _by_pattern(jobs: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for job_id, pattern in jobs.items():
        if pattern is not None:
            found.setdefault(pattern, []).append(job_id)
    return {pattern: tuple(job_ids) for pattern, job_ids in sorted(found.items())}


def _scope(kind: str, pattern: str) -> str:
    """Return what replaces the id of a trigger, so that deliveries to patterns that only jobs name count once too."""
    return hashlib.blake2b(f"{kind}:{pattern}".encode(), digest_size=16).hexdigest()


def _exactness(kind: Kind, pattern: str) -> tuple[Any, ...]:
    if kind != "webhook":
        return (is_glob(pattern), -len(pattern), pattern)
    found = segments(pattern)
    loose = sum(segment == "*" or segment.startswith("{") for segment in found)
    return ("**" in found, loose, -len(found), pattern)
