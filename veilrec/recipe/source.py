"""Origins of the values of a recipe: a file, ``--set``, the command line, or a sweep."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veilrec.base import toml
from veilrec.errors import BadInput
from veilrec.recipe.sections import SECTIONS

__all__ = ["RecipeSource"]

SWEEP = "[sweep]"
DIGITS = 9  # of a place in a list


@dataclass(frozen=True)
class RecipeSource:
    """A recipe as it was written, before defaults, and who wrote which value.

    Attributes:
        path: The recipe's file, if there is one.
        raw: All values that were given, as nested tables.
        lines: The line of each key in the file, by its dotted name.
        told: Dotted names of values that do not come from the file, with where they come from.
        orders: What ``--set`` was given for each of its keys.
    """

    path: Path | None
    raw: dict[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> RecipeSource:
        """A recipe's file; without one, an empty recipe."""
        if path is None:
            return cls(None, {})
        document = toml.read(path)
        return cls(path, document.values, document.lines)

    def order(self, text: str) -> RecipeSource:
        """Put one ``--set key=value`` on top."""
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise BadInput(f"--set {text}", "has no =", "write it as section.key=value")
        if not all(key.split(".")) or key.count(".") > toml.DEEPEST:
            raise BadInput(f"--set {text}", "names no key", "write it as section.key=value")
        source = self.put(key, toml.value_of(value), "--set")
        return replace(source, orders={**self.orders, key: f"{key}={value}"})

    def put(self, key: str, value: Any, who: str) -> RecipeSource:
        """Replace one value; a seed replaces seeds, and the other way round."""
        raw, parts = copy.deepcopy(self.raw), key.split(".")
        if key in ("seed", "seeds"):
            raw.pop("seed", None)
            raw.pop("seeds", None)
        _put(raw, parts, value, where=f"--set {key}" if who == "--set" else key)
        return replace(self, raw=raw, told={**self.told, key: who})

    def without(self, *sections: str) -> RecipeSource:
        """Without some sections."""
        return replace(self, raw={name: value for name, value in self.raw.items() if name not in sections})

    def origin(self, key: str) -> str:
        """The origin of the value under a dotted name; ``default`` where nobody set it."""
        return self.said(key) if key in self.told or _has(self.raw, key.split(".")) else "default"

    def said(self, key: str) -> str:
        """The origin of a value that is known to have been set under a dotted name."""
        for told, who in reversed(self.told.items()):
            if key == told or key.startswith(f"{told}.") or told.startswith(f"{key}."):
                return who
        return "default" if self.path is None else self.path.name

    def base(self, key: str) -> Path:
        """The folder from which a relative path under a key is meant."""
        return Path.cwd() if self.path is None or key in self.told else self.path.parent

    def placed(self, error: BadInput) -> BadInput:
        """The same error with the file and line, or the argument, that its key stands in."""
        key, _, rest = str(error).partition(": ")
        if not rest or key.split(".")[0] not in {*SECTIONS, *self.raw}:
            return error
        for told, order in reversed(self.orders.items()):
            around = told.startswith(f"{key}.") and self._line(key) is None
            if key == told or key.startswith(f"{told}.") or around:
                return BadInput(f"--set {order}", f"{key}: {rest}" if key != told else rest)
        who = self.origin(key)
        if who == "command line":
            return BadInput(f"--{key}", rest)
        if self.path is None:
            return error
        key = f"sweep.{key}" if who == SWEEP else key
        return BadInput(self.path, f"{key}: {rest}", line=self._line(key))

    def _line(self, key: str) -> int | None:
        """The line of a key, of the table that it is in, or of what is in that table."""
        parts = key.split(".")
        for name in (".".join(parts[:length]) for length in range(len(parts), 0, -1)):
            within = [
                line for known, line in self.lines.items() if known == name or known.startswith(f"{name}.")
            ]
            if within:
                return min(within)
        return None


def _put(tree: Any, parts: Sequence[str], value: Any, where: str) -> None:
    """Put a value into nested tables and lists; tables are made on the way, one past a list's end appends."""
    name, rest = parts[0], parts[1:]
    if isinstance(tree, list):
        if not name.isdecimal() or len(name) > DIGITS or int(name) > len(tree):
            raise BadInput(where, f"the list has {len(tree)} entries", f"use a place from 0 to {len(tree)}")
        place = int(name)
        if place == len(tree):
            tree.append({})
    elif isinstance(tree, dict):
        place = name  # type: ignore[assignment]
        tree.setdefault(name, [] if rest and rest[0].isdecimal() else {})
    else:
        raise BadInput(where, "goes below a value that is no table", "leave out what follows it")
    if rest:
        _put(tree[place], rest, value, where)
    else:
        tree[place] = value


def _has(tree: Any, parts: Sequence[str]) -> bool:
    for part in parts:
        if isinstance(tree, list) and part.isdecimal() and int(part) < len(tree):
            tree = tree[int(part)]
        elif isinstance(tree, dict) and part in tree:
            tree = tree[part]
        else:
            return False
    return True
