"""Schedules of Celery beat: as they stand in a module, in JSON, and in the file that beat writes."""

import dbm.dumb
import json
import pickle
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from floodmark.errors import InvalidInput
from floodmark.importers.apscheduler import ImportedJob
from floodmark.importers.beat_files import read_beat
from floodmark.importers.build_jobs import build_jobs


class Crontab:
    """As Celery pickles it, under its name."""

    __module__, __qualname__ = "celery.schedules", "crontab"

    def __init__(self, minute: Any = "*", hour: Any = "*", day_of_week: Any = "*", **other: Any) -> None:
        self._orig_minute, self._orig_hour, self._orig_day_of_week = minute, hour, day_of_week
        self._orig_day_of_month = other.get("day_of_month", "*")
        self._orig_month_of_year = other.get("month_of_year", "*")

    def __reduce__(self) -> Any:
        fields = ("minute", "hour", "day_of_week", "day_of_month", "month_of_year")
        return type(self), tuple(getattr(self, f"_orig_{name}") for name in fields), {"app": None}

    def __setstate__(self, state: Any) -> None:
        pass


class Every:
    """As Celery has an interval."""

    __module__, __qualname__ = "celery.schedules", "schedule"

    def __init__(self, run_every: timedelta, relative: bool = False, nowfun: Any = None) -> None:
        self.run_every, self.given = run_every, (run_every, relative, nowfun)

    def __reduce__(self) -> Any:
        return type(self), self.given


class Entry:
    """As beat keeps it."""

    __module__, __qualname__ = "celery.beat", "ScheduleEntry"

    def __init__(self, *given: Any) -> None:
        self.given = given

    def __reduce__(self) -> Any:
        return type(self), self.given


@pytest.fixture(autouse=True)
def celery(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that pickles name the classes as those of Celery do."""
    modules = {name: ModuleType(name) for name in ("celery", "celery.schedules", "celery.beat")}
    for kind in (Crontab, Every, Entry):
        setattr(modules[kind.__module__], kind.__qualname__, kind)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def shelf(path: Path, entries: dict[str, Any], version: str = "5.2.7") -> str:
    with dbm.dumb.open(str(path), "c") as stored:
        stored["entries"] = pickle.dumps(entries)
        stored["__version__"] = pickle.dumps(version)
    return str(path)


def entry(schedule: Any, *args: Any, task: str = "shop.tasks.sync", **kwargs: Any) -> Entry:
    return Entry("name", task, datetime(2026, 6, 1, tzinfo=UTC), 7, schedule, args, kwargs, {"queue": "low"})


def whens(found: list[ImportedJob]) -> dict[str, Any]:
    return {one.name: one.when.cron_expression or one.when.interval_seconds for one in found}


@pytest.mark.spec("E10")
def test_the_file_of_beat_is_read_without_running_anything(tmp_path: Path) -> None:
    entries = {
        "often": entry(Every(timedelta(seconds=30)), 1, "two", depth=3),
        "nightly": entry(Crontab("0", "2", "mon-fri")),
    }
    found, errors = read_beat(shelf(tmp_path / "celerybeat-schedule", entries), timezone="Europe/Berlin")
    assert errors == []
    assert whens(found) == {"often": 30, "nightly": "0 2 * * MON-FRI"}
    often = next(one for one in found if one.name == "often")
    assert (often.target, often.params) == ("shop.tasks:sync", {"*args": [1, "two"], "depth": 3})
    [job, _] = build_jobs([often, often], "celery")
    assert (job.spec.name, job.spec.stream, job.spec.when.timezone) == ("often", "celery:often", "Europe/Berlin")

    # Whatever else a pickle names is refused, whichever entry it is in.
    mark = tmp_path / "mark"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (mark,)

    with pytest.raises(InvalidInput, match="not read for safety"):
        read_beat(shelf(tmp_path / "evil", {"x": entry(Evil())}), timezone="UTC")
    assert not mark.exists()
    with pytest.raises(InvalidInput, match="no file"):
        read_beat(str(tmp_path / "missing"), timezone="UTC")


@pytest.mark.spec("E10")
def test_days_of_a_newer_celery_are_not_guessed(tmp_path: Path) -> None:
    entries = {"hourly": entry(Crontab("5")), "sundays": entry(Crontab("0", "2", "sun"))}
    found, [error] = read_beat(shelf(tmp_path / "beat", entries, "5.5.0"), timezone="UTC")
    assert whens(found) == {"hourly": "5 * * * *"}
    assert (error[0], "package.module:beat_schedule" in error[2]) == ("sundays", True)


@pytest.mark.spec("E10")
def test_a_beat_schedule_is_read_from_a_module_and_from_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("celeryconfig_of_a_test")
    schedule = {
        "delta": {"task": "a.b", "schedule": timedelta(minutes=5)},
        "cron": {"task": "a.b", "schedule": Crontab({0, 30}, "*/2", "sunday,3")},
        "date": {"task": "a.b", "schedule": Crontab(0, 4, day_of_month="1", month_of_year="jan,July")},
        "both": {"task": "a.b", "schedule": Crontab(0, 4, "mon", day_of_month="1")},
        "odd": {"task": "nameless", "schedule": 5},
        "args": {"task": "a.b", "schedule": 5, "args": (print,)},
    }
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(module, "beat_schedule", schedule, raising=False)
    found, errors = read_beat(f"{module.__name__}:beat_schedule", timezone="UTC")
    assert whens(found) == {"delta": 300, "cron": "0,30 */2 * * SUN,3", "date": "0 4 1 JAN,JUL *"}
    assert [name for name, *_ in errors] == ["both", "odd", "args"]

    file = tmp_path / "beat.json"
    plain = {
        "a": {"task": "x.y", "schedule": 30},
        "b": {"task": "x.y", "schedule": "0 2 * * *"},
        "c": {"task": "x.y", "schedule": {"crontab": {"minute": 15}}, "args": [1]},
    }
    file.write_text(json.dumps(plain))
    found, errors = read_beat(str(file), timezone="UTC")
    assert (whens(found), errors) == ({"a": 30, "b": "0 2 * * *", "c": "15 * * * *"}, [])
