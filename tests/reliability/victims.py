"""Victims: what is killed at any moment, begun again, and must come out as if nothing had happened."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.corpus.stock import Stock
from tests.forking import small
from tests.reliability.failpoints import install
from tests.reliability.plants import plant
from tests.reproduction import tiny
from tests.runs.requests.scan import found_in
from veilrec import cli, node
from veilrec.base import process, tensors
from veilrec.base.files import read_json
from veilrec.errors import BadInput
from veilrec.runs.integrity.checked import CHECKED
from veilrec.runs.integrity.manifest import DONE, MANIFEST, RECEIPT
from veilrec.runs.requests.orders import UnlearnOrder

__all__ = ["VICTIMS", "Victim", "contents", "run", "stable"]

UNSTABLE = {"timing", "environment", "seconds", "peak_bytes", "files", "at"}  # of a result: tell of an hour
TIMINGS = {
    "timing.jsonl",
    "result.json",
    MANIFEST,
    CHECKED,
}  # files that tell of time, or of such a file
TOLD = ("result.json", DONE, RECEIPT)
ROUNDS = 2  # as many as the recipe of the stock has


class Victim(ABC):
    """Something that is worth killing."""

    def make(self, folder: Path, stock: Stock) -> None:
        """Put what it begins with into an empty folder, which it works in; mostly nothing."""
        assert not any(folder.iterdir())

    @abstractmethod
    def work(self, folder: Path) -> int:
        """Do it, or go on with it; returns the exit code."""

    @abstractmethod
    def end(self, folder: Path) -> dict[str, str]:
        """What must be the same in the end, by name."""

    def hurt(self, folder: Path) -> Iterator[str]:
        """What is wrong after a kill, before anybody goes on."""
        yield from ()


class Training(Victim):
    """A run with posts, sampling and two optimisers with state, and checkpoints now and then."""

    keeps, seconds = "memory", 0.05

    def work(self, folder: Path) -> int:
        small(keeps=self.keeps).run(folder / "run", resume=True, checkpoint_seconds=self.seconds)
        return 0

    def end(self, folder: Path) -> dict[str, str]:
        return contents(folder / "run")


class Checkpoint(Training):
    """The same, where devices have files and nearly all that is done is to write checkpoints."""

    keeps, seconds = "disk", 0.0


class Finish(Victim):
    """The last round of a run, and all that is written once it is over."""

    def make(self, folder: Path, stock: Stock) -> None:
        stock.begun(folder / "run")
        stock.recipe(folder / "recipe.toml")

    def work(self, folder: Path) -> int:
        return cli.main(["run", "recipe.toml", "--out", "run", "--resume", "-q"])

    def end(self, folder: Path) -> dict[str, str]:
        return contents(folder / "run")

    def hurt(self, folder: Path) -> Iterator[str]:
        """Finished by its manifest it is whole; before, it is none that a command would take for finished."""
        finished = (folder / "run" / MANIFEST).exists()
        if (code := cli.main(["verify", "run"])) and finished:
            yield f"veilrec verify ends with {code}"
        if not finished and cli.main(["evaluate", "run", "-q"]) != BadInput.code:
            yield "veilrec evaluate takes it for finished"


class Attack(Victim):
    """An attack on a finished run, whose findings join those that are there."""

    words = ("attack", "run", "-q", "--classifier", "logistic", "--attribute", "gender", "--known", "0.5")

    def make(self, folder: Path, stock: Stock) -> None:
        stock.run(folder / "run")

    def work(self, folder: Path) -> int:
        return cli.main([*self.words, "--repeats", "1", "--name", "mine"])

    def end(self, folder: Path) -> dict[str, str]:
        return contents(folder / "run")

    def hurt(self, folder: Path) -> Iterator[str]:
        for words in (["verify", "run"], ["evaluate", "run", "-q"]):
            if cli.main(words):
                yield f"veilrec {words[0]} refuses it"


class Unlearn(Victim):
    """A request to forget that was written down, and its owner told so, and that is done once."""

    asks = tuple(f"u{number:04}" for number in range(1, 13))
    words = ("unlearn", "run", "-q", "--attribute", "gender", "--method", "leace")  # which draws nothing

    def make(self, folder: Path, stock: Stock) -> None:
        stock.run(folder / "run")
        shutil.copy(folder / "run" / "users.safetensors", folder / "before")
        UnlearnOrder(("gender",), self.asks, method="leace", at="then").write(folder / "run")

    def work(self, folder: Path) -> int:
        return cli.main([*self.words, *(word for user in self.asks for word in ("--user", user))])

    def end(self, folder: Path) -> dict[str, str]:
        """Besides equal bytes: it stands once in the run's memory, and whoever asked is found in no byte."""
        own = tensors.read(folder / "before")
        old = own["user"][own["client"] < len(self.asks)].flatten(1).numpy()
        told = read_json(folder / "run" / DONE)["requests"]
        moved = tensors.read(folder / "run" / "users.safetensors")["user"] != own["user"]
        counts = {"requests": f"{len(told)}", "moved": f"{int(moved.flatten(1).any(1).sum())}"}
        return {**contents(folder / "run"), **counts, "old bytes": "; ".join(found_in(folder / "run", old))}

    def hurt(self, folder: Path) -> Iterator[str]:
        for words in (["verify", "run"], ["evaluate", "run", "-q"]):
            if cli.main(words):
                yield f"veilrec {words[0]} refuses it"


