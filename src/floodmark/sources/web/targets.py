"""Jobs for sites and feeds, with their address in its one form."""

from msgspec.structs import replace

from floodmark.spec import JobSpec

from .urls import start_of

KINDS = ("web", "feed")


def completed(spec: JobSpec) -> JobSpec:
    """A job to be made, its address as it is crawled: however it was typed, it is the same job."""
    return replace(spec, target=start_of(spec.target))
