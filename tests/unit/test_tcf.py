"""TC strings: the decoder against an encoder of its own, a published string, and texts that are none."""

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.sources.cookies.tcf import decode_tc_string, describe_choice

pytestmark = pytest.mark.spec("B14")

# Made by a consent manager in 2020; its second segment is not decoded.
PUBLISHED = (
    "COvFyGBOvFyGBAbAAAENAPCAAOAAAAAAAAAAAEEUACCKAAA.IFoEUQQgAIQwgIwQABAEAAAAOIAACAIAAAAQAIAgEAACEAAAAAgAQBAAAAA"
)
NUMBERS = st.sets(st.integers(1, 900), max_size=40)


def tc_string(
    *, purposes: set[int], interests: set[int], vendors: set[int], others: set[int], ranges: bool = False
) -> str:
    """A string as a consent manager writes it."""
    at = round(datetime(2026, 6, 1, tzinfo=UTC).timestamp() * 10)
    bits = f"{2:06b}{at:036b}{at:036b}{300:012b}{4:012b}{1:06b}{3:06b}{4:06b}{120:012b}{4:06b}10"
    bits += f"{0:012b}" + _flags(purposes, 24) + _flags(interests, 24) + f"0{3:06b}{4:06b}"
    bits += _vendors(vendors, ranges) + _vendors(others, not ranges)
    bits += "0" * 12
    bits += "0" * (-len(bits) % 24)
    return base64.urlsafe_b64encode(int(bits, 2).to_bytes(len(bits) // 8)).decode()


def _flags(numbers: set[int], width: int) -> str:
    return "".join("1" if number in numbers else "0" for number in range(1, width + 1))


def _vendors(numbers: set[int], ranges: bool) -> str:
    most = max(numbers, default=0)
    if not ranges:
        return f"{most:016b}0" + _flags(numbers, most)
    # Each second one as a range of one, so that both forms occur.
    entries = [f"1{n:016b}{n:016b}" if n % 2 else f"0{n:016b}" for n in sorted(numbers)]
    return f"{most:016b}1{len(entries):012b}" + "".join(entries)


def test_a_published_string_is_decoded() -> None:
    found = decode_tc_string(PUBLISHED)
    assert found is not None
    assert (found.version, found.cmp_id, found.language, found.vendor_list_version) == (2, 27, "EN", 15)
    assert found.created.date().isoformat() == "2020-02-20"
    assert (found.purposes_consent, found.purposes_legitimate_interest) == ((1, 2, 3), ())
    assert (found.vendors_consent, found.vendors_legitimate_interest) == (3, 3)


@given(purposes=st.sets(st.integers(1, 24)), interests=st.sets(st.integers(1, 24)), vendors=NUMBERS, others=NUMBERS)
def test_what_was_written_is_read(purposes: set[int], interests: set[int], vendors: set[int], others: set[int]) -> None:
    for ranges in (False, True):
        text = tc_string(purposes=purposes, interests=interests, vendors=vendors, others=others, ranges=ranges)
        found = decode_tc_string(text)
        assert found is not None
        assert set(found.purposes_consent) == purposes
        assert set(found.purposes_legitimate_interest) == interests
        assert (found.vendors_consent, found.vendors_legitimate_interest) == (len(vendors), len(others))
        assert (found.cmp_id, found.language, found.publisher_country) == (300, "DE", "DE")


@given(
    st.one_of(st.text(max_size=200), st.binary(max_size=400).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
)
def test_no_text_raises(text: str) -> None:
    found = decode_tc_string(text)
    assert found is None or found.version == 2


@given(st.integers(0, 1200), st.integers(0, 7))
def test_a_damaged_string_raises_nothing(place: int, bit: int) -> None:
    text = tc_string(purposes={1}, interests={2}, vendors={1, 5, 9}, others={4}, ranges=True)
    raw = bytearray(base64.urlsafe_b64decode(text))
    raw[place % len(raw)] ^= 1 << bit
    decode_tc_string(base64.urlsafe_b64encode(bytes(raw)).decode())
    assert decode_tc_string(text[: place % len(text)]) is None or place % len(text) > 60


def test_what_is_no_text_is_none() -> None:
    wrong: list[object] = [None, 7, "", "ü", "C" * 50_000, {}]
    assert [decode_tc_string(value) for value in wrong] == [None] * 6


def test_a_choice_is_told_in_a_sentence() -> None:
    recorded = {
        "cmp_id": 300,
        "created": "2026-06-01T00:00:00Z",
        "purposes_consent": [1],
        "purposes_legitimate_interest": [2, 7],
        "vendors_consent": 5,
        "vendors_legitimate_interest": 0,
    }
    assert describe_choice(recorded) == (
        "Recorded choice (TC string, consent manager 300, created 2026-06-01): consent for purpose 1 and 5 vendors; "
        "legitimate interest for purposes 2, 7 and 0 vendors."
    )
