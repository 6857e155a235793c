"""Lists of texts as the text of a PostgreSQL array."""

from collections.abc import Sequence


def array_text(values: Sequence[str]) -> str:
    """Return texts as the text of an array, for `$1::text::text[]`.

    For a list the driver would check and encode each element by itself, which takes several times as long.
    """
    if not values:
        return "{}"
    joined = '","'.join(values)
    if "\\" in joined or joined.count('"') != 2 * (len(values) - 1):
        joined = '","'.join([value.replace("\\", "\\\\").replace('"', '\\"') for value in values])
    return f'{{"{joined}"}}'
