"""Reads the settings from all origins, and reports all errors at once."""

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from floodmark.errors import InvalidInput

from .keys import Origin, Settings
from .showing import condition_of, format_value, format_wrong, quote_text

# Not `floodmark settings` alone: it reads the same values and would report the same error.
_HINT = "Correct it there; then `floodmark settings` lists every key, its value and where it came from."


def load(cli: Mapping[str, str], *, folder: Path, environ: Mapping[str, str]) -> Settings:
    """Return the settings of all origins; later ones override earlier ones: `environ`, `.env`, `floodmark.toml`, `cli`.

    An empty value resets a key to its default. InvalidInput names every wrong value, and no secret.
    """
    gathered = _Gathered()
    known = set(keys())
    in_file, in_toml = _read_env(folder / ".env"), _read_toml(folder / "floodmark.toml")
    gathered.take("environment", {key: environ[key] for key in keys() if key in environ})
    gathered.take(".env", {key: value for key, value in in_file.items() if key in known})
    tables = in_toml.pop("extensions", {})
    sinks = _take_sinks(in_toml)
    gathered.take("floodmark.toml", in_toml)
    gathered.take("command line", cli)
    # Extensions of other packages read theirs from the same places; in floodmark.toml, `[extensions.mastodon]`.
    foreign = {key: text for key, text in {**environ, **in_file}.items() if key not in known}
    return gathered.settings(foreign | _read_tables(tables) | sinks)


def keys() -> list[str]:
    """Return every key, in the order of the reference page."""
    return [name.upper() for name in Settings.model_fields]


