"""The text of PDF documents by pypdfium2. Not bounded in time and memory; one thread at a time."""

import re
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from floodmark.sources.web.extract import MOST_FACT, MOST_TEXT, Document

MOST_PAGES = 2000
SCANNED = "is a PDF document without text, probably scanned"
_DATE = re.compile(r"D:(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?")


class UnreadablePdf(ValueError):
    """A PDF document that cannot be read."""


def read_pdf(content: bytes, url: str) -> Document:
    """Return the text of a PDF document, one line per line; raise `UnreadablePdf` if there is none."""
    import pypdfium2  # noqa: PLC0415 - of an extra

    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        locked = "password" in str(error).lower()
        raise UnreadablePdf(
            "is a PDF document with a password" if locked else f"is a broken PDF document: {error}"
        ) from None
    try:
        pages = len(document)
        text, broken = _read_text(document, min(pages, MOST_PAGES))
        metadata = document.get_metadata_dict(skip_empty=True)
    finally:
        document.close()
    if not text:
        raise UnreadablePdf(SCANNED)
    facts: dict[str, Any] = {"media_type": "application/pdf", "pages": pages}
    if author := metadata.get("Author", "").strip():
        facts["author"] = author[:MOST_FACT]
    for name, entry in (("published", "CreationDate"), ("modified", "ModDate")):
        if (at := parse_pdf_date(metadata.get(entry, ""))) is not None:
            facts[name] = at.isoformat()
    title = " ".join(metadata.get("Title", "").split()) or unquote(urlsplit(url).path.rpartition("/")[2])
    remarks = [f"has {pages:,} pages: only the first {MOST_PAGES:,} are read"] if pages > MOST_PAGES else []
    if broken:
        remarks.append(f"has broken pages, which are left out: {broken:,}")
    return Document(title=title[:MOST_FACT], text=text, facts=facts, remarks=remarks)


def _read_text(document: Any, pages: int) -> tuple[str, int]:
    """Return the text, and the number of pages that cannot be read."""
    lines: list[str] = []
    length = broken = 0
    for number in range(pages):
        read = _read_page(document, number)
        if read is None:
            broken += 1
            continue
        for written in read.splitlines():
            if line := " ".join(written.replace("\x00", "").split()):
                lines.append(line)
                length += len(line) + 1
        if length > MOST_TEXT:
            break
    return "\n".join(lines)[:MOST_TEXT], broken


def _read_page(document: Any, number: int) -> str | None:
    from pypdfium2 import PdfiumError  # noqa: PLC0415 - loaded by now

    try:
        page = document[number]
        try:
            textpage = page.get_textpage()
            try:
                return str(textpage.get_text_bounded())
            finally:
                textpage.close()
        finally:
            page.close()
    except PdfiumError:
        return None


def parse_pdf_date(text: str) -> datetime | None:
    """Return a date of PDF metadata, such as `D:20261231180000Z`; its zone is ignored, as it is often wrong."""
    found = _DATE.match(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (
        int(part or default) for part, default in zip(found.groups(), "011000", strict=True)
    )
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
