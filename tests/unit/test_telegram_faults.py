"""What Telethon raises, in our words. Errors are made as the client makes them from what the server sends."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from python_socks import ProxyError
from telethon import errors
from telethon.errors import rpc_message_to_error
from telethon.tl.types import RpcError

from floodmark.errors import AccountLost, Gone, Permanent, SlowDown, TargetDenied, Transient
from floodmark.sources.telegram.faults import UnknownChannel, translate

NOW = datetime(2026, 11, 15, 14, 6, 10, tzinfo=UTC)


def told(error: Exception, target: str = "@harbour") -> Exception:
    return translate(error, account="reader1", method="messages.getHistory", target=target, now=NOW)


def sent(code: int, message: str) -> Exception:
    made: Exception = rpc_message_to_error(RpcError(code, message), None)
    return made


@pytest.mark.spec("T4")
@pytest.mark.parametrize("message", ["FLOOD_WAIT_30", "FLOOD_PREMIUM_WAIT_30", "SLOWMODE_WAIT_30"])
def test_a_flood_wait_is_the_servers_seconds_and_up_to_three(message: str) -> None:
    for _ in range(50):
        wait = told(sent(420, message))
        assert isinstance(wait, SlowDown)
        assert 30 <= wait.after.total_seconds() <= 33
        assert wait.key == "telegram:reader1:messages.getHistory"
        assert "on account reader1 (messages.getHistory) until 14:06:4" in wait.reason


@pytest.mark.spec("T4")
def test_a_flood_wait_over_midnight_says_the_day() -> None:
    wait = told(sent(420, "FLOOD_WAIT_86400"))
    assert isinstance(wait, SlowDown)
    assert "until 2026-11-16 14:06" in wait.reason
    assert wait.reason.startswith("FloodWait on account reader1")


def test_a_flood_without_seconds_still_waits() -> None:
    wait = told(sent(420, "SOMETHING_NEW"))
    assert isinstance(wait, SlowDown)
    assert wait.after.total_seconds() >= 60


@pytest.mark.spec("T4")
@pytest.mark.parametrize(
    "error",
    [
        sent(500, "INTERNAL"),
        sent(-503, "Timeout"),
        sent(500, "RPC_CALL_FAIL"),
        ConnectionError("gone"),
        ProxyError("the password is wrong", error_code=1),
        ConnectionResetError(),
        OSError(113, "no route"),
        asyncio.IncompleteReadError(b"", 4),
        TimeoutError(),
        errors.InvalidBufferError(b"\x53\xfe\xff\xff"),
        errors.SecurityError("x"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_passing_faults_are_tried_again(error: Exception) -> None:
    assert isinstance(told(error), Transient)


@pytest.mark.parametrize(
    "message", ["CHANNEL_PRIVATE", "USERNAME_NOT_OCCUPIED", "USERNAME_INVALID", "USER_BANNED_IN_CHANNEL"]
)
def test_a_channel_that_is_gone_is_told_with_what_to_do(message: str) -> None:
    gone = told(sent(400, message))
    assert isinstance(gone, Gone)
    assert str(gone).startswith("@harbour ")
    assert gone.hint


def test_a_hash_that_is_not_good_any_more_may_be_looked_up_again() -> None:
    assert isinstance(told(sent(400, "CHANNEL_INVALID"), target="123"), UnknownChannel)
    assert str(told(sent(400, "CHANNEL_INVALID"), target="123")).startswith("channel 123 ")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (sent(401, "AUTH_KEY_UNREGISTERED"), "logged out"),
        (sent(401, "SESSION_REVOKED"), "ended by its owner"),
        (sent(401, "USER_DEACTIVATED_BAN"), "banned"),
        (sent(406, "AUTH_KEY_DUPLICATED"), "two places at once"),
        (sent(420, "FROZEN_METHOD_INVALID"), "frozen"),
        (errors.AuthKeyNotFound(), "does not know the session"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_lost_account_is_told_with_what_to_type(error: Exception, why: str) -> None:
    lost = told(error)
    assert isinstance(lost, AccountLost)
    assert why in lost.reason
    assert "floodmark accounts add reader1 --replace" in lost.hint


@pytest.mark.parametrize("error", [sent(400, "LIMIT_INVALID"), sent(403, "CHAT_RESTRICTED"), ValueError("x")])
def test_what_is_refused_for_good_is_not_tried_again(error: Exception) -> None:
    assert isinstance(told(error), Permanent)


@pytest.mark.spec("T4")
@pytest.mark.parametrize(
    "error",
    [
        sent(406, "SOMETHING_NEW"),
        sent(406, "FILEREF_UPGRADE_NEEDED"),
        sent(401, "SOMETHING_NEW"),
        sent(401, "AUTH_KEY_PERM_EMPTY"),
        sent(400, "CHAT_ADMIN_REQUIRED"),
        sent(400, "SOMETHING_NEW"),
    ],
    ids=str,
)
def test_an_unknown_refusal_fails_the_channel_and_not_the_account(error: Exception) -> None:
    assert isinstance(told(error), TargetDenied)


@pytest.mark.parametrize(
    "error",
    [
        sent(400, "CONNECTION_NOT_INITED"),
        sent(400, "MSG_WAIT_FAILED"),
        sent(303, "FILE_MIGRATE_4"),
        sent(303, "STATS_MIGRATE_4"),
        sent(303, "SOMETHING_MIGRATE_4"),
    ],
    ids=str,
)
def test_what_another_connection_may_answer_is_tried_again(error: Exception) -> None:
    assert isinstance(told(error), Transient)


@pytest.mark.parametrize("error", [Gone("x"), Transient("x"), AccountLost("a", "b")])
def test_our_own_words_stay(error: Any) -> None:
    assert told(error) is error
