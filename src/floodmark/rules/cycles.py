"""Cycles in graphs, such as the dependencies between jobs."""

from collections import Counter
from collections.abc import Iterable, Mapping


def find_cyclic(edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the nodes that are on a cycle or on a path between two cycles, in linear time."""
    left = _peel(edges)
    inside = {node: [end for end in edges.get(node, ()) if end in left] for node in left}
    reverse: dict[str, list[str]] = {node: [] for node in left}
    for node, ends in inside.items():
        for end in ends:
            reverse[end].append(node)
    return _peel(reverse)


def _peel(edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the nodes that remain after all nodes without incoming edges were removed, again and again."""
    incoming = Counter(end for ends in edges.values() for end in ends)
    left = {*edges, *incoming}
    free = [node for node in left if not incoming[node]]
    while free:
        node = free.pop()
        left.discard(node)
        for end in edges.get(node, ()):
            incoming[end] -= 1
            if not incoming[end]:
                free.append(end)
    return left
