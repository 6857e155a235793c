"""Hash chains of streams: export them, and verify items with them."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.exports import ExportRow
from floodmark.model.page import cursor_of, take
from floodmark.model.proofs import FORMAT, ProofHead, ProofLink, ProvenItem
from floodmark.operations.declared import AsyncOperations
from floodmark.rules.proofs import ProofVerdict, Verification
from floodmark.rules.proofs import verify as verify_chain

from .output import counted, plain, print_json, safe, table
from .root import AsJson, CliContext, command_group

_ROWS = 1000
_STDOUT = "-"

proof = command_group("Export hash chains of streams, which prove what was stored when.", default="heads")


@proof.command()
def heads(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="STREAM", help="Start after this stream.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of streams.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the digest at the end of each chain. Publish it to prove later what was there."""
    cli = CliContext.of(context)
    found = cli.work(lambda operations: take(operations.each_proof_head(cursor=cursor_of("proofs", after)), limit))
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("There are no chains yet.")
        return cli.note("The scheduler extends them within seconds after items were stored: floodmark up")
    rows = [[Text(safe(one.stream), style="bold"), f"{one.links:,}", str(one.day), one.digest] for one in found]
    cli.out.print(table("stream", "links", "last day", "digest", rows=rows, right=("links",)))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark proof heads --after {plain(found[-1].stream)}[/]")
    return None


@proof.command()
def export(
    context: typer.Context,
    *,
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream, or a job that collects it.")],
    out: Annotated[str, typer.Option(metavar="FILE", help="The file to write; - for the standard output.")],
) -> None:
    """Write the chain of a stream to a file. With it, anyone can verify an export of its items.

    floodmark proof export telegram-harbour --out harbour-proof.jsonl
    """
    cli = CliContext.of(context)

    async def work(operations: AsyncOperations) -> ProofHead | None:
        name, _ = await operations.stream(stream)
        if out == _STDOUT:
            return await write_proof(operations, name, sys.stdout.buffer)
        path = Path(out)
        # Renamed at the end: a file is complete, or not there.
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as file:
            head = await write_proof(operations, name, file)
        part.replace(path)
        return head

    head = cli.work(work)
    if out == _STDOUT:
        return None
    if head is None:
        return cli.out.print(f"{plain(stream)} has no chain yet; wrote an empty one to {plain(out)}.")
    cli.out.print(f"Wrote {counted(head.links, 'link')} to {plain(out)}. The digest of the last one is {head.digest}.")
    items = f"floodmark export items {plain(stream)} --data --revisions --deleted --out items.jsonl"
    return cli.note(f"Export the items: {items}\nVerify both: floodmark verify --proof {plain(out)} --file items.jsonl")


async def write_proof(operations: AsyncOperations, stream: str, file: IO[bytes]) -> ProofHead | None:
    """Write the chain of a stream, and return its end."""
    encode, last = msgspec.json.encode, None
    made_at = datetime.now(UTC)
    file.write(encode({"format": FORMAT, "stream": stream, "made_at": made_at}) + b"\n")
    async for link in operations.each_proof_link(stream, limit=_ROWS):
        file.write(encode(link) + b"\n")
        last = link
    return None if last is None else ProofHead(stream=stream, links=last.number, day=last.day, digest=last.digest)


