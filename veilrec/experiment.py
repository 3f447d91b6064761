"""An experiment: data, model, protocol, defence and plan become a result. The file that knows everyone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from typing import Protocol as Shape

import torch

from veilrec.attack import Attack
from veilrec.base import toml
from veilrec.base.defaults import own_defaults
from veilrec.base.files import Digest
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Bounds, Seed, Share, hold, takes
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence, guarded
from veilrec.defences.none import Undefended
from veilrec.engine.evaluation import Evaluation
from veilrec.engine.features import with_features
from veilrec.engine.in_process import InProcess
from veilrec.engine.refusals import refuse_kinds
from veilrec.eraser import AttributeEraser, Eraser
from veilrec.erasers.common.rounds import RoundEraser
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions
from veilrec.lab.examiner import Examiner
from veilrec.lab.threat import Threat
from veilrec.model import Recommender, made, wants_features
from veilrec.privacy import ledger
from veilrec.protocol import Protocol
from veilrec.protocols.fedavg import FedAvg
from veilrec.result import Result
from veilrec.rounds import Federation
from veilrec.runs import folder
from veilrec.runs.erasing import check_rounds, request_of
from veilrec.runs.fingerprint import describe, difference, fingerprint
from veilrec.runs.integrity.manifest import Manifest, is_finished, steadily
from veilrec.runs.interrupt import ECHO, stoppable
from veilrec.runs.needs.estimate import Estimate
from veilrec.runs.needs.phases import Needs
from veilrec.runs.requests.orders import is_pending
from veilrec.runs.session import Session
from veilrec.runs.taken import trained_in
from veilrec.runs.training import Progress
from veilrec.wire.transcript import Record

if TYPE_CHECKING:
    from veilrec.engine.ranks.links import Link

__all__ = ["Experiment", "Written", "check_device"]

SECONDS = 10.0  # between two checkpoints


class Written(Shape):
    """A recipe as its author wrote it: what an experiment that was made from one keeps of it."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Every setting, by section."""

    def toml(self) -> str:
        """The text that is stored with the run."""


