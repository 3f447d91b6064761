"""The catalogue: entries by name, from our own folders, from installed packages and from plugin files."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from veilrec.base.defaults import own_defaults
from veilrec.errors import BadInput, VeilrecError, nearest
from veilrec.interactions import Interactions
from veilrec.recipe import plugins
from veilrec.recipe.plugins import Plugin, said
from veilrec.recipe.settings import Option, defaults, describe, fit, options_of

__all__ = [
    "KINDS",
    "build",
    "entries",
    "find",
    "load_plugin",
    "name_of",
    "options",
    "paper",
    "plugin_of",
    "summary",
]

Entry = Callable[..., Any]
NAME = r"[\w²³.-]{1,100}"  # of an entry
KINDS = {
    "models": "Recommender",
    "protocols": "Protocol",
    "defences": "Defence",
    "erasers": "Eraser",
    "attacks": "Attack",
    "datasets": "",
}


def entries(kind: str) -> dict[str, Entry]:
    """Every entry of a kind by the name a recipe gives it: ours first, then what others add."""
    found: dict[str, Entry] = {}
    for entry, source in _all(kind):
        name = name_of(entry)
        if plain_name(name) in {plain_name(known) for known in found}:
            if found.get(name) is entry:
                continue
            raise BadInput(source, f'there is an entry "{name}" in {kind} already', "give yours another name")
        found[name] = entry
    return found


def find(kind: str, name: str, where: str = "") -> Entry:
    """The entry that `name` means, whatever its case and punctuation.

    Raises:
        BadInput: With the nearest name, where there is no such entry.
    """
    known = entries(kind)
    for listed, entry in known.items():
        if plain_name(name) in {plain_name(listed), plain_name(entry.__name__)}:
            return entry
    raise BadInput(where or kind, f'no {kind.removesuffix("s")} "{name}"', nearest(name, known))


def options(entry: Entry) -> dict[str, Option]:
    """The options of an entry: the keyword arguments of its constructor that a recipe may set."""
    filled = ("n_items", "n_seats", "n_features") if inspect.isclass(entry) else ("path", "split_seed")
    return options_of(entry, without=filled)


def build(kind: str, name: str, given: Mapping[str, Any], where: str = "") -> Any:
    """An entry with its options: a protocol, defence or attack itself, a model or dataset still to be called.

    Raises:
        BadInput: Where the entry or an option is unknown, or a value will not do.
    """
    entry = find(kind, name, f"{where}.name" if where else "")
    chosen = fit(where or kind, given, options(entry), name_of(entry))
    made = partial(entry, **chosen)
    if kind in ("models", "datasets"):
        return made
    return _guarded(made, where or kind, name_of(entry))


def _guarded(made: partial[Any], where: str, name: str) -> Any:
    try:
        return made()
    except VeilrecError:
        raise
    except (TypeError, ValueError) as error:  # how code from outside may refuse a value
        raise BadInput(
            where, f"{name} refuses its options: {error}", f"see `veilrec list` for {name}"
        ) from error
    except Exception as error:
        if made.func.__module__.startswith("veilrec."):
            raise
        raise BadInput(where, f"{name} cannot be made: {said(error)}", "correct its file") from error


def load_plugin(path: Path) -> Plugin:
    """Run a plugin file; its models, protocols, defences, attacks and datasets join the catalogue.

    Raises:
        BadInput: With the line, where the file cannot be run, or where it brings nothing that can be built.
    """
    plugin = plugins.load(path)
    try:
        with plugins.guarded(path, plugins.CHECK, "cannot be looked at: "):
            brought = [entry for kind in KINDS for entry in offered(plugin.module, kind)]
            _look_at(brought)
    except BadInput:
        plugins.forget(plugin.path)
        raise
    missing = {entry.__name__: getattr(entry, "__abstractmethods__", ()) for entry in brought}
    what, fix = "", "its contract asks for that"
    if not brought:
        what = "brings no model, protocol, defence, attack or dataset"
        fix = "subclass one of veilrec's contracts and list the class in __all__"
    elif lacks := {name: sorted(methods) for name, methods in missing.items() if methods}:
        what = "; ".join(f"{name} lacks {', '.join(methods)}" for name, methods in lacks.items())
    if what:
        plugins.forget(plugin.path)
        raise BadInput(path, what, fix)
    return plugin


def _look_at(brought: Sequence[Entry]) -> None:
    """Ask of entries from elsewhere all that will be asked of them, while it is known whose they are."""
    for entry in brought:
        name = name_of(entry)
        if not re.fullmatch(NAME, name):
            raise ValueError(f"an entry is called {name!r}")
        told = defaults(options(entry))
        json.dumps([told, summary(entry), paper(entry)])
        for option in options(entry).values():
            describe(option.annotation)


def name_of(entry: Entry) -> str:
    """The name of an entry in recipes: its own, or that of our file where it alone is in it (``none``)."""
    if not inspect.isclass(entry):
        return entry.__name__.replace("_", "-")
    module = entry.__module__
    kind = module.split(".")[1] if module.startswith("veilrec.") else ""
    alone = kind in KINDS and list(getattr(import_module(module), "__all__", ())) == [entry.__name__]
    stem = module.rsplit(".", 1)[-1]
    return stem if alone and plain_name(stem) != plain_name(entry.__name__) else entry.__name__


def summary(entry: Entry) -> str:
    """The first paragraph of an entry's docstring, on one line."""
    return " ".join((inspect.getdoc(entry) or "").split("\n\n")[0].split())


