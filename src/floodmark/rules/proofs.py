"""Hash chains over the stored revisions of a stream, and their verification. Pure, and free of any database.

    entry    [key, revision, collected_at, deleted, occurred_at, sha256 of the data]
    link     sha256 of: previous digest, stream, number, day, entries; one per line
    chain    each link contains the digest of the link before

A link has the entries of one UTC day: the day on which they were stored, and at least the day of the link before. An
item of last year that is stored today is an entry of today, so that old days never change.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any

from msgspec import Struct, field

from floodmark.model.proofs import ProofEntry, ProofLink, ProvenItem

NO_LINK = "0" * 64
_MOST_FINDINGS = 100
_FIELDS = ("key", "revision", "collected_at", "deleted", "occurred_at", "data")


def canonical_json(value: Any) -> str:
    """Return JSON with sorted names, without spaces, and without escapes for letters."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def time_text(moment: datetime) -> str:
    """Return a time as entries have it: UTC, with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def entry_of(item: ProvenItem) -> ProofEntry:
    """Return the entry of a stored revision."""
    data = hashlib.sha256(canonical_json(item.data).encode("utf-8", "surrogatepass")).hexdigest()
    occurred_at = None if item.occurred_at is None else time_text(item.occurred_at)
    return item.key, item.revision, time_text(item.collected_at), item.deleted, occurred_at, data


def digest_of(stream: str, number: int, day: date, previous: str, entries: Iterable[ProofEntry]) -> str:
    """Return the digest of a link."""
    head = (previous, canonical_json(stream), str(number), day.isoformat())
    text = "\n".join([*head, *(canonical_json(entry) for entry in entries)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def day_of(entry: ProofEntry) -> date:
    """Return the UTC day on which a revision was stored."""
    return date.fromisoformat(entry[2][:10])


def make_links(stream: str, last: ProofLink | None, entries: Sequence[ProofEntry]) -> list[ProofLink]:
    """Return the links that continue a chain with these entries, in their order: one for each day."""
    number, day, previous = (0, date.min, NO_LINK) if last is None else (last.number, last.day, last.digest)
    dated: list[tuple[date, ProofEntry]] = []
    for entry in entries:
        # Two workers may store at midnight in another order than their clocks say: a day never comes back.
        day = max(day, day_of(entry))
        dated.append((day, entry))
    made: list[ProofLink] = []
    for each, group in groupby(dated, key=lambda one: one[0]):
        number, some = number + 1, tuple(entry for _, entry in group)
        digest = digest_of(stream, number, each, previous, some)
        made.append(ProofLink(number=number, day=each, previous=previous, digest=digest, entries=some))
        previous = digest
    return made


class ProofVerdict(Struct, kw_only=True):
    """The result of a verification. `findings` name what was changed; `remarks` are no evidence of a change."""

    stream: str = ""
    links: int = 0
    entries: int = 0
    days: int = 0
    head: str = NO_LINK
    items: int = 0
    findings: list[str] = field(default_factory=list)
    more_findings: int = 0
    remarks: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Return whether nothing was changed."""
        return not self.findings

    def find(self, text: str) -> None:
        """Add a finding; beyond a number they are only counted."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(text)
        else:
            self.more_findings += 1


class Verification:
    """Checks a chain link by link, and then items against its entries.

    The entries are in memory: some hundred bytes for each.
    """

    def __init__(self, stream: str, published: str | None = None) -> None:
        self.verdict = ProofVerdict(stream=stream)
        self._published, self._is_published_found = published, False
        self._last: ProofLink | None = None
        self._entries: dict[tuple[str, int], ProofEntry] = {}
        self._seen: set[tuple[str, int]] = set()
        self._newest: dict[str, int] = {}
        self._times: tuple[str, str] | None = None
        self._unknown_new = self._unknown_old = self._older = self._tombstones = 0

    def add_link(self, link: ProofLink) -> None:
        """Check the next link."""
        verdict, last = self.verdict, self._last
        name = f"link {link.number} ({link.day})"
        if link.number != (1 if last is None else last.number + 1):
            verdict.find(f"{name} follows link {0 if last is None else last.number}: links are missing or out of order")
        if link.previous != (NO_LINK if last is None else last.digest):
            verdict.find(f"{name} does not continue the link before it")
        if last is not None and link.day < last.day:
            verdict.find(f"{name} is before the day of the link before it")
        if link.digest != digest_of(verdict.stream, link.number, link.day, link.previous, link.entries):
            verdict.find(f"{name} does not have its digest: its day, its entries or their order were changed")
        day = date.min if last is None else last.day
        for entry in link.entries:
            day = max(day, day_of(entry))
            if day != link.day:
                verdict.find(f"{name} has an entry of another day: item {entry[0]}, revision {entry[1]}")
                break
        verdict.days += last is None or link.day != last.day
        self._last = link
        self._is_published_found |= link.digest == self._published
        verdict.links, verdict.head = verdict.links + 1, link.digest
        verdict.entries += len(link.entries)
        for entry in link.entries:
            place = entry[0], entry[1]
            if place in self._entries:
                verdict.find(f"item {entry[0]}, revision {entry[1]}, is twice in the chain ({name})")
            self._entries[place] = entry

    def end_chain(self) -> None:
        """Compare the chain with the digest that was published."""
        times = [entry[2] for entry in self._entries.values()]
        self._times = (min(times), max(times)) if times else None
        if self._published is not None and not self._is_published_found:
            self.verdict.find(f"no link has the published digest {self._published}: this is not that chain")

    def add_item(self, item: ProvenItem) -> None:
        """Check an item against its entry."""
        verdict, place = self.verdict, (item.key, item.revision)
        verdict.items += 1
        known, what = self._entries.get(place), f"item {item.key}, revision {item.revision},"
        if place in self._seen:
            verdict.find(f"{what} is twice in the items")
        self._seen.add(place)
        self._newest[item.key] = max(self._newest.get(item.key, 0), item.revision)
        found = entry_of(item)
        if known is not None:
            if found != known:
                changed = [name for name, a, b in zip(_FIELDS, found, known, strict=True) if a != b]
                verdict.find(f"{what} was changed: {', '.join(changed)}")
            return
        if self._times is None or found[2] > self._times[1]:
            self._unknown_new += 1
        elif found[2] < self._times[0]:
            self._unknown_old += 1
        else:
            verdict.find(f"{what} is not in the chain: it was added")

    def end_items(self) -> None:
        """Look for entries without an item."""
        verdict = self.verdict
        last = dict(sorted(self._entries))
        for key, revision in sorted(self._entries.keys() - self._seen):
            if self._newest.get(key, 0) > revision:
                self._older += 1
            elif key not in self._newest and self._entries[key, last[key]][3]:
                self._tombstones += 1
            else:
                verdict.find(f"item {key}, revision {revision}, is missing")
        for number, text in (
            (self._older, "earlier revisions are not among the items; export with --revisions to check them"),
            (
                self._tombstones,
                "revisions of deleted items are not among the items; export with --deleted to check them",
            ),
            (self._unknown_new, "items were stored after the last link and are not proven yet"),
            (self._unknown_old, "items were stored before the first link and are not proven"),
        ):
            if number:
                verdict.remarks.append(f"{number:,} {text}")


def verify(
    stream: str,
    links: Iterable[ProofLink],
    items: Iterable[ProvenItem] | None = None,
    *,
    published: str | None = None,
) -> ProofVerdict:
    """Check a chain, and items against it."""
    check = Verification(stream, published)
    for link in links:
        check.add_link(link)
    check.end_chain()
    if items is not None:
        for item in items:
            check.add_item(item)
        check.end_items()
    return check.verdict


def pack_entries(entries: Iterable[ProofEntry]) -> Iterator[str]:
    """Return the lines of entries, as a link stores them."""
    return (canonical_json(entry) for entry in entries)
