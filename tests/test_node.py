"""A device alone in a process of its own does what the engine does for it in a cohort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from veilrec import catalogue, node, plugins, wire
from veilrec.params import Rows
from veilrec.recipe import Recipe
from veilrec.rounds import Federation
from veilrec.uploads import Exchange

CLIENT = 7
SETS = {
    "FedMF, weights": ["model.name='FedMF'", "model.dim=8"],
    "FedNCF, gradients and Adam": [
        "model.name='FedNCF'",
        "model.dim=8",
        "model.head=[8, 4]",
        "protocol.sends='gradients'",
        "protocol.server='adam'",
        "protocol.server_lr=0.01",
        "plan.optimiser='adam'",
        "plan.precision='float64'",  # Adam is held to the bar of float64
    ],
    "FedNCF, exposed user, private head": [
        "model.name='FedNCF'",
        "model.dim=8",
        "model.kind='neumf'",
        "model.user='exposed'",
        "model.sharing='private'",
        "plan.epochs=2",
        "plan.batch=7",
    ],
}


NOISY = {  # in float64: what is rounded to a lattice must fall on the same side
    "Laplace, touched rows": "{name = 'laplace', scale = 0.05}",
    "APM": "{name = 'apm'}",
    "APM after every epoch": "{name = 'apm', every = 'epoch', rows = 'touched'}",
    "Gaussian, norm": "{name = 'gaussian', clip_by = 'norm', what = 'change'}",
}

PLUGIN = """
from dataclasses import dataclass, replace
import torch
from veilrec.defence import Defence
from veilrec.wire import Spec

__all__ = ["Sociable"]

@dataclass(frozen=True)
class Sociable(Defence):
    'Forgets every other event before training, and is drawn to what others have posted.'

    def prepare(self, clients, keys):
        kept = torch.arange(len(clients.log)) % 2 == 0
        return replace(clients, log=clients.log.take(kept))

    def publish(self, model, device):
        return {"vector": model.user, "label": device.batch.attributes["gender"]}

    def announce(self, model, dtype):
        return {"vector": Spec((model.dim,), dtype), "label": Spec((), torch.int64)}

    def penalty(self, model, device):
        others = device.public.get("vector", model.user[:0])
        return (others.sum(0) * model.user).sum()
"""


def federation(sets: list[str]) -> tuple[Federation, Recipe]:
    world = ["data.name='synthetic'", "data.users=60", "data.items=90", "data.consent=0.5"]
    recipe = Recipe.load(None, [*world, *sets, "plan.rounds=2", "plan.lr=0.5"])
    return recipe.experiment().federation(), recipe


def alone(store: Path, message: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "veilrec.node", str(store), *more]
    return subprocess.run(command, input=message, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_a_process_of_its_own_uploads_what_the_engine_records(sets: list[str], tmp_path: Path) -> None:
    uploads_agree(sets, tmp_path)


def test_also_under_a_defence_that_prepares_publishes_and_comes_from_outside(tmp_path: Path) -> None:
    plugin = tmp_path / "sociable.py"
    plugin.write_text(PLUGIN)
    loaded = catalogue.load_plugin(plugin)
    try:
        sets = [*SETS["FedMF, weights"], "defence=[{name = 'Sociable'}]"]
        uploads_agree(sets, tmp_path / "store", "--plugin", str(plugin))
    finally:
        plugins.forget(loaded.path)


def noisy(defence: str) -> list[str]:
    return [*SETS["FedMF, weights"], "plan.precision='float64'", f"defence=[{defence}]"]


@pytest.mark.parametrize("defence", NOISY.values(), ids=NOISY.keys())
def test_the_seeded_twin_draws_the_noise_of_the_simulation(defence: str, tmp_path: Path) -> None:
    uploads_agree(noisy(defence), tmp_path, "--seeded")


@pytest.mark.parametrize("defence", [NOISY["Laplace, touched rows"], NOISY["APM after every epoch"]])
def test_a_real_device_draws_noise_that_no_seed_decides(defence: str, tmp_path: Path) -> None:
    """RELIABILITY E7: the same store and the same letter, three times; and the simulation's twin."""
    engine, recipe = federation(noisy(defence))
    state, sent = engine.start(), []
    message = node.letter(engine, state, CLIENT)
    for k, seeded in enumerate((False, False, True, True)):
        node.provision(engine, state, CLIENT, recipe.toml(), tmp_path / str(k))
        answer = node.answer(tmp_path / str(k), message, seeded=seeded)
        item = wire.decode(answer, engine.protocol.schema(engine.model, engine.plan.dtype))["item"]
        assert isinstance(item, Rows)
        sent.append(item.value)
    assert torch.equal(sent[2], sent[3])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert float((sent[a] == sent[b]).double().mean()) < 0.05


