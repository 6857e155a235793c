"""Gaps and proofs on the command line: nothing is known yet, files are verified without a database."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command_line import CommandLine
from floodmark.model.proofs import FORMAT, ProvenItem
from floodmark.rules.proofs import entry_of, make_links
from floodmark.schemas import schema

pytestmark = pytest.mark.spec("B13", "V1")

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_gaps_and_chains_are_shown_or_say_what_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    """A new installation has none."""
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    cli.good("add", "feed", "https://example.com/feed.xml", "--name", "feed")
    assert "No gaps are known." in cli.good("gaps").out
    assert "Nothing is known about its completeness." in cli.good("gaps", "feed").out
    assert "no gaps that a run can fill" in cli.good("gaps", "feed", "--fill").out
    assert cli.good("gaps", "--json").json == []
    cli.refused("gaps", "--fill", says="--fill needs a job")
    assert "There are no chains yet." in cli.good("proof").out
    assert "There are no chains yet." in cli.good("verify").out
    assert "has no chain yet" in cli.good("proof", "export", "feed", "--out", "proof.jsonl").out
    cli.refused("verify", "--head", "0" * 64, says="need one chain")


def test_files_are_verified_without_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    """A third party needs the two files and the published digest."""
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    rows = [
        ProvenItem(key=key, revision=1, collected_at=NOON, deleted=False, occurred_at=None, data={"text": key})
        for key in "abc"
    ]
    [link] = make_links("news", None, [entry_of(row) for row in rows])
    lines = [{"format": FORMAT, "stream": "news", "made_at": "2026-05-01T12:00:00Z"}]
    lines.append({name: getattr(link, name) for name in link.__struct_fields__} | {"day": str(link.day)})
    proof, exported = tmp_path / "proof.jsonl", tmp_path / "items.jsonl"
    proof.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    of_items = [
        {"source": "python", "stream": "news", "key": row.key, "revision": 1, "deleted": False, "occurred_at": None}
        | {"collected_at": "2026-05-01T12:00:00Z", "data": row.data}
        for row in rows
    ]
    exported.write_text("".join(json.dumps(row) + "\n" for row in of_items), encoding="utf-8")

    said = cli.good("verify", "--proof", str(proof), "--file", str(exported), "--head", link.digest).out
    assert "verified" in said
    assert link.digest in said.replace("\n", "")
    of_items[1]["data"] = {"text": "forged"}
    exported.write_text("".join(json.dumps(row) + "\n" for row in of_items), encoding="utf-8")
    found = cli("verify", "--proof", str(proof), "--file", str(exported))
    assert found.code == 1
    assert "item b, revision 1, was changed: data" in found.out.replace("\n", " ")
    assert not list(tmp_path.glob("*.db")), "no database was needed"
    cli.refused("verify", "--proof", str(exported), says="is not a proof")
    described = schema("proof-1.0.0")
    assert set(described["$defs"]["link"]["properties"]) == set(link.__struct_fields__)
