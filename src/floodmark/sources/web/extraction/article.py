"""The main text of a page by trafilatura. Not bounded in time."""

from typing import Any

from msgspec import Struct

from floodmark.sources.web.extract import MOST_FACT, MOST_TEXT, parse_time


class Article(Struct, frozen=True, kw_only=True):
    """The main text and what trafilatura knows about it."""

    text: str = ""
    facts: dict[str, str] = {}


# The search for a date in all texts of a page takes longer than everything else, and finds dates of other things.
_DATES = {"extensive_search": False, "original_date": True, "max_date": None}


def extract_article(html: str, url: str, *, with_facts: bool = True) -> Article:
    """Return the main text of a page; empty if there is none. `with_facts`: look for author, date and description."""
    from trafilatura import bare_extraction  # noqa: PLC0415 - takes half a second, and is of an extra

    found: Any = bare_extraction(
        html, url=url, fast=True, include_comments=False, with_metadata=with_facts, date_extraction_params=_DATES
    )
    if found is None or not found.text:
        return Article()
    lines = (" ".join(line.split()) for line in found.text.splitlines())
    facts = {name: str(value)[:MOST_FACT] for name in ("author", "description") if (value := getattr(found, name))}
    if found.date and (at := parse_time(found.date)) is not None:
        facts["published"] = at.isoformat()
    if found.language:
        facts["language"] = str(found.language)[:35]
    return Article(text="\n".join(line for line in lines if line)[:MOST_TEXT], facts=facts)
