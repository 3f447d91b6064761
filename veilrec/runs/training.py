"""Training: rounds with all that is written down meanwhile, and the way back in after a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from veilrec.base.files import Digest
from veilrec.base.params import Params
from veilrec.errors import BadInput, Corrupted, Interrupted
from veilrec.lab.curve_audit import Along, unattacked
from veilrec.privacy.ledger import Ledger, check
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.runs.checkpoint import Checkpoints
from veilrec.runs.clock import Clock
from veilrec.runs.integrity.described import Saved
from veilrec.runs.integrity.sealed import plain
from veilrec.runs.interrupt import GRACE, Stop
from veilrec.runs.journal import EMPTY, Journal
from veilrec.runs.recorder import Recorder
from veilrec.runs.selection import Selection
from veilrec.wire.traffic import Traffic
from veilrec.wire.uploads import Exchange

__all__ = ["Progress", "Training"]

Progress = Callable[[str, int, int, Mapping[str, float] | None], None]
"""Told of ``(phase, done, total, row)``: clients within a round, a server at work, rounds with metrics."""

CHEAP = 4  # checkpoints may take at most one part in so many of the time


@dataclass
class Training:
    """One run's rounds.

    Attributes:
        federation: What is trained.
        checkpoints, recorder, metrics, timing: What is written.
        stop: Tells when somebody wants it to end.
        progress: Called with how far it is.
        seconds: Between two checkpoints; 0 for one after each round, None for none.
        rows: The metrics so far.
        along: Attacks what is looked at, if anybody does.
        began: The checksums of what the run began with: its recipe and its data.
    """

    federation: Federation
    checkpoints: Checkpoints
    recorder: Recorder
    metrics: Journal
    timing: Journal
    stop: Stop
    progress: Progress
    seconds: float | None
    rows: list[dict[str, Any]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    along: Along | None = None
    began: Mapping[str, Digest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fed = self.federation
        self.selection = Selection(fed.evaluation.select, fed.plan.patience, fed.defence.guards_from)
        self._done, self._saved = 0, -1  # clients of this round; round of the last checkpoint
        self._broke = False  # whether the next round would exceed the budget

    @cached_property
    def traffic(self) -> Traffic:
        """The byte counter."""
        fed, model, dtype = self.federation, self.federation.model, self.federation.plan.dtype
        down, query = fed.protocol.letter(model, dtype), fed.protocol.query_schema(model, dtype)
        return Traffic(down, len(fed.clients), fed.clients.n_seats, query)

    @cached_property
    def ledger(self) -> Ledger:
        """The privacy that is spent."""
        return Ledger.of(self.federation)

    def begin(self) -> State:
        """The state to go on from: the newest checkpoint's, or a fresh one.

        Raises:
            BadInput: Where the budget does not pay for the first round.
            Corrupted: Where there were checkpoints and none can be used.
        """
        for journal in (self.metrics, self.timing):
            journal.check()
        saved = self.checkpoints.latest(self._fault)
        if saved is not None:
            return self._take_up(saved)
        if self.metrics.path.exists() and self.metrics.path.stat().st_size:
            raise Corrupted(
                f"{self.checkpoints.folder}: no checkpoint is left; start again in another folder"
            )
        check(self.federation)
        for journal in (self.metrics, self.timing):
            journal.rewind(EMPTY)
        self.recorder.rewind(0)
        state = self.federation.start(self.checkpoints.devices)
        self._checkpoint(state)
        return state

    def run(self, state: State) -> State:
        """Rounds to the end.

        Raises:
            Interrupted: After a signal, when the last finished round is on disk.
        """
        watch = (self.traffic, self.ledger, self.recorder, self.clock, self._tell, self.stop)
        if not self._over(state):
            self.clock.begin()
            history = unattacked(self.rows)
            rounds = self.federation.rounds(state, watch=watch, history=history, pulse=self._pulse)
            with closing(self.recorder), closing(rounds):  # type: ignore[type-var]
                for state, row in rounds:
                    self._finish(state, row)
                    if self.selection.exhausted or self._spent(state):
                        break
        self._checkpoint(state)
        return state

    def selected(self, state: State) -> State:
        """The state that validation chose, or the last one where nothing was validated.

        Raises:
            BadInput: Where the budget was spent before the defence began to guard.
        """
        if state.round <= self.federation.defence.guards_from:
            what = f"it is spent after round {state.round}, and no state until then is guarded"
            raise BadInput("plan.budget", what, "give more, or let the defence begin earlier")
        if self.selection.round in (0, state.round):
            return state
        devices = self.federation.fleet.devices
        devices.clear()  # the last makes room for the selected
        return self.checkpoints.load(self.selection.round, devices)[0]

    @property
    def sent(self) -> Mapping[str, Any]:
        """The bytes that went up and down."""
        return self.traffic.summary()

    @property
    def spent(self) -> Mapping[str, Any]:
        """The privacy that was spent, looks at held-out items among it."""
        return self.ledger.summary()

    @property
    def reason(self) -> str:
        """The reason why training ended."""
        if self.selection.exhausted:
            return "patience"
        if len(self.rows) >= self.federation.last:
            return "rounds"
        return "budget" if self._broke else "defence"

    def _finish(self, state: State, row: dict[str, Any]) -> None:
        """After each round: write down what it brought, and see whether to go on."""
        looked = self.selection.metric in row
        if looked:
            self.ledger.look(self.federation.clients.validation)
        row |= self.traffic.finish()
        self.recorder.finish()
        found = self.along.look(self.federation, state) if looked and self.along else {}
        self.rows.append({**row, **found})  # not in the row itself, by which a defence may stop
        self.metrics.append({**row, **found})
        self.timing.append({"round": state.round, **self.clock.finish(looked=looked)})
        if self.selection.look(row):
            self.checkpoints.select(state, self.federation.fleet.devices, self._extra())
        self._done = 0
        self.progress("rounds", state.round, self.federation.last, row)
        if self.stop.asked:
            self.stop.relax()
            self._checkpoint(state)
            rest = "" if self.seconds is None else "; continue with --resume"
            raise Interrupted(f"stopped after round {state.round}{rest}")
        if self._due():
            self._checkpoint(state)

    def _due(self) -> bool:
        """Whether a checkpoint is due: also after a round too long for the grace of a signal."""
        if not self.seconds:
            return self.seconds is not None
        cost, clock = CHEAP * self.clock.cost, self.clock
        return clock.age >= max(self.seconds, cost) or clock.round >= max(GRACE, cost)

    def _checkpoint(self, state: State) -> None:
        if self.seconds is None or self._saved == state.round:
            return
        with self.clock.checkpoint():
            self.recorder.sync()
            notes = {
                "selection": self.selection.state(),
                "journals": plain({one.path.name: one.mark() for one in (self.metrics, self.timing)}),
                "began": plain(self.began),
            }
            devices = self.federation.fleet.devices
            self.checkpoints.write(state, devices, self._extra(), notes, self.selection.round)
        self._saved = state.round

    def _extra(self) -> dict[str, Params]:
        return {"traffic": self.traffic.state(), "ledger": self.ledger.state()}

    def _fault(self, saved: Saved) -> str:
        """The fault of a checkpoint beside its own files, or an empty text."""
        for journal in (self.metrics, self.timing):
            if not journal.matches(_mark(saved, journal)):
                return f"{journal.path.name} does not match its checksum"
        return ""

    def _take_up(self, saved: Saved) -> State:
        fleet = self.federation.fleet
        fleet.begin(self.checkpoints.devices)
        state, extra = self.checkpoints.load(saved.round, fleet.devices)
        self.rows = self.metrics.rewind(_mark(saved, self.metrics))
        self.timing.rewind(_mark(saved, self.timing))
        self.recorder.rewind(saved.round)
        self.traffic.restore(extra["traffic"])
        self.ledger.restore(extra["ledger"])
        self.selection = Selection.of(saved.notes["selection"])
        self._saved = saved.round
        return state

    def _over(self, state: State) -> bool:
        """Whether training had ended when the checkpoint was written."""
        if self.selection.exhausted or state.round >= self.federation.last or self._spent(state):
            return True
        defence = self.federation.defence
        return state.round > defence.guards_from and defence.stop(state, unattacked(self.rows))

    def _spent(self, state: State) -> bool:
        """Whether the next round would take somebody beyond the budget."""
        more = state.round < self.federation.last
        self._broke = more and not self.ledger.affords(self.federation, state)
        return self._broke

    def _tell(self, exchange: Exchange) -> None:
        self._done += len(exchange.received.cohort)
        self.progress("clients", self._done, self._cohort, None)

    _tell.reads = ()  # type: ignore[attr-defined]  # of an upload

    def _pulse(self, done: int, total: int) -> None:
        """A server at work: how far it is; where a stop has been asked for long enough, it is left."""
        self.clock()
        self.progress("server", done, total, None)
        self.stop()

    @cached_property
    def _cohort(self) -> int:
        return len(self.federation.sample(0))


def _mark(saved: Saved, journal: Journal) -> Digest:
    return Digest(**saved.notes["journals"][journal.path.name])
