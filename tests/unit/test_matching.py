"""Which paths and channels a pattern fits, and which params come of it."""

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.triggers.matching import (
    PathVariables,
    channel_matches,
    check_params,
    choose_params,
    is_glob,
    path_pattern,
    segments,
)

SEGMENT = st.text(string.ascii_lowercase + string.digits + ".-_%", min_size=1, max_size=8)


def matched(pattern: str, path: str) -> dict[str, str] | None:
    return path_pattern(pattern).match(segments(path))


@pytest.mark.spec("V4")
@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("/sources/*/crawl", "/sources/42/crawl", {"1": "42"}),
        ("/sources/*/crawl", "/sources/42/43/crawl", None),
        ("/sources/*/crawl", "/sources/crawl", None),
        ("/sources/*/crawl", "/sources/42/crawl/now", None),
        ("/sources/*/crawl", "/Sources/42/crawl", None),
        ("/sources/{source_id}/crawl", "/sources/42/crawl", {"1": "42", "source_id": "42"}),
        ("/{a}/*/{b}", "/x/y/z", {"1": "x", "a": "x", "2": "y", "3": "z", "b": "z"}),
        ("/sources/**", "/sources/42/pages/7", {"1": "42/pages/7"}),
        ("/sources/**", "/sources", {"1": ""}),
        ("/sources/*/**", "/sources/42/a/b", {"1": "42", "2": "a/b"}),
        ("/sources/*/**", "/sources", None),
        ("/**", "/anything/at/all", {"1": "anything/at/all"}),
        ("/exactly/this", "/exactly/this", {}),
        ("/exactly/this/", "//exactly///this", {}),
        ("/dots/*", "/dots/..", {"1": ".."}),
    ],
)
def test_a_pattern_fits_a_path_segment_by_segment(pattern: str, path: str, found: dict[str, str] | None) -> None:
    assert matched(pattern, path) == found


@pytest.mark.spec("V4")
@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("sources/*", "begins with /"),
        ("", "begins with /"),
        ("/", "at least one segment"),
        ("/a/**/b", "nothing can follow"),
        ("/a/x-*", "mixes text and a pattern"),
        ("/a/{b", "mixes text and a pattern"),
        ("/a/{1}", "mixes text and a pattern"),
        ("/{id}/{id}", "stands twice"),
        ("/a\n", "begins with /"),
        ("/" + "a" * 2001, "begins with /"),
    ],
)
def test_a_pattern_that_cannot_mean_anything_is_refused_with_an_example(pattern: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says.replace("/", "[/]")) as caught:
        path_pattern(pattern)
    assert caught.value.hint


@given(st.lists(SEGMENT, min_size=1, max_size=6), st.data())
def test_any_segment_may_be_a_star_and_nothing_else_changes(path: list[str], data: Any) -> None:
    stars = data.draw(st.sets(st.integers(0, len(path) - 1)))
    pattern = "/" + "/".join("*" if at in stars else segment for at, segment in enumerate(path))
    assert matched(pattern, "/".join(path)) == {str(n): path[at] for n, at in enumerate(sorted(stars), 1)}
    assert matched(pattern, "/".join([*path, "more"])) is None
    assert matched(pattern.rsplit("/", 1)[0] + "/**", "/".join([*path, "more"])) is not None


@pytest.mark.spec("V4")
@pytest.mark.parametrize(
    ("pattern", "channel", "fits"),
    [
        ("content:new", "content:new", True),
        ("content:new", "content:newer", False),
        ("content:*", "content:new", True),
        ("content:*", "content:", True),
        ("content:*", "contents", False),
        ("c?t", "cat", True),
        ("c?t", "ct", False),
        ("c[aou]t", "cut", True),
        ("c[^a]t", "cat", False),
        ("c[a-c]t", "cbt", True),
        ("c[z-a]t", "cbt", True),
        ("c[a", "ca", True),
        ("[]", "x", False),
        (r"a\*", r"a\*", True),
        (r"a\**", "a*bc", True),
        ("a.c*", "abc", False),
        ("*:*:*", "a:b:c:d", True),
        ("*", "", True),
        ("l*\n", "line\n", True),
    ],
)
def test_channels_have_the_patterns_of_redis(pattern: str, channel: str, fits: bool) -> None:
    assert channel_matches(pattern, channel) is fits


def test_no_pattern_of_channels_is_slow() -> None:
    """A naive expression would never come to an end with this one."""
    assert not channel_matches("a*" * 200 + "b", "a" * 5000)


def test_an_escaped_star_is_no_pattern() -> None:
    assert not is_glob(r"a\*b")
    assert is_glob(r"a\\*b")


@pytest.mark.spec("V4")
def test_params_are_taken_from_path_body_and_channel() -> None:
    variables = {
        "path": PathVariables("/sources/42/crawl", {"1": "42", "source_id": "42"}),
        "body": {"article": {"title": "T", "tags": ["a", "b"], "gone": None}, "a.b": 1, "n": 0},
    }
    wanted = {
        "source": "path.1",
        "same": "path.source_id",
        "whole": "path",
        "title": "body.article.title",
        "tag": "body.article.tags.1",
        "zero": "body.n",
        "nothing": "body.article.gone",
        "missing": "body.other.title",
        "beyond": "body.article.tags.2",
        "into_text": "body.article.title.x",
        "channel": "channel",
    }
    assert choose_params(wanted, variables) == {
        "source": "42",
        "same": "42",
        "whole": "/sources/42/crawl",
        "title": "T",
        "tag": "b",
        "zero": 0,
    }


@pytest.mark.parametrize(
    "params", [{"": "body"}, {"a b": "body"}, {"a": ""}, {"a": "header.x"}, {"a": "bodyx.y"}, {"a": "body.\n"}]
)
def test_params_that_can_find_nothing_are_refused(params: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_params(params)
    assert caught.value.hint
