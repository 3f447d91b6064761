"""Runs in processes of their own, made to fail, to be stopped or to be killed at a chosen moment."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests import forge
from tests.forge import LIMIT, Forge
from tests.worlds import checkerboard
from veilrec import experiment
from veilrec.base import files
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.defence import Defence, Posting
from veilrec.engine.devices.store import Keeps
from veilrec.errors import VeilrecError
from veilrec.experiment import Experiment
from veilrec.model import Device, Recommender
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.runs import interrupt
from veilrec.wire.codec import Spec
from veilrec.wire.transcript import Record


@dataclass
class Order:
    """What a process shall do.

    Attributes:
        out: The run directory.
        resume, seconds, rounds: Of the run.
        fail: Kill yourself at the n-th call of a kind, as in ``{"replace": 3}``.
        signals: ``(signal, phase, n, times)``: send it to yourself when a phase is told for the n-th time.
        grace: Seconds that a round has to finish after a signal.
        stall: Wait for that signal's end when the chunk of this number has passed, as a slow round would.
        space: Most bytes of one file, as if the disk were full.
        report: A file for how often each kind of call was made.
        keeps: Where devices' own weights lie.
    """

    out: str
    resume: bool = False
    seconds: float = 0.0
    rounds: int = 9
    fail: dict[str, int] = field(default_factory=dict)
    signals: list[tuple[int, str, int, int]] = field(default_factory=list)
    grace: float = interrupt.GRACE
    stall: int = 0
    space: int = 0
    report: str = ""
    keeps: Keeps = "auto"


@dataclass(frozen=True)
class Showing(Defence):
    """Consenting users post their vector."""

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
        def make(model: Recommender, device: Device) -> Params:
            return {"vector": model.represent(device.batch)}

        return Posting(tuple(model.classes or ()), {"vector": Spec((model.dim,), dtype)}, make)


def small(rounds: int = 9, keeps: Keeps = "auto") -> Experiment:
    """A run in which all that must survive has its part: posts, sampling, two optimisers with state."""
    return Experiment(
        checkerboard(),
        partial(FedNCF, dim=8, head=(8,), user="exposed"),
        FedAvg(server="adam", server_lr=0.01),
        Showing(),
        Plan(rounds=rounds, cohort=0.5, optimiser="adam", lr=0.2, evaluate_every=2, chunk=3, keeps=keeps),
        record=Record(last=3),
        consent=0.5,
        seed=5,
    )


class Pool:
    """Runs one after another, each in a process that a forge forks."""

    def __init__(self, forge: Forge, folder: Path) -> None:
        self._forge, self._errors = forge, folder / "errors"
        self._process = 0

    def start(self, order: Order) -> int:
        """Begin; returns the number of the process."""
        self._errors.unlink(missing_ok=True)
        asked = {"order": asdict(order), "errors": str(self._errors)}
        self._process = self._forge.start(forge.Order("tests.forking:work", asked))
        return self._process

    def wait(self, seconds: float = LIMIT) -> dict[str, Any] | None:
        """How the process ended, ``{"code", "error"}``; None where it has not yet."""
        ended = self._forge.wait(self._process, seconds)
        if ended is None:
            return None
        error = self._errors.read_text(encoding="utf-8") if self._errors.exists() else ""
        return {"code": ended.code, "error": error}

    def run(self, order: Order) -> dict[str, Any]:
        """Begin and wait for the end."""
        self.start(order)
        ended = self.wait()
        assert ended is not None, "no answer in time"
        return ended


def work(order: dict[str, Any], errors: str) -> int:
    """In the new process: one run; returns the exit code."""
    asked, counts = Order(**order), Counter[str]()
    prepare(asked, counts)
    try:
        small(asked.rounds, asked.keeps).run(
            Path(asked.out),
            resume=asked.resume,
            checkpoint_seconds=asked.seconds,
            progress=signaller(asked, counts),
        )
    except VeilrecError as error:
        Path(errors).write_text(f"{error}", encoding="utf-8")
        return error.code
    except BaseException:
        Path(errors).write_text(traceback.format_exc(), encoding="utf-8")
        return 1
    if asked.report:
        Path(asked.report).write_text(json.dumps(counts), encoding="utf-8")
    return 0


def prepare(order: Order, counts: Counter[str]) -> None:
    """Put the failures that are ordered into their places."""

    def failing(kind: str, call: Callable[..., Any], *, half: bool = False) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            counts[kind] += 1
            if counts[kind] == order.fail.get(kind):
                if half:  # a write that got half of its bytes out
                    sink, data = arguments
                    call(sink, memoryview(data)[: len(data) // 2])
                    sink._file.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return called

    os.fsync = failing("fsync", lambda descriptor: None)  # slow, and a killed process loses nothing without
    os.replace = failing("replace", os.replace)
    os.link = failing("link", os.link)
    Path.unlink = failing("unlink", Path.unlink)  # type: ignore[method-assign]
    files.Sink.write = failing("write", files.Sink.write, half=True)  # type: ignore[method-assign]
    experiment.stoppable = partial(interrupt.stoppable, order.grace)  # type: ignore[attr-defined]
    if order.space:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.space, order.space))


def signaller(order: Order, counts: Counter[str]) -> Callable[..., None]:
    """A progress callback that sends the signals that are ordered."""

    def tell(phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        counts[f"told {phase}"] += 1
        for number, where, n, times in order.signals:
            if (where, n) == (phase, counts[f"told {phase}"]):
                for _ in range(times):
                    os.kill(os.getpid(), number)
        if order.stall and counts["told clients"] == order.stall:
            threading.Event().wait(LIMIT)

    return tell
