"""The operations in this process, on the store of the installation."""

from functools import cache
from importlib import import_module
from typing import Any

from .declaration import Operation
from .declared import AsyncOperations
from .handlers.base import Handlers


class LocalOperations(AsyncOperations, Handlers):
    """Every operation on the store; changes are recorded in the audit log.

    The handlers of a subject are loaded when one of its operations is first called: a command needs few of them.
    """

    async def call(self, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        """Let the handler carry out an operation."""
        handlers = handlers_of(operation)(self.resources, self.actor, role=self.role, deadline=self.deadline)
        return await getattr(handlers, operation.name)(**arguments)


@cache
def handlers_of(operation: Operation[Any, Any]) -> type[Handlers]:
    """Return the class that handles an operation: it inherits its declaration, in the module of the same name."""
    module = import_module(f"{__package__}.handlers.{operation.module.rpartition('.')[2]}")
    return next(
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Handlers) and vars(one).get(operation.name) is not None
    )
