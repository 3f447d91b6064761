"""A device alone in a process of its own does what the engine does for it in a cohort."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from tests.worlds import emptied
from veilrec import node
from veilrec.base import tensors
from veilrec.base.files import write_json
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Rows
from veilrec.clients import Clients
from veilrec.defence import secretly
from veilrec.defences.f_gerai import FGERAI
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.protocol import State
from veilrec.recipe import Recipe, catalogue, plugins
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.uploads import Exchange

CLIENT = 7
Ask = Callable[..., "subprocess.CompletedProcess[bytes]"]
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
    "F-GERAI and F-DPMF": "{name = 'f_gerai'}, {name = 'f_dpmf', clients = 60}",
}

PLUGIN = """
from dataclasses import dataclass, replace
import torch
from veilrec.defence import Defence, Posting
from veilrec.wire.codec import Spec

__all__ = ["Sociable"]

@dataclass(frozen=True)
class Sociable(Defence):
    'Forgets some events before training, and is drawn to what others have posted.'

    def prepare(self, clients, keys):
        log = clients.log
        drawn = keys.fold(clients.tags).value[log.user] + log.item  # whoever else is there
        return replace(clients, log=log.take(drawn % 3 > 0))

    def posts(self, model, dtype=torch.float32):
        def make(model, device):
            return {"vector": model.user, "label": device.batch.attributes["gender"]}

        schema = {"vector": Spec((model.dim,), dtype), "label": Spec((), torch.int64)}
        return Posting(tuple(model.classes or ()), schema, make)

    def penalty(self, model, device):
        others = device.public.get("vector", model.user[:0])
        return (others.sum(0) * model.user).sum()
