"""Settings that cannot be right: numbers beyond their bounds, endless lists, what no machine has room for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.corpus import Case, Command
from tests.corpus.stock import Stock

__all__ = ["CASES"]

SMALL, LARGE = "is too small; give ", "is too large; give "
NUMBERS: dict[str, tuple[tuple[str, ...], str]] = {  # settings, and what is said
    "a billion draws of known users": (("threat.repeats=1000000000",), LARGE),
    "a billion untouched items": (("plan.negatives=1000000000",), LARGE),
    "a list of 10¹² items": (("evaluation.ks=[1000000000000]",), LARGE),
    "a vector of 10⁹ numbers": (("model.dim=1000000000",), LARGE),
    "no width": (("model.dim=0",), SMALL),
    "a billion rounds": (("plan.rounds=1000000000",), LARGE),
    "rounds below zero": (("plan.rounds=-1",), SMALL),
    "a billion passes": (("plan.passes=1000000000",), LARGE),
    "a million epochs": (("plan.epochs=1000000",), LARGE),
    "a batch of nothing": (("plan.batch=0",), SMALL),
    "a thousand threads": (("plan.workers=1000",), LARGE),
    "no thread": (("plan.workers=0",), SMALL),
    "a billion devices at once": (("plan.chunk=1000000000",), LARGE),
    "devices below zero": (("plan.chunk=-1",), SMALL),
    "a rate beyond all numbers": (("plan.lr=1e39",), LARGE),
    "a rate of a part below zero": (("plan.lr={user = -1.0}",), SMALL),
    "a wait of a century": (("plan.timeout=3.2e9",), LARGE),
    "an ε below zero": (("plan.budget=-1",), SMALL),
    "a cohort of nobody": (("plan.cohort=0",), SMALL),
    "a sum over one": (("plan.forwards=1",), SMALL),
    "a look after never": (("plan.evaluate_every=0",), SMALL),
    "candidates below zero": (("evaluation.candidates=-1",), SMALL),
    "a list of no items": (("evaluation.ks=[0]",), SMALL),
    "rounds kept below zero": (("record.last=-1",), SMALL),
    "one fold": (("threat.folds=1",), SMALL),
    "a million folds": (("threat.folds=1000000",), LARGE),
    "ten resamples": (("threat.resamples=10",), SMALL),
    "a billion resamples": (("threat.resamples=1000000000",), LARGE),
    "a billion permutations": (("threat.permutations=1000000000",), LARGE),
    "everybody known": (("threat.known=1.0",), LARGE),
    "a clip of nothing": (("defence=[{name = 'laplace', clip = 0}]",), SMALL),
    "an ε of nothing": (("defence=[{name = 'laplace', epsilon = 0}]",), SMALL),
    "a billion columns": (
        ("threat.known=0.2", "attack=[{name = 'attribute', columns = 1000000000}]"),
        LARGE,
    ),
    "a billion uploads": (("threat.known=0.2", "attack=[{name = 'iDLG', uploads = 1000000000}]"), LARGE),
    "10¹² users": (("data.users=1000000000000",), LARGE),
    "no users": (("data.users=0",), SMALL),
    "two items": (("data.items=2",), SMALL),
    "a leak beyond all": (("data.leakage=2",), LARGE),
    "a million tastes": (("data.tastes=1000000",), LARGE),
    "a seed of 64 bits": (("seed=9223372036854775808",), LARGE),
    "a seed of a split below zero": (("data.split_seed=-1",), SMALL),
    "a number of a hundred digits": (("plan.rounds=1" + "0" * 100,), LARGE),
    "a number of five thousand digits": (("plan.rounds=" + "1" * 5000,), "give a whole number"),
    "a key of five thousand tables": (("a" + ".b" * 5000 + "=1",), "names no key"),
    "lists in lists": (("plan.rounds=" + "[" * 500 + "]" * 500,), "give a whole number"),
    "a place beyond any list": (("defence." + "9" * 5000 + ".name=none",), "the list has"),
    "a world beyond any machine": (("data.items=10000000", "data.tastes=1000"), "lower it"),
}
TEXTS: dict[str, tuple[str, str]] = {  # a recipe, and what is said
    "two thousand seeds": (f"seeds = {list(range(2000))}\n", "2,000 entries are too many"),
    "a sweep of a million runs": (
        f"[sweep]\nplan.rounds = {list(range(1, 1001))}\nplan.batch = {list(range(1, 1001))}\n",
        "makes 1,000,000 runs; give choices for at most 10,000",
    ),
    "two thousand layers": (
        f'[model]\nname = "FedNCF"\nhead = {[1] * 2000}\n',
        "2,000 entries are too many",
    ),
    "tables without end": ("[a" + ".b" * 50_000 + "]\nx = 1\n", "nested too deeply"),
    "digits without end": ("[plan]\nrounds = " + "1" * 5000 + "\n", "a number of thousands of digits"),
}


def set_to(sets: Sequence[str], folder: Path, stock: Stock) -> Command:
    """The recipe of the stock, run with other settings."""
    stock.recipe(folder / "a.toml")
    words = [word for one in sets for word in ("--set", one)]
    return Command("run", "a.toml", *words, "--out", "out", "--quiet")


def written(text: str, folder: Path, stock: Stock) -> Command:
    """A recipe of its own."""
    (folder / "a.toml").write_text(text, encoding="utf-8")
    return Command("run", "a.toml", "--out", "out", "--quiet")


CASES = [
    *(Case(f"setting: {name}", partial(set_to, sets), 2, says) for name, (sets, says) in NUMBERS.items()),
    *(Case(f"setting: {name}", partial(written, text), 2, says) for name, (text, says) in TEXTS.items()),
]
