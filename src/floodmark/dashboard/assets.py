"""Static files, under names that change with their content, so that browsers keep them for good."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FOR_GOOD = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    """A static file."""

    name: str
    media_type: str
    content: bytes
    zipped: bytes


@cache
def assets() -> dict[str, Asset]:
    """Return all static files by the name they are served under."""
    found = [_read(path.name, path.read_bytes()) for path in files(__package__).joinpath("static").iterdir()]
    return {asset.name: asset for asset in found}


@cache
def asset_name(name: str) -> str:
    """Return the name that a file is served under: `app.css` is `app.1f2e3d4c.css`."""
    stem, _, kind = name.rpartition(".")
    return next(found for found in assets() if found.startswith(f"{stem}.") and found.endswith(f".{kind}"))


async def serve_asset(request: Request) -> Response:
    """Answer with a static file."""
    asset = assets().get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {"Cache-Control": _FOR_GOOD, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.zipped, media_type=asset.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(asset.content, media_type=asset.media_type, headers=headers)


def _read(name: str, content: bytes) -> Asset:
    stem, _, kind = name.rpartition(".")
    digest = hashlib.sha256(content).hexdigest()[:8]
    return Asset(f"{stem}.{digest}.{kind}", _TYPES[kind], content, gzip.compress(content, 9, mtime=0))