"""


def federation(sets: list[str]) -> tuple[Federation, Recipe]:
    world = ["data.name='synthetic'", "data.users=60", "data.items=90", "data.consent=0.5"]
    recipe = Recipe.load(None, [*world, *sets, "plan.rounds=4", "plan.lr=0.5"])
    return recipe.experiment().federation(), recipe


def alone(store: Path, message: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    """What the command answers to a message, asked in this process."""
    read, (out, err) = io.BytesIO(message), (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    with patch.object(sys, "stdin", io.TextIOWrapper(read)), redirect_stdout(out), redirect_stderr(err):
        code = node.main([str(store), *more])
    said = [written(stream) for stream in (out, err)]
    return subprocess.CompletedProcess([], code, *said)


def written(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


def apart(store: Path, message: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
    """The same of a process that knows nothing else."""
    command = [sys.executable, "-m", "veilrec.node", str(store), *more]
    return subprocess.run(command, input=message, capture_output=True, timeout=120, check=False)


@pytest.mark.slow  # in this process: below
@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_a_process_of_its_own_uploads_what_the_engine_records(sets: list[str], tmp_path: Path) -> None:
    uploads_agree(sets, tmp_path, "--seeded", ask=apart)


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_the_command_uploads_what_the_engine_records(sets: list[str], tmp_path: Path) -> None:
    uploads_agree(sets, tmp_path, "--seeded")


def test_a_real_device_draws_items_that_no_seed_decides(tmp_path: Path) -> None:
    """Else the server could draw the untouched items again, and know the other rows for touched."""
    engine, recipe = federation(SETS["FedMF, weights"])
    state, rows = engine.start(), []
    message, schema = (
        node.letter(engine, state, CLIENT),
        engine.protocol.schema(engine.model, dtype=torch.float32),
    )
    for k, seeded in enumerate((False, False, True, True)):
        node.provision(engine, CLIENT, recipe.toml(), tmp_path / str(k))
        item = codec.decode(node.answer(tmp_path / str(k), message, seeded=seeded), schema)["item"]
        assert isinstance(item, Rows)
        rows.append(set(item.row.tolist()))
    touched = set(engine.clients.log.item[engine.clients.log.user == CLIENT].tolist())
    assert all(touched < each for each in rows)
    assert rows[2] == rows[3]
    assert all(rows[a] != rows[b] for a, b in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("seeded", [False, True])
def test_a_round_is_answered_once(seeded: bool, tmp_path: Path) -> None:
    """Who could ask for it again would average the noise away: the same letter gets the same bytes."""
    engine, recipe = federation(noisy(NOISY["Laplace, touched rows"]))
    state = engine.start()
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    first, second, third = letters(engine, state)
    reply = node.answer(tmp_path, second, seeded=seeded)
    before = files(tmp_path)
    item = state.server["item"] + 1e-6
    other = node.letter(engine, replace(state, round=1, server={**state.server, "item": item}), CLIENT)
    again = node.letter(engine, replace(state, round=1), CLIENT, attempt=2)
    assert again != second
    assert (
        node.answer(tmp_path, second, seeded=seeded) == node.answer(tmp_path, again, seeded=seeded) == reply
    )
    with pytest.raises(BadInput, match="answered round 2, and not this letter"):
        node.answer(tmp_path, other, seeded=seeded)
    assert files(tmp_path) == before
    assert len({reply, *(node.answer(tmp_path, one, seeded=seeded) for one in (third, first))}) == 3
    for message in (second, third):
        with pytest.raises(BadInput, match="and not this letter last"):
            node.answer(tmp_path, message, seeded=seeded)


def letters(engine: Federation, state: State) -> list[bytes]:
    """What is sent in three rounds in which nothing changes."""
    return [node.letter(engine, replace(state, round=state.round + k), CLIENT) for k in range(3)]


@pytest.mark.parametrize("ask", [alone, pytest.param(apart, marks=pytest.mark.slow)])
def test_also_under_a_defence_that_prepares_publishes_and_comes_from_outside(
    ask: Ask, tmp_path: Path
) -> None:
    plugin = tmp_path / "sociable.py"
    plugin.write_text(PLUGIN)
    loaded = catalogue.load_plugin(plugin)
    try:
        sets = [*SETS["FedMF, weights"], "defence=[{name = 'Sociable'}]"]
        uploads_agree(sets, tmp_path / "store", "--plugin", str(plugin), "--seeded", ask=ask)
        engine, _ = federation(sets)
        assert len(engine.clients.log) < len(engine.fleet.given.log)  # it did forget
    finally:
        plugins.forget(loaded.path)


POSTING = [
    "model.name='FedNCF'",
    "model.dim=8",
    "model.head=[8]",
    "plan.precision='float64'",
    "defence=[{name = 'pard', attributes = ['gender'], head = [8]}]",
]


def test_a_post_is_a_message_of_its_own(tmp_path: Path) -> None:
    """Two rounds of somebody who consents and of somebody who does not, against what the engine posts."""
    engine, recipe = federation(POSTING)
    willing = engine.clients.consents["gender"][:, 0].nonzero().squeeze(1).tolist()
    poster, silent = willing[0], next(k for k in range(60) if k not in willing)
    state, schema = engine.start(), engine.fleet.announced
    for client in (poster, silent):
        node.provision(engine, client, recipe.toml(), tmp_path / str(client))
    for round in range(2):
        message = {client: node.letter(engine, state, client) for client in (poster, silent)}
        state = engine.run(state, rounds=1)
        files_of = {client: tmp_path / f"post {round} {client}" for client in message}
        for client, post in files_of.items():
            node.answer(tmp_path / str(client), message[client], seeded=True, post=post)
        assert not files_of[silent].exists()
        got = codec.decode(files_of[poster].read_bytes(), schema)
        (place,) = (state.posts.owner == poster).nonzero().squeeze(1).tolist()
        assert got.keys() == state.posts.values.keys() != set()
        for name, value in got.items():
            compare(value, state.posts.values[name][place], 1e-9)


def test_the_command_posts_where_it_is_told_to(tmp_path: Path) -> None:
    engine, recipe = federation(POSTING)
    state, who = engine.start(), int(engine.clients.consents["gender"][:, 0].nonzero()[0])
    message, sent = node.letter(engine, state, who), []
    for k, more in enumerate(([], ["--post", str(tmp_path / "post")])):
        node.provision(engine, who, recipe.toml(), tmp_path / str(k))
        answer = alone(tmp_path / str(k), message, "--seeded", *more)
        assert answer.returncode == 0, answer.stderr.decode()
        assert (tmp_path / "post").exists() == bool(more)
        sent.append(answer.stdout)
    assert b"" != sent[0] == sent[1]  # the upload alone
    codec.decode((tmp_path / "post").read_bytes(), engine.fleet.announced)


def test_a_post_without_a_place_is_refused_before_the_round_counts(tmp_path: Path) -> None:
    engine, recipe = federation(POSTING)
    state = engine.start()
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    before, message = files(tmp_path), node.letter(engine, state, CLIENT)
    for post in (tmp_path / "nowhere" / "post", tmp_path):
        with pytest.raises(BadInput, match="is no place for a file"):
            node.answer(tmp_path, message, post=post)
    assert node.main([str(tmp_path), "--post", "a", "--post", "b"]) == 2
    assert node.main([str(tmp_path), "--post"]) == 2
    assert files(tmp_path) == before


def noisy(defence: str) -> list[str]:
    return [*SETS["FedMF, weights"], "plan.precision='float64'", f"defence=[{defence}]"]


@pytest.mark.parametrize(
    "defence",
    [
        pytest.param(defence, id=name, marks=() if name.startswith(("APM after", "F-")) else pytest.mark.slow)
        for name, defence in NOISY.items()
    ],
)
def test_the_seeded_twin_draws_the_noise_of_the_simulation(defence: str, tmp_path: Path) -> None:
    uploads_agree(noisy(defence), tmp_path, "--seeded")


@pytest.mark.parametrize("defence", [NOISY["Laplace, touched rows"], NOISY["APM after every epoch"]])
def test_a_real_device_draws_noise_that_no_seed_decides(defence: str, tmp_path: Path) -> None:
    """RELIABILITY E7: the same store and the same letter, three times; and the simulation's twin."""
    engine, recipe = federation(noisy(defence))
    state, sent = engine.start(), []
    message = node.letter(engine, state, CLIENT)
    for k, seeded in enumerate((False, False, True, True)):
        node.provision(engine, CLIENT, recipe.toml(), tmp_path / str(k))
        answer = node.answer(tmp_path / str(k), message, seeded=seeded)
        item = codec.decode(answer, engine.protocol.schema(engine.model, dtype=engine.plan.dtype))["item"]
        assert isinstance(item, Rows)
        sent.append(
            {int(row): tuple(value.tolist()) for row, value in zip(item.row, item.value, strict=True)}
        )
    assert sent[2] == sent[3]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        common = sent[a].keys() & sent[b].keys()
        equal = [x == y for row in common for x, y in zip(sent[a][row], sent[b][row], strict=True)]
        assert len(common) > 10
        assert sum(equal) < 0.05 * len(equal)


