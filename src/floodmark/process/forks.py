"""Descriptors that must close with this process: a forked child would keep their locks after its death."""

import os

_held: set[int] = set()


def hold(descriptor: int) -> None:
    """Close a descriptor in children created by `fork`. Programs started by `exec` never get it."""
    if descriptor >= 0:
        _held.add(descriptor)


def let_go(descriptor: int) -> None:
    """Undo `hold`; call it before the descriptor is closed and its number is used again."""
    _held.discard(descriptor)


def _in_child() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _held:
        # Replaced, not closed: the child's copies of our objects still think that they own the number.
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
