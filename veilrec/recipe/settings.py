"""Settings: values from a recipe or a command line, held against the annotations of whatever takes them."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from veilrec.base.limits.bounds import bounds_of, check, check_length, hints_of, kind_of, short
from veilrec.errors import BadInput, nearest

__all__ = ["REQUIRED", "Option", "defaults", "describe", "fit", "fitted", "options_of", "plain", "shown"]

REQUIRED: Any = inspect.Parameter.empty
LARGE = 10**18  # whole numbers beyond are not written out: Python refuses to, where they are very long
LISTS = (Sequence, Collection, tuple, list, frozenset, set)
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


class Option(NamedTuple):
    """One keyword argument: what it may be, what it is if nobody says, and what it means."""

    annotation: Any
    default: Any = REQUIRED
    doc: str = ""


def options_of(target: Callable[..., Any], without: Collection[str] = ()) -> dict[str, Option]:
    """The keyword arguments of a function or a constructor.

    Raises:
        BadInput: Where an annotation names something that does not exist at run time.
    """
    told, hints = meanings(inspect.getdoc(target) or ""), hints_of(target)
    made = {f.name: f for f in dataclasses.fields(target)} if dataclasses.is_dataclass(target) else {}
    found = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in without or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        default = parameter.default
        factory = made[name].default_factory if name in made else dataclasses.MISSING
        if factory is not dataclasses.MISSING:
            default = factory()
        found[name] = Option(hints.get(name, Any), default, told.get(name, ""))
    return found


def defaults(options: Mapping[str, Option]) -> dict[str, Any]:
    """The defaults of some options, as a recipe would write them; None is left out."""
    chosen = {name: option.default for name, option in options.items()}
    return {
        name: plain(value) for name, value in chosen.items() if value is not REQUIRED and value is not None
    }


def fit(where: str, given: Mapping[str, Any], options: Mapping[str, Option], owner: str) -> dict[str, Any]:
    """The given values as `owner` wants them.

    Raises:
        BadInput: Naming the key that is unknown, missing, or of the wrong kind.
    """
    for name in given:
        if name not in options:
            fix = nearest(name, options) if options else "remove it: there are no options"
            raise BadInput(below(where, name), f"{owner} has no such option", fix)
    for name, option in options.items():
        if option.default is REQUIRED and name not in given:
            raise BadInput(below(where, name), f"{owner} needs it", f"give {describe(option.annotation)}")
    return {
        name: fitted(below(where, name), value, options[name].annotation) for name, value in given.items()
    }


def below(where: str, name: str) -> str:
    """The dotted name of a key in a table; the top level has no name."""
    return f"{where}.{name}" if where else name


def fitted(where: str, value: Any, annotation: Any) -> Any:
    """One value as its annotation wants it: a list becomes a tuple, a whole number a float.

    Raises:
        BadInput: Saying what is allowed.
    """
    narrow_first = sorted(_alternatives(annotation), key=lambda member: kind_of(member) is float)
    fits = next((member for member in narrow_first if _accepts(kind_of(member), value)), None)
    if fits is None:
        raise BadInput(where, f"{shown(value)} will not do", f"give {describe(annotation)}")
    chosen = kind_of(fits)
    if chosen in (int, float):
        number = _finite(where, value) if chosen is float else value
        check(where, number, fits)
        return number
    if chosen is Any or chosen in (bool, str):
        return value
    if chosen is Path:
        return Path(value)
    if get_origin(chosen) is Literal:
        return _literal(where, value, get_args(chosen))
    if inspect.isclass(chosen) and dataclasses.is_dataclass(chosen):
        return chosen(**fit(where, value, options_of(chosen), chosen.__name__))
    return _mapping(where, value, chosen) if isinstance(value, Mapping) else _list(where, value, chosen)


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, without None."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(m for a in get_args(annotation) if a is not NoneType for m in _alternatives(a))
    return (annotation,)


def _accepts(annotation: Any, value: Any) -> bool:
    """Whether a value has the outer shape of an annotation that is not a union."""
    origin = get_origin(annotation) or annotation
    if annotation is Any:
        return True
    if isinstance(value, bool):
        return annotation is bool or (origin is Literal and value in get_args(annotation))
    if origin is Literal:
        return isinstance(value, tuple({type(argument) for argument in get_args(annotation)}))
    if dataclasses.is_dataclass(annotation) or origin in (dict, Mapping):
        return isinstance(value, Mapping)
    if origin in LISTS:
        return isinstance(value, list | tuple | set | frozenset)
    kinds = {int: (int,), float: (int, float), str: (str,), Path: (str, Path)}
    return isinstance(value, kinds.get(annotation, ()))


def _finite(where: str, value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadInput(where, f"{value} is no amount", "give a finite number")
    return number


def _literal(where: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise BadInput(where, f"{shown(value)} is not allowed", nearest(str(value), map(str, allowed)))
    return value


def _list(where: str, value: Collection[Any], annotation: Any) -> Any:
    check_length(where, value)
    inner = get_args(annotation)
    if get_origin(annotation) is tuple and Ellipsis not in inner:
        if len(value) != len(inner):
            raise BadInput(where, f"{len(value)} values", f"give {describe(annotation)}")
        kinds = inner
    else:
        kinds = (inner[0] if inner else Any,) * len(value)
    entries = (fitted(f"{where}.{k}", v, kind) for k, (v, kind) in enumerate(zip(value, kinds, strict=True)))
    return frozenset(entries) if get_origin(annotation) in (frozenset, set) else tuple(entries)


def _mapping(where: str, value: Mapping[str, Any], annotation: Any) -> dict[str, Any]:
    check_length(where, value)
    kind = (get_args(annotation) or (str, Any))[1]
    return {name: fitted(f"{where}.{name}", entry, kind) for name, entry in value.items()}


def describe(annotation: Any) -> str:
    """Say in words what an annotation allows."""
    members = _alternatives(annotation)
    if len(members) > 1:
        return " or ".join(describe(member) for member in members)
    kind, bounds = kind_of(members[0]), bounds_of(members[0])
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if bounds is not None:
        return f"{WORDS.get(kind, 'a number')} {bounds}"
    if origin is Literal:
        return "one of " + ", ".join(shown(value) for value in inner)
    if origin in LISTS:
        return f"a list, each {describe(inner[0])}" if inner else "a list"
    if origin in (dict, Mapping):
        return f"a table, each {describe(inner[1])}" if inner else "a table"
    return "a table" if dataclasses.is_dataclass(kind) else WORDS.get(kind, "a value")


def shown(value: Any) -> str:
    """A value as a recipe would write it, cut short where it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= LARGE:
        return short(value)
    if isinstance(value, list | tuple):
        text = f"[{', '.join(shown(entry) for entry in value)}]"
    elif isinstance(value, Mapping):
        text = "{" + ", ".join(f"{name} = {shown(entry)}" for name, entry in value.items()) + "}"
    else:
        text = f'"{value}"' if isinstance(value, str | Path) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def plain(value: Any) -> Any:
    """A value in the kinds that TOML and JSON have; the entries of a set are put in order."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items() if entry is not None}
    if isinstance(value, frozenset | set):
        return sorted(plain(entry) for entry in value)
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def meanings(docstring: str) -> dict[str, str]:
    """Read the sections ``Attributes:`` and ``Args:`` of a docstring, by name."""
    told: dict[str, str] = {}
    for section in re.findall(r"^(?:Attributes|Args):\n((?:[ \t]+.*\n?|\n)+)", docstring, re.MULTILINE):
        names: list[str] = []
        for line in textwrap.dedent(section).splitlines():
            if found := re.match(r"(\w+(?:, \w+)*): (.*)", line):
                names = found[1].split(", ")
                told |= dict.fromkeys(names, found[2].strip())
            elif line.strip():
                told |= {name: f"{told[name]} {line.strip()}" for name in names}
    return told
