"""What routes are given: the office, in the name of whoever asks, if they may.

reading        role `read`: look at things
operating      role `operate`: pause, run, retry, set limits
administering  role `admin`: make, change and remove jobs, tokens and triggers
"""

from typing import Annotated

from fastapi import Depends, Request

from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOffice
from floodmark.wiring.resources import Resources

from .access import require


def parts_of(request: Request) -> Resources:
    """What the process that serves this request has opened."""
    found = request.app.state.parts
    assert isinstance(found, Resources)
    return found


async def reading(request: Request, actor: Annotated[Actor, Depends(require("read"))]) -> LocalOffice:
    """The office for those who may look."""
    return LocalOffice(parts_of(request), actor)


async def operating(request: Request, actor: Annotated[Actor, Depends(require("operate"))]) -> LocalOffice:
    """The office for those who may also operate."""
    return LocalOffice(parts_of(request), actor)


async def administering(request: Request, actor: Annotated[Actor, Depends(require("admin"))]) -> LocalOffice:
    """The office for those who may do everything."""
    return LocalOffice(parts_of(request), actor)


Reading = Annotated[LocalOffice, Depends(reading)]
Operating = Annotated[LocalOffice, Depends(operating)]
Administering = Annotated[LocalOffice, Depends(administering)]
