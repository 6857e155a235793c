"""The listing of the package is its architecture, so the docstring names every part of it."""

import re
from pathlib import Path

import floodmark

ROOT = Path(floodmark.__file__).parent
PAGE = ROOT.parents[1] / "docs" / "explanation" / "how-it-works.md"


def test_the_docstring_names_every_folder_and_file() -> None:
    listed = set(re.findall(r"(?<=\s)[a-z_]+(?:/|\.py)(?=\s)", floodmark.__doc__ or ""))
    folders = {f"{path.name}/" for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in ROOT.glob("*.py") if not path.name.startswith("__")}
    assert listed == folders | files


def test_the_page_says_the_same() -> None:
    _, found, listing = (floodmark.__doc__ or "").partition("Values and decisions:")
    assert f"{found}{listing.rstrip()}" in PAGE.read_text(encoding="utf-8")
