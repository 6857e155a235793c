"""Signatures of webhooks, for those that Floodmark receives and those that it sends.

A signature is HMAC-SHA256 over `TIMESTAMP.METHOD PATH?QUERY`, a newline and the body as sent, so it is valid for one
request only and not for another path with the same secret.
"""

import hashlib
import hmac

TIMESTAMP, SIGNATURE, DELIVERY = "x-floodmark-timestamp", "x-floodmark-signature", "x-floodmark-delivery"
HOPS = "x-floodmark-hops"
"""How many times in a row Floodmark's own events have led to this request. Not signed: it only ends loops."""

# The prefix names the signed content. The first scheme, `sha256=`, covered only the timestamp and the body.
SCHEME, OLD_SCHEME = "v2=", "sha256="


def signature_of(secret: str, timestamp: str, body: bytes, *, address: str, method: str = "POST") -> str:
    """Return the signature of a request in hexadecimal. `address` is its path with the query, as sent."""
    signed = f"{timestamp}.{method} {address}\n".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def signed_headers(secret: str, at: float, body: bytes, *, address: str) -> dict[str, str]:
    """Return the headers that sign a POST at a time, in seconds since 1970."""
    timestamp = f"{at:.3f}"
    signature = signature_of(secret, timestamp, body, address=address)
    return {"X-Floodmark-Timestamp": timestamp, "X-Floodmark-Signature": f"{SCHEME}{signature}"}