def test_a_real_device_is_the_default_of_the_command(tmp_path: Path) -> None:
    engine, recipe = federation(noisy(NOISY["Laplace, touched rows"]))
    state = engine.start()
    message = node.letter(engine, state, CLIENT)
    answers = []
    for k, more in enumerate(([], ["--seeded"], ["--seeded"])):
        node.provision(engine, CLIENT, recipe.toml(), tmp_path / str(k))
        answers.append(alone(tmp_path / str(k), message, *more).stdout)
    assert b"" != answers[0] != answers[1] == answers[2] != b""


# What a defence draws once and keeps.

GERAI = [
    "model.name='FedGCN'",
    "model.dim=8",
    "model.head=[8]",
    "data.include_private_features=true",
    "defence=[{name = 'f_gerai', epsilon = 40.0}]",
]
DPMF = [*SETS["FedMF, weights"], "defence=[{name = 'f_dpmf', clients = 60}]"]
BOTH = [*GERAI[:4], "defence=[{name = 'f_dpmf', clients = 60}, {name = 'f_gerai', epsilon = 40.0}]"]
KEEPING = {"f_gerai": GERAI, "f_dpmf": DPMF, "both": BOTH}
EXACT = ["plan.chunk=1"]  # a sum over a cohort of one: no bit may differ
keeping = pytest.mark.parametrize("sets", KEEPING.values(), ids=KEEPING.keys())


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(sets, id=name, marks=() if name == "both" else pytest.mark.slow)
        for name, sets in KEEPING.items()
    ],
)
def test_seeded_what_is_kept_is_the_simulations_bit_by_bit(sets: list[str], tmp_path: Path) -> None:
    """From before the first round, and from the store of somebody who has taken part."""
    fewer = [text.replace("clients = 60", "clients = 20") for text in sets]
    engine, recipe = federation([*fewer, *EXACT, "data.users=20"])
    state = engine.start()
    for round in range(3):
        if round < 2:
            node.provision(engine, CLIENT, recipe.toml(), tmp_path / str(round))
        message, seen = node.letter(engine, state, CLIENT), list[Exchange]()
        state = engine.run(state, rounds=1, watch=[seen.append])
        for store in sorted(tmp_path.iterdir()):
            assert node.answer(store, message, seeded=True) == codec.encode(of_client(seen, CLIENT))