class Reproduce(Victim):
    """A table of a paper: two runs, and a page."""

    def make(self, folder: Path, stock: Stock) -> None:
        tiny.write(folder / "tiny")

    def work(self, folder: Path) -> int:
        words = ["reproduce", "tiny", "table1", "--seeds", "1", "--out", "out", "--results", "page.md", "-q"]
        return cli.main(words)

    def end(self, folder: Path) -> dict[str, str]:
        page = (folder / "page.md").read_text(encoding="utf-8")
        timeless = re.sub(r"[^|]*\|$", "", page, flags=re.MULTILINE)  # the last column has minutes
        return contents(folder / "out") | {"page.md": hashlib.sha256(timeless.encode()).hexdigest()}


class Node(Victim):
    """A device that answers two letters; who carries them asks again until there is an answer.

    Its noise is the operating system's, so that answers of two attempts agree only where one was kept.
    """

    def make(self, folder: Path, stock: Stock) -> None:
        stock.store(folder / "store")
        for number in range(ROUNDS):
            (folder / f"letter-{number}").write_bytes(stock.letter(round=number))

    def work(self, folder: Path) -> int:
        for number in range(ROUNDS):
            done, letter = folder / f"answer-{number}", (folder / f"letter-{number}").read_bytes()
            if done.exists():
                continue
            attempt = folder / f"attempt-{number}-{len(list(folder.glob('attempt-*')))}"
            if code := ask(folder / "store", letter, attempt):
                return code
            os.replace(attempt, done)
        return 0

    def end(self, folder: Path) -> dict[str, str]:
        """Whatever has left the device is the beginning of the one answer, and nothing else is left over."""
        found = {}
        for number in range(ROUNDS):
            answer = (folder / f"answer-{number}").read_bytes()
            sent = [path.read_bytes() for path in folder.glob(f"attempt-{number}-*")]
            again = folder / f"again-{number}"
            ask(folder / "store", (folder / f"letter-{number}").read_bytes(), again)
            same = all(answer.startswith(one) for one in sent) and again.read_bytes() in (answer, b"")
            found[f"letter {number}"] = "one answer" if answer and same else "another answer"
        return found | {"left over": ", ".join(sorted(leftovers(folder / "store")))}


def ask(store: Path, letter: bytes, answer: Path) -> int:
    """What a device's process does with a letter: its answer goes into a file as it leaves the process."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(letter))
    before = sys.stdout
    with answer.open("wb", buffering=0) as raw:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw))
        try:
            return node.main([str(store)])
        finally:
            sys.stdout.flush()
            sys.stdout = before


VICTIMS: dict[str, Victim] = {
    "training": Training(),
    "checkpoint": Checkpoint(),
    "finish": Finish(),
    "attack": Attack(),
    "unlearn": Unlearn(),
    "reproduce": Reproduce(),
    "node": Node(),
}


def run(name: str, folder: str, fatal: int = 0, count: str = "", planted: str = "") -> int:
    """In a process of its own: let a victim work, up to its failpoint if it has one."""
    sys.dont_write_bytecode = True
    plant(planted)
    tell = install(fatal)
    victim = VICTIMS[name]
    code = process.run(lambda: victim.work(Path(folder)))
    if count:
        tell(Path(count))
    return code


def look(name: str, folder: str, found: str, hurt: bool) -> int:
    """In a process of its own: write down what a victim has left."""
    victim, place = VICTIMS[name], Path(folder)
    told: Any = list(victim.hurt(place)) if hurt else victim.end(place)
    Path(found).write_text(json.dumps(told), encoding="utf-8")
    return 0


def contents(folder: Path) -> dict[str, str]:
    """Hashes of what a run, or a folder of runs, holds; of results without what tells of time."""
    verified = cli.main(["verify", str(folder)])
    found = {"left over": ", ".join(sorted(leftovers(folder))), "verified": f"{verified}"}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name in TOLD:
            value = stable(json.loads(path.read_bytes()))
            found[name] = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        elif path.name not in TIMINGS and "checkpoint" not in Path(name).parts:
            found[name] = digest(path)
    return found


def leftovers(folder: Path) -> Iterator[str]:
    """Names of what only work that is not finished has."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".tmp" or path.name == "lock" or path.name.endswith(".lock"):
            yield name
        if path.is_dir() and path.name.startswith(("transcript", "devices", "state-")):
            yield name


def stable(value: Any) -> Any:
    """A result without what differs from one hour or machine to the next."""
    if isinstance(value, dict):
        return {name: stable(one) for name, one in value.items() if name not in UNSTABLE}
    return [stable(one) for one in value] if isinstance(value, list) else value


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
