"""Protocols by name: the order of leaks planted in components is read off one, and help names them all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import get_args, get_type_hints

import torch
from torch import Tensor

from tests.worlds import federation, phones, run
from veilrec.attack import Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common import readings
from veilrec.base.keys import Keys
from veilrec.base.names import GRANTS, PROTOCOLS, READINGS
from veilrec.base.params import Rows, part_of
from veilrec.datasets.synthetic import synthetic
from veilrec.defences.apm import APM
from veilrec.engine.probe import public, see
from veilrec.lab.lab import audit, fitting
from veilrec.lab.presets import COMPONENTS, PRESETS, preset
from veilrec.lab.trials import People
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.wire.uploads import Exchange

USERS, ITEMS = 240, 40
PLANTED = {"mlp2": 3.0, "item": 1.6, "user": 0.7, "mlp1": 0.0}  # standard deviations; not the paper's order


def planted(strength: Mapping[str, float]) -> tuple[Seen, People]:
    """Uploads that are noise alone, but for gender: so much of it in each part."""
    log = synthetic(users=USERS, items=ITEMS)
    fed = federation(phones(log), FedNCF(ITEMS, 1, dim=4, head=(4,), user="exposed"))
    true = see(fed, run(fed))
    label = log.attributes["gender"].double() - 0.5
    keys = Keys.seed(0).fold("planted")

    def value(name: str, sent: Tensor | Rows, user: Tensor) -> Tensor | Rows:
        if isinstance(sent, Rows):
            there = torch.arange(ITEMS).expand(len(user), ITEMS)
            table = torch.zeros(len(user), ITEMS, 4)
            return Rows(there, value(name, table, user))  # type: ignore[arg-type]
        noise = keys.fold(name).fold(user).normal(*sent.shape[1:])
        shape = (len(user), *(1 for _ in sent.shape[1:]))
        width = sent[0].numel() ** 0.5  # so that parts of any size tell the same
        return (noise + (strength[part_of(name)] / width * label[user]).reshape(shape)).float()

    def probe(*parts: object) -> Iterator[Exchange]:
        for exchange in true.probe():
            user = exchange.received.cohort
            values = {n: value(n, v, user) for n, v in exchange.received.values.items()}
            yield replace(exchange, received=replace(exchange.received, values=values))

    return Seen(true.public, probe), People.of(log)


def test_the_order_of_the_leaks_planted_is_read_off_as_the_docs_say() -> None:
    seen, people = planted(PLANTED)
    one = preset("apm-components", ("gender",))
    quick = replace(one.threat, resamples=200, permutations=99)
    found = audit(seen, people, quick, one.attacks)["attributes"]["gender"]["attackers"]
    assert len(found) == 2 * len(COMPONENTS)
    reached = {
        part: max(each["scores"]["auc"]["value"] for each in found if each["parts"] == [part])
        for part in COMPONENTS
    }
    order = sorted(reached, key=lambda part: reached[part], reverse=True)
    assert order == list(PLANTED)
    assert reached["mlp2"] > 0.9
    assert abs(reached["mlp1"] - 0.5) < 0.12
    defence = APM(order=tuple(order))  # most noise to what leaks most
    assert [defence.budget(part) for part in order] == [30.0, 40.0, 50.0, 60.0]


def test_components_that_are_not_uploaded_are_left_out() -> None:
    data = synthetic(users=60, items=ITEMS)
    for model, there in (
        (FedMF(ITEMS, 1, dim=4), ["item"]),
        (FedNCF(ITEMS, 1, dim=4, head=(4,)), ["item", "mlp1", "mlp2"]),
    ):
        assert list(fitting(PRESETS["apm-components"], public(federation(phones(data), model)))) == there


def test_names_that_help_offers_are_all_there_are() -> None:
    assert tuple(PRESETS) == PROTOCOLS
    assert tuple(readings.READINGS) == READINGS
    assert get_args(get_type_hints(AttributeInference)["reads"]) == READINGS
    assert {grant for one in PRESETS.values() for grant in one.threat.grants} <= set(GRANTS)


def test_help_imports_neither_torch_nor_numpy() -> None:
    """And so answers at once: torch alone takes a second."""
    code = "import sys; from veilrec.cli import main; main(['attack', '--help']); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "numpy", "scipy"} & set(told.splitlines()[-1].split())
    assert all(name in "".join(told.split("│")) for name in ("apm-components", "recovered", "user_vectors"))
