"""The content of each revision as it was received, once for each hash."""

import hashlib
import mimetypes
from pathlib import Path

from floodmark.outbound.client import HttpAnswer

from .files import write_once

_TYPES = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/json": "json",
}


def raw_path(root: Path, digest: str, media_type: str) -> Path:
    """Return the path of a content."""
    return root / "raw" / digest[:2] / f"{digest}.{_TYPES.get(media_type, 'bin')}"


def write_raw(root: Path, answer: HttpAnswer) -> str:
    """Write the body of a response durably, unless it is stored already, and return its hash."""
    digest = hashlib.sha256(answer.body).hexdigest()
    write_once(root, raw_path(root, digest, answer.media_type), answer.body)
    return digest


def write_enclosure(root: Path, answer: HttpAnswer) -> str:
    """Write a file of a feed entry durably, unless it is stored already, and return its hash."""
    digest = hashlib.sha256(answer.body).hexdigest()
    ending = mimetypes.guess_extension(answer.media_type) or ".bin"
    write_once(root, root / "enclosures" / digest[:2] / f"{digest}{ending}", answer.body)
    return digest