def drawn_by_the_simulation(engine: Federation) -> dict[str, bytes]:
    """What must not be on a device, since the seed decides it: its keys, and its features when blurred."""
    own = emptied(engine).get(torch.tensor([CLIENT]))
    found = {name: bytes(tensors.raw(value)) for name, value in own.items() if name.endswith(".key")}
    features = engine.clients.log.features
    if features is not None and "f_gerai.key" in found:
        found["features"] = bytes(tensors.raw(features[CLIENT]))
    return found


def faults(engine: Federation, store: Path) -> list[str]:
    """What of it lies in a store."""
    held = b"".join(path.read_bytes() for path in sorted(store.iterdir()))
    return [name for name, data in drawn_by_the_simulation(engine).items() if data in held]


KEYS = {"f_gerai": ["f_gerai.key", "features"], "f_dpmf": ["f_dpmf.key"]}
KEYS["both"] = [*KEYS["f_dpmf"], *KEYS["f_gerai"]]


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("name", KEEPING)
def test_no_store_comes_with_what_the_simulation_drew(name: str, rounds: int, tmp_path: Path) -> None:
    engine, recipe = federation(KEEPING[name])
    assert sorted(drawn_by_the_simulation(engine)) == sorted(KEYS[name])
    state = engine.run(engine.start(), rounds=rounds)
    for seeded in (False, True):
        store = tmp_path / str(seeded)
        node.provision(engine, CLIENT, recipe.toml(), store)
        assert faults(engine, store) == []
        for message in letters(engine, state)[:2]:
            node.answer(store, message, seeded=seeded)
        assert sorted(faults(engine, store)) == (sorted(KEYS[name]) if seeded else [])


def test_planted_a_store_that_comes_with_the_key_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def everything(engine: Federation, client: int) -> Params:
        return {f"own/{n}": v[0] for n, v in engine.fleet.devices.get(torch.tensor([client])).items()}

    engine, recipe = federation(BOTH)
    monkeypatch.setattr("veilrec.node.provisioning._weights", everything)
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    assert sorted(faults(engine, tmp_path)) == ["f_dpmf.key", "f_gerai.key"]


def test_also_no_key_that_the_system_gave_to_the_simulation(tmp_path: Path) -> None:
    """Whoever provisions devices would know it."""
    _, recipe = federation(DPMF)
    experiment = recipe.experiment()
    engine = replace(experiment, defence=secretly(experiment.defence)).federation()
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    assert "own/f_dpmf.key" not in tensors.read(tmp_path / node.OWN)


def test_planted_a_store_that_comes_with_blurred_features_is_found(tmp_path: Path) -> None:
    engine, recipe = federation(GERAI)
    planted = replace(engine, fleet=replace(engine.fleet, given=engine.clients))
    node.provision(planted, CLIENT, recipe.toml(), tmp_path)
    assert faults(engine, tmp_path) == ["features"]


