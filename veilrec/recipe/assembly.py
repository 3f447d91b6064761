"""Assembly: the parts of an experiment, made from a resolved recipe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from veilrec.base.params import Scope
from veilrec.datasets.common import places
from veilrec.datasets.common.balance import balanced
from veilrec.defence import Defence, chain
from veilrec.errors import BadInput, VeilrecError, nearest
from veilrec.interactions import Interactions
from veilrec.model import Recommender, made
from veilrec.recipe import catalogue, plugins
from veilrec.recipe.sections import DATA, LISTED, PLAIN, dataset, rest
from veilrec.recipe.settings import fit, options_of

__all__ = ["build", "load"]

Values = dict[str, Any]
BEGINS_AT_ZERO = ("item", Scope.PRIVATE)  # a table whose rows are only kept where a user moved them


def build(values: Mapping[str, Any]) -> Values:
    """The parts of an experiment, all but its data: keyword arguments of `Experiment`.

    Raises:
        BadInput: Where parts refuse their options, or do not go together.
    """
    data, protocol = values["data"], values["protocol"]
    parts: Values = {
        "model": catalogue.build("models", values["model"]["name"], rest(values["model"]), "model"),
        "protocol": catalogue.build("protocols", protocol["name"], rest(protocol), "protocol"),
        "defence": chain(*(_one("defence", k, table) for k, table in enumerate(values["defence"]))),
        "erasers": tuple(_one("eraser", k, table) for k, table in enumerate(values.get("eraser", ()))),
        "attacks": _attacks(values.get("attack", ())),
        **{
            name: made(**fit(name, values[name], options_of(made), ""))
            for name, made in PLAIN.items()
            if name in values
        },
        **{name: data[name] for name in ("consent", "silos", "split_seed", "include_private_features")},
        "seed": values["seed"],
    }
    _agree(parts)
    return parts


def load(data: Mapping[str, Any], data_dir: Path | None = None) -> Interactions:
    """The dataset that the section ``[data]`` of a resolved recipe names, balanced if it says so.

    Raises:
        BadInput: Where it is not found, or is not what it should be.
    """
    return balanced(_loaded(data, data_dir), data.get("balance", ""), data["split_seed"])


def _loaded(data: Mapping[str, Any], data_dir: Path | None) -> Interactions:
    """The dataset as its own loader gives it."""
    entry, found = dataset(data["name"], data_dir)
    options = {name: value for name, value in data.items() if name not in DATA}
    arguments = fit("data", options, catalogue.options(entry), data["name"])
    takes = inspect.signature(entry).parameters
    if "split_seed" in takes:
        arguments["split_seed"] = data["split_seed"]
    if "path" in takes:
        named = Path(data["path"]) if "path" in data else found
        arguments["path"] = named or _looked_for(data["name"], data_dir)
    if entry.__module__.startswith("veilrec."):
        return entry(**arguments)  # type: ignore[no-any-return]
    plugin = catalogue.plugin_of(entry)
    with plugins.guarded(entry.__module__ if plugin is None else plugin.path, plugins.CHECK):
        log = entry(**arguments)
        if not isinstance(log, Interactions):
            raise TypeError(f"{data['name']} gives no Interactions")
        log.check()
    return log


def _looked_for(name: str, data_dir: Path | None) -> Path:
    try:
        return places.find(name, data_dir)
    except BadInput as error:
        if places.published(name) is not None:
            raise
        raise BadInput("data.path", f"{name} needs a file or folder", "set data.path to it") from error


def _one(section: str, place: int, table: Mapping[str, Any]) -> Any:
    """An entry of a list; it knows its section but not its place, so that errors are given that here."""
    where = f"{section}.{place}"
    try:
        return catalogue.build(LISTED[section], table["name"], rest(table), where)
    except BadInput as error:
        key, _, said = str(error).partition(": ")
        option = key.removeprefix(f"{section}.")
        if option == key or option.split(".")[0].isdecimal():
            raise
        raise BadInput(f"{where}.{option}", said) from error


def _attacks(tables: Sequence[Mapping[str, Any]]) -> Values:
    """Attacks by name; a name that comes again is numbered."""
    attacks: Values = {}
    for place, table in enumerate(tables):
        again = sum(name.split(" ")[0] == table["name"] for name in attacks)
        attacks[f"{table['name']} {again + 1}" if again else table["name"]] = _one("attack", place, table)
    return attacks


def _agree(parts: Mapping[str, Any]) -> None:
    """Refuse parts that do not go together, on a model of a few items."""
    if parts["attacks"] and "threat" not in parts:
        raise BadInput("attack", "nobody says what is attacked", "add a table [threat] with an attribute")
    model, protocol = _toy(parts["model"], parts["defence"], _attributes(parts)), parts["protocol"]
    rates = {"plan.lr": parts["plan"].lr}
    rates |= {f"protocol.{name}": getattr(protocol, name, None) for name in ("server_lr", "server_halves")}
    for where, by_part in rates.items():
        _named(where, by_part, model.parts, "the model has no such part")
    fresh = [
        name
        for name, part in model.parts.items()
        if part.rows and (part.keyed_rows or (part.rows, part.scope) != BEGINS_AT_ZERO)
    ]
    _named("model.scale", model.scale, fresh, "the model has no such table of vectors")
    parts["record"].chosen(protocol.schema(model))
    for eraser in parts["erasers"]:
        eraser.check(model)


def _named(where: str, by_part: Any, known: Iterable[str], what: str) -> None:
    """Refuse a number by part that is for no part."""
    names = [*known, "default"]
    for part in by_part if isinstance(by_part, Mapping) else ():
        if part not in names:
            raise BadInput(f"{where}.{part}", what, nearest(part, names))


def _attributes(parts: Mapping[str, Any]) -> list[str]:
    """The attributes that a recipe names: a defence may add a part for each of them."""
    threat, defence = parts.get("threat"), parts["defence"]
    named = [getattr(one, "attributes", ()) for one in defence.links]
    return list(
        dict.fromkeys(name for some in (*named, threat.attributes if threat else ()) for name in some)
    )


def _toy(model: Callable[..., Recommender], defence: Defence, attributes: Sequence[str] = ()) -> Recommender:
    try:
        toy = made(model, 16, 1, n_features=4)
        toy.classes = dict.fromkeys(attributes, 2) or None
        return defence.attach(toy)
    except VeilrecError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        raise BadInput(
            "model", f"cannot be built: {error}", "check the options of model and defence"
        ) from error
