"""All commands. The module of a command is imported when the command is run, or for the help of all commands."""

import os
from collections.abc import Callable, Sequence
from importlib import import_module

import typer

from .root import RootGroup, command_in, start

# Module and name of each command, by panel of the help.
_PANELS: dict[str, dict[str, str]] = {
    "Getting started": {
        "up": "roles:up",
        "demo": "roles:demo",
        "add": "add:add",
        "try": "try_url:try_url",
        "preview": "previews:preview",
        "testing": "testing:testing",
    },
    "Jobs": {
        "ls": "jobs:ls",
        "show": "jobs:show",
        "run": "runs:run",
        "edit": "edit:edit",
        "enable": "job_verbs:enable",
        "disable": "job_verbs:disable",
        "pause": "job_verbs:pause",
        "resume": "job_verbs:resume",
        "tag": "job_verbs:tag",
        "cancel": "jobs:cancel",
        "rm": "job_verbs:rm",
        "jobs": "job_files:jobs",
        "apply": "job_files:apply",
        "next": "runs:next_runs",
        "explain": "jobs:explain",
        "triggers": "triggers:triggers",
        "budgets": "budgets:budgets",
    },
    "History and status": {
        "top": "top:top",
        "history": "history:history",
        "logs": "logs:logs",
        "stats": "history:stats",
        "minutes": "counts:minutes",
        "cleanup": "history:cleanup",
        "dlq": "history:dlq",
        "freshness": "freshness:freshness",
        "limits": "limits:limits",
        "breakers": "breakers:breakers",
    },
    "Collected data": {
        "search": "search:search",
        "latest": "search:latest",
        "items": "streams:items",
        "events": "streams:events",
        "days": "counts:days",
        "engagement": "engagement:engagement",
        "media": "media:media",
        "gaps": "gaps:gaps",
        "proof": "proofs:proof",
        "verify": "proofs:verify",
        "readers": "readers:readers",
        "sinks": "sinks:sinks",
        "watermark": "streams:watermark",
        "report": "reports:report",
        "watch": "watch:watch",
        "export": "files:export",
        "fetch": "files:fetch",
        "index": "search:index",
    },
    "Installation": {
        "accounts": "accounts:accounts",
        "tokens": "tokens:tokens",
        "secrets": "secrets:secrets",
        "audit": "audit:audit",
        "sync": "sync:sync",
        "scheduler": "roles:scheduler",
        "worker": "roles:worker",
        "api": "api:api",
        "openapi": "api:openapi",
        "workers": "installation:workers",
        "backup": "backup:backup",
        "restore": "backup:restore",
        "migrate": "installation:migrate",
        "migrate-jobs": "handover:migrate_jobs",
        "shadow": "handover:shadow",
        "import": "import_jobs:importing",
        "notify": "notify:notify",
        "rotate-key": "installation:rotate_key",
        "settings": "installation:settings",
        "metrics": "metrics:metrics",
        "doctor": "installation:doctor",
    },
}


def app_for(args: Sequence[str]) -> typer.Typer:
    """Return the application with only the command of this command line; with all commands for help and completion."""
    typed = command_in(args)
    is_known = any(typed in commands for commands in _PANELS.values())
    is_completing = any(name.endswith("_COMPLETE") for name in os.environ)
    return _assemble(typed if is_known and not is_completing else None)


def _assemble(only: str | None = None) -> typer.Typer:
    made = typer.Typer(
        name="floodmark",
        cls=RootGroup,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    made.callback(invoke_without_command=True)(start)
    for panel, commands in _PANELS.items():
        for name, home in commands.items():
            if only in (None, name):
                _add(made, panel, name, home)
    return made


def _add(made: typer.Typer, panel: str, name: str, home: str) -> None:
    module, _, attribute = home.partition(":")
    command: Callable[..., None] | typer.Typer = getattr(import_module(f".{module}", __package__), attribute)
    if isinstance(command, typer.Typer):
        made.add_typer(command, name=name, rich_help_panel=panel)
    else:
        made.command(name, rich_help_panel=panel)(command)


def __getattr__(name: str) -> typer.Typer:
    """Return `app`, with all commands."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = app = _assemble()
    return app
