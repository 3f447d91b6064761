"""The estimate: all that a run will hold, phase by phase, from counts and from a trial of a few devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from veilrec.attacks.common.jobs import BLOCK as ATTACKED
from veilrec.base.limits.fits import Need
from veilrec.base.limits.heap import ARENAS, TRIMMED, trim
from veilrec.base.limits.machine import Room, fenced, held, peak, room
from veilrec.engine.evaluation import BLOCK
from veilrec.engine.respond import Failed
from veilrec.errors import BadInput, no_memory
from veilrec.lab.examiner import Examiner
from veilrec.rounds import Federation
from veilrec.runs.needs.audits import Audits, draws
from veilrec.runs.needs.counts import Counts
from veilrec.runs.needs.disk import on_disk
from veilrec.runs.needs.phases import PAST, Needs, Phase
from veilrec.runs.needs.trial import Tryout, size_of
from veilrec.wire.transcript import Record

__all__ = ["Estimate"]

ROW = 5 << 9  # bytes of the metrics of a round, which are held twice
WORD = 8  # bytes of an id
OFTEN = 60  # times what is needed for certain, at most: beyond that a trial is made
NUMBA = 136 << 20  # bytes of its import and of five compiled loops, as measured
WIDEST, ASKED = 4096, 64  # columns of a weight that is read, at most; bytes of a value that is asked about


class Work(NamedTuple):
    """What devices hold while they work, and what the server does with it."""

    devices: Need
    answers: Need
    fold: Need
    finish: Need

    @property
    def all(self) -> tuple[Need, ...]:
        """All that is held at once in a round."""
        return self.devices, self.answers, self.fold


@dataclass(frozen=True)
class Estimate:
    """An estimate of one run.

    Attributes:
        federation, examiner, record: What is run, attacked and written down.
        settings: The experiment's, in the sections of a recipe.
    """

    federation: Federation
    examiner: Examiner
    record: Record
    settings: Mapping[str, Any]

    @cached_property
    def room(self) -> Room:
        """What this process may have in all, of what those that share the machine may have."""
        free, beside = room(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return Room(held() + free.bytes // beside, free.limit)

    @cached_property
    def counts(self) -> Counts:
        """What the federation amounts to."""
        unit = self.federation.plan.unit(len(self.federation.able))
        return Counts(self.federation, replace(self.record, last=self.record.last * unit))

    def check(self) -> None:
        """Refuse a run that cannot fit; a trial is made only where that might be.

        Raises:
            BadInput: Naming the setting to lower, and to what.
        """
        least = self.least()
        least.check()
        grown = least.peak.bytes - self._now.bytes
        if self._now.bytes + OFTEN * grown + self._asked > least.room.bytes / 2:
            self.whole().check()

    def least(self) -> Needs:
        """What is needed for certain, from counts alone: what this refuses need not be tried."""
        server = Need("the server", self.counts.shared, *self._width)
        parts = (self._now, server, self._devices, self._pool, self._history, *self._draws, self._examples)
        return self._needs([Phase("training", parts)])

    def whole(self) -> Needs:
        """All that is needed, with a trial.

        Raises:
            BadInput: Where not even that fits.
        """
        _ = self.room  # before it is fenced
        try:
            with fenced():
                return self._whole()
        except Exception as error:
            cause = error.cause if isinstance(error, Failed) else error
            if no_memory(cause):
                worst = max(self.least().peak.parts[1:], key=lambda part: part.bytes)
                what = f"{worst.name}: a trial of a few devices needs more memory than there is"
                raise BadInput(worst.setting or "memory", what, "lower it") from error
            if not isinstance(error, Failed):
                raise
            note = f"a trial failed in {error.phase} ({cause}): only what is certain was counted"
            return replace(self.least(), notes=(note,), disk=on_disk(self.counts, self.examiner))

    def _whole(self) -> Needs:
        trial = Tryout(self.federation, self.counts.kept_rows)
        server = Need("the server", size_of(trial.state), *self._width)
        phases = list(self._phases(trial, server))
        first = Phase(PAST, (Need("held at most so far", peak()),))
        if self._pool.bytes:
            phases.insert(0, Phase("drawing candidates", (self._now, self._pool, self._drawing)))
        return replace(self._needs([first, *phases]), disk=on_disk(self.counts, self.examiner))

    def _phases(self, trial: Tryout, server: Need) -> Iterator[Phase]:
        counts, fleet = self.counts, self.counts.fleet
        together = counts.together(counts.kept)
        train = self._work(trial, together)
        probe = self._work(trial, frozenset()) if together else train
        trim()  # what the trial has left
        common: tuple[Need, ...] = (
            *(self._now, *self._libraries, server, self._devices, self._pool, self._history),
        )
        yield Phase("training", (*common, *train.all))
        yield Phase("the server's step", (*common, train.finish))
        kept = Need("kept back by the C library", min(ARENAS * TRIMMED, train.devices.bytes))
        common = (*common, kept)
        if bool((fleet.clients.test >= 0).any()):
            yield Phase("ranking", (*common, *self._look(trial)))
        if counts.record.last or self.examiner.audits:
            yield Phase("probe", (*common, probe.devices, probe.answers))
        for one in Audits(counts, self.examiner, trial):
            yield Phase(f"readings for {one.name}", (*common, probe.devices, probe.answers, *one.reading))
            yield Phase(f"attack by {one.name}", (*common, *one.learning))

    def _work(self, trial: Tryout, together: frozenset[str]) -> Work:
        """Devices at work, their answers on the way to the server, and its step."""
        chunks, threads = self.counts.chunks(together), self.federation.plan.workers
        tried = [(len(chunk), trial.chunk(chunk, together)) for chunk in chunks]
        most, found = max(tried, key=lambda one: one[1].work.of(one[0]))
        beside = min(threads, len(self.counts.every_chunk(together)))
        chunk = ("plan.chunk", most)
        return Work(
            Need(f"devices at work, {beside} × {most}", beside * found.work.of(most), *chunk),
            Need("their answers", found.answer.of(most), *chunk),
            Need("folding them", found.fold.of(most), *chunk),
            Need("what was folded, and the next state", found.finish, *self._width),
        )

    def _look(self, trial: Tryout) -> tuple[Need, ...]:
        counts, plan = self.counts, self.federation.plan
        line, many = trial.look(counts.chunks(frozenset())[0]), trial.at_once
        candidates = self.federation.evaluation.candidates
        block = max(1, BLOCK // counts.fleet.clients.n_seats)
        scores = 3 * counts.number * (block - many) * ((candidates + 1) or counts.items)
        floor = 2 * WORD * block * ((candidates + 1) if candidates else counts.items)
        setting = ("evaluation.candidates", candidates) if candidates else ("plan.workers", plan.workers)
        return (
            Need(
                f"lists, {plan.workers} × {block}",
                plan.workers * max(line.of(many) + scores, floor),
                *setting,
            ),
        )

    @property
    def _now(self) -> Need:
        return Need("held now: Python, torch, the log", held(), certain=True)

    @property
    def _asked(self) -> int:
        """At most what attackers hold while they are asked about everybody, whatever they read."""
        if not self.examiner.audits:
            return 0
        specs = self.counts.fleet.schema().values()
        width = sum(min(WIDEST, torch.Size(spec.shape).numel() * (spec.table or 1)) for spec in specs)
        return ASKED * torch.get_num_threads() * min(ATTACKED, self.counts.users * width)

    @property
    def _libraries(self) -> Iterator[Need]:
        """The compiler of the noise, where there is noise and a compiler that was not used so far."""
        noisy = self.federation.defence.declares(self.federation.model, self.federation.protocol)
        if noisy and "numba" not in sys.modules and find_spec("numba") is not None:
            yield Need("numba, which compiles the noise", NUMBA)

    @property
    def _devices(self) -> Need:
        """What devices keep, where that is not in files."""
        if self.counts.on_disk:
            return Need("what devices keep: in files", 0)
        return Need("what devices keep", self.counts.store_in_memory, "plan.keeps", 1)

    @property
    def _pool(self) -> Need:
        """The candidates of everybody, which are drawn once."""
        n = self.federation.evaluation.candidates
        return Need("candidates", WORD * self.counts.users * n, "evaluation.candidates", n)

    @property
    def _drawing(self) -> Need:
        """What is held beside the candidates while they are drawn: words, places and what they skip."""
        n = self.federation.evaluation.candidates
        return Need("drawing them", 3 * WORD * self.counts.users * n, "evaluation.candidates", n)

    @property
    def _history(self) -> Need:
        return Need("metrics of the rounds", ROW * self.counts.rounds, "plan.rounds", self.counts.rounds)

    @property
    def _draws(self) -> Iterator[Need]:
        """The known and target users of our own audit, whose draws are a setting."""
        for one in self.examiner.audits[:1]:
            goals = len(one.threat.attributes) or len(self.examiner.data.attributes)
            yield draws(one.threat, self.counts.users, goals)

    @property
    def _examples(self) -> Need:
        """The events of the largest device with their untouched items, drawn and padded."""
        plan, largest = self.federation.plan, max(self.counts.fleet.clients.sizes, default=0)
        size = 2 * WORD * largest * (1 + plan.negatives) * plan.epochs
        name, value = (
            ("negatives", plan.negatives) if plan.negatives >= plan.epochs else ("epochs", plan.epochs)
        )
        return Need("examples of one device", size, f"plan.{name}", value)

    @property
    def _width(self) -> tuple[str, float]:
        """The setting of the model that its weights grow with."""
        options = self.settings.get("model", {})
        name = next((name for name in ("dim", "hidden") if isinstance(options.get(name), int)), "")
        return (f"model.{name}", options[name]) if name else ("", 0)

    def _needs(self, phases: list[Phase]) -> Needs:
        counts = self.counts
        facts = {
            "clients": counts.clients,
            "users": counts.users,
            "items": counts.items,
            "events": len(counts.fleet.clients.log),
            "rounds": counts.rounds,
            "cohort": counts.cohort,
            "looks": counts.rounds // self.federation.look_every if counts.fleet.validates else 0,
            "held": held(),
        }
        return Needs(
            tuple(phases),
            (),
            facts,
            self.room,
        )
