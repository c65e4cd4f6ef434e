"""Named things that live one to a file: engines, speculation methods, datasets, metrics.

A file registers its object with a decorator; the siblings of a registry are
imported at the first look-up, never when the package is imported.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from draftgate.errors import SpecError

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of objects by name, filled from one package.

    Args:
        kind: What an entry is called in messages, for example "engine".
        package: Dotted name of the package whose modules register entries.
    """

    def __init__(self, kind: str, package: str) -> None:
        self._kind = kind
        self._package = package
        self._entries: dict[str, T] = {}
        self._origin: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that enters its object under `name` and returns it.

        Raises:
            ValueError: If `name` is taken; the message names both modules.
        """

        def enter(entry: T) -> T:
            module = getattr(entry, "__module__", self._package)
            if name in self._entries:
                raise ValueError(
                    f"{self._kind} {name!r} is registered by {self._origin[name]} and {module}"
                )
            self._entries[name] = entry
            self._origin[name] = module
            return entry

        return enter

    def get(self, name: str) -> T:
        """Return the entry called `name`.

        Raises:
            SpecError: If there is none; the message lists the known names.
        """
        self._load()
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(sorted(self._entries))
            raise SpecError(f"unknown {self._kind} {name!r}. Known: {known}.") from None

    def names(self) -> tuple[str, ...]:
        """Return all names in registration order."""
        self._load()
        return tuple(self._entries)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        """Yield (name, entry) in registration order."""
        self._load()
        return iter(tuple(self._entries.items()))

    def _load(self) -> None:
        if self._loaded:
            return
        package = importlib.import_module(self._package)
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
            importlib.import_module(f"{self._package}.{module.name}")
        self._loaded = True
