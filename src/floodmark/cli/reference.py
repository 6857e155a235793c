"""Print docs/reference/cli.md: `python -m floodmark.cli.reference > docs/reference/cli.md`."""

import json
from collections.abc import Iterator
from typing import Any

import typer.main

from . import app

HEAD = """# Commands

<!-- Written by `python -m floodmark.cli.reference > docs/reference/cli.md`; edit src/floodmark/cli. -->

`JOB` is the name or id of a job, or a unique prefix of either. `TIME` is a duration: `90s`, `15m`, `1h30m`, `2d`. All
lists print JSON with `--json`: times are ISO 8601 in UTC, durations are seconds. Commands that delete something ask
for confirmation; `--yes` confirms, `--dry-run` only shows what would be done.

All commands also work on a remote server with `--url` or FLOODMARK_URL, except those that start or prepare something
on this machine: `up`, `api`, `scheduler`, `worker`, `demo`, `testing` and `migrate`. See
[remote CLI](../how-to/client.md).

The exit code is 0 after success, 1 after a failure, 2 for invalid arguments (nothing was changed), and 130 after
Ctrl-C. An error message ends with the next step.
"""


def page() -> str:
    """Return all commands as a Markdown page."""
    root: Any = typer.main.get_command(app)
    parts = [HEAD, "\n## Global options\n\n", *_options(root, "floodmark")]
    for name in root.list_commands(None):
        parts += _command(f"floodmark {name}", root.get_command(None, name))
    return "".join(parts)


def root_help() -> str:
    """Return the text of `root_help.json`: what the help of all commands shows, by panel."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("floodmark", [], resilient_parsing=True)
    panels: dict[str, dict[str, str]] = {}
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        panels.setdefault(command.rich_help_panel, {})[name] = _first_paragraph(command)
    options = [parameter for parameter in root.get_params(context) if not getattr(parameter, "hidden", False)]
    panels["Options"] = {_name(parameter): parameter.help or "" for parameter in options}
    return json.dumps({"summary": _first_paragraph(root), "panels": panels}, indent=1, ensure_ascii=False) + "\n"


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _command(path: str, command: Any) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    yield f"\n## {path}\n\n"
    is_group = hasattr(command, "list_commands")
    if not is_group:
        yield f"    {' '.join([path, *_usage(command, context)])}\n\n"
    yield f"{_help(command)}\n"
    rows = list(_options(command, path))
    yield from ["\n", *rows] if rows else []
    for name in command.list_commands(context) if is_group else ():
        yield from _command(f"{path} {name}", command.get_command(context, name))


def _usage(command: Any, context: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.get_params(context) if _is_shown(parameter)]
    for parameter in shown:
        if parameter.param_type_name == "argument":
            name = str(parameter.metavar or parameter.name.upper())
            yield name if parameter.required else f"[{name}]"
    yield "[OPTIONS]"


def _help(command: Any) -> str:
    """Return the docstring; a paragraph that starts with the program's name is an example and becomes code."""
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    return "\n\n".join(f"    {part}" if part.startswith("floodmark ") else part for part in paragraphs)


def _options(command: Any, path: str) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    shown = [parameter for parameter in command.get_params(context) if _is_shown(parameter)]
    if not shown:
        return
    yield "| | |\n|---|---|\n"
    for parameter in shown:
        yield f"| `{_name(parameter)}` | {_cell(parameter)} |\n"


def _is_shown(parameter: Any) -> bool:
    return not getattr(parameter, "hidden", False) and parameter.name not in (
        "help",
        "install_completion",
        "show_completion",
    )


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).replace("|", "\\|")
    # The long ones first: those of `--help` come in any order.
    names = ", ".join((*sorted(parameter.opts, key=len, reverse=True), *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {_value(parameter)}"


def _value(parameter: Any) -> str:
    kind = parameter.type_descriptor
    if kind.is_choice:
        return "\\|".join(getattr(choice, "value", str(choice)) for choice in kind.choices)
    return str(parameter.metavar or ("N" if kind.annotation in (int, float) else "TEXT"))


def _cell(parameter: Any) -> str:
    default = parameter.default
    has_default = default not in (None, False, (), []) and not callable(default)
    text = f" Default: `{getattr(default, 'value', default)}`." if has_default else ""
    return f"{parameter.help or ''}{text}".replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
