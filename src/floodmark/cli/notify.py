"""List and test the notification channels."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.notification_channels import ChannelRow
from floodmark.notifications.messages import build_test_message
from floodmark.notifications.port import Notification, NotificationChannel, NotSent

from .output import counted, plain, print_json, safe, short, table
from .root import AsJson, CliContext, command_group
from .times import relative

if TYPE_CHECKING:
    from floodmark.settings import Settings

_SETTINGS = (
    "set NOTIFY_SLACK_URL, NOTIFY_DISCORD_URL, NOTIFY_WEBHOOK_URL, NOTIFY_TELEGRAM_BOT_TOKEN and "
    "NOTIFY_TELEGRAM_CHAT, or NOTIFY_EMAIL_TO and NOTIFY_EMAIL_SMTP_URL"
)
Channel = Annotated[
    str | None, typer.Argument(metavar="CHANNEL", help="Only this channel, sent by the server if there is one.")
]

notify = command_group("List and test channels: Slack, Discord, Telegram, webhook, e-mail.", default="ls")


@notify.command()
def ls(context: typer.Context, as_json: AsJson = False) -> None:
    """List channels with the watches that use them and the messages that could not be sent."""
    cli = CliContext.of(context)
    found, now = cli.work(lambda operations: operations.notification_channels()), datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No channel is configured.")
        return cli.note(f"To configure one, {_SETTINGS}.")
    rows = [
        [
            Text(safe(row.name), style="bold"),
            short(row.place or "-", 50),
            f"{row.watches:,}",
            "never" if row.sent_at is None else relative(row.sent_at, now),
            _state(row),
        ]
        for row in found
    ]
    return cli.out.print(table("channel", "receiver", "watches", "last sent", "state", rows=rows, right=("watches",)))


def _state(row: ChannelRow) -> Text:
    if not row.is_configured:
        return Text("not configured here", style="yellow")
    if row.error is not None:
        return Text(f"{counted(row.unsent, 'message')} not sent: {safe(row.error)}", style="red")
    return Text("ok", style="green")


@notify.command("test")
def send_test(context: typer.Context, channel: Channel = None, as_json: AsJson = False) -> None:
    """Send a test notification over every configured channel, or over one, and show the results."""
    cli = CliContext.of(context)
    if channel is not None:
        return _send_one(cli, channel, as_json=as_json)
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
    return None


def _send_one(cli: CliContext, channel: str, *, as_json: bool) -> None:
    with cli.busy("Sending ..."):
        sent = cli.work(lambda operations: operations.test_notification_channel(channel))
    if as_json:
        return print_json(sent)
    return cli.out.print(
        f"[green]Sent[/]    {sent.channel}: {plain(sent.place)} after {sent.seconds:.2f} s", soft_wrap=True
    )


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
            raise InvalidInput("no channel is configured", hint=_SETTINGS)
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
