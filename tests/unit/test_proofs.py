"""Hash chains: every change of an item, of the order or of a day is found and named."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from floodmark.model.proofs import ProofLink, ProvenItem
from floodmark.rules.proofs import NO_LINK, entry_of, make_links, verify

NIGHT = datetime(2026, 5, 1, 23, 59, tzinfo=UTC)


def item(key: str, revision: int = 1, *, minutes: int = 0, text: str = "hello") -> ProvenItem:
    """Return a revision that was stored some minutes after the night began."""
    stored_at = NIGHT + timedelta(minutes=minutes)
    return ProvenItem(
        key=key, revision=revision, collected_at=stored_at, deleted=False, occurred_at=None, data={"text": text, "n": 1}
    )


ITEMS = [item("a"), item("b"), item("c", minutes=5), item("a", 2, minutes=6, text="bye"), item("d", minutes=-9)]


def chain(items: list[ProvenItem] = ITEMS, *, at_once: int = 2) -> list[ProofLink]:
    """Return the chain of items, made in several steps."""
    links: list[ProofLink] = []
    for start in range(0, len(items), at_once):
        entries = [entry_of(one) for one in items[start : start + at_once]]
        links += make_links("news", links[-1] if links else None, entries)
    return links


@pytest.mark.spec("B13")
def test_a_chain_is_verified_and_late_items_belong_to_the_day_of_their_link() -> None:
    """An item that is stored out of order does not change a day that is over."""
    links = chain()
    assert [(link.number, str(link.day), len(link.entries)) for link in links] == [
        (1, "2026-05-01", 2),
        (2, "2026-05-02", 2),
        (3, "2026-05-02", 1),
    ]
    assert links[0].previous == NO_LINK
    verdict = verify("news", links, ITEMS, published=links[1].digest)
    assert verdict.is_good, verdict.findings
    assert (verdict.links, verdict.days, verdict.entries, verdict.head) == (3, 2, 5, links[-1].digest)


def change_text(links: list[ProofLink], items: list[ProvenItem]) -> str:
    items[1] = replace(items[1], data={"text": "tampered", "n": 1})
    return "item b, revision 1, was changed: data"


def change_time(links: list[ProofLink], items: list[ProvenItem]) -> str:
    items[2] = replace(items[2], collected_at=NIGHT)
    return "item c, revision 1, was changed: collected_at"


def remove_item(links: list[ProofLink], items: list[ProvenItem]) -> str:
    del items[2]
    return "item c, revision 1, is missing"


def add_item(links: list[ProofLink], items: list[ProvenItem]) -> str:
    items.append(item("x", minutes=1))
    return "item x, revision 1, is not in the chain: it was added"


def swap_entries(links: list[ProofLink], items: list[ProvenItem]) -> str:
    links[0] = replace(links[0], entries=links[0].entries[::-1])
    return "link 1 (2026-05-01) does not have its digest"


def change_day(links: list[ProofLink], items: list[ProvenItem]) -> str:
    links[0] = replace(links[0], day=links[1].day)
    return "link 1 (2026-05-02) does not have its digest"


def remove_link(links: list[ProofLink], items: list[ProvenItem]) -> str:
    del links[1]
    return "link 3 (2026-05-02) follows link 1: links are missing"


def forge_link(links: list[ProofLink], items: list[ProvenItem]) -> str:
    items[0] = replace(items[0], data="forged")
    forged = chain(items)
    links[0] = forged[0]
    return "link 2 (2026-05-02) does not continue the link before it"


@pytest.mark.spec("B13")
@pytest.mark.parametrize(
    "tamper",
    [change_text, change_time, remove_item, add_item, swap_entries, change_day, remove_link, forge_link],
    ids=lambda tamper: tamper.__name__,
)
def test_every_kind_of_tampering_is_named(tamper: Callable[[list[ProofLink], list[ProvenItem]], str]) -> None:
    """The finding says which item or link it is."""
    links, items = chain(), list(ITEMS)
    finding = tamper(links, items)
    verdict = verify("news", links, items)
    assert any(finding in text for text in verdict.findings), verdict.findings


def test_a_chain_that_was_made_again_does_not_have_the_published_digest() -> None:
    """Who rewrites the whole chain is found by a digest that was published before."""
    published = chain()[-1].digest
    again = chain([replace(ITEMS[0], data="forged"), *ITEMS[1:]])
    assert verify("news", again).is_good
    [finding] = verify("news", again, published=published).findings
    assert "published" in finding


def test_what_is_not_proven_is_said_and_no_finding() -> None:
    """Items before and after the chain, and revisions that were not exported."""
    items = [*ITEMS[1:], item("old", minutes=-99), item("new", minutes=99)]
    verdict = verify("news", chain(), items)
    assert verdict.is_good, verdict.findings
    assert [text.split(" ")[0] for text in verdict.remarks] == ["1", "1", "1"]


@given(some.lists(some.tuples(some.integers(-3000, 3000), some.text(max_size=3)), max_size=12), some.integers(1, 5))
def test_any_items_in_any_steps_are_verified(stored: list[tuple[int, str]], at_once: int) -> None:
    """The steps of the follower do not matter, nor do times that go back."""
    items = [item(f"{number}:{key}", minutes=minutes) for number, (minutes, key) in enumerate(stored)]
    assert verify("news", chain(items, at_once=at_once), items).findings == []
