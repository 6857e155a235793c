"""The parameters of a feed."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.sources.web.extraction.plan import ExtractionPlan, parse_plan
from floodmark.sources.web.request_headers import parse_secret_name

NO_FOLDER = "the option --enclosures stores files in ARTIFACTS_DIR, which is not set"
FOLDER_HINT = "set it on every machine with workers, as in ARTIFACTS_DIR=/var/lib/floodmark/artifacts"
NAMES = frozenset({"full_text", "extractor", "enclosures", "robots", "proxy"})


class FeedParams(Struct, frozen=True, kw_only=True):
    """The checked parameters of a feed."""

    full_text: bool = False
    """Whether the page of each new entry is read for its main text."""
    plan: ExtractionPlan = ExtractionPlan()
    """How the main text is extracted."""
    enclosures: bool = False
    """Whether the files of new entries are downloaded."""
    obeys_robots: bool = True
    """Whether robots.txt is followed for pages and files."""
    proxy: str = ""
    """The name of the secret with the URL of a proxy."""


def parse_params(params: Mapping[str, Any]) -> FeedParams:
    """Return the checked parameters of a job; unknown names are ignored."""
    full_text = _parse_flag(params, "full_text")
    if "extractor" in params and not full_text:
        raise InvalidInput("extractor is for the text of pages", hint="add --full-text")
    robots = str(params.get("robots", "obey"))
    if robots not in {"obey", "ignore"}:
        raise InvalidInput(f"robots {robots[:40]!r} is not known", hint="use obey, or ignore for a site of your own")
    return FeedParams(
        full_text=full_text,
        plan=parse_plan({"extractor": params["extractor"]} if "extractor" in params else {}),
        enclosures=_parse_flag(params, "enclosures"),
        obeys_robots=robots == "obey",
        proxy=parse_secret_name(params.get("proxy"), "proxy"),
    )


def _parse_flag(params: Mapping[str, Any], name: str) -> bool:
    text = str(params.get(name, False)).lower()
    if text not in {"true", "false"}:
        raise InvalidInput(f"{name} {text[:40]!r} is neither true nor false", hint=f"as in {name}=true")
    return text == "true"
