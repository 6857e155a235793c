"""Find the installed sources: those of Floodmark and of other packages, in the same way."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cached_property

from floodmark.extensions.services import Services
from floodmark.process.entry_points import find_extensions, load_extension
from floodmark.settings import Settings

from .port import SOURCES, Source, UsesServices


class Sources(Mapping[str, Source]):
    """Every installed source by name. Each is imported and created on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._created = settings, dict[str, Source]()

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(find_extensions(SOURCES))

    def __getitem__(self, name: str) -> Source:
        if name not in self._created:
            if name not in self._names:
                raise KeyError(name)
            self._created[name] = load_extension(SOURCES, name)(self._settings)
        return self._created[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def __len__(self) -> int:
        return len(self._names)


async def open_source(source: Source, services: Services, stack: AsyncExitStack) -> None:
    """Give a source the services of its process and enter it; `stack` exits it."""
    if isinstance(source, UsesServices):
        source.use_services(services)
    if isinstance(source, AbstractAsyncContextManager):
        await stack.enter_async_context(source)
