"""Descriptors that forked children must not keep: they would hold the locks after the death of this process."""

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
        # Replaced, not closed: copies of our objects in the child still use the number.
        os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
