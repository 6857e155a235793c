"""Write all generated files: pages of the docs, and the help of all commands. `python3 run.py docs` calls it first."""

import runpy
from pathlib import Path

from floodmark.cli import reference
from floodmark.exports import columns_reference
from floodmark.model import job_reference
from floodmark.observability.metrics import __main__ as metrics
from floodmark.settings import __main__ as settings

ROOT = Path(__file__).resolve().parents[1]


def files() -> dict[str, str]:
    """Return the text of each file by its path in the repository."""
    fundamentals = runpy.run_path(str(ROOT / "docs/tutorial/fundamentals.py"))
    python = runpy.run_path(str(ROOT / "docs/reference/python.py"))
    targets = runpy.run_path(str(ROOT / "docs/explanation/targets.py"))
    architecture = runpy.run_path(str(ROOT / "docs/images/architecture.py"))
    return {
        "env.example": settings.example(),
        "docs/explanation/targets.md": targets["page"](),
        "docs/reference/cli.md": reference.page(),
        "src/floodmark/cli/root_help.json": reference.root_help(),
        "docs/reference/export-columns.md": columns_reference.page(),
        "docs/reference/jobs.md": job_reference.page(),
        "docs/reference/metrics.md": metrics.page(),
        "docs/reference/python.md": python["page"](),
        "docs/reference/settings.md": settings.page(),
        "docs/tutorial/fundamentals.md": fundamentals["page"](),
        "docs/images/flow.svg": architecture["flow"](),
        "docs/images/layers.svg": architecture["layers"](),
    }


if __name__ == "__main__":
    for path, text in files().items():
        (ROOT / path).write_text(text, encoding="utf-8")
