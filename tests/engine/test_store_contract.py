"""For every defence: files and memory give the same bits, and no score reads what only the defence trains."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract import Case, cases, plain_first
from tests.worlds import checkerboard, everyone, federation, phones
from veilrec.base.params import Params, Scope, part_of
from veilrec.engine.devices.store import Store
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import State
from veilrec.rounds import Federation


def fed_of(case: Case, users: int = 24, **plan: Any) -> Federation:
    model = FedNCF(users, dim=6, head=(8, 4))
    settings = {"lr": 0.05, "chunk": 5, "cohort": 0.7, "optimiser": "adam", "workers": 2, **plan}
    return federation(phones(checkerboard(users), 0.5), model, None, case.build(), **settings)


def told(fed: Federation, state: State) -> Params:
    """All that is remembered and shown after some rounds."""
    found = {f"server/{n}": v for n, v in state.server.items()}
    found |= {f"posts/{n}": v for n, v in state.posts.values.items()}
    found |= {f"device/{n}": v for n, v in fed.fleet.devices.get(everyone(fed)).items()}
    return found | {f"shown/{n}": v for n, v in fed.evaluate(state).values.items()}


class Watched(Store):
    """A store that writes down what it is asked for."""

    def __init__(self, store: Store, asked: set[str]) -> None:
        super().__init__(len(store.slot), store.fresh)
        self.slot, self.used, self.values, self.asked = store.slot, store.used, store.values, asked

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        self.asked.update(["all"] if names is None else names)
        return super().get(cohort, names)


@pytest.mark.parametrize("case", plain_first(cases("defences")))
def test_the_same_bits_from_memory_and_from_files(case: Case) -> None:
    ends = []
    for keeps in ("memory", "disk"):
        fed = fed_of(case, 12, keeps=keeps)  # two chunks of a round
        state = fed.run(fed.start(), rounds=2)
        assert (fed.fleet.devices.shelf is None) == (keeps == "memory")
        ends.append(told(fed, state))
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_scores_read_nothing_that_only_a_defence_trains() -> None:
    seen = 0
    for case in (case for case in cases("defences") if not case.varied):
        fed = fed_of(case, 12)
        parts = {n: fed.model.parts[part_of(n)] for n in fed.model.names()}
        own = [n for n, part in parts.items() if part.helper and part.scope is Scope.PRIVATE]
        if not own:
            continue
        state = fed.run(fed.start(), rounds=2)
        before = fed.evaluate(state).values
        asked: set[str] = set()
        fed.fleet.devices = Watched(fed.fleet.devices, asked)
        with torch.no_grad():
            for name in own:
                fed.model.get_parameter(name).fill_(torch.nan)
        again = fed.evaluate(state).values
        assert asked
        assert not {"all", *own} & asked
        assert all(torch.equal(before[name], again[name]) for name in before)
        seen += 1
    assert seen >= 3  # PARD and those that keep a key
