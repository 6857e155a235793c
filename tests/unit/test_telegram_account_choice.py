from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from floodmark.model.accounts import AccountRow
from floodmark.sources.telegram.account_choice import AccountLoad, WaitingLine, choose_account
from floodmark.sources.telegram.channels import ChannelKnowledge


def an_account(name: str, **fields: Any) -> AccountRow:
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    usual: dict[str, Any] = dict.fromkeys(
        ("phone", "proxy", "tenant_id", "user_id", "reason", "holder", "lease_until", "last_used_at")
    )
    usual |= {"kind": "telegram", "api_id": 1, "state": "active", "created_at": long_ago, "updated_at": long_ago}
    return AccountRow(name=name, **{**usual, **fields})


def chosen(*rows: AccountRow, load: AccountLoad = AccountLoad(holder="me"), **known: tuple[int, bool]) -> str:  # noqa: B008 - frozen
    knowledge = {name: ChannelKnowledge(channels=count, is_known=knows) for name, (count, knows) in known.items()}
    return choose_account(rows, knowledge, load).name


def test_the_account_that_knows_the_channel_is_taken() -> None:
    assert chosen(an_account("a"), an_account("b"), a=(1, False), b=(99, True)) == "b"


def test_even_if_another_process_has_it_open() -> None:
    """Looking a name up anew is what gets accounts flooded; waiting a moment is not."""
    assert chosen(an_account("a", holder="me"), an_account("b", holder="other"), b=(9, True)) == "b"


@pytest.mark.spec("T6")
def test_of_several_that_know_it_the_one_that_is_open_here_is_taken() -> None:
    rows = (an_account("a", holder="other"), an_account("b"), an_account("c", holder="me"))
    assert chosen(*rows, a=(1, True), b=(1, True), c=(1, True)) == "c"
    full = AccountLoad(holder="me", runs={"c": 4}, max_runs=4)
    assert chosen(*rows, load=full, a=(1, True), b=(1, True), c=(1, True)) == "b"
    told = AccountLoad(holder="me", waiting=frozenset(("b", "c")))
    assert chosen(*rows, load=told, a=(1, True), b=(1, True), c=(1, True)) == "a"


def test_of_strangers_the_one_with_the_fewest_channels_is_taken() -> None:
    assert chosen(an_account("a"), an_account("b"), an_account("c"), a=(3, False), b=(2, False), c=(5, False)) == "b"
    assert chosen(an_account("a"), an_account("b"), a=(3, False)) == "b"
    # Those that are about to know one more count as well.
    assert chosen(an_account("a"), an_account("b"), load=AccountLoad(holder="me", runs={"a": 1}, max_runs=4)) == "b"
    # One that has to wait would be no help.
    assert chosen(an_account("a"), an_account("b"), load=AccountLoad(holder="me", waiting=frozenset("a"))) == "b"


def test_each_in_line_waits_longer_than_the_one_before() -> None:
    line = WaitingLine()
    waits = [line.join(100.0, max_runs=4) for _ in range(500)]
    assert waits[0] > timedelta(seconds=1)
    assert all(later >= earlier for earlier, later in pairwise(waits))
    assert waits[-1] == timedelta(seconds=30)


def test_a_line_that_has_passed_is_forgotten() -> None:
    line = WaitingLine()
    for _ in range(500):
        line.join(100.0, max_runs=4)
    assert line.join(200.0, max_runs=4) < timedelta(seconds=2)


def test_longer_runs_make_a_slower_line() -> None:
    quick, slow = WaitingLine(), WaitingLine()
    for _ in range(20):
        quick.record_run(0.1)
        slow.record_run(20.0)
    assert slow.join(0.0, max_runs=1) > quick.join(0.0, max_runs=1)
