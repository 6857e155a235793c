"""The report of a cookie scan."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct


class CookieReport(Struct, frozen=True, kw_only=True):
    """The report of one scan."""

    scan: Annotated[str, Meta(description="The key of the scan.")]
    stream: Annotated[str, Meta(description="The stream of the scans.")]
    earlier: Annotated[str | None, Meta(description="The key of the scan before it.")]
    report: Annotated[
        dict[str, Any],
        Meta(description="Phases with cookies, storage and requests to third parties; `manifest` names the files."),
    ]

    @property
    def files(self) -> Mapping[str, Mapping[str, Any]]:
        """The files of the report by name, each with its SHA-256, media type and size."""
        found: Mapping[str, Mapping[str, Any]] = self.report["manifest"]
        return found
