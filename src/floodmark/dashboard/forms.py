"""Forms with a page of their own: what was typed, and why the server refused it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from floodmark.api.problems import status_of
from floodmark.errors import FloodmarkError
from floodmark.security.masking import mask_text

from .flash import set_flash
from .page import forget_shared, html
from .view import View


class Refused(Struct, frozen=True):
    """Why a form was refused, and what to do."""

    text: str
    hint: str
    status: int = 400

    @classmethod
    def of(cls, error: FloodmarkError) -> "Refused":
        """Return the message of an error, without secrets."""
        return cls(mask_text(str(error)), mask_text(error.hint), status_of(error))


def show_again(view: View, template: str, values: Mapping[str, Any], refused: Refused) -> Response:
    """Return the page of a form again, with what was typed and why it was refused."""
    return html(view, template, {**values, "refused": refused}, status=refused.status)


def go_to(view: View, path: str, said: str) -> Response:
    """Lead to another page of the dashboard, which shows a message."""
    response = RedirectResponse(path, 303)
    set_flash(view.request, response, "done", said)
    forget_shared(view.request)
    return response
