"""Parts of documents by selectors, typed values, and the limits of the process that reads them."""

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput, Permanent
from floodmark.sources.web.extraction import plan as plans
from floodmark.sources.web.extraction.documents import ExtractedDocument, ExtractionRequest, read_document
from floodmark.sources.web.extraction.limits import OUT_OF_MEMORY, TOO_SLOW
from floodmark.sources.web.extraction.pdf import parse_pdf_date, read_pdf
from floodmark.sources.web.extraction.plan import parse_plan
from floodmark.sources.web.extraction.pool import ExtractionPool, UnreadDocument
from floodmark.sources.web.extraction.values import convert, parse_moment, parse_number
from pdf_files import make_pdf

URL = "https://example.com/list/"
SHOP = """
<html><head><title>Shop</title></head><body><ul>
<li data-id=1><a href="/p/1">Ap<b>ple</b></a> <span class=price>1.299,50&nbsp;€</span>
<time datetime=2026-06-01>June</time>
<li data-id=2><a href="p/2">Pear</a> <span class=price>free</span><i class=tag>green</i><i class=tag>sweet</i>
<li data-id=2><script>x = 1</script><a>Pear</a><p>one</p><p>two</p>
<li></ul></body></html>
"""


def ask(html: str, kind: str = "html", **params: Any) -> ExtractionRequest:
    return ExtractionRequest(kind=kind, body=html.encode(), url=URL, plan=parse_plan(params))


def read(html: str, kind: str = "html", **params: Any) -> ExtractedDocument:
    return read_document(ask(html, kind, **params))


@pytest.mark.spec("B15")
@pytest.mark.parametrize(
    "params",
    [
        {
            "select": "li",
            "fields": [
                "id:int=@data-id",
                "name=a",
                "link:url=a",
                "price:number=.price",
                "at:time=time",
                "tags:texts=.tag",
            ],
        },
        {
            "select": "//li",
            "fields": [
                *("id:int=@data-id", "name=a", "link:url=a/@href", "price:number=*[@class='price']", "at:time=.//time"),
                "tags:texts=i[@class='tag']",
            ],
        },
    ],
    ids=["css", "xpath"],
)
def test_css_and_xpath_read_the_same_fields(params: dict[str, Any]) -> None:
    found = read(SHOP, **params)
    assert [(row.key, list(row.fields.values())) for row in found.rows or ()] == [
        ("1", [1, "Apple", "https://example.com/p/1", 1299.5, "2026-06-01T00:00:00+00:00", None]),
        ("2", [2, "Pear", "https://example.com/list/p/2", None, None, ["green", "sweet"]]),
        ("2~2", [2, "Pear", None, None, None, None]),
    ]
    assert found.document is not None
    assert found.document.remarks == [
        "has values of price that are not of the type number, such as 'free'",
        "has matches with the same key, which are numbered",
    ]


@pytest.mark.spec("B15")
def test_a_match_without_fields_is_its_text() -> None:
    for select in ("li", "//li"):
        rows = read(SHOP, select=select).rows or []
        assert [row.fields["text"] for row in rows] == [
            "Apple 1.299,50 € June",
            "Pear freegreensweet",
            "Pear one two",
        ]
    assert (read(SHOP, select="//li/a/text()").rows or [])[0].fields == {"text": "Ap"}
    assert [row.fields for row in read(SHOP, select="xpath:count(//li)").rows or ()] == [{"text": "4"}]


@pytest.mark.spec("B15")
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,299.50 $", 1299.5),
        ("1.299,50 €", 1299.5),
        ("1 299,5", 1299.5),
        ("12'345.6", 12345.6),
        ("1,299", 1299),
        ("1.299", 1.299),
        ("0,99", 0.99),
        ("− 7 %", -7),
        ("1,234,567", 1234567),
        ("from 10 to 20", 10),
        ("1.2.3", None),
        ("on request", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, number: float | None) -> None:
    assert parse_number(text) == number


