"""The ledger of a device: what it answered and asked, what that cost, and where it stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.node.test_device import CLIENT, SETS, alone, federation, files, noisy
from veilrec import node
from veilrec.base.params import Rows
from veilrec.errors import BadInput, Exhausted
from veilrec.node.phone import Phone
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import State
from veilrec.recipe import catalogue, plugins
from veilrec.rounds import Federation
from veilrec.wire import codec

WHOLE = "{name = 'laplace', scale = 0.01, clip = 0.05, rows = 'all'}"
TOUCHED = "{name = 'laplace', scale = 0.05}"
ONE = 10 * 90 * 8  # ε of an upload of the whole table: too much for anything but exact addition


@pytest.fixture
def asking() -> Iterator[str]:
    """A plugin with a protocol whose devices ask under noise: ε = 8 a question."""
    path = Path(__file__).parent / "asking.py"
    loaded = catalogue.load_plugin(path)
    yield str(path)
    plugins.forget(loaded.path)


def phone(store: Path, sets: list[str]) -> tuple[Federation, State]:
    engine, recipe = federation(sets)
    node.provision(engine, CLIENT, recipe.toml(), store)
    return engine, engine.start()


def test_it_says_what_the_simulations_ledger_says(tmp_path: Path) -> None:
    """Round by round, of the touched rows that a seeded device draws as its twin does."""
    engine, state = phone(tmp_path, noisy(TOUCHED))
    ledger, rounds = Ledger.of(engine), 3
    for _ in range(rounds):
        node.answer(tmp_path, node.letter(engine, state, CLIENT), seeded=True)
        state = engine.run(state, rounds=1, watch=[ledger])
    told, spent = node.ledger(tmp_path), ledger.spent()[CLIENT]
    assert (told["answered"], told["missed"], told["asked"], told["seeded"]) == (rounds, 0, 0, True)
    assert told["spent"] == {"epsilon": float(spent.epsilon), "delta": spent.delta, "how": spent.how}
    assert told["composed"]["epsilon"]["max"] == float(spent.epsilon)
    assert [row["round"] for row in told["rounds"]] == [1, 2, 3]
    assert sum(row["spent"]["epsilon"] for row in told["rounds"]) == float(spent.epsilon)
    assert told["per_upload"]["epsilon"] == max(row["spent"]["epsilon"] for row in told["rounds"])
    assert Phone.open(tmp_path).account.units.sum(0).tolist() == ledger.units[CLIENT].tolist()


def test_a_device_whose_noise_is_secret_does_not_say_that_it_is_a_simulation(tmp_path: Path) -> None:
    engine, state = phone(tmp_path, noisy(TOUCHED))
    node.answer(tmp_path, node.letter(engine, state, CLIENT))
    notes = node.ledger(tmp_path)["notes"]
    assert not any("simulation" in note or "held-out" in note for note in notes)
    assert any("touched rows" in note for note in notes)


def test_without_declared_noise_rounds_are_counted_and_no_epsilon_is_made_up(tmp_path: Path) -> None:
    engine, state = phone(tmp_path, SETS["FedMF, weights"])
    assert node.ledger(tmp_path)["rounds"] == []
    node.answer(tmp_path, node.letter(engine, state, CLIENT, run="spring"))
    told = node.ledger(tmp_path)
    assert (told["run"], told["answered"], told["spent"]) == ("spring", 1, None)
    assert told["rounds"][0]["spent"] is None
    assert (told["guarantee"], told["statement"]) == (False, "no formal guarantee")


def test_answers_that_did_not_count_are_spent_all_the_same(tmp_path: Path) -> None:
    """A repeated letter may bring the news, and costs nothing; rounds without an answer are left out."""
    engine, state = phone(tmp_path, noisy(WHOLE))
    for round in (0, 2):
        node.answer(tmp_path, node.letter(engine, replace(state, round=round), CLIENT))
    before = node.ledger(tmp_path)
    node.answer(tmp_path, node.letter(engine, replace(state, round=2), CLIENT, missed=[1, 2]))
    told = node.ledger(tmp_path)
    assert [row["counted"] for row in told["rounds"]] == [False, True]
    assert (told["missed"], told["answered"]) == (1, 2)
    assert told["spent"] == before["spent"]
    for missed in ([3], [0], [4]):
        with pytest.raises(BadInput, match="in rounds that were not before it"):
            node.answer(tmp_path, node.letter(engine, replace(state, round=2), CLIENT, missed=missed))
    node.answer(tmp_path, node.letter(engine, replace(state, round=3), CLIENT, missed=[1, 3]))
    assert [row["counted"] for row in node.ledger(tmp_path)["rounds"]] == [False, False, True]


@pytest.mark.parametrize(("budget", "pays"), [(2 * ONE, 2), (2 * ONE - 1, 1), (3 * ONE - 1, 2)])
def test_a_device_stops_at_its_budget(budget: int, pays: int, tmp_path: Path) -> None:
    """With a line and exit code 3; what was answered is still there for who asks again."""
    engine, state = phone(tmp_path, [*noisy(WHOLE), f"plan.budget={budget}"])
    sent = [node.letter(engine, replace(state, round=round), CLIENT) for round in range(3)]
    replies = [node.answer(tmp_path, letter) for letter in sent[:pays]]
    before = files(tmp_path)
    with pytest.raises(Exhausted) as refused:
        node.answer(tmp_path, sent[pays])
    assert f"of {budget}, ε = {pays * ONE} is spent" in str(refused.value)
    answer = alone(tmp_path, sent[pays])
    assert (answer.returncode, answer.stdout, answer.stderr.count(b"\n")) == (3, b"", 1)
    assert files(tmp_path) == before
    assert node.answer(tmp_path, sent[pays - 1]) == replies[-1]
    assert node.ledger(tmp_path)["spent"]["epsilon"] == pays * ONE <= budget


def test_a_budget_that_bounds_nothing_is_refused(tmp_path: Path) -> None:
    """As in a simulation, which would not begin; here the recipe is another."""
    engine, _ = federation(SETS["FedMF, weights"])
    _, recipe = federation([*SETS["FedMF, weights"], "plan.budget=5"])
    node.provision(engine, CLIENT, recipe.toml(), tmp_path)
    with pytest.raises(BadInput, match=r"plan\.budget: no ε bounds an upload"):
        node.answer(tmp_path, node.letter(engine, engine.start(), CLIENT))


def test_questions_are_charged_once_for_each_letter_and_stop_at_the_budget(
    asking: str, tmp_path: Path
) -> None:
    budget = ONE + 2 * 8
    engine, state = phone(tmp_path, [*noisy(WHOLE), "protocol.name='Asking'", f"plan.budget={budget}"])
    letters = [node.letter(engine, replace(state, round=round), CLIENT) for round in range(4)]
    node.answer(tmp_path, letters[0])
    asked = [node.ask(tmp_path, letters[k]) for k in (1, 1, 2, 2)]
    assert asked[0] == asked[1] != asked[2] == asked[3]
    told = node.ledger(tmp_path)
    assert (told["asked"], told["spent"]["epsilon"]) == (2, budget)
    assert (told["per_question"]["epsilon"], told["questions"]["asked"]["max"]) == (8.0, 2)
    before = files(tmp_path)
    for more in (["--ask"], []):
        answer = alone(tmp_path, letters[3], *more, "--plugin", asking)
        assert (answer.returncode, answer.stdout) == (3, b"")
        assert b"is spent and this would make it" in answer.stderr
    assert files(tmp_path) == before
    assert node.ask(tmp_path, letters[2]) == asked[2]


def test_a_question_is_on_the_disk_before_it_leaves(
    asking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written is not asked, and a question that was written is asked again as it was."""
    engine, state = phone(tmp_path, [*noisy(TOUCHED), "protocol.name='Asking'"])
    first, second = (node.letter(engine, replace(state, round=round), CLIENT) for round in (0, 1))
    node.answer(tmp_path, first)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(OSError(28, "no space")))
        with pytest.raises(BadInput, match="cannot be written"):
            node.ask(tmp_path, second)
    assert node.ledger(tmp_path)["asked"] == 0
    asked = node.ask(tmp_path, second)
    assert node.ask(tmp_path, second) == asked
    node.answer(tmp_path, second)
    assert node.ask(tmp_path, second) != asked  # of another vector by now
    assert node.ledger(tmp_path)["asked"] == 2


