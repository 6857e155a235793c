"""A source: the posts with a hashtag on a Mastodon server.

    floodmark add mastodon https://mastodon.example/tags/python --every 5m --only-media

MASTODON_TOKEN: an access token, for servers that show their timelines to members only.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from floodmark import (
    Batch,
    Context,
    Gone,
    InvalidInput,
    Item,
    JobForm,
    ParamOption,
    Permanent,
    Services,
    Settings,
    Target,
    Watermark,
)

_TARGET = re.compile(r"(https?://[^/\s]+)/tags/(\w+)")
_PAGE = 40

FORM = JobForm(
    help="""Collect the posts with a hashtag on a Mastodon server; on demand if no schedule is given.

    floodmark add mastodon https://mastodon.example/tags/python --every 5m
    """,
    metavar="URL",
    target_help="URL of a hashtag, as in https://mastodon.example/tags/python.",
    options=(ParamOption("only_media", "Only posts with pictures, video or audio.", kind=bool),),
)


class MastodonSource:
    """Collect the posts with a hashtag, oldest first."""

    kind = "mastodon"
    one_job_per_target = True

    def __init__(self, settings: Settings) -> None:
        self._services: Services | None = None

    def use_services(self, services: Services) -> None:
        """Keep the services of the process. Processes that only check jobs do not call this."""
        self._services = services

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise an error if the target is not the URL of a hashtag, or a param is invalid."""
        _timeline(target)
        if not isinstance(params.get("only_media", False), bool):
            raise InvalidInput("only_media is neither true nor false", hint="use --only-media, or leave it out")

    def param_names(self, target: str) -> frozenset[str]:
        """Return the names of the params."""
        return frozenset({"only_media"})

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Read page after page of posts that are newer than the watermark."""
        newest = "0" if since is None else since["id"]
        url = f"{_timeline(target.name)}?only_media={'true' if target.params.get('only_media') else 'false'}"
        while posts := await self._page(url, newest):
            newest = posts[-1]["id"]
            yield Batch([_item(post) for post in posts], {"id": newest})

    async def _page(self, url: str, newest: str) -> list[dict[str, Any]]:
        assert self._services is not None
        token = self._services.section.get("token")
        # This client waits for its turn, retries transient errors, and applies 429 and Retry-After to all workers.
        answer = await self._services.http.get(
            f"{url}&min_id={newest}&limit={_PAGE}", headers={"Authorization": f"Bearer {token}"} if token else None
        )
        if answer.status in (401, 403):
            raise Permanent(f"{url} is for members only", hint="set MASTODON_TOKEN")
        if answer.status == 404:
            raise Gone(f"{url} does not exist")
        if answer.status != 200:
            raise Permanent(f"{url} answers with status {answer.status}")
        posts: list[dict[str, Any]] = json.loads(answer.body)
        # The server sends the newest first.
        return posts[::-1]


def _timeline(target: str) -> str:
    found = _TARGET.fullmatch(target)
    if found is None:
        raise InvalidInput(f"{target!r} is not a hashtag", hint="for example https://mastodon.example/tags/python")
    return f"{found[1]}/api/v1/timelines/tag/{found[2]}"


def _item(post: Mapping[str, Any]) -> Item:
    data = {"url": post["url"], "author": post["account"]["acct"], "content": post["content"]}
    return Item(post["id"], data, datetime.fromisoformat(post["created_at"]))
