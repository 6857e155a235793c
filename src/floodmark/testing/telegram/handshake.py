"""The key exchange of a client without a key, and the RSA key that the client must trust.

The RSA modulus is a product of Mersenne primes, so no key file is needed and the key is useless elsewhere.
"""

import os
import struct
from hashlib import sha1
from typing import Any

import rsa as rsa_keys
from telethon import helpers
from telethon.crypto import AES, rsa
from telethon.tl import functions, types

from .backend import TelegramBackend
from .primes import PRIME, PRIME_BYTES, G
from .raw import pack, unpack
from .sessions import Key

_FACTORS = (2**1279 - 1, 2**607 - 1, 2**127 - 1, 2**31 - 1)
_MODULUS = _FACTORS[0] * _FACTORS[1] * _FACTORS[2] * _FACTORS[3]
_EXPONENT = 65_537
# Small, so that the client finds them at once.
_P, _Q = 48_611, 60_013


def _private_exponent() -> int:
    order = 1
    for factor in _FACTORS:
        order *= factor - 1
    return pow(_EXPONENT, -1, order)


def _fingerprint() -> int:
    return int(rsa._compute_fingerprint(rsa_keys.PublicKey(_MODULUS, _EXPONENT)))


def trust_loopback() -> None:
    """Let Telethon in this process sign in to a loopback server: it accepts only servers with a known key.

    Needed to sign in by phone; a client with a session does not need it.
    """
    rsa._server_keys[_fingerprint()] = (rsa_keys.PublicKey(_MODULUS, _EXPONENT), False)


class Exchange:
    """One key exchange of three requests; at its end the backend has a new key without an account."""

    def __init__(self, backend: TelegramBackend) -> None:
        self._world = backend
        self._server_nonce = int.from_bytes(os.urandom(16), "little", signed=True)
        self._secret = int.from_bytes(os.urandom(256), "big")
        self._new_nonce = 0
        self._aes: tuple[bytes, bytes] = (b"", b"")

    def __call__(self, question: Any) -> Any:
        """Return the response to the next request."""
        if isinstance(question, functions.ReqPqMultiRequest | functions.ReqPqRequest):
            return self._factors(question)
        if isinstance(question, functions.ReqDHParamsRequest):
            return self._parameters(question)
        if isinstance(question, functions.SetClientDHParamsRequest):
            return self._agree(question)
        raise ConnectionError(f"not part of a key exchange: {question}")

    def _factors(self, question: Any) -> Any:
        product = (_P * _Q).to_bytes(8, "big")
        return types.ResPQ(question.nonce, self._server_nonce, product, [_fingerprint()])

    def _parameters(self, question: Any) -> Any:
        block = pow(int.from_bytes(question.encrypted_data, "big"), _private_exponent(), _MODULUS).to_bytes(255, "big")
        self._new_nonce = unpack(block[20:]).new_nonce
        self._aes = helpers.generate_key_data_from_nonce(self._server_nonce, self._new_nonce)
        public = pow(G, self._secret, PRIME).to_bytes(256, "big")
        inner = pack(
            types.ServerDHInnerData(question.nonce, self._server_nonce, G, PRIME_BYTES, public, int(self._world.now()))
        )
        plain = sha1(inner).digest() + inner  # noqa: S324 - the protocol says so
        sealed = AES.encrypt_ige(plain + bytes(-len(plain) % 16), *self._aes)
        return types.ServerDHParamsOk(question.nonce, self._server_nonce, sealed)

    def _agree(self, question: Any) -> Any:
        answer = unpack(AES.decrypt_ige(question.encrypted_data, *self._aes)[20:])
        shared = pow(int.from_bytes(answer.g_b, "big"), self._secret, PRIME).to_bytes(256, "big")
        # One key in 256 begins with a zero byte. Clients take it for a shorter number and then cannot use it.
        if shared[0] == 0:
            return types.DhGenRetry(question.nonce, self._server_nonce, self._hash(shared.lstrip(b"\0"), 2))
        with self._world.lock:
            self._world.remember(Key(shared))
        return types.DhGenOk(question.nonce, self._server_nonce, self._hash(shared, 1))

    def _hash(self, shared: bytes, number: int) -> int:
        auxiliary = sha1(shared).digest()[:8]  # noqa: S324 - the protocol says so
        data = self._new_nonce.to_bytes(32, "little", signed=True) + struct.pack("<B", number) + auxiliary
        return int.from_bytes(sha1(data).digest()[4:20], "little", signed=True)  # noqa: S324 - the protocol says so