def test_the_command_prints_it_and_changes_nothing(tmp_path: Path) -> None:
    engine, state = phone(tmp_path, noisy(WHOLE))
    node.answer(tmp_path, node.letter(engine, state, CLIENT))
    before = files(tmp_path)
    answer = alone(tmp_path, b"", "--ledger")
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert json.loads(answer.stdout) == node.ledger(tmp_path)
    assert files(tmp_path) == before
    for more in (["--ask"], ["--seeded"], ["--post", "a"]):
        assert alone(tmp_path, b"", "--ledger", *more).returncode == 2


def test_a_store_that_is_edited_does_not_pay_twice(tmp_path: Path) -> None:
    """A recipe with more budget, or a ledger with fewer rounds, does not go with the seal."""
    engine, state = phone(tmp_path, [*noisy(WHOLE), f"plan.budget={ONE}"])
    node.answer(tmp_path, node.letter(engine, state, CLIENT))
    path = tmp_path / node.RECIPE
    path.write_text(path.read_text().replace(f"budget = {ONE}", f"budget = {9 * ONE}"))
    later = node.letter(engine, replace(state, round=1), CLIENT)
    answer = alone(tmp_path, later)
    assert (answer.returncode, answer.stdout) == (4, b"")
    assert b"own.safetensors: does not go with recipe.toml" in answer.stderr


def test_units_are_those_of_what_left(tmp_path: Path) -> None:
    """Of touched rows as many as the upload names."""
    engine, state = phone(tmp_path, noisy(TOUCHED))
    reply = node.answer(tmp_path, node.letter(engine, state, CLIENT))

    item = codec.decode(reply, engine.protocol.schema(engine.model, dtype=torch.float64))["item"]
    assert isinstance(item, Rows)
    assert Phone.open(tmp_path).account.units.tolist() == [[8 * len(item.row)]]
