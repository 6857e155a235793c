"""Parts of pages as a crawl extracts them, compared with the libraries alone: quality and CPU time.

python run.py bench extract [pages] [rounds]

The pages are generated from five layouts: a news article, a blog, a manual, a shop and a forum, each with navigation,
side bars and footers around a known main text. Quality is measured by shingles of four words. The set is small and
regular, so it shows that nothing is lost on the way, not how good an extractor is on real sites.
"""

import os
import random
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import mean, median

from lxml import html as lxml_html
from msgspec import Struct
from trafilatura import extract

from floodmark.sources.web.extract import parse_document
from floodmark.sources.web.extraction.documents import ExtractionRequest
from floodmark.sources.web.extraction.plan import parse_plan
from floodmark.sources.web.extraction.pool import ExtractionPool

from ._measuring import Report, interleaved, ratio, run

SENTENCE = "ships come and go in the old harbour while people wait for news of storms that passed far out at sea"
URL = "https://example.com/page"


class Labelled(Struct, frozen=True):
    """A page and its main text."""

    html: str
    text: str


class Extracted(Struct, frozen=True):
    """The texts of a pass, and its CPU seconds, including those of other processes."""

    texts: list[str]
    cpu: float


def make_pages(count: int) -> list[Labelled]:
    """Return pages of all layouts in turn, the same in every run."""
    chance = random.Random(17)
    return [_make_page(chance, number) for number in range(count)]


def _sentence(chance: random.Random) -> str:
    words = chance.choices(SENTENCE.split(), k=chance.randint(6, 18))
    return f"{words[0].capitalize()} {' '.join(words[1:])} {chance.randint(1, 999)}."


def _paragraphs(chance: random.Random, least: int, most: int) -> list[str]:
    return [
        " ".join(_sentence(chance) for _ in range(chance.randint(2, 6))) for _ in range(chance.randint(least, most))
    ]


def _links(chance: random.Random, count: int) -> str:
    return "".join(f"<li><a href='/{chance.random()}'>{_sentence(chance)[:40]}</a></li>" for _ in range(count))


def _make_page(chance: random.Random, number: int) -> Labelled:
    main = _paragraphs(chance, 4, 20)
    shown = "".join(f"<p>{text}</p>" for text in main)
    body = [
        f"<article><h1>News {number}</h1>{shown}"
        f"<div class='related-articles'><ul>{_links(chance, 6)}</ul></div></article>",
        f"<div id=content><div class=post><h2>Blog {number}</h2><div class=entry>{shown}</div></div>"
        f"<div class=sidebar><ul>{_links(chance, 12)}</ul></div></div>",
        f"<main><h1>Manual {number}</h1>{shown}<pre>command --option</pre></main>",
        f"<div class=product><h1>Product {number}</h1><div class=description>{shown}</div>"
        f"<div class=recommendations><ul>{_links(chance, 20)}</ul></div></div>",
        f"<div class=topic><h1>Topic {number}</h1><div class=message>{shown}</div></div>",
    ][number % 5]
    made = (
        f"<!doctype html><html lang=en><head><title>Page {number}</title></head><body>"
        f"<header><nav><ul>{_links(chance, 25)}</ul></nav></header>{body}"
        f"<aside><ul>{_links(chance, 15)}</ul></aside><footer><p>© {_sentence(chance)}</p><ul>{_links(chance, 10)}</ul>"
        "</footer></body></html>"
    )
    return Labelled(made, "\n".join(main))


def quality(texts: list[str], pages: list[Labelled]) -> tuple[float, float, float]:
    """Return the means of F1, precision and recall over all pages."""
    precisions, recalls = [], []
    for text, page in zip(texts, pages, strict=True):
        found, wanted = _shingles(text), _shingles(page.text)
        common = len(found & wanted)
        precisions.append(common / len(found) if found else 0.0)
        recalls.append(common / len(wanted))
    precision, recall = mean(precisions), mean(recalls)
    return 2 * precision * recall / (precision + recall or 1), precision, recall


def _shingles(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[place : place + 4]) for place in range(len(words) - 3)}


def _own_cpu(work: Callable[[], list[str]]) -> Extracted:
    began = time.process_time()
    return Extracted(work(), time.process_time() - began)


async def by_pool(pages: list[Labelled], **params: object) -> Extracted:
    """Extract by the processes of a crawl. Their start is not counted, as they serve many pages."""
    plan = parse_plan(params)
    async with ExtractionPool(1).using() as pool:
        await pool.read(_request(pages[0], plan))
        child = pool._free[0]._process.pid
        before, began = _cpu_of(child), time.process_time()
        found = [await pool.read(_request(page, plan)) for page in pages]
        cpu = time.process_time() - began + _cpu_of(child) - before
    texts = [
        "\n".join(row.fields["text"] for row in one.rows) if one.rows is not None else one.document.text
        for one in found
        if one.document
    ]
    return Extracted(texts, cpu)


def _request(page: Labelled, plan: object) -> ExtractionRequest:
    return ExtractionRequest(kind="html", body=page.html.encode(), url=URL, plan=plan)  # type: ignore[arg-type]


def _cpu_of(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main(count: int, rounds: int) -> None:
    pages = make_pages(count)

    async def library() -> Extracted:
        return _own_cpu(lambda: [extract(page.html, fast=True, include_comments=False) or "" for page in pages])

    async def built_in() -> Extracted:
        return _own_cpu(lambda: [parse_document(page.html).text for page in pages])

    async def bare_xpath() -> Extracted:
        return _own_cpu(
            lambda: [
                "\n".join(p.text_content() for p in lxml_html.fromstring(page.html).xpath("//p")) for page in pages
            ]
        )

    async def trafilatura() -> Extracted:
        return await by_pool(pages, extractor="trafilatura")

    async def xpath() -> Extracted:
        return await by_pool(pages, select="//p")

    async def css() -> Extracted:
        return await by_pool(pages, select="p")

    measures: list[Callable[[], Awaitable[Extracted]]] = [library, built_in, trafilatura, bare_xpath, xpath, css]
    names = [
        "trafilatura alone",
        "built-in",
        "--extractor trafilatura",
        "lxml alone, //p",
        "--select //p",
        "--select p",
    ]
    results = await interleaved(rounds, *measures)
    report = Report(f"{count:,} generated pages, medians of {rounds} rounds; F1 (precision, recall), CPU per page")
    for place, (name, found) in enumerate(zip(names, results, strict=True)):
        reference = results[0 if place < 3 else 3]
        f1, precision, recall = quality(found[-1].texts, pages)
        cost = median(one.cpu for one in found) / count * 1000
        report.add(
            name,
            f"{f1:.3f} ({precision:.3f}, {recall:.3f}), {cost:.2f} ms",
            names[0 if place < 3 else 3],
            "" if found is reference else f"CPU {ratio([one.cpu for one in found], [one.cpu for one in reference])}",
        )
    report.add("memory of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    report.print()


if __name__ == "__main__":
    asked = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*(asked + [300, 3][len(asked) :])))
