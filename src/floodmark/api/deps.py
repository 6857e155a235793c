"""What routes that are written by hand get: handlers, for a caller whose role is enough."""

from typing import Annotated

from fastapi import Depends, Request

from floodmark.model.audit import Actor
from floodmark.operations.handlers.jobs import JobHandlers
from floodmark.wiring.resources import Resources

from .access import require


def resources_of(request: Request) -> Resources:
    """What the process that serves this request has opened."""
    found = request.app.state.resources
    assert isinstance(found, Resources)
    return found


async def reading(request: Request, actor: Annotated[Actor, Depends(require("read"))]) -> JobHandlers:
    """Return the handlers of jobs, for callers with the role `read`."""
    return JobHandlers(resources_of(request), actor)


async def administering(request: Request, actor: Annotated[Actor, Depends(require("admin"))]) -> JobHandlers:
    """Return the handlers of jobs, for callers with the role `admin`."""
    return JobHandlers(resources_of(request), actor)


Reading = Annotated[JobHandlers, Depends(reading)]
Administering = Annotated[JobHandlers, Depends(administering)]