def test_a_real_device_is_the_default_of_the_command(tmp_path: Path) -> None:
    engine, recipe = federation(noisy(NOISY["Laplace, touched rows"]))
    state = engine.start()
    message = node.letter(engine, state, CLIENT)
    answers = []
    for k, more in enumerate(([], ["--seeded"], ["--seeded"])):
        node.provision(engine, state, CLIENT, recipe.toml(), tmp_path / str(k))
        answers.append(alone(tmp_path / str(k), message, *more).stdout)
    assert answers[0] != answers[1] == answers[2]
    assert len(answers[0]) == len(answers[1])


def uploads_agree(sets: list[str], tmp_path: Path, *more: str) -> None:
    """Two rounds: the second starts from what the device kept, and from what was posted, in the first."""
    engine, recipe = federation(sets)
    state = engine.start()
    node.provision(engine, state, CLIENT, recipe.toml(), tmp_path)
    for _ in range(2):
        message, seen = node.letter(engine, state, CLIENT), []
        recorded = engine.rounds(state, until=state.round + 1, watch=[seen.append])
        state, _ = next(recorded)
        recorded.close()
        upload = of_client(seen, CLIENT)
        answer = alone(tmp_path, message, *more)
        assert answer.returncode == 0, answer.stderr.decode()
        schema = engine.protocol.schema(engine.model, engine.plan.dtype)
        got = wire.decode(answer.stdout, schema)
        assert len(answer.stdout) == len(wire.encode(upload))
        assert got.keys() == upload.keys()
        for name, value in got.items():
            compare(value, upload[name], 1e-9 if engine.plan.precision == "float64" else 1e-5)


def of_client(seen: list[Exchange], client: int) -> dict[str, torch.Tensor | Rows]:
    for exchange in seen:
        place = (exchange.received.cohort == client).nonzero()
        if len(place):
            values = {**exchange.received.values, "examples": exchange.received.examples}
            return wire.one(values, int(place))
    raise AssertionError("the client took no part")


def compare(value: torch.Tensor | Rows, other: torch.Tensor | Rows, bar: float) -> None:
    if isinstance(value, Rows):
        assert isinstance(other, Rows)
        meant = other.row >= 0
        assert torch.equal(value.row, other.row[meant])
        value, other = value.value, other.value[meant]
    assert isinstance(other, torch.Tensor)
    assert torch.allclose(value, other, rtol=0, atol=bar)


def test_the_store_holds_one_persons_events_and_labels(tmp_path: Path) -> None:
    from veilrec import tensors

    engine, recipe = federation(SETS["FedMF, weights"])
    node.provision(engine, engine.start(), 3, recipe.toml(), tmp_path)
    own, log = tensors.read(tmp_path / node.OWN), engine.clients.log
    assert torch.equal(own["item"], log.item[log.user == 3])
    assert own["own/user"].shape == (1, 8)
    assert {name for name in own if name.startswith("attribute/")} == {
        f"attribute/{n}" for n in log.attributes
    }
    assert (tmp_path / node.OWN).stat().st_mode & 0o077 == 0
    everybody = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert log.user_ids[3].encode() in everybody
    assert log.user_ids[4].encode() not in everybody


@pytest.mark.parametrize("broken", [b"", b"nonsense", "cut", "another model's"])
def test_a_bad_message_is_refused_in_one_line_and_changes_nothing(
    broken: bytes | str, tmp_path: Path
) -> None:
    engine, recipe = federation(SETS["FedMF, weights"])
    state = engine.start()
    node.provision(engine, state, 3, recipe.toml(), tmp_path)
    message = node.letter(engine, state, CLIENT)
    other = wire.encode({"item": torch.zeros(90, 4), "round": torch.tensor(0, dtype=torch.int32)})
    sent = {"cut": message[:-7], "another model's": other}.get(broken, broken)  # type: ignore[call-overload]
    before = (tmp_path / node.OWN).read_bytes()
    answer = alone(tmp_path, sent)
    assert (answer.returncode, answer.stdout) == (2, b"")
    assert answer.stderr.decode().startswith("veilrec: error: message: ")
    assert answer.stderr.count(b"\n") == 1
    assert (tmp_path / node.OWN).read_bytes() == before


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    answer = alone(tmp_path, b"")
    assert answer.returncode == 2
    assert b"is no device's store" in answer.stderr
