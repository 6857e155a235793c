"""Crontab files: those of a user, and those of the system, which name a user in each line. Without I/O."""

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.triggers.cron import cron
from floodmark.triggers.zones import zone_of

_ENVIRONMENT = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z_][A-Za-z0-9_]*))\s*=\s*(.*?)\s*""")
_ZONE = "CRON_TZ"
_HINT = "write minute hour day month weekday command, as in: */15 8-18 * * MON-FRI /usr/bin/report"


class CrontabLine(Struct, frozen=True, kw_only=True):
    """One line with a command. `stdin` is the text after the first `%`."""

    line: int
    schedule: str
    timezone: str
    command: str
    stdin: str | None = None
    user: str | None = None
    environment: Mapping[str, str] = {}


class LineError(Struct, frozen=True, kw_only=True):
    """A line that cannot become a job, and the reason."""

    line: int
    text: str
    error: str
    hint: str = ""


class Crontab(Struct, frozen=True, kw_only=True):
    """The content of a file."""

    entries: tuple[CrontabLine, ...]
    errors: tuple[LineError, ...]


def read_crontab(text: str, *, is_system: bool = False, timezone: str = "UTC") -> Crontab:
    """Return the entries of a file, and the invalid lines. `timezone` applies until a line sets CRON_TZ."""
    entries: list[CrontabLine] = []
    errors: list[LineError] = []
    environment: dict[str, str] = {}
    zone = timezone
    for number, line in _lines(text):
        try:
            assigned = _assignment(line)
            if assigned is None:
                entries.append(_entry(number, line, zone, environment, is_system=is_system))
            elif assigned[0] == _ZONE:
                zone_of(assigned[1])
                zone = assigned[1]
            else:
                environment = {**environment, assigned[0]: assigned[1]}
        except FloodmarkError as error:
            errors.append(LineError(line=number, text=line[:200], error=str(error), hint=error.hint))
    return Crontab(entries=tuple(entries), errors=tuple(errors))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty. Only a whole line can be a comment: a # in a command belongs to it."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


def _assignment(line: str) -> tuple[str, str] | None:
    found = _ENVIRONMENT.fullmatch(line)
    if found is None:
        return None
    name, value = found[1] or found[2] or found[3] or "", found[4]
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return name, value


def _entry(number: int, line: str, zone: str, environment: Mapping[str, str], *, is_system: bool) -> CrontabLine:
    schedule, rest = _schedule(line)
    user = None
    if is_system:
        user, rest = [*rest.split(None, 1), "", ""][:2]
    if not rest:
        wanted = "a user and a command" if is_system else "a command"
        raise InvalidInput(f"{wanted} should follow the schedule {schedule!r}", hint=_HINT)
    cron(schedule, zone)
    command, stdin = _split_input(rest)
    return CrontabLine(
        line=number,
        schedule=schedule,
        timezone=zone,
        command=command,
        stdin=stdin,
        user=user,
        environment=environment,
    )


def _schedule(line: str) -> tuple[str, str]:
    """Return the schedule and the text after it, unchanged."""
    if line.lower().split()[0] == "@reboot":
        raise InvalidInput(
            "@reboot is no time: Floodmark runs jobs by the clock, not when a machine starts",
            hint="leave it in the crontab, or give it a time",
        )
    count = 1 if line.startswith("@") else 5
    fields = line.split(None, count)
    if len(fields) < count:
        raise InvalidInput(f"{line[:60]!r} has {len(fields)} fields: a schedule has 5", hint=_HINT)
    return " ".join(fields[:count]), fields[count] if len(fields) > count else ""


def _split_input(text: str) -> tuple[str, str | None]:
    r"""Return the command and its input: an unescaped % ends a line, `\%` is a percent sign."""
    lines = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text)]
    return lines[0].rstrip(), "\n".join(lines[1:]) if len(lines) > 1 else None
