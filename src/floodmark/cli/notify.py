"""Telling people of trouble: try whether it works."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from floodmark.errors import InvalidInput

from .root import AsJson, Desk
from .showing import plain, print_json

if TYPE_CHECKING:
    from floodmark.notifications.port import Notification, NotificationChannel
    from floodmark.settings import Settings

notify = typer.Typer(help="Test notifications by Slack, webhook or e-mail.")


@notify.callback()
def notifying() -> None:
    """Test notifications by Slack, webhook or e-mail."""


@notify.command("test")
def send_test(context: typer.Context, as_json: AsJson = False) -> None:
    """Send a test notification over every configured channel and show the results."""
    desk = Desk.of(context)
    desk.only_here("notify test")
    with desk.busy("Sending ..."):
        results = asyncio.run(_sent(desk.settings()))
    if as_json:
        print_json(results)
    else:
        for result in results:
            _say(desk, result)
    if any(result["error"] is not None for result in results):
        raise typer.Exit(1)


def _say(desk: Desk, result: dict[str, Any]) -> None:
    to = f"{result['channel']}: {plain(result['to'])}"
    if result["error"] is None:
        desk.out.print(f"[green]Sent[/]    {to}", highlight=False, soft_wrap=True)
        return
    desk.out.print(f"[bold red]Failed[/]  {to}", highlight=False, soft_wrap=True)
    desk.out.print(f"        {plain(result['error'])}", highlight=False, soft_wrap=True)
    if result["hint"]:
        desk.out.print(f"        [bold]Next:[/] {plain(result['hint'])}", highlight=False, soft_wrap=True)


async def _sent(settings: "Settings") -> list[dict[str, Any]]:
    from floodmark.notifications.loading import open_channels  # noqa: PLC0415 - heavy
    from floodmark.notifications.messages import build_test_message  # noqa: PLC0415
    from floodmark.wiring.services import unconnected_services  # noqa: PLC0415

    message = build_test_message(at=datetime.now(UTC), instance=settings.hostname)
    async with unconnected_services(settings) as services_for:
        channels = open_channels(services_for)
        if not channels:
            raise InvalidInput(
                "no channel is configured",
                hint="set NOTIFY_SLACK_URL, NOTIFY_WEBHOOK_URL, or NOTIFY_EMAIL_TO and NOTIFY_EMAIL_SMTP_URL",
            )
        try:
            return list(await asyncio.gather(*(_tried(name, channel, message) for name, channel in channels.items())))
        finally:
            for channel in channels.values():
                await channel.close()


async def _tried(name: str, channel: "NotificationChannel", message: "Notification") -> dict[str, Any]:
    from floodmark.notifications.port import NotSent  # noqa: PLC0415 - loaded with the channels

    told: dict[str, Any] = {"channel": name, "to": channel.where, "id": message.id, "error": None, "hint": None}
    try:
        await channel.send(message)
    except NotSent as error:
        told |= {"error": str(error), "hint": error.hint}
    return told
