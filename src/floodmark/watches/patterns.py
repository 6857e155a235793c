"""Patterns of users. They run on RE2, which needs time in proportion to the text, whatever the pattern is.

RE2's `\\b` knows ASCII letters only: `\\bмосква\\b` never matches. It is refused; `whole_word` works in every script.
"""

import re
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import InvalidInput
from floodmark.model.watches import LONGEST_PATTERN
from floodmark.process.lazy import LazyModule

if TYPE_CHECKING:
    import re2
else:
    # Few processes and commands use patterns.
    re2 = LazyModule("re2")

# Bytes of the compiled pattern and its caches; RE2 refuses larger ones.
_MEMORY = 1 << 20
_BEGIN, _END = r"(?:^|[^\pL\pM\pN_])", r"(?:$|[^\pL\pM\pN_])"
# A backslash that is not itself escaped.
_BOUNDARY = re.compile(r"(?<!\\)(?:\\\\)*(\\[bB])")
# Parentheses, and what may hide them: escaped characters and classes.
_PARENTHESIS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[()]", re.DOTALL)
_SHOWN = 60
ASCII_CLASS = re.compile(r"(?<!\\)(?:\\\\)*(\\[wW])")


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Return the first match, if there is one."""
        ...


def compile_pattern(text: str, *, whole_word: bool = False) -> Pattern:
    """Return a pattern, or raise `InvalidInput` with RE2's reason and the place of the error."""
    if len(text) > LONGEST_PATTERN:
        raise InvalidInput(
            f"a pattern has at most {LONGEST_PATTERN:,} characters, this one has {len(text):,}",
            hint="use words instead, or several watches",
        )
    if boundary := _BOUNDARY.search(text):
        raise InvalidInput(
            f"the pattern has {boundary[1]} at character {boundary.start(1) + 1}: it knows ASCII letters only",
            hint="leave it out and add --word, which finds whole words in every script",
        )
    compiled = _compile(text)
    return _compile(f"{_BEGIN}(?:{text}){_END}") if whole_word else compiled


def _compile(text: str) -> Pattern:
    options = re2.Options()
    options.log_errors, options.never_nl, options.max_mem = False, False, _MEMORY
    try:
        compiled: Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error.args[0])
        raise InvalidInput(f"the pattern cannot be used: {_place(reason, text)}", hint=_HINT) from None
    return compiled


_HINT = (
    "the syntax is that of RE2, without look-around and back-references: https://github.com/google/re2/wiki/Syntax; "
    "for plain words leave out --pattern"
)


def _place(reason: str, text: str) -> str:
    """Return RE2's reason with the place of the error."""
    what, colon, part = reason.partition(": ")
    if not colon:
        return reason
    # Of parentheses without a partner, RE2 names the whole pattern.
    place = _find_single(text) if what in ("missing )", "unexpected )") else text.find(part)
    shown = text[place : place + _SHOWN] if place >= 0 and part == text else part[:_SHOWN]
    return f"{what}: {shown}{f' at character {place + 1}' if place >= 0 else ''}"


def _find_single(text: str) -> int:
    """Return the place of the first parenthesis without a partner; -1 if there is none."""
    opened: list[int] = []
    for found in _PARENTHESIS.finditer(text):
        if found[0] == "(":
            opened.append(found.start())
        elif found[0] == ")":
            if not opened:
                return found.start()
            opened.pop()
    return opened[0] if opened else -1