@keeping
def test_two_stores_of_one_user_draw_for_themselves_and_once(sets: list[str], tmp_path: Path) -> None:
    engine, recipe = federation(sets)
    state = engine.start()
    first, second, _ = letters(engine, state)
    held, answers = [], []
    for k, seeded in enumerate((False, False, True)):
        store = tmp_path / str(k)
        node.provision(engine, CLIENT, recipe.toml(), store)
        answers.append(node.answer(store, first, seeded=seeded))
        held.append(once(store))
        node.answer(store, second, seeded=seeded)
        assert same(once(store), held[-1]) == set(held[-1])  # kept for the next round
    raw = engine.fleet.given.log.features
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert same(held[a], held[b]) == set()
        assert answers[a] != answers[b]
        assert "features" not in held[a] or (
            raw is not None and not torch.equal(held[a]["features"], raw[CLIENT])
        )


def once(store: Path) -> Params:
    """What a store holds that is drawn once."""
    own = tensors.read(store / node.OWN)
    blurred = "own/f_gerai.key" in own
    return {n: v for n, v in own.items() if n.endswith(".key") or (n == "features" and blurred)}


def same(a: Params, b: Params) -> set[str]:
    """The names under which two stores agree."""
    assert a.keys() == b.keys() != set()
    return {name for name in a if torch.equal(a[name], b[name])}


@pytest.mark.parametrize("first", [True, False], ids=["seeded first", "system first"])
@pytest.mark.parametrize("defence", ["{name = 'f_dpmf'}", NOISY["Laplace, touched rows"]])
def test_a_store_stays_with_the_kind_of_noise_that_it_began_with(
    defence: str, first: bool, tmp_path: Path
) -> None:
    """Else noise that anybody can take away would pass for private."""
    engine, recipe = federation(noisy(defence))
    state = engine.start()
    message, later, _ = letters(engine, state)
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    node.answer(tmp_path, message, seeded=first)
    before = files(tmp_path)
    with pytest.raises(BadInput, match="from the experiment's seed" if first else "leave out --seeded"):
        node.answer(tmp_path, later, seeded=not first)
    assert files(tmp_path) == before
    node.answer(tmp_path, later, seeded=first)
    with pytest.raises(BadInput, match="its ledger would be lost"):
        node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    node.provision(engine, CLIENT, recipe.toml(), tmp_path / "new")
    node.answer(tmp_path / "new", message, seeded=not first)  # a new store is free again


@keeping
def test_a_first_answer_that_fails_draws_nothing_that_stays(sets: list[str], tmp_path: Path) -> None:
    engine, recipe = federation(sets)
    state = engine.start()
    message = node.letter(engine, state, CLIENT)
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    before = files(tmp_path)
    for seeded in (True, False):
        with pytest.raises(BadInput, match="message"):
            node.answer(tmp_path, message[:-7], seeded=seeded)
        assert files(tmp_path) == before
    node.answer(tmp_path, message)
    assert faults(engine, tmp_path) == []


def files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


