"""What the server refused in a form, at the fields it belongs to. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from floodmark.errors import FloodmarkError
from floodmark.security.masking import mask_text

# Messages may repeat what was typed.
_LONGEST = 1000


class PageRefusal(Struct, frozen=True):
    """The message of the server, and the next step."""

    message: str
    hint: str = ""

    def __str__(self) -> str:
        """Return both as one text."""
        return f"{self.message}: {self.hint}" if self.hint else self.message


class PageRefusals(dict[str, PageRefusal]):
    """Refusals by the name of a field; the name is empty for what belongs to no field."""

    def add(self, field: str, error: FloodmarkError) -> None:
        """Note an error of a field. The first one of each field counts."""
        self.setdefault(field, PageRefusal(mask_text(str(error))[:_LONGEST], mask_text(error.hint)[:_LONGEST]))

    def place(self, error: FloodmarkError, fields: Mapping[str, str], otherwise: str = "") -> None:
        """Note an error at the field that its message begins with: `fields` has the field of each first word."""
        first = str(error).replace(":", " ", 1).split(" ", 1)[0]
        self.add(fields.get(first, otherwise), error)
