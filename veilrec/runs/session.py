"""A session: one process at work on a run directory, from the first round or a checkpoint to the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from veilrec.base.files import Digest
from veilrec.base.params import part_of
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.probe import probe
from veilrec.eraser import Eraser
from veilrec.interactions import Interactions
from veilrec.lab.examiner import Examiner
from veilrec.privacy.disclosure import disclosures
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import State
from veilrec.result import Result, Utility
from veilrec.rounds import Federation
from veilrec.runs import folder
from veilrec.runs.checkpoint import Checkpoints
from veilrec.runs.clock import total
from veilrec.runs.erasing import Told, applied
from veilrec.runs.fingerprint import data_fingerprint
from veilrec.runs.folder import Run
from veilrec.runs.interrupt import Stop
from veilrec.runs.journal import Journal
from veilrec.runs.recorder import Recorder
from veilrec.runs.summary import curves, environment, replicates, summary
from veilrec.runs.taken import TakenOver
from veilrec.runs.training import Progress, Training
from veilrec.wire.transcript import Record

__all__ = ["ERASING", "Session", "beside_popularity"]

ERASING = "erase_cpu"  # beside the seconds by phase: those of the processor, which erasers took


@dataclass(frozen=True)
class Session:
    """One process at work on a run directory.

    Attributes:
        federation, data, record: What is run, on what, and how much of it is written down.
        place: The directory.
        keeps: Whether it stays when the run is over.
        progress: Called with how far it is.
        examiner: Attacks what the server sees of the selected state.
        erasers: What is applied to the selected state, in order.
        began: The checksums of what the run began with.
        source: A run whose training is taken over; None where this one trains.
    """

    federation: Federation
    data: Interactions
    record: Record
    place: Path
    keeps: bool
    progress: Progress
    examiner: Examiner
    erasers: Sequence[Eraser] = ()
    began: Mapping[str, Digest] = field(default_factory=dict)
    source: Run | None = None

    def run(self, stop: Stop, seconds: float, mark: str, settings: Mapping[str, Any]) -> Result:
        """Train to the end, then judge and write."""
        training = self._training(stop, seconds if self.keeps else None, mark)
        last = training.run(training.begin())
        rounds, trained = last.round, time.perf_counter()
        self.progress("test", 0, 1, None)
        state = training.selected(last)
        selected, row = state.round, training.rows[state.round - 1]
        used, told = time.process_time(), Told()
        if self.erasers:
            state, row = self._erased(state, told), {}  # what validation said before no longer holds
        used, erased = time.process_time() - used, time.perf_counter()
        scored = self._look(state, "test", training.ledger)
        utility = self._utility(state, scored, row, training.ledger)
        tested = time.perf_counter()
        self.progress("write", 0, 1, None)
        files = self._write(state, scored, training, rounds)
        written = time.perf_counter()
        kept = self.place / folder.TRANSCRIPT
        privacy = self.examiner.examine(self.federation, state, selected, kept, self.progress)
        more = {
            "checkpoint": training.clock.owed,
            "erase": erased - trained,
            "test": tested - erased,
            "write": written - tested,
            "attack": time.perf_counter() - written,
        }
        result = Result(
            utility=utility,
            selected=selected,
            rounds=rounds,
            stopped=training.reason,
            traffic={**training.sent, **({"erasing": told} if told else {})},
            timing={**total(training.timing.rows(), **more), ERASING: round(used, 3)},
            environment=environment(self.federation.keys.value.device),
            data=summary(self.data, self.federation.clients, settings),
            settings=settings,
            fingerprint=mark,
            data_fingerprint=data_fingerprint(self.data),
            privacy=privacy,
            ledger=training.spent,
            discloses=self._discloses(),
            curves=curves(training.rows),
            utility_replicates=replicates(scored, self.data, self.federation.evaluation.select),
        )
        if self.keeps:
            secret = [path.name for path in self.place.glob(folder.DRAWS.format("*"))]
            result.save(self.place, files, secret)
            folder.tidy(self.place)
        return result

    def _training(self, stop: Stop, seconds: float | None, mark: str) -> Training:
        fed, place = self.federation, self.place
        schema, unit = fed.fleet.schema(), fed.plan.unit(len(fed.able))
        record = replace(self.record, last=self.record.last * unit)
        make = Training if self.source is None else partial(TakenOver, source=self.source)
        return make(
            fed,
            Checkpoints(place / folder.CHECKPOINT, mark),
            Recorder(place / folder.SPOOL, record, schema),
            Journal(place / folder.METRICS),
            Journal(place / folder.TIMING),
            stop,
            self.progress,
            seconds,
            along=self.examiner.along,
            began=self.began,
        )

    def _erased(self, state: State, told: Told) -> State:
        """The selected state after every eraser, in order; each draws from keys of its own.

        What is to be said of those that took rounds is added to what is `told`.
        """
        keys = self.federation.keys.fold("unlearn")
        for place, eraser in enumerate(self.erasers):
            own = keys.fold(place) if place else keys
            kept = self.place / folder.DRAWS.format(place)
            state = applied(self.federation, state, eraser, self.data, own, kept, told)
        return state

    def _discloses(self) -> list[dict[str, Any]]:
        """List what the messages of one device tell the server, by name."""
        fed = self.federation
        found = disclosures(fed.model, fed.protocol, fed.defence, fed.plan.dtype, fed.plan.forwards)
        return [one.told() for one in found]

    def _look(self, state: State, which: Literal["validation", "test"], ledger: Ledger) -> Scored:
        """Per-user metrics; devices whose server scores have asked it once more."""
        clients = self.federation.clients
        ledger.look(clients.test if which == "test" else clients.validation)
        return self.federation.evaluate(state, which)

    def _utility(self, state: State, scored: Scored, row: Mapping[str, float], ledger: Ledger) -> Utility:
        """The selected state beside popularity, and what validation said of it."""
        fed = self.federation
        validation = {name: row[name] for name in scored.means() if name in row}
        if not validation and fed.fleet.validates:
            validation = self._look(state, "validation", ledger).means()
        return replace(beside_popularity(fed, scored, fed.evaluation), validation=validation)

    def _write(self, state: State, scored: Scored, training: Training, rounds: int) -> dict[str, Digest]:
        """The files of the selected state and of the transcript; checksums of all that the run holds."""
        recorder = training.recorder
        wanted = {part_of(name) for name in recorder.reads}
        recorder.probe(probe(self.federation, state, wanted))
        seen = recorder.merge(self.place / folder.TRANSCRIPT, rounds)
        if not self.keeps:
            return {}
        written = folder.save_state(self.place, state, self.federation.fleet.devices)
        written[folder.PER_USER] = folder.write_per_user(self.place, scored, self.data)
        written |= {journal.path.name: journal.mark() for journal in (training.metrics, training.timing)}
        return {**self.began, **written} | ({folder.TRANSCRIPT: seen} if seen else {})


def beside_popularity(federation: Federation, scored: Scored, protocol: Evaluation) -> Utility:
    """Means over users, and what popularity reaches on the same items and candidates."""
    floor = federation.fleet.floor(protocol).means()
    test, select = scored.means(), protocol.select
    collapsed = test[select] < floor[select]
    return Utility(test, {}, floor, collapsed, select, protocol.describe(), len(scored.user))