@takes("experiment")
@dataclass(frozen=True)
class Experiment:
    """Everything that decides a result.

    Attributes:
        data: The log.
        model: Makes the recommender for so many items and so many users a device.
        protocol, defence, plan, evaluation: How it is trained, guarded and judged.
        erasers: What is applied to the selected state after training, in order.
        attacks, threat: Who tries to find out what, by name; with a threat alone, all our families do.
        record: What is written down of what the server saw.
        seed: A seed is a whole run: initial weights, sampling, negatives, noise.
        silos: Clients with many users each; 0 for one user a client.
        consent: Share of users who post an attribute openly, for all attributes or by name.
        split_seed: Decides candidates, consent and silos; equal for all seeds of a comparison.
        include_private_features: Whether attributes are among the features, if the model reads any: then
            whoever sees its updates may read them off (APM, Table 1).
        device: ``cpu`` or ``cuda``.
    """

    data: Interactions
    model: Callable[[int, int], Recommender]
    protocol: Protocol = field(default_factory=FedAvg)
    defence: Defence = field(default_factory=Undefended)
    plan: Plan = field(default_factory=Plan)
    evaluation: Evaluation = field(default_factory=Evaluation)
    attacks: Mapping[str, Attack] = field(default_factory=dict)
    threat: Threat | None = None
    record: Record = field(default_factory=Record)
    seed: Seed = 0
    silos: Annotated[int, Bounds(0, 10_000_000)] = 0
    consent: Share | Mapping[str, Share] = 0.0
    split_seed: Seed = 0
    include_private_features: bool = False
    device: str = "cpu"
    erasers: Sequence[Eraser] = ()

    def __post_init__(self) -> None:
        refuse_kinds({field.name: getattr(self, field.name) for field in fields(self)})
        hold(self, "experiment")

    @own_defaults()
    def federation(self) -> Federation:
        """The clients of the data with the parts of the experiment.

        Raises:
            BadInput: Where parts do not go together.
        """
        check_device(self.device)
        self._check_consent()
        self._check_threat()
        split = self.data.leave_one_out(validation=self.evaluation.validation)
        keys = Keys.seed(self.split_seed)
        if self.silos:
            clients = Clients.silos(split, self.silos, consent=self.consent, keys=keys)
        else:
            clients = Clients.phones(split, consent=self.consent, keys=keys)
        if wants_features(self.model):
            clients = with_features(clients, private=self.include_private_features)
        federation = Federation.of(clients, *self._parts(clients), **self._rest)
        _check_drawn(federation)
        for eraser in self.erasers:
            eraser.check(federation.model)
            if isinstance(eraser, AttributeEraser):
                request_of(self.data, eraser)
            if isinstance(eraser, RoundEraser):
                check_rounds(federation, eraser)
        return federation

    def part(self, clients: Clients) -> InProcess:
        """The fleet of some of the clients, whose data another process has read and prepared."""
        check_device(self.device)
        return InProcess.part(clients, *self._parts(clients), **self._rest)

    def _parts(self, clients: Clients) -> tuple[Recommender, Protocol, Defence, Plan]:
        """What the devices run."""
        width = 0 if clients.log.features is None else clients.log.features.shape[1]
        model = made(self.model, clients.log.n_items, clients.n_seats, width)
        return model, self.protocol, self.defence, self.plan

    @property
    def _rest(self) -> dict[str, Any]:
        """Options of a fleet beside what its devices run."""
        return {
            "seed": self.seed,
            "evaluation": self.evaluation,
            "device": self.device,
            "split_seed": self.split_seed,
        }

    def needs(self) -> Needs:
        """The memory that a run will need, phase by phase, and the room on the disk; nothing is written.

        Raises:
            BadInput: Where parts do not go together, or not even a trial of a few devices fits.
        """
        federation = self.federation()
        self._check_sums()
        needs = self._estimate(federation).whole()
        if torch.device(self.device).type == "cpu":
            return needs
        note = "what devices and the server hold lies on the GPU, whose memory is not looked at"
        return replace(needs, notes=(*needs.notes, note))

    def checked(self) -> Federation:
        """The federation, which was found to fit into the memory there is.

        Raises:
            BadInput: Where parts do not go together, or naming the setting to lower, and to what.
        """
        federation = self.federation()
        self._check_sums()
        if torch.device(self.device).type == "cpu":
            self._estimate(federation).check()
        return federation

    def _estimate(self, federation: Federation) -> Estimate:
        return Estimate(federation, self._examiner, self._record, self.settings())

    @property
    def _examiner(self) -> Examiner:
        return Examiner.of(self.data, self.threat, self.attacks, self.seed)

    def settings(self) -> dict[str, Any]:
        """The experiment in plain words and numbers, in the sections of a recipe."""
        data = {
            "name": self.data.name,
            "consent": self.consent,
            "silos": self.silos,
            "split_seed": self.split_seed,
            "include_private_features": self.include_private_features,
        }
        told = {
            "seed": self.seed,
            "data": describe(data),
            "model": describe(self.model),
            "protocol": describe(self.protocol),
            "plan": describe(self.plan, named=False),
            "defence": [describe(link) for link in self.defence.links],
            "evaluation": describe(self.evaluation, named=False),
            "record": describe(self.record, named=False),
        }
        if self.erasers:
            told["eraser"] = [describe(eraser) for eraser in self.erasers]
        if self.threat is not None:
            told["threat"] = describe(self.threat, named=False)
        return told | (
            {"attack": [describe(attack) for attack in self.attacks.values()]} if self.attacks else {}
        )

    @own_defaults()
    def run(
        self,
        out: Path | None = None,
        *,
        resume: bool = False,
        recipe: Written | None = None,
        progress: Progress | None = None,
        world: bool = True,
        checkpoint_seconds: float = SECONDS,
        link: Link | None = None,
        trained: Path | None = None,
        after_unlearning: bool = False,
    ) -> Result:
        """Train, select on validation, test once.

        Args:
            out: The run directory, which must be new or empty; without one, only the result is left.
            resume: Go on in a directory where a run was stopped; a finished run gives its result again.
            recipe: Where the experiment comes from one, to be stored with the run.
            progress: Called with ``(phase, done, total, row)``.
            world: Whether the data is stored with the run, so that it can be used without its dataset.
            checkpoint_seconds: Between two checkpoints; 0 for one after each round.
            link: The other processes that share the run, where it has several; each of them has the result.
            after_unlearning: Give also the result of what was made to forget on request; nothing is trained.
            trained: A finished run whose training is that of this one, which begins where that one ended.

        Raises:
            BadInput: Before anything is written, where something cannot be right.
            Interrupted: After SIGINT or SIGTERM; the run can be resumed.
        """

        def alone(federation: Federation) -> Result:
            kept, examiner = _check_federation(federation, self.record), self._examiner
            examiner.check(federation, kept if self.record.last else ())
            settings = self.settings() if recipe is None else dict(recipe.values)
            device = torch.device(self.device).type
            mark = fingerprint({**settings, "device": device}, federation.model, self.data)
            with stoppable(echo=ECHO if link else 0.0) as stop, folder.claim(out, resume=resume) as place:
                if link is not None:
                    link.begin()
                if is_finished(place):
                    return _finished(place, mark, settings, after_unlearning=after_unlearning)
                own = (self.data, settings, federation, self._record)
                source = None if trained is None else trained_in(trained, *own)
                began: Mapping[str, Digest] = {}
                if out is not None:
                    text = toml.write(settings) if recipe is None else recipe.toml()
                    began = folder.lay_out(place, text, self.data if world else None)
                session = replace(self._session(federation, place, progress, examiner, began), source=source)
                return session.run(stop, checkpoint_seconds, mark, settings)

        if link is None:
            return alone(self.checked())
        if trained is not None:
            raise BadInput("--trained", "nothing is left to share among processes", "start one")
        from veilrec.runs.shared import shared  # which brings torch.distributed: a third of a second

        return shared(link, self.checked, self.part, alone)

    def _session(
        self,
        federation: Federation,
        place: Path,
        progress: Progress | None,
        examiner: Examiner,
        began: Mapping[str, Digest],
    ) -> Session:
        """One process's work in a run directory, which stays if it began with anything."""
        told, keeps = progress or (lambda *told: None), bool(began)
        return Session(federation, self.data, self._record, place, keeps, told, examiner, self.erasers, began)

    @property
    def _record(self) -> Record:
        """The record to keep: at least the last round, where attacks will read it."""
        return replace(self.record, last=max(1, self.record.last)) if self.threat else self.record

    def _check_threat(self) -> None:
        if self.threat is not None and self.threat.along and not self.evaluation.validation:
            what = "it attacks at looks at validation items, and evaluation.validation is off"
            raise BadInput("threat.along", what, "switch that on, or leave this out")
        if self.attacks and self.threat is None:
            raise BadInput("threat", "attacks without a threat", "say who attacks what, e.g. Threat()")
        for name in () if self.threat is None else self.threat.attributes:
            known = [*self.data.attributes, *self.data.values]
            if name not in known:
                what = f'the data has no attribute "{name}"'
                raise BadInput("threat.attributes", what, nearest(name, known))

    def _check_sums(self) -> None:
        """Refuse to look at single uploads where none leaves the devices' side."""
        asked = "threat" if self.threat is not None else "record.last" if self.record.last else ""
        if asked and self.plan.forwards != "each":
            what = (
                f"uploads leave as sums (plan.forwards = {self.plan.forwards!r}), and this reads single ones"
            )
            raise BadInput(asked, what, 'leave it out, or set plan.forwards to "each"')

    def _check_consent(self) -> None:
        for name in self.consent if isinstance(self.consent, Mapping) else ():
            if name not in self.data.attributes:
                fix = nearest(name, self.data.attributes)
                raise BadInput(f"data.consent.{name}", "the data has no such attribute", fix)


