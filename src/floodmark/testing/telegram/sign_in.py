"""Signing in by phone and code, and by password if there is one: `auth.*` and `account.getPassword`.

The password is never sent: client and server prove to each other that they know it (SRP, as in RFC 2945 with SHA-256;
https://core.telegram.org/api/srp).
"""

from hashlib import sha256
from typing import Any

from telethon import password as srp
from telethon.tl import types

from .backend import Account
from .client_view import ClientView, Refusal
from .primes import PRIME, PRIME_BYTES, G
from .sessions import derive_bytes, number


def send_code(client: ClientView, request: Any) -> Any:
    """`auth.sendCode`: nothing is sent; the code is the account's."""
    account = _by_phone(client, request.phone_number)
    return types.auth.SentCode(types.auth.SentCodeTypeApp(len(account.code)), _code_hash(client, account), timeout=60)


def sign_in(client: ClientView, request: Any) -> Any:
    """`auth.signIn`: with the right code the key gets the account, unless a password is required too."""
    account = _by_phone(client, request.phone_number)
    if request.phone_code_hash != _code_hash(client, account):
        raise Refusal("PHONE_CODE_EXPIRED")
    if request.phone_code != account.code:
        raise Refusal("PHONE_CODE_INVALID")
    if account.password is not None:
        client.backend.half_signed_in[client.key.key_id] = account.name
        raise Refusal("SESSION_PASSWORD_NEEDED", 401)
    return _signed_in(client, account)


def password(client: ClientView, _request: Any) -> Any:
    """`account.getPassword`: returns the values that a client needs to prove that it knows the password."""
    account = _half_signed_in(client)
    algo = _algo(client, account)
    plain = types.account.Password(
        types.PasswordKdfAlgoUnknown(), types.SecurePasswordKdfAlgoUnknown(), derive_bytes(32, client.key.secret)
    )
    if account.password is None:
        return plain
    plain.has_password, plain.current_algo = True, algo
    plain.srp_B, plain.srp_id = _challenge(client, account).to_bytes(256, "big"), number("srp", client.key.secret)
    return plain


def check_password(client: ClientView, request: Any) -> Any:
    """`auth.checkPassword`"""
    account, given = _half_signed_in(client), request.password
    if account.password is None or _proof(client, account, given.A) != given.M1:
        raise Refusal("PASSWORD_HASH_INVALID")
    return _signed_in(client, account)


def log_out(client: ClientView, _request: Any) -> Any:
    """`auth.logOut`: the key then has no account."""
    _ = client.account
    client.key.account = None
    return types.auth.LoggedOut()


def _signed_in(client: ClientView, account: Account) -> Any:
    client.key.account, client.key.revoked = account.name, None
    client.backend.half_signed_in.pop(client.key.key_id, None)
    return types.auth.Authorization(client.me)


def _by_phone(client: ClientView, phone: str) -> Account:
    digits = "".join(sign for sign in phone if sign.isdigit())
    found = next((account for account in client.backend.accounts.values() if account.phone == digits), None)
    if found is None:
        raise Refusal("PHONE_NUMBER_INVALID" if len(digits) < 7 else "PHONE_NUMBER_UNOCCUPIED")
    return found


def _half_signed_in(client: ClientView) -> Account:
    name = client.backend.half_signed_in.get(client.key.key_id)
    return client.account if name is None else client.backend.accounts[name]


def _code_hash(client: ClientView, account: Account) -> str:
    return derive_bytes(9, client.backend.seed, "code", account.name).hex()


def _algo(client: ClientView, account: Account) -> Any:
    salts = (derive_bytes(8, client.backend.seed, name, account.name) for name in ("salt1", "salt2"))
    return types.PasswordKdfAlgoSHA256SHA256PBKDF2HMACSHA512iter100000SHA256ModPow(*salts, G, PRIME_BYTES)


def _verifier(client: ClientView, account: Account) -> int:
    digest = srp.compute_hash(_algo(client, account), account.password or "")
    return pow(G, int.from_bytes(digest, "big"), PRIME)


def _secret(client: ClientView) -> int:
    return int.from_bytes(derive_bytes(256, "srp", client.key.secret), "big")


def _challenge(client: ClientView, account: Account) -> int:
    multiplier = int.from_bytes(_hash(PRIME_BYTES, G.to_bytes(256, "big")), "big")
    return (multiplier * _verifier(client, account) + pow(G, _secret(client), PRIME)) % PRIME


def _proof(client: ClientView, account: Account, public: bytes) -> bytes:
    theirs, ours = public.rjust(256, b"\0"), _challenge(client, account).to_bytes(256, "big")
    mixed = int.from_bytes(_hash(theirs, ours), "big")
    base = int.from_bytes(theirs, "big") * pow(_verifier(client, account), mixed, PRIME) % PRIME
    shared = _hash(pow(base, _secret(client), PRIME).to_bytes(256, "big"))
    algo, generator = _algo(client, account), G.to_bytes(256, "big")
    both = bytes(a ^ b for a, b in zip(_hash(PRIME_BYTES), _hash(generator), strict=True))
    return _hash(both, _hash(algo.salt1), _hash(algo.salt2), theirs, ours, shared)


def _hash(*parts: bytes) -> bytes:
    return sha256(b"".join(parts)).digest()


def export_authorization(client: ClientView, request: Any) -> Any:
    """`auth.exportAuthorization`: for a connection to another data centre, which is this server, too."""
    account = client.account
    token = derive_bytes(32, client.backend.seed, "export", account.name, request.dc_id, len(client.backend.exported))
    client.backend.exported[token] = account.name
    return types.auth.ExportedAuthorization(account.user_id, token)


def import_authorization(client: ClientView, request: Any) -> Any:
    """`auth.importAuthorization`"""
    name = client.backend.exported.pop(request.bytes, None)
    if name is None:
        raise Refusal("AUTH_BYTES_INVALID")
    client.key.account = name
    return types.auth.Authorization(client.me)
