"""Kafka: produces one message for each event, with confluent-kafka (the extra `kafka`).

    key       `<stream>/<key>`, the same for all revisions of an item; with SINK_<NAME>_KEY=stream the stream
    value     the event as JSON
    headers   event_id, position, and traceparent if the event was traced

The producer is idempotent, so its own retries neither repeat nor reorder messages. After a crash, events that were
acknowledged but not recorded are produced again: consumers recognise them by `event_id`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct

from floodmark.errors import InvalidInput, Permanent, SourceError, Transient
from floodmark.extensions.services import Services
from floodmark.security.masking import MASK
from floodmark.store.port import Event, Unsent

from .event_json import event_json
from .options import SinkOptions
from .port import EventsRefused, SinkTraits

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_LINGER_MS = 5
_TIMEOUT, _MOST_SECONDS = 30, 300
# Beyond the time-out of a message: time to hear of it.
_GRACE = 5.0
_COMPRESSIONS = ("lz4", "none", "gzip", "snappy", "zstd")
_MECHANISMS = ("scram-sha-512", "scram-sha-256", "plain")
# Options that the guarantees depend on, or that are options of the sink.
_OWN = ("acks", "enable.idempotence", "bootstrap.servers", "sasl.password", "message.timeout.ms", "transactional.id")
# Errors by their names in librdkafka.
_REFUSED = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG"})
_PERMANENT = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "UNKNOWN_TOPIC_OR_PART",
        "TOPIC_EXCEPTION",
        "_UNKNOWN_TOPIC",
        "_AUTHENTICATION",
        "_SSL",
    }
)


class KafkaSettings(Struct, frozen=True, kw_only=True):
    """The options of one Kafka sink. `config` is the configuration of librdkafka."""

    servers: str
    topic: str
    config: Mapping[str, Any]
    has_stream_keys: bool = False
    timeout: int = _TIMEOUT


def open_kafka(services: Services) -> "KafkaSink | None":
    """Make a sink that SINKS names."""
    if services.instance is None:
        return None
    if find_spec("confluent_kafka") is None:
        raise InvalidInput("Kafka sinks need confluent-kafka", hint="pip install 'floodmark[kafka]'")
    options = SinkOptions(services.instance, services.section)
    settings = KafkaSettings(
        servers=options.require("servers", "kafka1:9092,kafka2:9092"),
        topic=options.require("topic", "floodmark-events"),
        has_stream_keys=options.choice("key", "item", "stream") == "stream",
        timeout=options.count("timeout", _TIMEOUT, _MOST_SECONDS),
        config=_read_config(options),
    )
    options.finish()
    return KafkaSink(services, settings)


def _read_config(options: SinkOptions) -> dict[str, Any]:
    """Return the options of librdkafka that others of the sink define."""
    config: dict[str, Any] = {"compression.type": options.choice("compression", *_COMPRESSIONS)}
    user, password = options.text("username"), options.text("password")
    mechanism, is_encrypted = options.choice("mechanism", *_MECHANISMS), options.flag("tls")
    if user is not None:
        config |= {"sasl.username": user, "sasl.password": password or "", "sasl.mechanism": mechanism.upper()}
    config["security.protocol"] = ("SASL_" if user else "") + ("SSL" if is_encrypted else "PLAINTEXT")
    if (ca := options.text("ca_file")) is not None:
        config["ssl.ca.location"] = ca
    for pair in filter(None, (pair.strip() for pair in (options.text("options") or "").split(","))):
        name, equals, value = (word.strip() for word in pair.partition("="))
        if not equals or name in _OWN:
            raise options.wrong("options", f"a list of name=value without any of {', '.join(_OWN)}")
        config[name] = value
    return config


class KafkaSink:
    """Produces events to one topic, on a thread of its own."""

    traits = SinkTraits(restarts_elsewhere=False)

    def __init__(self, services: Services, settings: KafkaSettings) -> None:
        self._settings, self._threads = settings, services.threads
        self.place = f"{settings.topic} at {settings.servers}"
        self._producer: Producer | None = None
        self._reason: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._discard)

    async def send(self, events: Sequence[Event]) -> int:
        """Produce the events; return how many of the first ones the brokers have acknowledged."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._produce, events)

    async def send_test(self, event: Event) -> None:
        """Produce a test event."""
        await self.send([event])

    def _produce(self, events: Sequence[Event]) -> int:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only those who use Kafka have it

        outcomes: list[KafkaError | str | None] = ["not sent"] * len(events)

        def note(index: int, error: "KafkaError | None", _: "Message") -> None:
            outcomes[index] = error

        try:
            producer = self._producer = self._producer or self._open()
            for index, event in enumerate(events):
                producer.produce(
                    self._settings.topic,
                    event_json(event),
                    self._key(event),
                    headers=_headers(event),
                    on_delivery=partial(note, index),
                )
        except KafkaException as error:
            if self._producer is None:
                raise InvalidInput(
                    self._mask(f"Kafka refuses the options of the sink: {error.args[0].str()}")
                ) from None
            outcomes[index] = error.args[0]
        except BufferError:
            # Its queue is full: the others are sent next time.
            pass
        producer.flush(self._settings.timeout + _GRACE)
        accepted = next((index for index, outcome in enumerate(outcomes) if outcome is not None), len(events))
        if accepted:
            return accepted
        raise self._explain(outcomes)

    def _open(self) -> "Producer":
        from confluent_kafka import Producer  # noqa: PLC0415 - see above

        return Producer(
            {
                "client.id": "floodmark",
                "linger.ms": _LINGER_MS,
                # The partitioner of Java clients: equal keys are in equal partitions.
                "partitioner": "murmur2_random",
                # Errors are reported by callbacks, not on stderr.
                "log_level": 0,
                **self._settings.config,
                "bootstrap.servers": self._settings.servers,
                "enable.idempotence": True,
                "message.timeout.ms": self._settings.timeout * 1000,
                "error_cb": self._note_reason,
            }
        )

    def _note_reason(self, error: "KafkaError") -> None:
        self._reason = error.str()

    def _key(self, event: Event) -> str:
        return event.stream if self._settings.has_stream_keys else f"{event.stream}/{event.key}"

    def _explain(self, outcomes: "Sequence[KafkaError | str | None]") -> SourceError:
        """Return the error of the first event."""
        first = outcomes[0]
        name = "" if first is None or isinstance(first, str) else first.name()
        what = f"{self.place}: {first if isinstance(first, str) or first is None else first.str()}"
        if name in _REFUSED:
            same = [each for each in outcomes if each is not None and not isinstance(each, str) and each.name() == name]
            return EventsRefused(what, among=len(same))
        # What is still in its queue must not arrive after the events that are sent next.
        reason = f" ({self._reason})" if self._reason else ""
        self._discard()
        if name in _PERMANENT:
            return Permanent(f"{what}{reason}", hint="check servers, topic, user and rights")
        return Transient(f"{what}{reason}")

    def _mask(self, text: str) -> str:
        password = self._settings.config.get("sasl.password")
        return text.replace(password, MASK) if password else text

    def _discard(self) -> None:
        producer, self._producer, self._reason = self._producer, None, None
        if producer is not None:
            producer.purge()
            producer.flush(1.0)
            producer.close()


def _headers(event: Event) -> list[tuple[str, str | bytes | None]]:
    headers: list[tuple[str, str | bytes | None]] = [
        ("event_id", event.event_id),
        ("position", str(event.position)),
    ]
    if isinstance(event, Unsent) and event.traceparent is not None:
        headers.append(("traceparent", event.traceparent))
    return headers
