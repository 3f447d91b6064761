"""Recipes: one TOML file is one experiment, or one for each cell of its sweep and each of its seeds."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilrec.base import toml
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.recipe import assembly, catalogue, plugins
from veilrec.recipe.cells import Cell
from veilrec.recipe.plugins import Plugin
from veilrec.recipe.retired import without_retired
from veilrec.recipe.sections import LISTED, resolve
from veilrec.recipe.settings import plain
from veilrec.recipe.source import SWEEP, RecipeSource

if TYPE_CHECKING:
    from veilrec.experiment import Experiment

__all__ = ["Recipe"]

CELLS = 10_000  # of a sweep, seeds and all: each is checked before the first one runs
LONGEST = 150  # letters of a cell's name, which names a folder


@dataclass(frozen=True)
class Recipe:
    """A recipe in which every value holds: nothing is left to guess, and everything has been checked.

    Attributes:
        values: Sections with all their keys, in the kinds that TOML has.
        origins: Who said so, by dotted name: a file, ``--set``, the command line, the sweep, or ``default``.
        source: What was written, before defaults.
        data_dir: Where datasets are looked for first.
        has_data: Whether the dataset must be there.
    """

    values: dict[str, Any]
    origins: dict[str, str] = field(compare=False)
    source: RecipeSource = field(compare=False, repr=False)
    data_dir: Path | None = field(default=None, compare=False)
    has_data: bool = field(default=True, compare=False)

    @classmethod
    def load(
        cls,
        path: Path | str | None = None,
        sets: Sequence[str] = (),
        *,
        seed: int | None = None,
        data_dir: Path | None = None,
        has_data: bool = True,
    ) -> Recipe:
        """The recipe at `path` with ``key=value`` settings and a seed on top.

        With `has_data` false the dataset need not be there: a run directory holds its own, or another rank.

        Raises:
            BadInput: With file and line, for whatever will not do.
        """
        source = RecipeSource.read(None if path is None else Path(path))
        for text in sets:
            source = source.order(text)
        if seed is not None:
            source = source.put("seed", seed, "command line")
        return cls._checked(source, data_dir, has_data)

    @classmethod
    def of(cls, values: Mapping[str, Any], who: str = "Python", data_dir: Path | None = None) -> Recipe:
        """A recipe from nested tables, as if they stood in a file; `who` is the origin of each value.

        Raises:
            BadInput: For whatever will not do.
        """
        told = dict.fromkeys(_keys(values), who)
        return cls._checked(RecipeSource(None, copy.deepcopy(dict(values)), told=told), data_dir, True)

    @classmethod
    def _checked(cls, source: RecipeSource, data_dir: Path | None, has_data: bool) -> Recipe:
        recipe = cls._resolved(source, data_dir, has_data)
        for cell in recipe.cells():
            with cell.recipe.blaming():
                assembly.build(cell.recipe.values)
        return recipe

    @classmethod
    def _resolved(cls, source: RecipeSource, data_dir: Path | None, has_data: bool) -> Recipe:
        """A recipe that stands for all its cells has the values of the first one."""
        first = source
        try:
            _ask_for_plugins(source.raw.get("plugin"))
            sweep = _sweep(source.raw.get("sweep", {}))
            _refuse_idle(source.orders, sweep)
            first = source.without("sweep")
            for key, choices in sweep.items():
                first = first.put(key, choices[0], SWEEP)
            values = resolve(without_retired(first.raw), first.base, data_dir, has_data=has_data)
            values = _with_plugins(values)
        except BadInput as error:
            raise first.placed(error) from error
        origins = {k: "--plugin" if k.startswith("plugin.") else first.origin(k) for k in _keys(values)}
        if sweep:
            values["sweep"] = sweep
            origins |= {f"sweep.{key}": source.said(f"sweep.{key}") for key in sweep}
        return cls(values, origins, source, data_dir, has_data)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are asked for, most often one."""
        return tuple(self.values["seeds"] if "seeds" in self.values else [self.values["seed"]])

    def cells(self) -> list[Cell[Recipe]]:
        """One recipe for each choice of the sweep and each seed; a plain recipe is its own only cell."""
        sweep = self.values.get("sweep", {})
        if not sweep and "seeds" not in self.values:
            return [Cell(f"seed={self.values['seed']}", {"seed": self.values["seed"]}, self)]
        if (many := math.prod(map(len, sweep.values())) * len(self.seeds)) > CELLS:
            raise BadInput("sweep", f"makes {many:,} runs", f"give choices for at most {CELLS:,}")
        cells = []
        for chosen in itertools.product(*sweep.values()):
            for seed in self.seeds:
                settings = {**dict(zip(sweep, chosen, strict=True)), "seed": seed}
                cells.append(Cell(_folder(settings), settings, self._cell(settings)))
        names = [cell.name for cell in cells]
        alike = len(set(names)) < len(names) or max(map(len, names)) > LONGEST
        return [c._replace(name=f"{c.name[:LONGEST]}-{k}") for k, c in enumerate(cells)] if alike else cells

    def _cell(self, settings: Mapping[str, Any]) -> Recipe:
        source = self.source.without("sweep")
        for key, value in settings.items():
            many = key != "seed" or "seeds" in self.values
            source = source.put(key, value, SWEEP) if many else source
        return Recipe._resolved(source, self.data_dir, self.has_data)

    def experiment(self, data: Interactions | None = None, *, device: str = "cpu") -> Experiment:
        """The experiment, ready to run; with `data`, on that log instead of the one that the recipe names.

        Raises:
            BadInput: Where the data is missing, or parts do not go together.
        """
        from veilrec.experiment import Experiment

        with self.blaming():
            if "seeds" in self.values or "sweep" in self.values:
                raise BadInput("sweep", "makes several experiments", "take one of the cells")
            parts = assembly.build(self.values)
            return Experiment(data=self.data() if data is None else data, device=device, **parts)

    def toml(self) -> str:
        """The recipe with the origin of each value beside it; it reads back as the same values."""
        comments = {key: "".join(c for c in who if c.isprintable()) for key, who in self.origins.items()}
        return toml.write(self.values, comments)

    def data(self) -> Interactions:
        """The dataset that the recipe names.

        Raises:
            BadInput: Where it is not found, or is not what it should be.
        """
        with self.blaming():
            return assembly.load(self.values["data"], self.data_dir)

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Errors about a key leave here with the place where that key was written."""
        try:
            yield
        except BadInput as error:
            raise self.source.placed(error) from error


def _sweep(table: Any) -> dict[str, list[Any]]:
    """Dotted keys and their choices, whether the keys were quoted or not."""
    found: dict[str, list[Any]] = {}

    def walk(key: str, value: Any) -> None:
        if isinstance(value, Mapping) and (value or not key):
            for name, inner in value.items():
                walk(f"{key}.{name}" if key else name, inner)
        elif not isinstance(value, list) or not value:
            raise BadInput(f"sweep.{key}".rstrip("."), "no list of choices", "give a list, as in [5, 10]")
        elif key.split(".")[0] in ("seed", "seeds", "sweep", "plugin"):
            raise BadInput(f"sweep.{key}", "cannot be swept", "use seeds = [0, 1, 2] for several seeds")
        else:
            found[key] = value

    walk("", table)
    return found


def _refuse_idle(orders: Mapping[str, str], sweep: Mapping[str, Any]) -> None:
    """Refuse a ``--set`` of what the sweep sets in every cell: right or misspelt, it would do nothing."""
    for key, order in orders.items():
        for swept in sweep:
            if f"{key}.".startswith(f"{swept}."):
                what = f"the sweep of this recipe sets {swept} itself"
                raise BadInput(f"--set {order}", what, f"change it there, or --set sweep.{swept}=…")


def _ask_for_plugins(tables: Any) -> None:
    """Refuse a recipe whose plugins were not loaded: a recipe names code, it never runs any."""
    for place, table in enumerate(tables if isinstance(tables, list) else ()):
        if not isinstance(table, Mapping) or not isinstance(table.get("path"), str):
            continue  # `resolve` will say what is wrong with it
        path, sha256 = Path(table["path"]), table.get("sha256")
        given = [plugin for plugin in plugins.loaded() if plugin.path.name == path.name]
        if not given:
            raise BadInput(f"plugin.{place}", f"needs the plugin {path.name}", f"add --plugin {path}")
        if sha256 and sha256 not in {plugin.sha256 for plugin in given}:
            what = f"{given[0].path} is not the file that was used (sha256 {sha256[:12]}…)"
            raise BadInput(f"plugin.{place}", what, "give that file, or delete the line with the sha256")


def _with_plugins(values: dict[str, Any]) -> dict[str, Any]:
    """Add the plugins that the entries come from, by path and hash."""
    used = {plugin.path: plugin for plugin in _plugins_of(values)}
    listed = [{"path": str(path), "sha256": plugin.sha256} for path, plugin in used.items()]
    rest = {name: value for name, value in values.items() if name != "plugin"}
    return {**rest, "plugin": listed} if listed else rest


def _plugins_of(values: Mapping[str, Any]) -> Iterator[Plugin]:
    named = [("models", values["model"]), ("protocols", values["protocol"]), ("datasets", values["data"])]
    named += [(kind, table) for section, kind in LISTED.items() for table in values.get(section, ())]
    for kind, table in named:
        entry = catalogue.entries(kind).get(table["name"])
        plugin = catalogue.plugin_of(entry) if entry is not None else None
        if plugin is not None:
            yield plugin


def _keys(values: Mapping[str, Any]) -> Iterator[str]:
    """The dotted names of the values that are written on a line of their own."""
    for section, value in values.items():
        if isinstance(value, Mapping):
            yield from (f"{section}.{key}" for key in value)
        elif value and isinstance(value, list) and isinstance(value[0], Mapping):
            yield from (f"{section}.{place}.{key}" for place, table in enumerate(value) for key in table)
        else:
            yield section


def _folder(settings: Mapping[str, Any]) -> str:
    """A name for a cell that every file system takes: ``plan.rounds=5,seed=0``."""
    texts = (f"{key}={_short(value)}" for key, value in settings.items())
    return ",".join(re.sub(r"[^\w.=+-]+", "-", text).strip("-")[:60] for text in texts)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "-".join(_short(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return "-".join(_short(entry) for entry in value.values())
    return str(plain(value)).lower() if isinstance(value, bool) else str(value)
