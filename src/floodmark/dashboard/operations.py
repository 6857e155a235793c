"""The operations as a caller of the dashboard may use and see them."""

from typing import Any

from msgspec import Struct
from msgspec.structs import fields, replace

from floodmark.api.problems import HttpError
from floodmark.model.tokens import is_enough
from floodmark.operations.declaration import Operation
from floodmark.operations.local import LocalOperations
from floodmark.security.masking import mask_text, mask_values

# It asks the source over the guarded client, and keeps nothing.
_STORES_NOTHING = ("preview",)


class PermittedOperations(LocalOperations):
    """Refuses operations that the role of the caller does not include, and masks secrets unless it is an admin.

    `reads_only`: for a page that is only shown. It can try what an operation would do, but carry out none.
    """

    reads_only = False

    async def call(self, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        """Carry out an operation if the caller may."""
        if operation.role is not None and not is_enough(self.role, operation.role):
            raise HttpError(
                403,
                f"this needs the role {operation.role}, and you have the role {self.role}",
                hint=f"sign in with such a token; make one with: floodmark tokens add NAME --role {operation.role}",
            )
        # What every reader may do changes nothing, also if its arguments travel in a body.
        is_read = operation.method == "GET" or operation.role == "read" or operation.name in _STORES_NOTHING
        is_read = is_read or bool(arguments.get("dry_run"))
        if self.reads_only and not is_read:
            raise AssertionError(f"{operation.name} changes data, and a page is only being shown")
        result = await super().call(operation, arguments)
        return result if operation.is_content or self.role == "admin" else mask_result(result)


def mask_result(value: Any) -> Any:
    """Return a result with masked secrets, in its own types. Items, which are under `data`, are not masked."""
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, Struct):
        changed = {field.name: _mask_field(field.name, getattr(value, field.name)) for field in fields(value)}
        return replace(value, **changed)
    if isinstance(value, dict):
        return {name: _mask_field(name, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        masked = [mask_result(inner) for inner in value]
        return masked if isinstance(value, list) else tuple(masked)
    return value


def _mask_field(name: Any, value: Any) -> Any:
    if name == "params":
        return mask_values(value)
    return value if name == "data" else mask_result(value)
