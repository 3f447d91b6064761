"""Folders that are not what was written: runs with a file exchanged, edited, gone or led elsewhere; traps."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

from tests.corpus import Case, Command
from tests.corpus.stock import Stock
from veilrec.base.files import digest
from veilrec.runs.integrity.sealed import write_sealed

__all__ = ["CASES", "EDITS", "TRAPS", "Edit"]

OPENING = ("attack", "evaluate", "recommend")  # commands that open a run and its model
READING = (*OPENING, "report", "compare")  # those that read its result
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "attack": ("--preset", "apm", "--no-save", "--quiet"),
    "evaluate": ("--quiet",),
    "recommend": ("--user", "u0007"),
    "report": ("-o", "page.html"),
}


@dataclass(frozen=True)
class Edit:
    """A change of a finished run that nobody must believe.

    Attributes:
        name: What was done.
        make: Does it to a run, with the stock for what another run has.
        file: The file that is named.
        read_by: Commands that read it: each ends with 4. `verify` does in any case.
        quick: Whether it stands for others of its kind in the quick tier.
    """

    name: str
    make: Callable[[Path, Stock], None]
    file: str
    read_by: tuple[str, ...] = READING
    quick: bool = True


def exchange(name: str, old: str, new: str, run: Path, stock: Stock) -> None:
    """Another text in the place of one."""
    text = (run / name).read_text(encoding="utf-8")
    assert old in text
    (run / name).write_text(text.replace(old, new, 1), encoding="utf-8")


def edit(run: Path, change: Callable[[dict[str, Any]], None], name: str = "result.json") -> None:
    told = json.loads((run / name).read_text(encoding="utf-8"))
    change(told)
    (run / name).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


def flip(name: str, run: Path, stock: Stock) -> None:
    """The last bit of the last byte."""
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def swap(name: str, run: Path, stock: Stock) -> None:
    """A file of the same kind from another run."""
    other = stock.run(run.parent / "other")
    data = (other / name).read_bytes()
    half = len(data) // 2
    (run / name).write_bytes(data[:half] + bytes(reversed(data[half:])))
    shutil.rmtree(other)


def cut(name: str, run: Path, stock: Stock) -> None:
    os.truncate(run / name, (run / name).stat().st_size // 2)


def gone(name: str, run: Path, stock: Stock) -> None:
    (run / name).unlink()


def led_elsewhere(name: str, run: Path, stock: Stock) -> None:
    """The very bytes, behind a link."""
    (run / name).rename(run.parent / "elsewhere")
    (run / name).symlink_to(run.parent / "elsewhere")


def pipe(name: str, run: Path, stock: Stock) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)


def huge(name: str, run: Path, stock: Stock) -> None:
    """A terabyte of nothing, which takes no room."""
    try:
        os.truncate(run / name, 1 << 40)
    except OSError as cause:
        raise SkipTest(f"no file of a terabyte here: {cause.strerror}") from cause


def selected(run: Path, stock: Stock) -> None:
    edit(run, lambda told: told.update(selected=1))


def better(run: Path, stock: Stock) -> None:
    edit(run, lambda told: told["utility"]["test"].update({"ndcg@10": 0.9}))


def smoother(run: Path, stock: Stock) -> None:
    edit(run, lambda told: told["curves"].update(loss=[0.5] * len(told["curves"]["loss"])))


def no_mechanism(run: Path, stock: Stock) -> None:
    edit(run, lambda told: told["ledger"].update(guarantee=True))


def forged(run: Path, stock: Stock) -> None:
    """A manifest that says the file is right, without its own checksum made anew."""
    selected(run, stock)
    new = digest(run / "result.json")._asdict()
    edit(run, lambda told: told["files"].update({"result.json": new}), "manifest.json")


def kinds_of(name: str, read_by: tuple[str, ...]) -> list[Edit]:
    """What may befall any file."""
    ways: dict[str, Callable[[str, Path, Stock], None]] = {
        "a bit of {} flipped": flip,
        "{} cut": cut,
        "{} gone": gone,
        "{} behind a link": led_elsewhere,
        "{} a pipe": pipe,
        "{} of a terabyte": huge,
    }
    return [
        Edit(words.format(name), partial(way, name), name, read_by, quick=name == USERS)
        for words, way in ways.items()
    ]


def texts(name: str, old: str, new: str) -> Callable[[Path, Stock], None]:
    return partial(exchange, name, old, new)


WORLD, MODEL, USERS = "world.safetensors", "model.safetensors", "users.safetensors"
SEEN, RECIPE, RESULT = "transcript.safetensors", "recipe.toml", "result.json"
EDITS = [
    Edit("a comment in the recipe", texts(RECIPE, "[plan]", "[plan] # x"), RECIPE, OPENING),
    Edit("a number in the recipe", texts(RECIPE, "rounds = 2", "rounds = 9"), RECIPE, OPENING),
    Edit("another user's name", texts("ids.json", "u0007", "u0008"), "ids.json", OPENING),
    Edit("another world", partial(swap, WORLD), WORLD, OPENING),
    Edit("another model", partial(swap, MODEL), MODEL, OPENING),
    Edit("others' vectors", partial(swap, USERS), USERS, OPENING),
    Edit("another transcript", partial(swap, SEEN), SEEN, ("attack",)),
    Edit("another selected round", selected, RESULT),
    Edit("a better metric", better, RESULT),
    Edit("a smoother curve", smoother, RESULT),
    Edit("a guarantee that nobody gave", no_mechanism, RESULT),
    Edit(
        "another loss in the journal", texts("metrics.jsonl", '"loss": 0', '"loss": 1'), "metrics.jsonl", ()
    ),
    Edit("a quicker round", texts("timing.jsonl", '"train": 0', '"train": 1'), "timing.jsonl", ()),
    Edit("another person's score", texts("per_user.csv", "u0007", "u0070"), "per_user.csv", ()),
    Edit("an edited manifest", forged, "manifest.json"),
    *kinds_of(USERS, OPENING),
    *kinds_of(RECIPE, OPENING),
    *kinds_of(RESULT, READING),
    *kinds_of(SEEN, ("attack",)),
    *kinds_of("manifest.json", READING),
]


def edited(one: Edit, command: str, folder: Path, stock: Stock) -> Command:
    one.make(stock.run(folder / "run"), stock)
    return Command(command, "run", *OPTIONS.get(command, ()))


def link(path: Path) -> None:
    (path.parent / "precious").write_text("years of work", encoding="utf-8")
    path.symlink_to("precious")


def hard_link(path: Path) -> None:
    (path.parent / "precious").write_text("years of work", encoding="utf-8")
    os.link(path.parent / "precious", path)


def device(path: Path) -> None:
    path.symlink_to(os.devnull)


def text(path: Path) -> None:
    path.write_text("somebody's own", encoding="utf-8")


TRAPS: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link": (link, "is a link"),
    "a hard link": (hard_link, "a hard link"),
    "a pipe": (os.mkfifo, "is a pipe"),
    "a folder": (Path.mkdir, "is a folder"),
    "a link to a device": (device, "is a link"),
    "somebody's text": (text, "is no lock of veilrec"),
}


def locked_by(trap: Callable[[Path], None], folder: Path, stock: Stock) -> Command:
    trap(stock.run(folder / "run") / "lock")
    return Command("attack", "run", "--preset", "apm", "--attribute", "gender", "--quiet")


def resumed_with(name: str, trap: Callable[[Path], None], folder: Path, stock: Stock) -> Command:
    run, recipe = stock.begun(folder / "run"), stock.recipe(folder / "small.toml")
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    trap(path)
    return Command("run", recipe.name, "--out", "run", "--resume", "--quiet")


def page_at(trap: Callable[[Path], None], option: str, folder: Path, stock: Stock) -> Command:
    stock.run(folder / "run")
    trap(folder / "out")
    return Command("report", "run", "-o", "page", option, "out")


def page_behind(option: str, way: str, folder: Path, stock: Stock) -> Command:
    """A place for a page that is reached through a folder that is a link."""
    stock.run(folder / "run")
    (folder / "outside" / "deep").mkdir(parents=True)
    (folder / "link").symlink_to("outside")
    return Command("report", "run", "-o", "page", option, way.format(folder))


def folder_elsewhere(name: str, folder: Path, stock: Stock) -> Command:
    """A folder within a run that has its very contents, behind a link."""
    run, recipe = stock.begun(folder / "run"), stock.recipe(folder / "small.toml")
    path = next(run.glob(name))
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")
    return Command("run", recipe.name, "--out", "run", "--resume", "--quiet")


def begun_and(change: Callable[[Path, Stock], None], folder: Path, stock: Stock) -> Command:
    run, recipe = stock.begun(folder / "run"), stock.recipe(folder / "small.toml")
    change(run, stock)
    return Command("run", recipe.name, "--out", "run", "--resume", "--quiet")


def another_recipe(folder: Path, stock: Stock) -> Command:
    recipe, _ = stock.recipe(folder / "small.toml"), stock.begun(folder / "run")
    return Command("run", recipe.name, "--out", "run", "--resume", "--quiet", "--set", "plan.lr=0.7")


def another_finished(folder: Path, stock: Stock) -> Command:
    recipe, _ = stock.recipe(folder / "small.toml"), stock.run(folder / "run")
    return Command("run", recipe.name, "--out", "run", "--resume", "--quiet", "--set", "plan.lr=0.7")


def no_state(run: Path, stock: Stock) -> None:
    for path in run.glob("checkpoint/state-*"):
        path.write_bytes(path.read_bytes()[:-1])


def other_began(run: Path, stock: Stock) -> None:
    flip("world.safetensors", run, stock)


def edited_began(run: Path, stock: Stock) -> None:
    exchange("recipe.toml", "[plan]", "[plan] # x", run, stock)


def listing(index: Any, folder: Path, stock: Stock) -> Command:
    sweep = folder / "sweep"
    stock.run(sweep / "seed=0")
    stock.run(folder / "elsewhere")
    told = json.dumps(index) if not isinstance(index, str) else index
    (sweep / "index.json").write_text(told, encoding="utf-8")
    return Command("compare", "sweep")


def of_cells(*names: Any) -> dict[str, Any]:
    return {"version": 1, "cells": [{"name": name, "settings": {}, "finished": True} for name in names]}


def linked_cell(folder: Path, stock: Stock) -> Command:
    command = listing(of_cells("seed=0", "seed=1"), folder, stock)
    (folder / "sweep" / "seed=1").symlink_to(folder / "elsewhere")
    return command


def resealed(change: Callable[[dict[str, Any]], None], folder: Path, stock: Stock) -> Command:
    """A manifest that nobody of ours has written, though its checksum is right."""
    run = stock.run(folder / "run")
    told = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    change(told)
    body = {key: value for key, value in told.items() if key not in ("sha256", "version")}
    write_sealed(run / "manifest.json", told["version"], body)
    return Command("compare", "run")


def of_before(change: Callable[[dict[str, Any]], None], folder: Path, stock: Stock) -> Command:
    """A run that nothing vouches for, with a result that cannot be."""
    run = stock.run(folder / "run")
    told = json.loads((run / "result.json").read_text(encoding="utf-8"))
    told = {**told, "version": 2, "files": {}}
    change(told)
    (run / "result.json").write_text(json.dumps(told), encoding="utf-8")
    (run / "manifest.json").unlink()
    return Command("report", "run", "-o", "page.html")


def utility(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda told: told["utility"].update(values)


IMPOSSIBLE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a metric above 1": (utility(test={"ndcg@10": 7.0}), r"utility\.test\.ndcg@10: is above 1"),
    "a metric that is no number": (utility(test={"ndcg@10": "0.5"}), "is no finite number"),
    "an infinite metric": (utility(test={"ndcg@10": float("inf")}), "cannot be read as JSON"),
    "a negative number of users": (utility(users=-1), r"utility\.users: is below 0"),
    "a metric that nobody measured": (utility(select="hr@77"), "was not measured"),
    "curves of several lengths": (lambda told: told["curves"].update(loss=[1.0]), "not of one length"),
    "a curve that is a text": (lambda told: told.update(curves={"loss": "abc"}), r"curves\.loss: is no list"),
    "a million attackers": (
        lambda told: told.update(privacy={"x": {"attributes": {"a": {"attackers": [{}] * 10**6}}}}),
        "has 1,000,000 entries",
    ),
    "a text of a megabyte": (lambda told: told.update(stopped="x" * 10**6), "more than 65,536 letters"),
    "a table nested too deeply": (lambda told: told.update(environment=nested(200)), "levels deep"),
    "no utility": (lambda told: told.pop("utility"), "lacks utility"),
    "an unknown entry": (lambda told: told.update(more=1), 'unknown entry "more"'),
}


def nested(depth: int) -> Any:
    return {"a": nested(depth - 1)} if depth else {}


CASES = [
    *(
        Case(f"folder: {one.name}, for {one.read_by[0]}", partial(edited, one, one.read_by[0]), 4, one.file)
        for one in EDITS
        if one.read_by
    ),
    *(
        Case(f"folder: {what} in the place of a lock", partial(locked_by, trap), 2, says)
        for what, (trap, says) in TRAPS.items()
    ),
    *(
        Case(f"folder: {what} where {option} writes", partial(page_at, trap, option), 2, says)
        for what, (trap, says) in TRAPS.items()
        for option in ("-o", "--csv")
        if what not in ("a hard link", "somebody's text")  # which a new file takes the place of
    ),
    *(
        Case(
            f"folder: {option} {way} where link is one",
            partial(page_behind, option, way),
            2,
            "link: is a link",
        )
        for option in ("-o", "--csv")
        for way in ("link/x", "link/deep/x", "{}/link/x")
    ),
    *(
        Case(f"folder: {name} of a run behind a link", partial(folder_elsewhere, name), 2, "is a link")
        for name in ("checkpoint", "transcript", "transcript/*/")
    ),
    *(
        Case(f"folder: {what} in the place of {name}", partial(resumed_with, name, trap), code, name)
        for name, code in (("metrics.jsonl", 2), (RECIPE, 4), (WORLD, 4))
        for what, (trap, _) in TRAPS.items()
        if (what, name) != ("somebody's text", "metrics.jsonl")  # then the checkpoint before it is used
    ),
    *(
        Case(f"folder: {what} in the place of the checkpoints", partial(resumed_with, "checkpoint", trap), 2)
        for what, (trap, _) in TRAPS.items()
        if what != "a folder"
    ),
    Case("folder: another recipe to resume with", another_recipe, 2, r"plan\.lr was 0\.1, is 0\.7"),
    Case("folder: another recipe than the finished one", another_finished, 2, r"plan\.lr was 0\.1, is 0\.7"),
    Case("folder: no state that is whole", partial(begun_and, no_state), 4, "no older one is whole"),
    Case("folder: a world edited before its end", partial(begun_and, other_began), 4, "world.safetensors"),
    Case("folder: a recipe edited before its end", partial(begun_and, edited_began), 4, "recipe.toml"),
    Case(
        "folder: an index of ../elsewhere", partial(listing, of_cells("../elsewhere")), 4, "no name of a cell"
    ),
    Case("folder: an index of /etc", partial(listing, of_cells("/etc")), 4, "no name of a cell"),
    Case("folder: an index of numbers", partial(listing, of_cells(5)), 4, "no list of cells"),
    Case("folder: an index of one cell twice", partial(listing, of_cells("a", "a")), 4, "names a cell twice"),
    Case("folder: an index that is a list", partial(listing, []), 4, "no JSON object"),
    Case("folder: an index of brackets", partial(listing, "[" * 10**5), 4, "cannot be read as JSON"),
    Case("folder: a cell behind a link", linked_cell, 4, "is a link"),
    *(
        Case(f"folder: a sealed manifest with {what}", partial(resealed, change), 4, says)
        for what, change, says in (
            ("a file elsewhere", lambda told: told["files"].update({"../x": None}), "the key"),
            ("a negative length", lambda told: told["files"]["ids.json"].update(bytes=-1), "is below 0"),
            ("a generation of 0", lambda told: told.update(generation=0), "is below 1"),
            ("what to drop elsewhere", lambda told: told.update(dropped=["../x"]), r"dropped\.0"),
        )
    ),
    *(
        Case(f"folder: a result of before with {what}", partial(of_before, change), 4, says)
        for what, (change, says) in IMPOSSIBLE.items()
    ),
]
