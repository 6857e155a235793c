"""The check of `floodmark doctor` for cookie scans: the browser of this machine."""

import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select

from floodmark.model.fleet import Finding
from floodmark.sources.form import CheckTools
from floodmark.store.tables import jobs

from .browser import BrowserMissing, require_browser


async def check_browser(tools: CheckTools, find: Callable[[], Path] | None = None) -> list[Finding]:
    """Check the browser, if there are cookie scans and they run here."""
    settings = tools.settings
    if tools.workers and all(worker.hostname != settings.hostname for worker in tools.workers):
        return []
    async with tools.database.reading() as connection:
        query = select(jobs.c.name).where(jobs.c.source == "cookies", ~jobs.c.paused).limit(1)
        name = (await connection.execute(query)).scalar()
    if name is None:
        return []
    try:
        found = require_browser(settings.floodmark_chromium, os.environ) if find is None else find()
    except BrowserMissing as missing:
        return [Finding(code="browser", ok=False, text=f"{missing}, as for {name}", hint=missing.hint)]
    return [Finding(code="browser", ok=True, text=f"cookie scans use {found}")]