class _Gathered:
    """Raw values by field name with their origins, and the errors so far."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, Origin]] = {}
        self._problems: list[str] = []
        self._hints: list[str] = []

    def take(self, origin: Origin, values: Mapping[str, object]) -> None:
        """Override earlier values with these."""
        seen: set[str] = set()
        for key, value in values.items():
            name = key.lower()
            if name not in Settings.model_fields:
                self._refuse_unknown(key, origin)
            elif name in seen:
                self._problems.append(f"{key.upper()} is given twice (in {origin})")
            elif not isinstance(value, str | int | float):
                self._problems.append(f"{key.upper()} (from {origin}) is not a single value")
            else:
                self._put(name, _as_text(value), origin)
            seen.add(name)

    def _put(self, name: str, text: str, origin: Origin) -> None:
        if text:
            self._values[name] = (text, origin)
        else:
            self._values.pop(name, None)

    def _refuse_unknown(self, key: str, origin: Origin) -> None:
        self._problems.append(f"{quote_text(key)} (from {origin}) is not a setting")
        if close := get_close_matches(key.upper()[:80], keys()):
            self._hints.append(f"Did you mean {' or '.join(close)}?")

    def settings(self, foreign: Mapping[str, str]) -> Settings:
        """Return the validated settings, or raise one InvalidInput with every error."""
        settings = self._validate()
        if settings is None or self._problems:
            raise InvalidInput("\n".join(self._problems), hint=" ".join([*self._hints, _HINT]))
        origins = {name: origin for name, (_, origin) in self._values.items()}
        return settings.with_origins(origins).with_foreign(foreign)

    def _validate(self) -> Settings | None:
        values: dict[str, Any] = {}
        for name, (text, _) in self._values.items():
            try:
                values[name] = _validate_value(name, text)
            except ValidationError:
                # Pydantic's own text repeats the value, which may be a secret.
                self._problems.append(self._describe_wrong(name))
        if len(values) < len(self._values):
            return None
        settings = Settings.model_construct(**values)
        self._problems += _contradictions(settings)
        return settings

    def _describe_wrong(self, name: str) -> str:
        text, origin = self._values[name]
        field = Settings.model_fields[name]
        return f"{name.upper()}={format_wrong(field, text)} (from {origin}) is not {condition_of(field).words}"


def _validate_value(name: str, text: str) -> object:
    """Return the value of one field. Preparing the validation of all fields would take a tenth of a short command."""
    return TypeAdapter[object](Settings.model_fields[name].rebuild_annotation()).validate_python(text)


def _contradictions(settings: Settings) -> list[str]:
    pairs = (
        ("database_pool_min", "database_pool_max"),
        ("backoff_base_seconds", "backoff_max_seconds"),
        ("execution_retry_base", "execution_retry_max"),
    )
    values = ((low, getattr(settings, low), high, getattr(settings, high)) for low, high in pairs)
    return [
        f"{low.upper()}={format_value(least)} is more than {high.upper()}={format_value(most)}"
        for low, least, high, most in values
        if least > most
    ] + _check_pairs(settings)


# Settings that are only useful together, and what needs them.
_PAIRS = (
    ("notify_email_to", "notify_email_smtp_url", "mail needs both"),
    ("notify_telegram_bot_token", "notify_telegram_chat", "a Telegram bot needs both"),
)


def _check_pairs(settings: Settings) -> list[str]:
    """Return an error for each pair of which only one is set."""
    found = []
    for first, second, why in _PAIRS:
        is_set = {name: getattr(settings, name) is not None for name in (first, second)}
        if len(set(is_set.values())) > 1:
            given, missing = sorted(is_set, key=lambda name: not is_set[name])
            found.append(f"{given.upper()} is set and {missing.upper()} is not: {why}")
    return found


def _as_text(value: str | float) -> str:
    """Return the value as a person would type it: TOML's `true` is not Python's `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _read_env(path: Path) -> dict[str, str]:
    """Return every key of a `.env` file. Other programs may use the file too, so not every key is a setting."""
    values: dict[str, str] = {}
    for number, line in enumerate(_read(path).splitlines(), start=1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals:
            # The line itself is not shown: it may well be a secret that lost its key.
            raise InvalidInput(f".env, line {number}: expected KEY=VALUE", hint=f"Correct {path}.")
        values[key.strip()] = _unquote(value.strip())
    return values


def _unquote(value: str) -> str:
    """Return the value without its quotes, or, if it has none, without a trailing comment."""
    if found := re.fullmatch(r"""(["'])(.*?)\1(?:\s+#.*)?""", value):
        return found[2]
    return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].rstrip()


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"floodmark.toml cannot be read: {error}", hint=f"Correct {path}.") from None


def _read_tables(tables: object) -> dict[str, str]:
    """Spell `[extensions.mastodon] token = "..."` as `MASTODON_TOKEN`."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        hint = "write a table for each extension: [extensions.NAME]"
        raise InvalidInput("extensions (from floodmark.toml) is not a table of tables", hint=hint)
    return {
        f"{name}_{key}".replace("-", "_").upper(): _as_text(value)
        for name, table in tables.items()
        for key, value in table.items()
    }


def _take_sinks(toml: dict[str, object]) -> dict[str, str]:
    """Replace `[sinks.archive] kind = "webhook"` by `SINKS`, and return the other keys as `SINK_ARCHIVE_...`."""
    tables = toml.get("sinks")
    if not isinstance(tables, dict):
        return {}
    hint = 'write a table for each sink: [sinks.NAME] with kind = "webhook"'
    if not all(isinstance(table, dict) and isinstance(table.get("kind"), str) for table in tables.values()):
        raise InvalidInput("sinks (from floodmark.toml) is not a table of sinks with a kind each", hint=hint)
    toml["sinks"] = ", ".join(f"{name}={table['kind']}" for name, table in tables.items())
    return {
        f"SINK_{name}_{key}".replace("-", "_").upper(): _as_text(value)
        for name, table in tables.items()
        for key, value in table.items()
        if key != "kind"
    }


def _read(path: Path) -> str:
    """Return the text of a file; a missing file is empty."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnicodeDecodeError:
        raise InvalidInput(f"{path.name} is not UTF-8 text", hint=f"Save {path} as UTF-8.") from None
    except OSError as error:
        hint = f"Check that {path} is a file you may read."
        raise InvalidInput(f"{path.name} cannot be read: {error.strerror}", hint=hint) from None
