"""Lists as the text of a PostgreSQL array, for parameters such as `$1::text::text[]`.

The driver checks and encodes each element of a list by itself, which takes several times as long.
"""

from collections.abc import Iterable, Sequence


def array_text(values: Sequence[str]) -> str:
    """Return texts as the text of an array. None of them may contain NUL."""
    if not values:
        return "{}"
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * (len(values) - 1):
        joined = '","'.join([value.replace("\\", "\\\\").replace('"', '\\"') for value in values])
    return f'{{"{joined}"}}'


def number_array(values: Iterable[float]) -> str:
    """Return numbers as the text of an array."""
    return f"{{{','.join([str(value) for value in values])}}}"