@given(st.text(st.sampled_from("0123456789.,-− '’€x\u00a0"), max_size=30), st.sampled_from(plans.KINDS))
def test_any_text_is_a_value_or_none(text: str, kind: str) -> None:
    if kind != "texts":
        value = convert(text, kind, URL)
        assert not isinstance(value, float) or math.isfinite(value)


def test_times_are_read_as_people_write_them() -> None:
    assert str(parse_moment("31.12.2026 18:00")) == "2026-12-31 18:00:00+00:00"
    assert str(parse_moment("Tue, 15 Nov 1994 08:12:31 GMT")) == "1994-11-15 08:12:31+00:00"
    assert parse_moment("31.02.2026") is None
    assert parse_pdf_date("D:20260601") is not None
    assert parse_pdf_date("D:20261399") is None


@pytest.mark.spec("B15")
def test_what_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    packages = parse_plan({"extractor": "trafilatura", "pdf": True}).packages
    with pytest.raises(Permanent, match="no trafilatura for the extractor trafilatura, pypdfium2 for --pdf") as refused:
        plans.require_packages(packages)
    assert "pip install 'floodmark[web]'" in str(refused.value.hint)
    plans.require_packages(parse_plan({"ignore": [".clock"]}).packages)
    with pytest.raises(InvalidInput, match="at most 50 texts"):
        parse_plan({"ignore": [".x"] * 51})


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_a_selector_that_takes_too_long_costs_one_page() -> None:
    """Some expressions take time that grows with every nesting: the kernel ends their process."""
    slow = "//*[count(//*[count(//*[count(//*) > 1]) > 1]) > 1]"
    pool = ExtractionPool(1, cpu_seconds=1.5)
    async with pool.using():
        with pytest.raises(UnreadDocument, match=TOO_SLOW.partition(";")[0]):
            await pool.read(ask("<p>x</p>" * 3000, select=slow))
        found = await pool.read(ask(SHOP, select="//li", key_fields="text"))
        assert len(found.rows or ()) == 3


@pytest.mark.spec("B15")
@pytest.mark.thorough
async def test_documents_that_need_too_much_memory_cost_one_page() -> None:
    pool = ExtractionPool(1)
    async with pool.using():
        # Each match repeats the text of all matches inside of it.
        huge = "<div>" * 1500 + "x" * 5_000_000 + "</div>" * 1500
        deep = await pool.read(ask(huge, select="div", fields=["all:html=."]))
        assert deep.skipped == OUT_OF_MEMORY or len(deep.rows or ()) <= 101
        assert (await pool.read(ask("<p>x</p>" * 200_000, select="p"))).rows is not None
        assert (await pool.read(ask("<div>" * 100_000, select="div"))).skipped is not None
        nested = "[" * 100_000 + "]" * 100_000
        assert (await pool.read(ask(nested, "json", select="$[*]"))).skipped is not None


@pytest.mark.spec("B15")
async def test_no_process_stays_without_users() -> None:
    pool = ExtractionPool(2)
    async with pool.using():
        await asyncio.gather(*(pool.read(ask(SHOP, select="li")) for _ in range(4)))
        processes = [reader._process for reader in pool._free]
        assert 1 <= len(processes) <= 2
        for process in processes:
            process.kill()
            await process.wait()
        assert len((await pool.read(ask(SHOP, select="li"))).rows or ()) == 3, (
            "an idle process that was killed is replaced"
        )
    assert all(process.returncode is not None for process in processes)


@pytest.mark.spec("B15")
def test_pdf_documents_are_read_within_bounds() -> None:
    found = read_pdf(make_pdf("One", "Two", title="T"), URL)
    assert (found.title, found.text, found.facts["pages"]) == ("T", "One\nTwo", 2)
    document = make_pdf("One")
    for broken in (document[:100], document[: len(document) // 2], b"%PDF-1.4", document.replace(b"/Kids", b"/Kodd")):
        assert read_document(
            ExtractionRequest(kind="pdf", body=broken, url=URL, plan=parse_plan({"pdf": True}))
        ).skipped