def paper(entry: Entry) -> str:
    """The papers that an entry's file names, on one line."""
    lines: list[str] = []
    for line in (inspect.getdoc(import_module(entry.__module__)) or "").splitlines():
        if re.match("Papers?: ", line):
            lines = [line.split(": ", 1)[1]]
        elif lines and line and not lines[-1].endswith("."):
            lines.append(line.strip())
        elif lines:
            break
    return " ".join(lines)


def plugin_of(entry: Entry) -> Plugin | None:
    """The plugin file that an entry comes from, if it comes from one."""
    return next((p for p in plugins.loaded() if p.module.__name__ == entry.__module__), None)


def plain_name(name: str) -> str:
    """A name without case and punctuation; ``FedAU²`` is ``fedau2``."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name)).casefold()


def _all(kind: str) -> Iterator[tuple[Entry, str]]:
    """Entries with the name of what brings them."""
    if kind not in KINDS:
        raise BadInput(kind, "no such catalogue", nearest(kind, KINDS))
    package = import_module(f"veilrec.{kind}")
    for info in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{info.name}")
        yield from ((entry, module.__name__) for entry in offered(module, kind))
    for point in entry_points_of(f"veilrec.{kind}"):
        yield from ((entry, f"entry point {point.value}") for entry in _installed(point, kind))
    for plugin in plugins.loaded():
        yield from ((entry, str(plugin.path)) for entry in offered(plugin.module, kind))


@cache
def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points that installed packages add under a group; asked once in a process."""
    return tuple(entry_points(group=group))


def _installed(point: EntryPoint, kind: str) -> list[Entry]:
    """Load what an installed package adds: an entry, or a module of entries."""
    where, fix = f"entry point {point.value}", "update or remove the package that brings it"
    with own_defaults(), plugins.guarded(where, fix, "cannot be loaded: "):
        found = point.load()
    with plugins.guarded(where, fix, "cannot be looked at: "):
        one = not isinstance(found, ModuleType)
        if one and not _fits(found, kind):
            raise BadInput(where, f"is none of the {kind}", fix)
        brought = [found] if one else offered(found, kind)
        _look_at(brought)
    return brought


def offered(module: ModuleType, kind: str) -> list[Entry]:
    """The entries of a kind that a module lists in ``__all__``, or defines where it has none."""
    own = [
        n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__ and n[:1] != "_"
    ]
    listed = [getattr(module, name) for name in getattr(module, "__all__", own) if hasattr(module, name)]
    return [value for value in listed if _fits(value, kind)]


def _fits(value: Any, kind: str) -> bool:
    if kind == "datasets":
        returned = getattr(value, "__annotations__", {}).get("return")
        return inspect.isfunction(value) and returned in (Interactions, "Interactions")
    contract = getattr(import_module(f"veilrec.{kind.removesuffix('s')}"), KINDS[kind])
    return inspect.isclass(value) and issubclass(value, contract) and value is not contract
