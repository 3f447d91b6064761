"""Sections: what each table of a recipe may hold, and what holds where it is silent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from veilrec.base.limits.bounds import Bounds, Seed, Share
from veilrec.base.plan import Plan
from veilrec.datasets.common import places
from veilrec.datasets.imported import imported
from veilrec.engine.evaluation import Evaluation
from veilrec.errors import BadInput, encodable, nearest
from veilrec.lab.threat import Threat
from veilrec.recipe import catalogue
from veilrec.recipe.settings import Option, defaults, fit, options_of, plain
from veilrec.wire.transcript import Record

__all__ = ["DATA", "LISTED", "PLAIN", "SECTIONS", "dataset", "resolve", "rest"]

Values = dict[str, Any]
Base = Callable[[str], Path]  # the folder that a relative path under a key starts from

TOP = {"seed": Option(Seed, 0), "seeds": Option(Sequence[Seed], ())}
DATA = {
    "name": Option(str, "synthetic"),
    "path": Option(Path | None, None),
    "consent": Option(Share | Mapping[str, Share], 0.0),
    "silos": Option(Annotated[int, Bounds(0, 10_000_000)], 0),
    "split_seed": Option(Seed, 0),
    "balance": Option(str, ""),  # an attribute: as many users of each of its classes
    "include_private_features": Option(bool, False),
}
PLUGIN = {"path": Option(Path), "sha256": Option(str, "")}
PLAIN = {"plan": Plan, "evaluation": Evaluation, "record": Record, "threat": Threat}
NAMED = {"model": ("models", "FedMF"), "protocol": ("protocols", "FedAvg")}
LISTED = {"defence": "defences", "eraser": "erasers", "attack": "attacks"}
SECTIONS = (
    *TOP,
    "data",
    *NAMED,
    "plan",
    "defence",
    "eraser",
    "evaluation",
    "record",
    "threat",
    "attack",
    "sweep",
    "plugin",
)


def resolve(
    raw: Mapping[str, Any], base: Base, data_dir: Path | None = None, *, has_data: bool = True
) -> Values:
    """Every section with every value that holds, defaults included, as a recipe would write it.

    Raises:
        BadInput: For the first key that is unknown, or value that will not do.
    """
    _refuse_unknown(raw)
    values: Values = _seeds(raw)
    values["data"] = _data(_table(raw, "data"), base, data_dir, has_data)
    for section, (kind, default) in NAMED.items():
        values[section] = _named({"name": default, **_table(raw, section)}, kind, section)
    values["plan"] = _plain(raw, "plan")
    _refuse_moved(raw)
    values["defence"] = _listed(raw, "defence") or [{"name": "none"}]
    values["eraser"] = _listed(raw, "eraser")
    values |= {section: _plain(raw, section) for section in ("evaluation", "record")}
    if "threat" in raw:
        values["threat"] = _plain(raw, "threat")
    values["attack"] = _listed(raw, "attack")
    values["plugin"] = [
        plain(_rooted(fit(f"plugin.{k}", t, PLUGIN, "a plugin"), f"plugin.{k}", base))
        for k, t in enumerate(_tables(raw, "plugin"))
    ]
    return {name: value for name, value in values.items() if value != []}


def _refuse_unknown(raw: Mapping[str, Any]) -> None:
    for name in raw:
        if name in SECTIONS:
            continue
        homes = [section for section, made in PLAIN.items() if name in options_of(made)]
        fix = f"it belongs under [{homes[0]}]" if homes else nearest(name, SECTIONS)
        raise BadInput(name, "a recipe has no such section", fix)


def _refuse_moved(raw: Mapping[str, Any]) -> None:
    """Refuse an eraser among the defences, where it once was, and say where it is now."""
    for place, table in enumerate(_tables(raw, "defence")):
        plain_name = catalogue.plain_name(str(table.get("name", "")))
        if plain_name in {catalogue.plain_name(name) for name in catalogue.entries("erasers")}:
            what = f'"{table["name"]}" acts after training: it is an eraser'
            raise BadInput(f"defence.{place}.name", what, "write it as [[eraser]]")


def _seeds(raw: Mapping[str, Any]) -> Values:
    """Either ``seed`` or ``seeds``."""
    if "seed" in raw and "seeds" in raw:
        raise BadInput("seeds", "there is a seed as well", "keep one of the two")
    given = fit("", {name: raw[name] for name in TOP if name in raw}, TOP, "")
    seeds = given.get("seeds", (given.get("seed", 0),))
    if not seeds:
        raise BadInput("seeds", "an empty list", "name at least one seed, as in [0, 1, 2]")
    if len(set(seeds)) < len(seeds):
        raise BadInput("seeds", "the same seed twice", "name each seed once")
    return {"seeds": list(seeds)} if "seeds" in given else {"seed": seeds[0]}


def _table(raw: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    table = raw.get(section, {})
    if not isinstance(table, Mapping):
        raise BadInput(section, "not a table", f"write it as [{section}]")
    return table


def _tables(raw: Mapping[str, Any], section: str) -> list[Mapping[str, Any]]:
    tables = raw.get(section, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise BadInput(section, "not a list of tables", f"write each as [[{section}]]")
    return tables


def _plain(raw: Mapping[str, Any], section: str) -> Values:
    options = options_of(PLAIN[section])
    return {**defaults(options), **plain(fit(section, _table(raw, section), options, "a recipe"))}


def _named(table: Mapping[str, Any], kind: str, where: str) -> Values:
    """The table of a catalogue entry: its name as listed, and every option."""
    name = fit(where, {"name": table.get("name")}, {"name": Option(str)}, where)["name"]
    entry = catalogue.find(kind, name, f"{where}.name")
    options = catalogue.options(entry)
    chosen = {**defaults(options), **fit(where, rest(table), options, catalogue.name_of(entry))}
    return {"name": catalogue.name_of(entry), **plain(chosen)}


def _listed(raw: Mapping[str, Any], section: str) -> list[Values]:
    for place, table in enumerate(tables := _tables(raw, section)):
        if "name" not in table:
            known = catalogue.entries(LISTED[section])
            raise BadInput(f"{section}.{place}", "has no name", nearest("", known))
    return [_named(table, LISTED[section], f"{section}.{k}") for k, table in enumerate(tables)]


def _data(table: Mapping[str, Any], base: Base, data_dir: Path | None, has_data: bool) -> Values:
    name = fit("data", {"name": table.get("name", DATA["name"].default)}, {"name": DATA["name"]}, "data")[
        "name"
    ]
    if not has_data:  # the log lies in a run directory: what loaded it may be missing on this machine
        return {**defaults(DATA), **table}
    entry, _ = dataset(name, data_dir)
    options = {**DATA, **catalogue.options(entry)}
    label = name if entry is imported else catalogue.name_of(entry)
    chosen = _rooted(fit("data", table, options, label), "data", base)
    if "path" in chosen and "path" not in inspect.signature(entry).parameters:
        raise BadInput("data.path", f"{label} reads no file", "remove it")
    return {**defaults(options), **plain(chosen), "name": label}


def dataset(name: str, data_dir: Path | None) -> tuple[catalogue.Entry, Path | None]:
    """The function that loads a dataset, and its folder if it was imported under that name."""
    known, stored = catalogue.entries("datasets"), places.stored(data_dir)
    same = catalogue.plain_name(name)
    for listed, entry in known.items():
        if catalogue.plain_name(listed) == same:
            return entry, None
    for listed, folder in stored.items():
        if catalogue.plain_name(listed) == same:
            return imported, folder
    raise BadInput("data.name", f'no dataset "{name}"', nearest(name, [*known, *stored]))


def _rooted(chosen: Values, where: str, base: Base) -> Values:
    """Relative paths made whole, so that the resolved recipe means the same everywhere on this machine."""
    placed = dict(chosen)
    for name, value in chosen.items():
        if isinstance(value, Path):
            placed[name] = found = (base(f"{where}.{name}") / value.expanduser()).absolute()
            if not encodable(f"{found}"):  # a recipe could not say it
                raise BadInput(f"{where}.{name}", f"{found} is no UTF-8", "rename the folder or the file")
    return placed


def rest(table: Mapping[str, Any]) -> Values:
    """The options of an entry's table: all but its name."""
    return {name: value for name, value in table.items() if name != "name"}
