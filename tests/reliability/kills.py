"""Kills: work is ended by ``kill -9`` at a random moment, often again when it goes on, and then goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.corpus.stock import Stock
from tests.forge import Ended, Order, Setting
from tests.reliability.cases import Bench, Found, Goal, numbered
from tests.reliability.victims import VICTIMS
from veilrec.base.keys import Keys

__all__ = ["at_each_touch", "goals", "prepare"]

WHAT = "killed at random moments and begun again, it ends with the same bytes: {}"
EACH = "killed before each thing that it does to the disk, and in each write: {}"
SHORT = ("finish", "attack", "node", "unlearn")
TRIES = 20  # attempts to come in time
AGAIN = 0.4  # how often what was killed is killed once more when it goes on


@dataclass(frozen=True)
class Whole:
    """Work that nobody disturbs: how it ends, its seconds, and how often it does something to the disk."""

    end: dict[str, str]
    seconds: float
    touches: int


def goals(count: int) -> list[Goal]:
    """One for each victim: so many kills, after all of which it ends as if there had been none."""
    return [
        Goal(f"A1.{name}", WHAT.format(_told(name)), numbered(count), partial(_trial, name))
        for name in VICTIMS
    ]


def at_each_touch() -> list[Goal]:
    """The same for what is short: a kill before each thing that it does to the disk, and in each write."""

    def touches(name: str, bench: Bench) -> list[str]:
        return [f"{place}" for place in range(1, 1 + _whole(name, bench).touches)]

    return [
        Goal(f"A1.each.{name}", EACH.format(_told(name)), partial(touches, name), partial(_touched, name))
        for name in SHORT
    ]


def prepare(bench: Bench) -> None:
    """Measure what nobody disturbs, one after the other."""
    for name in VICTIMS:
        _whole(name, bench)


def _told(name: str) -> str:
    return (VICTIMS[name].__doc__ or "").splitlines()[0]


def _trial(name: str, bench: Bench, case: str, folder: Path) -> Found:
    whole = _whole(name, bench)
    draws = iter(Keys.seed(bench.seed).fold("kills").fold(name).fold(int(case)).uniform(4 * TRIES).tolist())
    moments: list[str] = []
    for _ in range(TRIES):
        _fresh(name, bench, folder / "work")
        if moment := _kill(name, bench, folder, whole, next(draws), next(draws)):
            moments = [moment]
            break
    while moments and next(draws) < AGAIN:
        if moment := _kill(name, bench, folder, whole, next(draws), next(draws)):
            moments.append(moment)
    if not moments:
        return Found(False, "", "it was never in time")
    return _gone_on(name, bench, folder, whole, "killed " + ", then ".join(moments))


def _touched(name: str, bench: Bench, case: str, folder: Path) -> Found:
    whole = _whole(name, bench)
    _fresh(name, bench, folder / "work")
    ended = _work(name, bench, folder, fatal=int(case))
    about = f"killed at touch {case}" if ended.code else "over before"
    return _gone_on(name, bench, folder, whole, about)


def _gone_on(name: str, bench: Bench, folder: Path, whole: Whole, about: str) -> Found:
    """Whether what was killed is not hurt, and ends as if it had not been."""
    if hurt := _look(name, bench, folder, hurt=True):
        return Found(False, about, f"{about}: {hurt}")
    ended = _work(name, bench, folder)
    if ended.code:
        said = (folder / "said").read_text(encoding="utf-8").strip()[-300:]
        return Found(False, about, f"{about}: then ended with {ended.code}: {said}")
    end = _look(name, bench, folder, hurt=False)
    other = sorted(key for key in {*end, *whole.end} if end.get(key) != whole.end.get(key))
    return Found(not other, about, f"{about}: other {', '.join(other)}" if other else "")


def _whole(name: str, bench: Bench) -> Whole:
    """Measured once and kept beside the rows."""
    path = bench.folder / "whole" / f"{name}.json"
    if not path.exists():
        folder = bench.place("whole", name)
        _fresh(name, bench, folder / "work")
        began = time.monotonic()
        ended = _work(name, bench, folder, count=str(folder / "count"))
        seconds = time.monotonic() - began
        assert ended.code == 0, (folder / "said").read_text(encoding="utf-8")
        end = _look(name, bench, folder, hurt=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([end, seconds, int((folder / "count").read_text())]), encoding="utf-8")
    return Whole(*json.loads(path.read_text(encoding="utf-8")))


def _fresh(name: str, bench: Bench, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    VICTIMS[name].make(folder, Stock(bench.stock))


def _kill(name: str, bench: Bench, folder: Path, whole: Whole, which: float, when: float) -> str:
    """Kill the work at a moment, or at something that it does to the disk; empty where it was faster."""
    if which < 0.5:
        fatal = 1 + int(when * whole.touches)
        ended = _work(name, bench, folder, fatal=fatal)
        return f"at touch {fatal}" if ended.code == -signal.SIGKILL else ""
    process = bench.forge.start(_order(name, bench, folder))
    if bench.forge.wait(process, when * whole.seconds) is not None:
        return ""
    os.killpg(process, signal.SIGKILL)
    killed = bench.forge.wait(process)
    return f"after {when * whole.seconds:.3f} s" if killed is not None and killed.code else ""


def _work(name: str, bench: Bench, folder: Path, **options: object) -> Ended:
    return bench.forge.run(_order(name, bench, folder, **options))


def _order(name: str, bench: Bench, folder: Path, **options: object) -> Order:
    work = folder / "work"
    asked = {"name": name, "folder": str(work), "planted": bench.planted, **options}
    return Order("tests.reliability.victims:run", asked, Setting(str(work), stderr=str(folder / "said")))


def _look(name: str, bench: Bench, folder: Path, *, hurt: bool) -> dict[str, str]:
    """What the work has left, read by a process of its own."""
    work, found = folder / "work", folder / "found"
    found.unlink(missing_ok=True)
    asked = {"name": name, "folder": str(work), "found": str(found), "hurt": hurt}
    setting = Setting(str(work), stderr=str(folder / "said"))
    ended = bench.forge.run(Order("tests.reliability.victims:look", asked, setting))
    assert ended.code == 0, (folder / "said").read_text(encoding="utf-8")
    told: dict[str, str] = json.loads(found.read_text(encoding="utf-8"))
    return told
