"""Pairs: two processes ask for the same at the same moment; neither takes anything from the other."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.corpus.stock import Stock
from tests.forge import LIMIT, Ended, Order, Setting
from tests.reliability import victims
from tests.reliability.cases import Bench, Found, Goal, numbered
from tests.reliability.plants import plant
from tests.reproduction import tiny
from veilrec import cli
from veilrec.base.keys import Keys

__all__ = ["PAIRS", "Pair", "call", "goals"]

START = 0.05  # seconds until both begin
APART = 0.03  # seconds that one may begin later than the other
QUICK = ("-q", "--classifier", "logistic", "--attribute", "gender", "--known", "0.5", "--repeats", "1")


@dataclass(frozen=True)
class Pair:
    """Two calls of one command.

    Attributes:
        what: What must come of them.
        make: Puts what they need into a folder.
        words: The arguments of the first and of the second; a word ``letter`` asks a device.
        faults: What is wrong in the end, given the folder and how both ended.
    """

    what: str
    make: Callable[[Path, Stock], object]
    words: tuple[Sequence[str], Sequence[str]]
    faults: Callable[[Path, Sequence[Ended]], Iterator[str]]


def _device(folder: Path, stock: Stock) -> None:
    stock.store(folder / "store")
    (folder / "letter").write_bytes(stock.letter())


def _one_answer(folder: Path, ended: Sequence[Ended]) -> Iterator[str]:
    sent = [(folder / f"out-{place}").read_bytes() for place in (0, 1)]
    answers = {one for one in sent if one}
    if len(answers) != 1:
        yield f"{len(answers)} different answers"
    for place, one in enumerate(ended):
        if one.code != (0 if sent[place] else 2):
            yield f"ended with {one.code}"
    victims.ask(folder / "store", (folder / "letter").read_bytes(), folder / "again")
    if (again := (folder / "again").read_bytes()) and again not in answers:
        yield "asked again, it answers something else"


def _both_findings(folder: Path, ended: Sequence[Ended]) -> Iterator[str]:
    yield from _codes(ended, 0)
    found = json.loads((folder / "run" / "result.json").read_bytes())["privacy"]
    if not {"one", "two"} <= found.keys():
        yield f"only {', '.join(found)} found"
    yield from _left_over(folder / "run")
    if cli.main(["verify", str(folder / "run")]):
        yield "veilrec verify refuses it"


def _one_table(folder: Path, ended: Sequence[Ended]) -> Iterator[str]:
    yield from _codes(ended, 0)
    if cli.main([*TABLE, "--no-run", "--json"]):
        yield "the table cannot be shown"
    yield from _left_over(folder)


def _one_page(folder: Path, ended: Sequence[Ended]) -> Iterator[str]:
    yield from _codes(ended, 0)
    page = (folder / "page.html").read_text(encoding="utf-8")
    titles = [title for title in ("first", "second") if f"<title>{title}" in page]
    if len(titles) != 1 or not page.rstrip().endswith("</html>"):
        yield f"a torn page: {titles}"
    yield from _left_over(folder)


def _codes(ended: Sequence[Ended], *allowed: int) -> Iterator[str]:
    for one in ended:
        if one.code not in allowed:
            yield f"ended with {one.code}"


def _left_over(folder: Path) -> Iterator[str]:
    if left := ", ".join(sorted(victims.leftovers(folder))):
        yield f"left over: {left}"


TABLE = ("reproduce", "tiny", "table1", "--seeds", "1", "--out", "out", "--results", "page.md", "-q")
PAIRS = {
    "node": Pair("one answer alone leaves the device", _device, (("letter",), ("letter",)), _one_answer),
    "attack": Pair(
        "both findings are there",
        lambda folder, stock: stock.run(folder / "run"),
        (("attack", "run", *QUICK, "--name", "one"), ("attack", "run", *QUICK, "--name", "two")),
        _both_findings,
    ),
    "reproduce": Pair(
        "the table is there, made once",
        lambda folder, stock: tiny.write(folder / "tiny"),
        (TABLE, TABLE),
        _one_table,
    ),
    "report": Pair(
        "one of the two pages is there, whole",
        lambda folder, stock: stock.run(folder / "run"),
        (
            ("report", "run", "-o", "page.html", "--title", "first"),
            ("report", "run", "-o", "page.html", "--title", "second"),
        ),
        _one_page,
    ),
}


def goals(count: int) -> list[Goal]:
    """One for each command: so many pairs."""
    return [
        Goal(f"A14.{name}", f"two at the same moment: {pair.what}", numbered(count), partial(_trial, name))
        for name, pair in PAIRS.items()
    ]


def _trial(name: str, bench: Bench, case: str, folder: Path) -> Found:
    pair, work = PAIRS[name], folder / "work"
    work.mkdir()
    pair.make(work, Stock(bench.stock))
    draws = Keys.seed(bench.seed).fold("pairs").fold(name).fold(int(case)).uniform(2).tolist()
    begin = [time.monotonic() + START + APART * draw for draw in draws]
    started = []
    for place, words in enumerate(pair.words):
        said, out = str(folder / f"said-{place}"), str(work / f"out-{place}")
        letter = str(work / "letter") if words[0] == "letter" else "/dev/null"
        setting = Setting(str(work), letter, out, said, {"OMP_NUM_THREADS": "1"})
        order = {"words": list(words), "begin": begin[place], "planted": bench.planted}
        started.append(bench.forge.start(Order("tests.reliability.pairs:call", order, setting)))
    ended = [bench.forge.wait(process, LIMIT) or Ended(-1, LIMIT, 0) for process in started]
    found = folder / "found"
    asked = {"name": name, "folder": str(work), "found": str(found), "codes": [one.code for one in ended]}
    looked = bench.forge.run(
        Order("tests.reliability.pairs:look", asked, Setting(str(work), stderr=str(folder / "look")))
    )
    faults = (
        json.loads(found.read_text(encoding="utf-8")) if not looked.code else ["what is left cannot be read"]
    )
    about = f"{abs(begin[0] - begin[1]) * 1000:.0f} ms apart"
    said = " | ".join(
        (folder / f"said-{place}").read_text(encoding="utf-8").strip()[-200:] for place in (0, 1)
    )
    return Found(not faults, about, "; ".join([about, *faults, said]) if faults else "")


def call(words: Sequence[str], begin: float, planted: str) -> int:
    """In a process of its own: wait for a moment, then run a command."""
    plant(planted)
    time.sleep(max(0.0, begin - time.monotonic()))
    if list(words) == ["letter"]:
        from veilrec import node

        return node.main(["store"])
    return cli.main(words)


def look(name: str, folder: str, found: str, codes: Sequence[int]) -> int:
    """In a process of its own: write down what is wrong in the end."""
    ended = [Ended(code, 0.0, 0) for code in codes]
    faults = list(PAIRS[name].faults(Path(folder), ended))
    Path(found).write_text(json.dumps(faults), encoding="utf-8")
    return 0