def test_a_device_prepares_all_that_its_user_brought_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prepare` sees the user's part of the log, ids of items and texts apart; and it sees it once."""
    seen: list[Interactions] = []

    def spy(self: FGERAI, clients: Clients, keys: Keys) -> Clients:
        seen.append(clients.log)
        return clients

    engine, recipe = federation(GERAI)
    whole, state = engine.fleet.given.log, engine.start()
    monkeypatch.setattr(FGERAI, "prepare", spy)
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    for message in letters(engine, state)[:2]:
        node.answer(tmp_path, message)
    (log,), own = seen, whole.user == CLIENT
    assert log.user_ids == [whole.user_ids[CLIENT]]
    assert (log.n_users, log.n_items) == (1, whole.n_items)
    for name in ("item", "rating", "time"):
        mine, theirs = getattr(log, name), getattr(whole, name)
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.equal(mine, theirs[own])
    assert log.features is not None
    assert whole.features is not None
    assert torch.equal(log.features, whole.features[[CLIENT]])
    for ours, others in ((log.attributes, whole.attributes), (log.values, whole.values)):
        assert ours.keys() == others.keys() != set()
        assert all(torch.equal(ours[n], others[n][[CLIENT]]) for n in ours)
    assert log.feature_names == list(whole.feature_names)
    assert log.classes == {name: list(classes) for name, classes in whole.classes.items()}


def test_a_store_of_the_first_version_is_refused(tmp_path: Path) -> None:
    """It held a key that the simulation had drawn."""
    engine, recipe = federation(SETS["FedMF, weights"])
    state = engine.start()
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    write_json(tmp_path / node.CARD, {"user": engine.clients.name(CLIENT), "items": 90})
    with pytest.raises(BadInput, match="a store of another version; provision a new one"):
        node.answer(tmp_path, node.letter(engine, state, CLIENT))


def test_a_federation_keeps_the_clients_it_was_given_without_a_copy() -> None:
    engine, _ = federation(BOTH)  # whose `prepare` counts events, and blurs
    for name in ("user", "item"):
        assert (
            getattr(engine.fleet.given.log, name).data_ptr() == getattr(engine.clients.log, name).data_ptr()
        )
    assert (
        not {"events", "sizes"} & vars(engine.fleet.given).keys()
    )  # nothing was worked out of them and kept


def uploads_agree(sets: list[str], tmp_path: Path, *more: str, ask: Ask = alone) -> None:
    """Two rounds: the second starts from what the device kept, and from what was posted, in the first."""
    engine, recipe = federation(sets)
    state = engine.start()
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    for _ in range(2):
        message, seen = node.letter(engine, state, CLIENT), list[Exchange]()
        state = engine.run(state, rounds=1, watch=[seen.append])
        upload = of_client(seen, CLIENT)
        answer = (alone if state.round == 1 else ask)(tmp_path, message, *more)
        assert answer.returncode == 0, answer.stderr.decode()
        schema = engine.protocol.schema(engine.model, dtype=engine.plan.dtype)
        got = codec.decode(answer.stdout, schema)
        assert len(answer.stdout) == len(codec.encode(upload))
        assert got.keys() == upload.keys()
        for name, value in got.items():
            compare(value, upload[name], 1e-9 if engine.plan.precision == "float64" else 1e-5)


def of_client(seen: list[Exchange], client: int) -> dict[str, torch.Tensor | Rows]:
    for exchange in seen:
        place = (exchange.received.cohort == client).nonzero()
        if len(place):
            return codec.one(exchange.received.values, int(place))
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
    engine, recipe = federation(SETS["FedMF, weights"])
    node.provision(engine, 3, recipe.toml(), tmp_path)
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
    node.provision(engine, 3, recipe.toml(), tmp_path)
    message = node.letter(engine, state, CLIENT)
    other = codec.encode({"item": torch.zeros(90, 4), "round": torch.tensor(0, dtype=torch.int32)})
    sent = {"cut": message[:-7], "another model's": other}.get(broken, broken)  # type: ignore[arg-type]
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


def test_a_device_answers_one_run_and_one_recipe(tmp_path: Path) -> None:
    engine, recipe = federation(["model.name='FedMF'"])
    text, state = recipe.toml(), engine.start()
    for store in ("named", "nameless"):
        node.provision(engine, CLIENT, text, tmp_path / store)
    node.answer(
        tmp_path / "named", node.letter(engine, state, CLIENT, run="spring", recipe=text), seeded=True
    )
    node.answer(tmp_path / "nameless", node.letter(engine, state, CLIENT), seeded=True)
    later, told = replace(state, round=1), {"run": "spring", "recipe": text + "#"}
    for store, notes, what in (
        ("named", {"run": "autumn"}, 'another run, "autumn"; this device answers "spring"'),
        ("named", {}, "another run, one without a name"),
        ("nameless", {"run": "spring"}, 'another run, "spring"; this device answers one without a name'),
        ("named", told, "another recipe"),
    ):
        with pytest.raises(BadInput, match=what):
            node.answer(tmp_path / store, node.letter(engine, later, CLIENT, **notes), seeded=True)
    node.answer(
        tmp_path / "named", node.letter(engine, later, CLIENT, run="spring", recipe=text), seeded=True
    )
