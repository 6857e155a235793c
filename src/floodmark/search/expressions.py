"""Queries in the languages of the databases. Pure.

Tokens need no escapes: they are letters, digits and emoji, and those of fields also have `:`, `_`, `-` and `.`.
"""

from collections.abc import Iterable

from .query import AllOf, AnyOf, Node, Not, Term


def stream_token(stream_id: int) -> str:
    """Return the token that every document of a stream has."""
    return f"::{stream_id}"


def like_pattern(pattern: str) -> str:
    r"""Return a pattern with `*` for any text as one of LIKE, with `\` before characters that are not special."""
    escaped = pattern.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def fts5_expression(node: Node | None, stream_ids: Iterable[int] | None = None) -> str | None:
    """Return a query for FTS5 of SQLite, limited to streams; None if there is nothing to look for."""
    parts = [] if node is None else [_fts5(node)]
    if stream_ids is not None:
        parts.append(" OR ".join(f'"{stream_token(number)}"' for number in stream_ids))
    return " AND ".join(f"({part})" for part in parts) or None


def _fts5(node: Node) -> str:
    if isinstance(node, Term):
        phrase = " + ".join(f'"{token}"' for token in node.indexed_tokens)
        return f"{phrase} *" if node.is_prefix else phrase
    if isinstance(node, AnyOf):
        return " OR ".join(f"({_fts5(one)})" for one in node.nodes)
    assert isinstance(node, AllOf), "a `Not` stands only in an `AllOf`"
    wanted = " AND ".join(f"({_fts5(one)})" for one in node.nodes if not isinstance(one, Not))
    unwanted = " OR ".join(f"({_fts5(one.node)})" for one in node.nodes if isinstance(one, Not))
    return f"({wanted}) NOT ({unwanted})" if unwanted else wanted


def tsquery(node: Node | None, *tokens: Iterable[str]) -> str | None:
    """Return a query for PostgreSQL, limited to documents that have one of each of these tokens; None for all."""
    parts = [] if node is None else [_tsquery(node)]
    parts += [" | ".join(f"'{token}'" for token in some) for some in tokens]
    return " & ".join(f"({part})" for part in parts) or None


def _tsquery(node: Node) -> str:
    if isinstance(node, Term):
        phrase = " <-> ".join(f"'{token}'" for token in node.indexed_tokens)
        return f"{phrase}:*" if node.is_prefix else phrase
    if isinstance(node, Not):
        return f"!({_tsquery(node.node)})"
    return (" & " if isinstance(node, AllOf) else " | ").join(f"({_tsquery(one)})" for one in node.nodes)
