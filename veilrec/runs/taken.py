"""Training that another run has done: its rounds are taken over, so that erasers begin where it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.runs.fingerprint import difference
from veilrec.runs.folder import METRICS, MODEL, TIMING, USERS, Run, load_run
from veilrec.runs.journal import EMPTY, Journal
from veilrec.runs.training import Training
from veilrec.wire.transcript import Record, Transcript

__all__ = ["TakenOver", "trained_in"]

AFTER = ("eraser", "threat", "attack")  # sections of a recipe that act when training is over


def trained_in(
    path: Path, data: Interactions, settings: Mapping[str, Any], federation: Federation, record: Record
) -> Run:
    """The finished run at a path, whose training is that of an experiment with such settings.

    Raises:
        BadInput: Where it was trained otherwise or on other data, is without its weights or rounds, or was
            made to forget already.
        Corrupted: Where a file is not what the run wrote.
    """
    source = load_run(path, data)
    before, now = (_training(one) for one in (source.result.settings, settings))
    if other := difference(before, now):
        raise BadInput("--trained", f"{path} was trained otherwise: {other}", "train this one by itself")
    if source.result.settings.get("eraser") or source.result.erased:
        raise BadInput("--trained", f"{path} was erased already", "name the run without erasers")
    if missing := [name for name in (MODEL, USERS) if name not in source.manifest.files]:
        raise BadInput("--trained", f"{path} is without {missing[0]}", "train this one by itself")
    if federation.protocol.query_schema(federation.model, federation.plan.dtype):
        what = "its devices ask the server for scores, and each question counts"
        raise BadInput("--trained", what, "train this one by itself")
    kept = 0 if source.transcript is None else len(Transcript.open(source.transcript).rounds)
    if kept < min(record.last, source.result.rounds):
        raise BadInput("--trained", f"{path} kept {kept} rounds", f"keep {record.last} there: record.last")
    return source


def _training(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that training goes by: attacks along the way are among them."""
    along = settings.get("threat", {}).get("along", "")
    return {**{name: value for name, value in settings.items() if name not in AFTER}, "along": along}


@dataclass(kw_only=True)
class TakenOver(Training):
    """The rounds of a run that has ended, in place of rounds of its own; nothing is trained.

    Attributes:
        source: That run.
    """

    source: Run

    def begin(self) -> State:
        """Its selected state, with copies of all that it wrote down on the way there."""
        here = (self.metrics, METRICS), (self.timing, TIMING)
        for journal, name in here:
            journal.check()
            journal.rewind(EMPTY)
            for row in Journal(self.source.manifest.path(name)).rows():
                journal.append(row)
        self.rows = self.metrics.rows()
        self.recorder.rewind(0)
        if self.source.transcript is not None:
            self.recorder.take(self.source.transcript)
        return self.source.state(self.federation)

    def run(self, state: State) -> State:
        """Nothing is left to do but to say which round was the last."""
        return replace(state, round=self.source.result.rounds)

    def selected(self, state: State) -> State:
        """The state that it selected."""
        return replace(state, round=self.source.result.selected)

    @property
    def reason(self) -> str:
        """The reason why it ended."""
        return self.source.result.stopped

    @property
    def spent(self) -> Mapping[str, Any]:
        """The privacy that it spent; nobody asks the server when it is looked at again."""
        return self.source.result.ledger

    @property
    def sent(self) -> Mapping[str, Any]:
        """The bytes that it sent."""
        return self.source.result.traffic
