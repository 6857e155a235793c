"""List the metrics."""

from typing import Annotated

import typer
from msgspec.structs import asdict
from rich.text import Text

from .output import plain, print_json, table
from .root import AsJson, CliContext, command_group

metrics = command_group("List the metrics.", default="list")

Only = Annotated[
    str | None, typer.Argument(metavar="WORD", help="Only metrics with this text in their name or chapter.")
]


@metrics.command("list")
def list_metrics(context: typer.Context, word: Only = None, as_json: AsJson = False) -> None:
    """List all metrics with type, labels, meaning and role. Labels in italics have no fixed set of values."""
    cli = CliContext.of(context)
    from floodmark.observability.metrics.catalogue import CHAPTERS, Chapter, Described  # noqa: PLC0415 - loads the metrics library

    def select(chapter: Chapter) -> list[Described]:
        is_whole = word is None or word.lower() in chapter.title.lower()
        return [one for one in chapter.metrics if is_whole or str(word).lower() in one.name]

    found = [(chapter.title, wanted) for chapter in CHAPTERS if (wanted := select(chapter))]
    if as_json:
        return print_json([{"chapter": title, **asdict(one)} for title, wanted in found for one in wanted])
    for place, (title, wanted) in enumerate(found):
        cli.out.print(Text(f"{title}\n" if not place else f"\n{title}\n", style="bold yellow"), end="")
        rows = [[one.name, one.kind, _labels(one.labels, one.grows), one.help, one.set_by] for one in wanted]
        cli.out.print(table("metric", "type", "labels", "meaning", "set by", rows=rows))
    if not found:
        cli.out.print(f"No metric has {plain(word)!r} in its name.")
    return None


def _labels(labels: tuple[str, ...], grows: tuple[str, ...]) -> Text:
    return Text(", ").join(Text(label, style="italic" if label in grows else "") for label in labels)
