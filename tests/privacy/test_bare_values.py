"""Values that leave without noise: of whatever type, in whichever round, they undo the guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.worlds import checkerboard, federation, phones
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params
from veilrec.defences.laplace import Laplace
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.privacy.disclosure import disclosures
from veilrec.privacy.ledger import Ledger
from veilrec.privacy.mechanism import Mechanism, exact
from veilrec.protocol import Server, Shape, State
from veilrec.protocols.fedavg import Averaging, FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Letter

FIRST = Spec((3,), torch.int64, kind="items", below=24)


@dataclass(frozen=True)
class Beside(FedAvg):
    """Something else goes up beside the weights."""

    spec: Spec = FIRST
    drawn: bool = False

    def schema(
        self, model: Recommender, sent: Letter | None = None, dtype: torch.dtype = torch.float32
    ) -> Schema:
        return {**super().schema(model, sent, dtype), "seq": self.spec}

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        packed = super().pack(model, device, trained, gradient)
        return {**packed, "seq": torch.zeros(self.spec.shape, dtype=self.spec.dtype)}

    def declares(self, model: Recommender) -> tuple[Mechanism, ...]:
        if not self.drawn:
            return ()
        return (Mechanism("Beside", "seq", "exponential", exact(2.0), exact(0.5), 3),)


def fed_of(protocol: FedAvg, **plan: Any) -> Federation:
    settings = {"rounds": 4, **plan}
    return federation(
        phones(checkerboard()), FedMF(24, dim=4), protocol, Laplace(parts=("item",)), **settings
    )


@pytest.mark.parametrize(
    "spec",
    [
        FIRST,
        Spec((3,), torch.int64, kind="count"),
        Spec((1,), torch.int32, kind="count"),
        Spec((), torch.float32, kind="count"),
        Spec((), torch.int64, table=24, kind="count"),
        Spec((4,), torch.float16, kind="labels"),
        Spec((4,), torch.uint8, kind="labels"),
        Spec((2,), torch.bool, kind="weight"),
    ],
    ids=lambda spec: f"{spec.kind} {spec.shape} {spec.dtype}",
)
def test_any_value_beside_noise_undoes_the_guarantee(spec: Spec) -> None:
    ledger = Ledger.of(fed_of(Beside(spec=spec)))
    assert not ledger.guarantee
    assert ledger.bare == ("seq",)


def test_one_whole_number_is_a_count_and_told() -> None:
    fed = fed_of(Beside(spec=Spec((), torch.int32, kind="count")))
    ledger = Ledger.of(fed)
    for _ in fed.rounds(fed.start(), until=1, watch=[ledger]):
        pass
    assert ledger.guarantee
    assert "counts are in the clear: seq" in ledger.summary()["notes"]
    (told,) = [one for one in disclosures(fed.model, fed.protocol, fed.defence) if one.name == "seq"]
    assert told.says == "How many of something, under seq (one number)."


def test_items_that_are_drawn_by_a_declared_mechanism_keep_it() -> None:
    """Three draws of ε = 1 beside the noise, each upload; and the disclosure says that they are drawn."""
    fed, plain = fed_of(Beside(drawn=True)), fed_of(FedAvg())
    spent = []
    for one in (fed, plain):
        ledger = Ledger.of(one)
        for _ in one.rounds(one.start(), until=2, watch=[ledger]):
            pass
        assert ledger.guarantee
        spent.append([found.epsilon for found in ledger.spent()])
    assert [with_ - without for with_, without in zip(*spent, strict=True)] == [6] * 24
    (told,) = [one for one in disclosures(fed.model, fed.protocol, fed.defence) if one.name == "seq"]
    assert told.says.endswith("seq (3); drawn at random by Beside.")
    assert told.blurred == ("Beside",)


class Staging(Averaging):
    """A server that asks for something else from the second round on."""

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        letter = super().send(state, cohort, keys)
        return letter._replace(all={**letter.all, "stage": torch.tensor(1)}) if state.round else letter


@dataclass(frozen=True)
class Stages(Beside):
    """From the second round on something else goes up, as listed or not."""

    listed: bool = True
    later: Spec = FIRST

    def schema(
        self, model: Recommender, sent: Letter | None = None, dtype: torch.dtype = torch.float32
    ) -> Schema:
        plain = FedAvg.schema(self, model, sent, dtype)
        if sent is None:
            return {**plain, "seq": self.spec} if self.listed else plain
        return {**plain, "seq": self.later} if sent.round else plain

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        packed = FedAvg.pack(self, model, device, trained, gradient)
        extra = {"seq": torch.zeros(self.later.shape, dtype=self.later.dtype)}
        return {**packed, **extra} if "stage" in device.sent else packed

    def make_server(self, shape: Shape) -> Server:
        return Staging(self, shape)


def test_a_later_stage_is_charged_from_when_it_comes() -> None:
    """What may come is listed before the first round; it costs nothing in rounds without it."""
    ledgers = [Ledger.of(fed_of(protocol)) for protocol in (Stages(drawn=True), FedAvg())]
    for protocol, ledger in zip((Stages(drawn=True), FedAvg()), ledgers, strict=True):
        fed = fed_of(protocol)
        fed.run(fed.start(), rounds=3, watch=[ledger])
    staged, plain = ([float(one.epsilon) for one in ledger.spent()] for ledger in ledgers)
    assert ledgers[0].guarantee
    assert [a - b for a, b in zip(staged, plain, strict=True)] == [6.0] * 24  # two uploads of three draws


@pytest.mark.parametrize(
    ("listed", "later"),
    [
        (False, FIRST),
        (True, FIRST._replace(shape=(4,))),
        (True, FIRST._replace(kind="labels")),
        (True, FIRST._replace(dtype=torch.int32)),
        (True, Spec((3,), torch.int64, 24, kind="items")),
    ],
    ids=["unlisted", "longer", "other kind", "other dtype", "table"],
)
def test_a_letter_cannot_ask_for_more_than_is_declared_without_one(listed: bool, later: Spec) -> None:
    fed = fed_of(Stages(listed=listed, later=later))
    state = fed.start()
    with pytest.raises(BadInput, match=r"schema: a letter asks for 'seq'.*list in `schema` without"):
        fed.run(state)
