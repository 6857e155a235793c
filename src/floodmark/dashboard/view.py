"""One request of a page: the caller, the operations, links and what the browser remembers."""

from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from starlette.requests import Request

from floodmark.api.access import BrowserVisitor, access_of, resources_of
from floodmark.api.addresses import prefix_of, route_path
from floodmark.api.edge import SAFE
from floodmark.api.problems import request_id_of
from floodmark.model.audit import Actor
from floodmark.model.tokens import Role, Visitor, is_enough
from floodmark.operations.declaration import Operation
from floodmark.operations.declared import Operations

from .csrf import csrf_secret
from .operations import PermittedOperations

# A caller without access; nothing is read for it.
NOBODY = Visitor(who="", role="read")
# Less than the time limit of a request, so that the response has the error of the other server.
_DEADLINE = timedelta(seconds=20)
ZONE, THEME = "floodmark_zone", "floodmark_theme"
THEMES = ("light", "dark")
# What stays as it is in the path of a link; `Edge` leaves %2F and %25 encoded.
PATH_SAFE = "/%:@!$&'()*+,;=~-._"


class View:
    """A page for one caller."""

    def __init__(self, request: Request, visitor: Visitor) -> None:
        self.request, self.visitor, self.role = request, visitor, visitor.role
        self.resources = resources_of(request)
        actor = Actor(who=visitor.who, via="dashboard", request_id=request_id_of(request))
        self.operations = PermittedOperations(self.resources, actor, role=visitor.role, deadline=_DEADLINE)
        # A link, which any page may have, must not change anything.
        self.operations.reads_only = request.method in SAFE
        self.now: datetime = self.resources.clock.now()
        self.prefix = prefix_of(request)
        self.csrf = csrf_secret(request)

    @classmethod
    async def of(cls, request: Request) -> "View":
        """Return the view of a caller; raise 401 for an unknown one."""
        return cls(request, await access_of(request.app).visitor(request))

    def may(self, needed: Role | str) -> bool:
        """Return whether the caller has this role, or may carry out the operation of this name."""
        operation = getattr(Operations, needed, None)
        role: Any = operation.role if isinstance(operation, Operation) else needed
        return role is None or is_enough(self.role, role)

    def url(self, path: str, **query: Any) -> str:
        """Return a link to a page of the dashboard. Values of None are left out of the query."""
        return f"{self.prefix}{path}{_query({name: value for name, value in query.items() if value is not None})}"

    def here(self, **changes: Any) -> str:
        """Return a link to this page with some parameters changed; None removes one."""
        query = {**self.request.query_params, **changes}
        return self.url(quote(route_path(self.request.scope), safe=PATH_SAFE), **query)

    def param(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str | None:
        """Return a parameter of the query; None if it is missing or empty."""
        return self.request.query_params.get(name) or None

    @property
    def session_id(self) -> str | None:
        """The session of the browser; None for a caller who has not signed in."""
        return self.visitor.session_id if isinstance(self.visitor, BrowserVisitor) else None

    @property
    def needs_token(self) -> bool:
        """Whether the caller has access by a token or a session; otherwise the API is open here."""
        return self.session_id is not None or "authorization" in self.request.headers

    @property
    def filters(self) -> Mapping[str, str]:
        """The parameters of the query that are not empty."""
        return {name: value for name, value in self.request.query_params.items() if value}

    @property
    def theme(self) -> str | None:
        """The theme that was chosen; None for that of the system."""
        found = self.request.cookies.get(THEME)
        return found if found in THEMES else None

    @property
    def zone(self) -> tzinfo:
        """The time zone of the browser; UTC if it is not known."""
        return zone_named(self.request.cookies.get(ZONE, ""))


def zone_named(name: str) -> tzinfo:
    """Return a time zone; UTC if there is none of this name."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return ZoneInfo("UTC")


def _query(values: Mapping[str, Any]) -> str:
    return f"?{urlencode(values, quote_via=quote)}" if values else ""
