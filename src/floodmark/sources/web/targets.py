"""Jobs for sites and feeds, with their address in its one form."""

from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.spec import JobSpec
from floodmark.outbound.guard import AddressRefused, Guard

from .urls import start_of

KINDS = ("web", "feed")


def completed(spec: JobSpec, guard: Guard | None = None) -> JobSpec:
    """A job to be made, its address as it is crawled: however it was typed, it is the same job.

    An address that `guard` refuses is refused at once: every run would be refused, too.
    """
    target = start_of(spec.target)
    try:
        if guard is not None:
            guard.check_url(target)
    except AddressRefused as refused:
        raise InvalidInput(str(refused), hint=refused.hint) from None
    return replace(spec, target=target)