def verify(
    context: typer.Context,
    *,
    stream: Annotated[
        str | None, typer.Option(metavar="STREAM", help="Only this stream, or that of a job; by default all.")
    ] = None,
    proof_file: Annotated[
        Path | None,
        typer.Option("--proof", metavar="FILE", help="An exported chain; verify it without the database."),
    ] = None,
    items_file: Annotated[
        Path | None,
        typer.Option(
            "--file", metavar="FILE", help="Exported items (JSON lines with --data) instead of the stored ones."
        ),
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="A digest that was published: it must be in the chain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify hash chains, and that the items are those that were chained. Ends with code 1 if they are not.

    floodmark verify --proof harbour-proof.jsonl --file items.jsonl
    """
    cli = CliContext.of(context)
    if proof_file is not None:
        verdicts = [verify_files(proof_file, items_file, head)]
    else:
        if stream is None and (items_file is not None or head is not None):
            raise InvalidInput("--file and --head need one chain", hint="name it with --stream or --proof")
        verdicts = cli.work(lambda operations: verify_stored(operations, stream, items_file, head))
    if as_json:
        print_json(verdicts)
    else:
        _print_verdicts(cli, verdicts)
    if not all(verdict.is_good for verdict in verdicts):
        raise typer.Exit(1)


def _print_verdicts(cli: CliContext, verdicts: list[ProofVerdict]) -> None:
    if not verdicts:
        cli.out.print("There are no chains yet.")
    for one in verdicts:
        checked = f"{counted(one.links, 'link')} of {counted(one.days, 'day')}, {counted(one.items, 'item')}"
        word = "[green]verified[/]" if one.is_good else "[bold red]NOT verified[/]"
        cli.out.print(f"{plain(one.stream)}: {word} ({checked}; head {one.head})", soft_wrap=True)
        for text in one.findings:
            cli.out.print(f"  [red]{plain(text)}[/]", soft_wrap=True)
        if one.more_findings:
            cli.out.print(f"  [red]and {one.more_findings:,} more[/]")
        for text in one.remarks:
            cli.note(f"  [dim]{plain(text)}[/]")


# -- From the store, or from a server


async def verify_stored(
    operations: AsyncOperations, stream: str | None, items_file: Path | None, head: str | None
) -> list[ProofVerdict]:
    """Verify one stream, or all; with the items of a file, or with the stored ones."""
    if stream is not None:
        name, _ = await operations.stream(stream)
        return [await _verify_stream(operations, name, items_file, head)]
    found = [one.stream async for one in operations.each_proof_head(limit=_ROWS)]
    return [await _verify_stream(operations, name, None, None) for name in found]


async def _verify_stream(
    operations: AsyncOperations, stream: str, items_file: Path | None, head: str | None
) -> ProofVerdict:
    check = Verification(stream, head)
    async for link in operations.each_proof_link(stream, limit=_ROWS):
        check.add_link(link)
    check.end_chain()
    if items_file is not None:
        for item in read_items(items_file, stream):
            check.add_item(item)
    else:
        async for row in _stored_rows(operations, stream):
            check.add_item(_proven(row))
    check.end_items()
    return check.verdict


async def _stored_rows(operations: AsyncOperations, stream: str) -> AsyncIterator[ExportRow]:
    cursor = None
    while True:
        page = await operations.export_items(stream, revisions=True, cursor=cursor)
        for row in page.items:
            yield row
        if page.next is None:
            return
        cursor = page.next


def _proven(row: ExportRow) -> ProvenItem:
    return ProvenItem(
        key=row.key,
        revision=row.revision,
        collected_at=row.collected_at,
        deleted=row.deleted,
        occurred_at=row.occurred_at,
        data=_decode(row.data),
    )


# -- From files, without a database


def verify_files(proof_file: Path, items_file: Path | None, head: str | None) -> ProofVerdict:
    """Verify an exported chain, and exported items against it."""
    lines = _lines(proof_file)
    first = next(lines, (0, b"{}"))[1]
    header = _decode(first)
    if not isinstance(header, dict) or header.get("format") != FORMAT or not isinstance(header.get("stream"), str):
        raise InvalidInput(f"{proof_file} is not a proof", hint="make one: floodmark proof export STREAM --out FILE")
    stream = header["stream"]
    items = None if items_file is None else read_items(items_file, stream)
    return verify_chain(stream, _read_links(proof_file, lines), items, published=head)


def _read_links(path: Path, lines: Iterator[tuple[int, bytes]]) -> Iterator[ProofLink]:
    for number, line in lines:
        try:
            yield msgspec.json.decode(line, type=ProofLink)
        except msgspec.MsgspecError as error:
            raise InvalidInput(
                f"line {number} of {path} is not a link: {error}", hint="export the proof again"
            ) from None


def read_items(path: Path, stream: str) -> Iterator[ProvenItem]:
    """Yield the items of a stream in a file of JSON lines."""
    for number, line in _lines(path):
        row = _decode(line)
        if not isinstance(row, dict):
            raise InvalidInput(f"line {number} of {path} is not an item", hint="export the items as JSON lines")
        if row.get("stream") != stream:
            continue
        if "data" not in row:
            hint = "export them with: floodmark export items --data --revisions --deleted --out items.jsonl"
            raise InvalidInput(f"line {number} of {path} has no column `data`", hint=hint)
        try:
            yield msgspec.convert(row, ProvenItem)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"line {number} of {path} is not an item: {error}", hint="export the items again"
            ) from None


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", hint="name a file that exists") from None


def _decode(text: str | bytes) -> Any:
    """Return JSON as the chain has read it."""
    try:
        return json.loads(text)
    except ValueError:
        return text if isinstance(text, str) else text.decode(errors="replace")
