"""The installation: its checks and its settings."""

import time
from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View

# The page for what a check is about.
PAGES_OF_CHECKS = {"sinks": "/sinks", "watches": "/watches", "search": "/sinks"}


@page("/doctor", "doctor.html", role="operate", shared=False)
async def show_doctor(view: View) -> Mapping[str, Any]:
    """Examine the installation on request: it reads a lot of data."""
    if not view.query("examine"):
        return {"findings": None, "bad": 0, "took": 0.0, "pages": PAGES_OF_CHECKS}
    began = time.monotonic()
    findings = await view.operations.doctor()
    # Problems first, then notes.
    ordered = sorted(findings, key=lambda one: (one.ok, not one.hint))
    took, bad = time.monotonic() - began, sum(not one.ok for one in findings)
    return {"findings": ordered, "bad": bad, "took": took, "pages": PAGES_OF_CHECKS}


@page("/settings", "settings.html", role="admin")
async def show_settings(view: View) -> Mapping[str, Any]:
    """Show every setting of this process."""
    text, only = (view.query("text") or "").strip(), view.query("only")
    every = await view.operations.settings()
    shown = [
        row
        for row in every
        if text.lower() in f"{row.key} {row.help}".lower() and not (only == "changed" and row.origin == "default")
    ]
    return {"settings": shown, "total": len(every), "text": text, "instance": view.resources.name}


PAGES = (show_doctor, show_settings)
