"""What is whole: a finished run, one that was begun, a device and its letters; made once, copied often."""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from veilrec import node
from veilrec.errors import Interrupted
from veilrec.protocol import State
from veilrec.recipe import Recipe
from veilrec.rounds import Federation
from veilrec.wire.codec import Schema

__all__ = ["RECIPE", "Stock"]

CLIENT = 7
RECIPE = """
seed = 4

[data]
name = "synthetic"
users = 60
items = 40
consent = 0.5

[model]
name = "FedMF"
dim = 4
user = "exposed"

[plan]
rounds = 2
evaluate_every = 1

[evaluation]
candidates = 9
ks = [5, 10]

[record]
last = 1
"""
LETTERS = ('defence = [{name = "laplace", scale = 0.05}]', "plan.rounds = 3")
POSTING = 'defence = [{name = "pard", attributes = ["gender"], head = [4]}]'


class Stock:
    """Whole things by name.

    Args:
        folder: Where the originals lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recipe(self, target: Path, *more: str) -> Path:
        """The recipe of `run` as a file, with lines more."""
        target.write_text("\n".join([*more, RECIPE]), encoding="utf-8")
        return target

    def run(self, target: Path) -> Path:
        """A finished run."""
        shutil.copytree(self._run, target, symlinks=True)
        return target

    def begun(self, target: Path) -> Path:
        """A run that was stopped after its first round; ``veilrec run RECIPE --resume`` goes on."""
        shutil.copytree(self._begun, target, symlinks=True)
        return target

    def store(self, target: Path) -> Path:
        """The store of a device that has answered no round; its defence adds noise."""
        shutil.copytree(self._store, target, symlinks=True)
        return target

    def bound(self, target: Path, run: str) -> Path:
        """The same that answers a run of that name alone."""
        node.provision(self._federation[0], CLIENT, self._loaded(*LETTERS).toml(), target, run=run)
        return target

    def letter(self, round: int = 0, **notes: Any) -> bytes:
        """What the server sends to the device of `store`, with options of `veilrec.node.letter`."""
        engine, state = self._federation
        return node.letter(engine, replace(state, round=round), CLIENT, **notes)

    def poster(self, target: Path) -> Path:
        """The store of a device that has answered no round; its user posts, where others do."""
        shutil.copytree(self._poster, target, symlinks=True)
        return target

    def letter_to_poster(self, round: int = 0) -> bytes:
        """What the server sends to the device of `poster`, before anybody has posted."""
        engine, state, client = self._posting
        return node.letter(engine, replace(state, round=round), client)

    @property
    def posts(self) -> Schema:
        """What one user may post there."""
        return self._posting[0].fleet.announced

    @cached_property
    def _run(self) -> Path:
        place, recipe = self.folder / "run", self._loaded()
        if not place.exists():
            recipe.experiment().run(place, recipe=recipe)
        return place

    @cached_property
    def _begun(self) -> Path:
        def stop(phase: str, done: int, total: int, row: Any) -> None:
            if phase == "rounds":
                signal.raise_signal(signal.SIGINT)

        place, recipe = self.folder / "begun", self._loaded()
        if not place.exists():
            with suppress(Interrupted):
                recipe.experiment().run(place, recipe=recipe, progress=stop)
        return place

    @cached_property
    def _federation(self) -> tuple[Federation, State]:
        engine = self._loaded(*LETTERS).experiment().federation()
        return engine, engine.start()

    @cached_property
    def _store(self) -> Path:
        place = self.folder / "store"
        if not place.exists():
            node.provision(self._federation[0], CLIENT, self._loaded(*LETTERS).toml(), place)
        return place

    @cached_property
    def _posting(self) -> tuple[Federation, State, int]:
        engine = self._loaded(POSTING).experiment().federation()
        return engine, engine.start(), int(engine.clients.consents["gender"][:, 0].nonzero()[0])

    @cached_property
    def _poster(self) -> Path:
        place, (engine, _, client) = self.folder / "poster", self._posting
        if not place.exists():
            node.provision(engine, client, self._loaded(POSTING).toml(), place)
        return place

    def _loaded(self, *sets: str) -> Recipe:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "recipe.toml"
        return Recipe.load(path if path.exists() else self.recipe(path), list(sets))
