"""Test the notification channels."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from floodmark.errors import InvalidInput
from floodmark.notifications.messages import build_test_message
from floodmark.notifications.port import Notification, NotificationChannel, NotSent

from .output import plain, print_json
from .root import AsJson, CliContext, command_group

if TYPE_CHECKING:
    from floodmark.settings import Settings

notify = command_group("Test notifications by Slack, Discord, Telegram, webhook or e-mail.")


@notify.command("test")
def send_test(context: typer.Context, as_json: AsJson = False) -> None:
    """Send a test notification over every configured channel and show the results."""
    cli = CliContext.of(context)
    cli.require_local("notify test")
    with cli.busy("Sending ..."):
        results = asyncio.run(_send_all(cli.settings()))
    if as_json:
        print_json(results)
    else:
        for result in results:
            _print_result(cli, result)
    if any(result["error"] is not None for result in results):
        raise typer.Exit(1)


def _print_result(cli: CliContext, result: dict[str, Any]) -> None:
    to = f"{result['channel']}: {plain(result['to'])}"
    if result["error"] is None:
        cli.out.print(f"[green]Sent[/]    {to}", soft_wrap=True)
        return
    cli.out.print(f"[bold red]Failed[/]  {to}", soft_wrap=True)
    cli.out.print(f"        {plain(result['error'])}", soft_wrap=True)
    if result["hint"]:
        cli.out.print(f"        [bold]Next:[/] {plain(result['hint'])}", soft_wrap=True)


async def _send_all(settings: "Settings") -> list[dict[str, Any]]:
    from floodmark.notifications.loading import open_channels  # noqa: PLC0415 - loads the HTTP client
    from floodmark.wiring.services import unconnected_services  # noqa: PLC0415

    message = build_test_message(at=datetime.now(UTC), instance=settings.hostname)
    async with unconnected_services(settings) as services_for:
        channels = open_channels(services_for)
        if not channels:
            raise InvalidInput(
                "no channel is configured",
                hint="set NOTIFY_SLACK_URL, NOTIFY_DISCORD_URL, NOTIFY_WEBHOOK_URL, NOTIFY_TELEGRAM_BOT_TOKEN and "
                "NOTIFY_TELEGRAM_CHAT, or NOTIFY_EMAIL_TO and NOTIFY_EMAIL_SMTP_URL",
            )
        try:
            return list(await asyncio.gather(*(_send(name, channel, message) for name, channel in channels.items())))
        finally:
            for channel in channels.values():
                await channel.close()


async def _send(name: str, channel: NotificationChannel, message: Notification) -> dict[str, Any]:
    result: dict[str, Any] = {"channel": name, "to": channel.where, "id": message.id, "error": None, "hint": None}
    try:
        await channel.send(message)
    except NotSent as error:
        result |= {"error": str(error), "hint": error.hint}
    return result
