"""Print docs/reference/settings.md, or with `--env` the file env.example.

python -m floodmark.settings > docs/reference/settings.md
python -m floodmark.settings --env > env.example
"""

import sys

from pydantic.fields import FieldInfo

from .keys import Settings
from .showing import condition_of, format_value

HEAD = """# Settings

<!-- Written by `python -m floodmark.settings > docs/reference/settings.md`; edit src/floodmark/settings/keys.py. -->

Settings come from the environment, `.env`, `floodmark.toml` (both in the current folder) and the command
line (`--set KEY=VALUE`); later ones override earlier ones. An empty value resets a key to its default.
`floodmark settings` shows the effective values and where each came from.

| key | default | type | meaning |
|---|---|---|---|
"""


ENV_HEAD = """# All settings of Floodmark with their defaults. Copy this file to .env; remove the # of a line to set it.
# Written by `python -m floodmark.settings --env > env.example`; docs/reference/settings.md explains each.
"""


def page() -> str:
    """Return all settings as a Markdown page."""
    return HEAD + "".join(_row(name, field) for name, field in Settings.model_fields.items())


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`{name.upper()}`", _default(field), condition_of(field).words, field.description or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(field: FieldInfo) -> str:
    # The only computed default is the host name, which differs between machines.
    if field.default_factory is not None:
        return "this machine's name"
    return f"`{format_value(field.default)}`" if field.default is not None else ""


def example() -> str:
    """Return all settings as commented lines of `.env`, with their defaults."""
    lines = (
        f"\n# {field.description}\n#{name.upper()}={_value(field)}\n" for name, field in Settings.model_fields.items()
    )
    return ENV_HEAD + "".join(lines)


def _value(field: FieldInfo) -> str:
    is_empty = field.default_factory is not None or field.default is None
    return "" if is_empty else format_value(field.default)


if __name__ == "__main__":
    print(example() if "--env" in sys.argv else page(), end="")