def _finished(
    place: Path, mark: str, settings: Mapping[str, Any], *, after_unlearning: bool = False
) -> Result:
    def read(manifest: Manifest) -> Result:
        if folder.RECIPE in manifest.files:
            manifest.path(folder.RECIPE)  # it says what the run is, to whoever reads it
        return Result.read(manifest)

    result = steadily(place, read)
    if result.erased or is_pending(place):
        if not after_unlearning:
            what = "was made to forget on request, and training on would bring that back"
            raise BadInput(place, what, "choose another folder with --out, or add --after-unlearning")
        return result
    if result.fingerprint != mark:
        what = difference(result.settings, settings) or "its data, or the kind of device"
        fix = "choose another folder with --out"
        raise BadInput(place, f"a finished run of another recipe or other data: {what}", fix)
    folder.tidy(place)  # in case the process died right after its last write
    return result


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    try:
        kind = torch.device(device)
    except RuntimeError as cause:
        raise BadInput("--device", f'"{device}" is no device', "use cpu or cuda") from cause
    if kind.type not in ("cpu", "cuda"):
        raise BadInput("--device", f'"{device}" is not supported', "use cpu or cuda")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind.type == "cuda" and (kind.index or 0) >= count:
        here = f"this machine has {count} CUDA devices" if count else "torch finds no CUDA device here"
        raise BadInput("--device", here, "use --device cpu")


def _check_drawn(federation: Federation) -> None:
    """Refuse a defence that learns from people who share labels where nobody was drawn who does.

    Shares are not enough to go by: a small one of few users is nobody. A real device, which knows no other,
    makes its federation without this.
    """
    defence, model, clients = federation.defence, federation.model, federation.clients
    seats, consents = clients.seats.clamp(min=0), clients.consents
    told = {name: label[seats] >= 0 for name, label in clients.log.attributes.items()}
    if told and (posting := defence.posts(model)) is not None:
        who = posting.willing(consents)
        if not bool(who.any()) or not all(bool((who & told[name]).any()) for name in posting.asks):
            raise _nobody("nobody posts what the defence learns from", posting.asks)
    for taught in [link.helpers.taught_by for link in defence.links]:
        for name in () if taught is None else guarded(model, taught):
            if not bool((consents[name] & told[name]).any()):
                raise _nobody(f"nobody shares {name}, which the defence learns from those who do", [name])


def _nobody(what: str, asked: Sequence[str]) -> BadInput:
    fix = f"give a larger share of users who share {' and '.join(asked) or 'attributes'}, such as 0.2"
    return BadInput("data.consent", what, fix)


def _check_federation(federation: Federation, record: Record) -> set[str]:
    """Find out before any work whether the end can be reached, and which weights will be recorded."""
    ledger.check(federation)
    kept = record.chosen(federation.fleet.schema())
    if not bool((federation.clients.test >= 0).any()):
        raise BadInput("data", "no user has a test item", "give users at least two events")
    federation.fleet.check_candidates()
    return kept
