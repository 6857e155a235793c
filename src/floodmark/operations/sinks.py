"""Sinks: where events are delivered, and the events that their receivers refuse."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from floodmark.errors import InvalidInput
from floodmark.model.page import Page
from floodmark.model.sinks import SinkLetter, SinkReplay, SinkRow, SinkTest

from .declaration import WHOLE_LIST, Body, Each, Envelope, Path, Query, delete, get, post
from .streams import FARTHEST
from .words import Cursor, Limit, Name

_TAG = "Sinks"
_MOMENT = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_MOST_POSITIONS = 1000
_COUNT = Envelope("SinkLettersOut", "A number of dead letters.", "count")
_LETTERS_IN = ("SinkLettersIn", "Dead letters of a sink.", {"examples": [{"positions": [4812]}]})

SinkName = Annotated[Name, Path("The name of a sink.", examples=["archive"])]
Positions = Annotated[
    Sequence[int] | None,
    Body(
        "The positions of the events; all dead letters of the sink if it is left out.",
        type=list[Annotated[int, Meta(ge=1, le=FARTHEST)]] | None,
        send=list,
        min_length=1,
        max_length=_MOST_POSITIONS,
    ),
]


def _read_moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a time", hint="write it like 2026-11-01T06:00:00Z") from None


class SinkOperations:
    """List, pause, resume, replay and test sinks; list, retry and drop their dead letters."""

    @get("/sinks", tag=_TAG, operation_id="list_sinks", envelope=WHOLE_LIST)
    async def sinks(self) -> list[SinkRow]:
        """List sinks. They are sorted by name, with their position, lag and last error."""

    @get("/sinks/{name}", tag=_TAG, operation_id="show_sink")
    async def sink(self, name: SinkName) -> SinkRow:
        """Show a sink. The answer has its position, lag and last error."""

    @post("/sinks/{name}/pause", tag=_TAG)
    async def pause_sink(self, name: SinkName) -> SinkRow:
        """Pause a sink. It gets its events when it is resumed, unless they have been deleted (EVENTS_KEEP_DAYS)."""

    @post("/sinks/{name}/resume", tag=_TAG)
    async def resume_sink(self, name: SinkName) -> SinkRow:
        """Resume a sink. One that failed is tried again at once."""

    @post(
        "/sinks/{name}/replay",
        tag=_TAG,
        body=("SinkReplayIn", "Where to start: a position or a time."),
        is_body_required=True,
        answers={409: "It is being filled with stored items."},
    )
    async def replay_sink(
        self,
        name: SinkName,
        *,
        position: Annotated[
            int | None,
            Body("The position of the first event to send.", name="from", ge=1, le=FARTHEST, examples=[4812]),
        ] = None,
        since: Annotated[
            datetime | None,
            Body(
                "Or the time: events that were published since then are sent.",
                type=str | None,
                send=datetime.isoformat,
                read=_read_moment,
                pattern=_MOMENT,
                max_length=40,
                examples=["2026-11-01T06:00:00Z"],
            ),
        ] = None,
        dry_run: Annotated[bool, Query("Report what would be done, and change nothing.")] = False,
    ) -> SinkReplay:
        """Send stored events again. Delivery continues from there in order; receivers recognise events by their id."""

    @post(
        "/sinks/{name}/test",
        tag=_TAG,
        answers={
            409: "This kind of sink cannot send one, or this process does not have its settings.",
            502: "The receiver did not accept it.",
        },
    )
    async def test_sink(self, name: SinkName) -> SinkTest:
        """Send a test event. Its kind is `test`. The process that responds has to have the settings of the sink."""

    @delete("/sinks/{name}", tag=_TAG, answers={409: "It is configured."})
    async def remove_sink(self, name: SinkName) -> SinkRow:
        """Remove a sink that is no longer configured. Its position and its dead letters are forgotten."""

    @get("/sinks/{name}/dead-letters", tag=_TAG, operation_id="list_sink_letters")
    async def sink_letters(self, name: SinkName, *, cursor: Cursor = None, limit: Limit = 50) -> Page[SinkLetter]:
        """List dead letters of a sink. These are events that its receiver refused, by position."""

    each_sink_letter = Each(sink_letters)

    @post("/sinks/{name}/dead-letters/retry", tag=_TAG, status=202, body=_LETTERS_IN, envelope=_COUNT)
    async def retry_sink_letters(self, name: SinkName, positions: Positions = None) -> int:
        """Send dead letters of a sink again. Those that are refused again stay. Return their number."""

    @post("/sinks/{name}/dead-letters/drop", tag=_TAG, body=_LETTERS_IN, envelope=_COUNT)
    async def drop_sink_letters(self, name: SinkName, positions: Positions = None) -> int:
        """Drop dead letters of a sink. They are not sent again. Return their number."""
