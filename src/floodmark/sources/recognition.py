"""Recognise what a person has typed: which source a target belongs to."""

from floodmark.errors import InvalidInput

from .form import JobForm, find_forms

_LONGEST = 2000
_EXAMPLES = "for example https://example.com/feed.xml, example.com or @channel; else name the source"


def recognise(text: str, forms: "dict[str, JobForm] | None" = None) -> list[str]:
    """Return the sources that a text can be a target of, the best one first; `InvalidInput` if there is none."""
    given = text.strip()
    if len(given) > _LONGEST:
        raise InvalidInput(f"{given[:40]!r}... is too long for a target", hint=_EXAMPLES)
    fits = {name: form.fit(given) for name, form in (forms or find_forms()).items() if form.fit is not None}
    found = sorted((name for name, fit in fits.items() if fit > 0), key=lambda name: -fits[name])
    if not found:
        raise InvalidInput(f"{given[:80]!r} is not a target of any source", hint=_EXAMPLES)
    return found
