"""Reads one document by its plan. Runs in a process with limits: selectors and libraries may take any time."""

import msgspec
from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from floodmark.sources.web.charsets import decode_text
from floodmark.sources.web.extract import Document, parse_document
from floodmark.sources.web.nesting import TooNested, check_nesting

from .article import extract_article
from .pdf import UnreadablePdf, read_pdf
from .plan import TRAFILATURA, ExtractionPlan
from .rows import Row, select_rows
from .selectors import Language

HTML, JSON, PDF = "html", "json", "pdf"
"""The types of documents."""
# Without these there is no page.
_WHOLE = frozenset({"html", "head", "body"})


class ExtractionRequest(Struct, frozen=True, kw_only=True):
    """A document to read. `rules` is its X-Robots-Tag header."""

    kind: str
    body: bytes
    url: str
    plan: ExtractionPlan
    charset: str | None = None
    rules: str = ""


class ExtractedDocument(Struct, frozen=True, kw_only=True):
    """The content of a document; with a selector also its matches. `skipped` says why it cannot be read."""

    document: Document | None = None
    rows: list[Row] | None = None
    skipped: str | None = None


def read_document(request: ExtractionRequest) -> ExtractedDocument:
    """Return the content of a document."""
    try:
        if request.kind == PDF:
            return ExtractedDocument(document=read_pdf(request.body, request.url))
        if request.kind == JSON:
            found = select_rows(request.plan, request.body, request.url)
            return ExtractedDocument(document=Document(remarks=found.remarks), rows=found.rows)
        return _read_html(request)
    except (TooNested, UnreadablePdf) as error:
        return ExtractedDocument(skipped=str(error))
    except (msgspec.DecodeError, RecursionError) as error:
        return ExtractedDocument(skipped=f"is not valid JSON: {error}"[:300])


def _read_html(request: ExtractionRequest) -> ExtractedDocument:
    plan, html = request.plan, decode_text(request.body, request.charset)
    document = parse_document(html, rules=request.rules)
    check_nesting(html)
    if plan.ignore:
        html = remove_parts(html, plan.ignore)
        kept = parse_document(html)
        # Links in ignored parts are followed all the same.
        document.title, document.text, document.is_soft_miss = kept.title, kept.text, kept.is_soft_miss
    if plan.extractor == TRAFILATURA and document.text:
        is_known = {"author", "published", "description"} <= document.facts.keys()
        article = extract_article(html, request.url, with_facts=not is_known)
        document.text = article.text or document.text
        document.facts = {**article.facts, **document.facts}
    if plan.select is None or plan.select.language is Language.JSONPATH:
        return ExtractedDocument(document=document)
    found = select_rows(plan, html, request.url)
    document.remarks += found.remarks
    return ExtractedDocument(document=document, rows=found.rows)


def remove_parts(html: str, selectors: tuple[str, ...]) -> str:
    """Return a page without the elements that the selectors match."""
    tree = LexborHTMLParser(html)
    for selector in selectors:
        matches = [node for node in tree.css(selector) if node.tag not in _WHOLE]
        places = {node.mem_id for node in matches}
        # Elements inside of a removed one are freed with it, and must not be touched again.
        for node in [node for node in matches if not _is_inside(node, places)]:
            node.decompose()
    return tree.html or ""


def _is_inside(node: LexborNode, places: set[int]) -> bool:
    above = node.parent
    while above is not None:
        if above.mem_id in places:
            return True
        above = above.parent
    return False
