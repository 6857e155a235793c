"""The docstring of the package lists every folder and file; the picture of the layers is drawn from it."""

import re
from pathlib import Path

import floodmark

ROOT = Path(floodmark.__file__).parent


def test_the_docstring_names_every_folder_and_file() -> None:
    listed = set(re.findall(r"(?<=\s)[a-z_]+(?:/|\.py)(?=\s)", floodmark.__doc__ or ""))
    folders = {f"{path.name}/" for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in ROOT.glob("*.py") if not path.name.startswith("__")}
    assert listed == folders | files
