"""The command line: parse, call the stores, show. Light to import; what is heavy is imported by the commands."""

from collections.abc import Callable

import typer

from .accounts import accounts
from .adding import add
from .api import api, openapi
from .audit import audit
from .breakers import breakers
from .editing import disable, edit, enable
from .files import export, fetch
from .history import cleanup, dlq, history, stats
from .jobs import cancel, explain, ls, pause, resume, rm, show
from .limits import limits
from .logs import logs
from .metrics import metrics
from .moving import importing, migrate_jobs, shadow
from .notify import notify
from .reports import report
from .root import Root, start
from .running import demo, scheduler, up, worker
from .runs import next_runs, run
from .streams import events, items, watermark
from .sync import sync
from .testing import testing
from .tokens import tokens
from .top import top
from .triggers import triggers
from .trying import try_url
from .upkeep import doctor, migrate, rotate_key, settings, workers

_PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Getting started": {"up": up, "demo": demo, "add": add, "try": try_url, "testing": testing},
    "Jobs": {
        "ls": ls,
        "show": show,
        "run": run,
        "edit": edit,
        "enable": enable,
        "disable": disable,
        "pause": pause,
        "resume": resume,
        "cancel": cancel,
        "rm": rm,
        "next": next_runs,
        "explain": explain,
        "triggers": triggers,
    },
    "History and status": {
        "top": top,
        "history": history,
        "logs": logs,
        "stats": stats,
        "cleanup": cleanup,
        "dlq": dlq,
        "limits": limits,
        "breakers": breakers,
    },
    "Collected data": {
        "items": items,
        "events": events,
        "watermark": watermark,
        "report": report,
        "export": export,
        "fetch": fetch,
    },
    "Installation": {
        "accounts": accounts,
        "tokens": tokens,
        "audit": audit,
        "sync": sync,
        "scheduler": scheduler,
        "worker": worker,
        "api": api,
        "openapi": openapi,
        "workers": workers,
        "migrate": migrate,
        "migrate-jobs": migrate_jobs,
        "shadow": shadow,
        "import": importing,
        "notify": notify,
        "rotate-key": rotate_key,
        "settings": settings,
        "metrics": metrics,
        "doctor": doctor,
    },
}


def _assembled() -> typer.Typer:
    made = typer.Typer(
        name="floodmark",
        cls=Root,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    made.callback(invoke_without_command=True)(start)
    for panel, commands in _PANELS.items():
        for name, command in commands.items():
            if isinstance(command, typer.Typer):
                made.add_typer(command, name=name, rich_help_panel=panel)
            else:
                made.command(name, rich_help_panel=panel)(command)
    return made


app = _assembled()


def main() -> None:
    """The entry point `floodmark`."""
    app(prog_name="floodmark")
