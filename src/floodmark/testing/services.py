"""The services of a process on SQLite, for tests of sources, sinks and notification channels."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from floodmark.extensions.services import Services
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources
from floodmark.wiring.services import services_for


@asynccontextmanager
async def open_services(
    name: str, folder: Path, section: Mapping[str, str] | None = None, settings: Settings | None = None
) -> AsyncIterator[Services]:
    """Open the services for the extension `name`, with a database in `folder`.

    `section` are the settings of the extension. Requests to 127.0.0.1 are allowed and follow each other at once.
    """
    settings = (settings or Settings()).model_copy(
        update={
            "database_url": f"sqlite:///{folder}/services.db",
            "floodmark_home": folder,
            "http_allow_hosts": "127.0.0.1",
            "web_domain_delay": timedelta(),
        }
    )
    async with open_resources(settings) as resources:
        yield replace(services_for(resources, name), section=section or {})
