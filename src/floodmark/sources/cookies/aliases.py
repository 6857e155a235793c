"""Hosts of the scanned site that are aliases of another party's host (CNAME cloaking).

A browser takes such a host for the site itself and sends it the cookies of the site. Many aliases lead to hosting
services, so only those of a known tracker (`trackers.toml`) are a finding; the report lists the others.
"""

import asyncio
import tomllib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files

from floodmark.model.hosts import DnsServer
from floodmark.outbound.cname import DnsFailed, find_aliases

from .findings import Alias
from .parties import registrable_domain

_MOST_HOSTS, _AT_ONCE, _SECONDS = 100, 10, 20.0


@lru_cache(maxsize=1)
def _trackers() -> dict[str, tuple[str, str]]:
    content = tomllib.loads(files(__package__).joinpath("trackers.toml").read_text(encoding="utf-8"))
    return {domain: (vendor["name"], vendor["purpose"]) for vendor in content["vendor"] for domain in vendor["domains"]}


def find_tracker(host: str) -> tuple[str, str] | None:
    """Return name and purpose of the tracker that a host belongs to."""
    labels = host.lower().split(".")
    names = (".".join(labels[place:]) for place in range(len(labels)))
    return next((_trackers()[name] for name in names if name in _trackers()), None)


def make_alias(host: str, chain: Sequence[str], site: str) -> Alias | None:
    """Return the alias that leads from a host of the site to another party; None if the chain stays with the site."""
    others = [name for name in chain if registrable_domain(name) != site]
    if not others:
        return None
    known = next((found for name in others if (found := find_tracker(name)) is not None), None)
    vendor, purpose = known or (None, "unknown")
    return Alias(host=host, chain=tuple(chain), site=registrable_domain(others[0]), vendor=vendor, purpose=purpose)


async def resolve_hosts(hosts: Iterable[str], site: str, server: DnsServer) -> tuple[list[Alias], list[str]]:
    """Return the aliases of these hosts to other parties, and notes about those that could not be resolved."""
    wanted = sorted(hosts)
    room, failed = asyncio.Semaphore(_AT_ONCE), dict[str, str]()

    async def resolve(host: str) -> Alias | None:
        async with room:
            try:
                return make_alias(host, await find_aliases(host, server), site)
            except DnsFailed as error:
                failed[host] = str(error)
                return None

    notes = [f"aliases of hosts after the first {_MOST_HOSTS} were not looked up"] if len(wanted) > _MOST_HOSTS else []
    tasks = [asyncio.create_task(resolve(host)) for host in wanted[:_MOST_HOSTS]]
    if not tasks:
        return [], notes
    done, late = await asyncio.wait(tasks, timeout=_SECONDS)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    if failed or late:
        why = next(iter(failed.values()), "there was not enough time")
        notes.append(f"the aliases of {len(failed) + len(late)} hosts of the site could not be looked up: {why}")
    found = [alias for task in done if (alias := task.result()) is not None]
    return sorted(found, key=lambda alias: alias.host), notes
