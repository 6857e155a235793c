"""Decodes the core of a TC string, in which consent managers record a choice (IAB Europe, Transparency and Consent
Framework, version 2).

The string has segments separated by dots; the first one, the core, is a field of bits in base64url.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

# Of a real string the core has some 1,000 characters; vendors are 16-bit numbers, so 20,000 is always enough.
_LONGEST = 40_000
_VERSION = 2
_PURPOSES, _FEATURES = 24, 12
_DECISECOND = 10
# Until the year 2100; other values are not times.
_LATEST = 4_102_444_800 * _DECISECOND

PURPOSE_WORDS = {
    1: "store and/or access information on a device",
    2: "use limited data to select advertising",
    3: "create profiles for personalised advertising",
    4: "use profiles to select personalised advertising",
    5: "create profiles to personalise content",
    6: "use profiles to select personalised content",
    7: "measure advertising performance",
    8: "measure content performance",
    9: "understand audiences through statistics or combinations of data",
    10: "develop and improve services",
    11: "use limited data to select content",
}


class TcString(Struct, frozen=True, kw_only=True):
    """The choice that a TC string records."""

    version: int
    created: datetime
    updated: datetime
    cmp_id: Annotated[int, Meta(description="The number of the consent manager in the list of IAB Europe.")]
    cmp_version: int
    language: str
    vendor_list_version: int
    policy_version: int
    is_service_specific: bool
    publisher_country: str
    special_features: tuple[int, ...]
    purposes_consent: Annotated[tuple[int, ...], Meta(description="Purposes with consent.")]
    purposes_legitimate_interest: tuple[int, ...]
    vendors_consent: Annotated[int, Meta(description="The number of vendors with consent.")]
    vendors_legitimate_interest: int


class _Malformed(Exception):
    """The string ends too early, or has a value that cannot be."""


class _Bits:
    """Reads a field of bits from its beginning."""

    def __init__(self, content: bytes) -> None:
        self._value, self._left = int.from_bytes(content), len(content) * 8

    def number(self, width: int) -> int:
        """Return the next `width` bits as a number."""
        if width > self._left:
            raise _Malformed
        self._left -= width
        return (self._value >> self._left) & ((1 << width) - 1)

    def flag(self) -> bool:
        return self.number(1) == 1

    def members(self, width: int) -> tuple[int, ...]:
        """Return the places of the bits that are set, counted from 1."""
        bits = self.number(width)
        return tuple(place for place in range(1, width + 1) if bits >> (width - place) & 1)

    def letters(self) -> str:
        """Return two letters of 6 bits each."""
        found = [self.number(6) for _ in range(2)]
        if max(found) > 25:
            raise _Malformed
        return "".join(chr(ord("A") + one) for one in found)

    def moment(self) -> datetime:
        """Return a time in tenths of seconds since 1970."""
        found = self.number(36)
        if found > _LATEST:
            raise _Malformed
        return datetime.fromtimestamp(found / _DECISECOND, UTC)

    def count_vendors(self) -> int:
        """Return the size of a set of vendors: one bit for each, or a list of ranges."""
        most = self.number(16)
        if not self.flag():
            return self.number(most).bit_count()
        return _count_within(list(self._ranges(most)))

    def _ranges(self, most: int) -> Iterable[tuple[int, int]]:
        for _ in range(self.number(12)):
            is_range, first = self.flag(), self.number(16)
            last = self.number(16) if is_range else first
            if not 0 < first <= last <= most:
                raise _Malformed
            yield first, last


def _count_within(ranges: list[tuple[int, int]]) -> int:
    """Return how many numbers are in at least one of the ranges."""
    count = end = 0
    for first, last in sorted(ranges):
        count += max(0, last - max(first - 1, end))
        end = max(end, last)
    return count


def decode_tc_string(text: object) -> TcString | None:
    """Return the choice in a TC string; None if the text is not one of version 2."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    core = text.strip().partition(".")[0]
    try:
        content = base64.b64decode(core + "=" * (-len(core) % 4), altchars=b"-_", validate=True)
        return _decode(_Bits(content))
    except (_Malformed, binascii.Error, ValueError):
        return None


def _decode(bits: _Bits) -> TcString:
    if (version := bits.number(6)) != _VERSION:
        raise _Malformed
    created, updated = bits.moment(), bits.moment()
    cmp_id, cmp_version, _screen = bits.number(12), bits.number(12), bits.number(6)
    language, vendor_list, policy = bits.letters(), bits.number(12), bits.number(6)
    is_service_specific, _texts = bits.flag(), bits.flag()
    features, consent, interest = bits.members(_FEATURES), bits.members(_PURPOSES), bits.members(_PURPOSES)
    _purpose_one, country = bits.flag(), bits.letters()
    return TcString(
        version=version,
        created=created,
        updated=updated,
        cmp_id=cmp_id,
        cmp_version=cmp_version,
        language=language,
        vendor_list_version=vendor_list,
        policy_version=policy,
        is_service_specific=is_service_specific,
        publisher_country=country,
        special_features=features,
        purposes_consent=consent,
        purposes_legitimate_interest=interest,
        vendors_consent=bits.count_vendors(),
        vendors_legitimate_interest=bits.count_vendors(),
    )


def describe_choice(recorded: Mapping[str, Any]) -> str:
    """Return the choice of a report as a sentence."""
    consent, interest = recorded["purposes_consent"], recorded["purposes_legitimate_interest"]
    parts = [
        f"consent for {_numbered(consent)} and {recorded['vendors_consent']} vendors",
        f"legitimate interest for {_numbered(interest)} and {recorded['vendors_legitimate_interest']} vendors",
    ]
    return (
        f"Recorded choice (TC string, consent manager {recorded['cmp_id']}, "
        f"created {str(recorded['created'])[:10]}): {'; '.join(parts)}."
    )


def _numbered(purposes: Sequence[int]) -> str:
    if not purposes:
        return "no purpose"
    return f"purpose{'' if len(purposes) == 1 else 's'} {', '.join(map(str, purposes))}"
