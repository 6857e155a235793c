"""Reading crontab files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.importers.crontab import CrontabLine, read_crontab

pytestmark = pytest.mark.spec("E10")

FILE = """\
# m h  dom mon dow   command
SHELL=/bin/bash
MAILTO = "ops@example.org"

*/15 8-18 * * MON-FRI  /usr/bin/report --all   # not a comment
@daily\t/usr/bin/clean
CRON_TZ=Europe/Berlin
PATH='/usr/bin:/bin'
0 3 1,15 JAN-jun/2 *  echo 100\\% done%first line%second line
"""


def only(text: str, **options: bool) -> CrontabLine:
    found = read_crontab(text, **options)  # type: ignore[arg-type] # a flag
    assert not found.errors
    [entry] = found.entries
    return entry


def test_a_file_of_a_user_is_read_line_by_line() -> None:
    found = read_crontab(FILE, timezone="Asia/Tokyo")
    assert not found.errors
    report, clean, echo = found.entries
    assert (report.line, report.schedule, report.timezone) == (5, "*/15 8-18 * * MON-FRI", "Asia/Tokyo")
    assert report.command == "/usr/bin/report --all   # not a comment"
    assert report.environment == {"SHELL": "/bin/bash", "MAILTO": "ops@example.org"}
    assert (clean.schedule, clean.command, clean.stdin) == ("@daily", "/usr/bin/clean", None)
    assert (echo.schedule, echo.timezone) == ("0 3 1,15 JAN-jun/2 *", "Europe/Berlin")
    assert (echo.command, echo.stdin) == ("echo 100% done", "first line\nsecond line")
    assert echo.environment["PATH"] == "/usr/bin:/bin"


def test_what_is_set_holds_only_for_the_lines_below() -> None:
    first, second = read_crontab("@hourly a\nX=1\nCRON_TZ=Europe/Paris\n@hourly b").entries
    assert (first.environment, first.timezone) == ({}, "UTC")
    assert (second.environment, second.timezone) == ({"X": "1"}, "Europe/Paris")


@pytest.mark.parametrize("gap", [" ", "\t", "  \t "])
def test_a_file_of_the_system_names_a_user(gap: str) -> None:
    entry = only(f"17 *{gap}* * *{gap}root{gap}cd / && run-parts /etc/cron.hourly", is_system=True)
    assert (entry.user, entry.command) == ("root", "cd / && run-parts /etc/cron.hourly")
    alias = only(f"@weekly{gap}www-data{gap}/bin/true", is_system=True)
    assert (alias.user, alias.command) == ("www-data", "/bin/true")


def test_an_equals_sign_in_a_command_is_no_assignment() -> None:
    assert only("0 5 * * 7 env A=1 B=2 make").command == "env A=1 B=2 make"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("61 * * * * x", "bad minute '61'"),
        ("* * * * FUNDAY x", "bad day of week"),
        ("* * * x", "fields"),
        ("0 0 30 2 * x", "never fires"),
        ("@reboot x", "@reboot is no time"),
        ("@fortnightly x", "@fortnightly"),
        ("0 0 * * *", "a command should follow"),
        ("CRON_TZ=Mars/Olympus", "Mars/Olympus"),
    ],
)
def test_a_line_that_cannot_be_read_is_told_with_its_number_and_the_others_go_on(line: str, says: str) -> None:
    found = read_crontab(f"@daily first\n{line}\n@daily last\n")
    assert [entry.command for entry in found.entries] == ["first", "last"]
    [error] = found.errors
    assert (error.line, error.text) == (2, line)
    assert says in error.error
    assert error.hint


def test_a_line_of_the_system_without_a_command_is_told() -> None:
    [error] = read_crontab("0 0 * * * root", is_system=True).errors
    assert "a user and a command" in error.error


@given(st.text(max_size=300), st.booleans())
def test_whatever_a_file_holds_it_is_read_to_its_end(text: str, is_system: bool) -> None:
    found = read_crontab(text, is_system=is_system)
    said = [line for line in text.removeprefix("\ufeff").split("\n") if line.strip()]
    assert len(found.entries) + len(found.errors) <= len(said)
