"""Translate the errors of Telethon into those of sources. Imports Telethon, which takes a while."""

import asyncio
import random
import struct
from datetime import datetime, timedelta

from telethon import errors

from floodmark.errors import AccountLost, Gone, Permanent, SlowDown, SourceError, TargetDenied, Transient

from .hints import relogin_hint

try:
    from python_socks import ProxyError
except ImportError:  # an optional package
    _PROXY: tuple[type[Exception], ...] = ()
else:
    # Telethon makes it an OSError, but not if another connection has used the package before.
    _PROXY = (ProxyError,)

# Added to the wait of the server, so that runs do not all continue at the same instant.
_JITTER_SECONDS = 3.0
# The wait after a flood error without a duration.
_UNKNOWN_WAIT_SECONDS = 60

_GONE = {
    errors.ChannelPrivateError: "is private, or the account was removed from it",
    errors.ChannelPublicGroupNaError: "can no longer be reached",
    errors.ChatForbiddenError: "can no longer be reached",
    errors.UserBannedInChannelError: "has banned the account",
    errors.UsernameNotOccupiedError: "does not exist",
    errors.UsernameInvalidError: "is not a name that exists",
    errors.ChannelInvalidError: "is not known to the account",
    errors.PeerIdInvalidError: "is not known to the account",
}
_TRANSIENT = (
    errors.ServerError,
    errors.TimedOutError,
    errors.RpcCallFailError,
    errors.RpcMcgetFailError,
    errors.InterdcCallErrorError,
    errors.InterdcCallRichErrorError,
    # "Ask another data centre": Telethon follows most of these; the others work after a reconnect.
    errors.InvalidDCError,
    errors.ConnectionNotInitedError,
    errors.MsgWaitFailedError,
    errors.InvalidBufferError,
    errors.InvalidChecksumError,
    errors.TypeNotFoundError,
    errors.SecurityError,
    errors.BadMessageError,
    ConnectionError,
    OSError,
    EOFError,
    TimeoutError,
    asyncio.IncompleteReadError,
    struct.error,
    *_PROXY,
)
# Only errors that prove that the session is dead: others with these codes are about one channel or one method.
_LOST = {
    errors.AuthKeyDuplicatedError: "Telegram ended the session because it was used in two places at once",
    errors.AuthKeyNotFound: "Telegram does not know the session",
    errors.AuthKeyUnregisteredError: "the session was logged out",
    errors.AuthKeyInvalidError: "Telegram does not accept the session",
    errors.SessionPasswordNeededError: "the session was never logged in with its second password",
    errors.SessionRevokedError: "the session was ended by its owner",
    errors.SessionExpiredError: "the session has expired",
    errors.UserDeactivatedError: "the account was deleted",
    errors.UserDeactivatedBanError: "the account was banned",
    errors.FrozenMethodInvalidError: "the account is frozen by Telegram",
}


class UnknownChannel(Gone):
    """The access hash of the channel is not valid for the account: looking it up again may help."""


class TakeoutEnded(Permanent):
    """The takeout session is no longer valid: a new one may be begun."""


def translate(error: Exception, *, account: str, method: str, target: str, now: datetime) -> Exception:
    """Return the error to raise for an error of Telethon; errors of sources are returned unchanged."""
    if isinstance(error, SourceError):
        return error
    # The error of a frozen account is a flood error, but waiting does not help.
    if type(error) in _LOST:
        return AccountLost(account, _LOST[type(error)], hint=relogin_hint(account))
    if isinstance(error, errors.FloodError):
        return _slow_down(error, account=account, method=method, now=now)
    for kind, why in _GONE.items():
        if isinstance(error, kind):
            return _gone(error, target, why)
    if isinstance(error, _TRANSIENT):
        return Transient(f"{method} on account {account}: {_describe(error)}")
    refusal: type[Permanent] = TargetDenied if isinstance(error, errors.RPCError) else Permanent
    if isinstance(error, errors.TakeoutInvalidError):
        refusal = TakeoutEnded
    return refusal(f"{method} on account {account} was refused: {_describe(error)}")


def _slow_down(error: errors.FloodError, *, account: str, method: str, now: datetime) -> SlowDown:
    seconds = getattr(error, "seconds", None)
    wait = timedelta(seconds=_UNKNOWN_WAIT_SECONDS if seconds is None else max(1, int(seconds)))
    wait += timedelta(seconds=random.uniform(0, _JITTER_SECONDS))  # noqa: S311 - jitter, not a secret
    until = now + wait
    clock = f"{until:%H:%M:%S}" if until.date() == now.date() else f"{until:%Y-%m-%d %H:%M:%S}"
    what = "FloodWait" if isinstance(error, errors.FloodWaitError) else type(error).__name__.removesuffix("Error")
    key = f"telegram:{account}:{method}"
    if isinstance(error, errors.TakeoutInitDelayError):
        # The wait is a day; the owner of the account can end it at once.
        reason = (
            f"Telegram begins no takeout session on account {account} until {clock}; to begin now, allow the export of"
            f" data in a Telegram app of this account, then: floodmark limits clear {key}"
        )
        return SlowDown(wait, key, reason)
    return SlowDown(wait, key, f"{what} on account {account} ({method}) until {clock}")


def _gone(error: Exception, target: str, why: str) -> Gone:
    kind = UnknownChannel if isinstance(error, errors.ChannelInvalidError | errors.PeerIdInvalidError) else Gone
    name = target if target.startswith("@") else f"channel {target}"
    return kind(f"{name} {why}", hint="Check it in Telegram; if it is gone, remove its job: floodmark rm")


def _describe(error: BaseException) -> str:
    text = str(error).partition("(caused by")[0].strip()
    name = type(error).__name__
    return f"{name}: {text[:200]}" if text else name
