"""Methods that are not FedAvg on a pairwise model, each a file as somebody outside would write it.

They are small stand-ins for papers to come: sequences up and a model of the server's own, sums in two stages
without any training, ordered histories, a defence of one hook. All go through one list of checks, and nothing
in the package knows of them. Planted faults show that the checks can fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.node.test_device import alone
from tests.papers_to_come import checks
from tests.papers_to_come.checks import CHECKS, Case, Check, trained
from veilrec import node
from veilrec.attacks.common.readings import refusal
from veilrec.base.params import Message, Rows
from veilrec.engine.probe import public
from veilrec.errors import BadInput, ClientFailed
from veilrec.model import Recommender
from veilrec.node.letters import Letterbox
from veilrec.privacy.mechanism import Mechanism, exact
from veilrec.protocol import Server, Shape, State
from veilrec.recipe import catalogue, plugins
from veilrec.runs.recorder import Recorder
from veilrec.wire.uploads import Fold

HERE = Path(__file__).parent
FILES = ("ordered", "one_hook", "two_stage", "ptf_fsr")
PTF = Case(
    "sequences and a model of the server's own",
    (
        "model.name='Ordered'",
        "model.mixing='private'",
        "protocol.name='PTFFSR'",
        "plan.order='deal'",
        "plan.cohort=5",
        "plan.passes=2",
        "plan.evaluate_every=1",
    ),
    ("sequence", "latest"),
)
SUMS = Case(
    "sums in two stages",
    ("model.name='Neighbours'", "protocol.name='TwoStage'", "plan.rounds=2"),
    ("counts", "pairs"),
)
ORDERED = Case("ordered histories", ("model.name='Ordered'", "plan.rounds=3"), ("mix",))
HOOK = Case(
    "a defence of one hook",
    ("model.name='Ordered'", "defence=[{name='Coarse'}]", "plan.rounds=2"),
    ("mix",),
)
TABLES = Case(
    "that defence on rows of a table",
    ("model.name='FedMF'", "model.dim=4", "defence=[{name='Coarse'}]", "plan.rounds=2"),
    ("item",),
)
CASES = [PTF, SUMS, ORDERED, HOOK, TABLES]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> Iterator[None]:
    found = [catalogue.load_plugin(HERE / f"{name}.py") for name in FILES]
    yield
    plugins.forget(*(plugin.path for plugin in found))


def pairs() -> list[Any]:
    """Every check of every case; of those that have FedAvg's protocol the dearer ones are slow."""
    cheap = (checks.by_engine, checks.by_a_device, checks.by_ledger, checks.by_bytes)
    return [
        pytest.param(
            check,
            case,
            id=f"{check.__name__}-{case}",
            marks=() if (check in cheap and case is not TABLES) or case in (PTF, SUMS) else pytest.mark.slow,
        )
        for check, case in product(CHECKS, CASES)
    ]


@pytest.mark.parametrize(("check", "case"), pairs())
def test_every_method_passes_every_check(check: Check, case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def planted(case: Case, protocol: type, **rest: Any) -> Case:
    """A case whose protocol has a fault."""
    return replace(case, planted={"protocol": protocol(), **rest})


def forgetful(base: type) -> type:
    """A protocol whose server remembers something of its own."""

    def make_server(self: Any, shape: Shape) -> Server:
        server = base.make_server(self, shape)  # type: ignore[attr-defined]
        finish, rounds = server.finish, []

        def remembering(state: State, fold: Fold, *rest: Any) -> State:
            rounds.append(state.round)
            after = finish(state, fold, *rest)
            return replace(after, server={n: w + 0.1 * len(rounds) for n, w in after.server.items()})

        server.finish = remembering
        return server  # type: ignore[no-any-return]

    return dataclass(frozen=True)(type("Forgetful", (base,), {"make_server": make_server}))


def entry(name: str) -> Any:
    return catalogue.find("protocols", name)


def faulty(name: str, **methods: Any) -> type:
    """A protocol with other methods; each takes the protocol that it replaces one of."""
    base = entry(name)
    own = {n: (lambda self, *a, _f=f, **k: _f(super(made, self), *a, **k)) for n, f in methods.items()}
    made: type = dataclass(frozen=True)(type("Faulty", (base,), own))
    return made


def beyond(base: Any, *arguments: Any) -> Message:
    return {name: value + 1000 for name, value in base.pack(*arguments).items()}


def boasting(base: Any, model: Recommender) -> tuple[Mechanism, ...]:
    return (Mechanism("PTFFSR", "sequence", "laplace", exact(1), exact(1), model.history),)


def undeclared(base: Any, *arguments: Any) -> Message:
    return {**base.fold(*arguments), "loss": torch.ones(())}


def lost(base: Any, partial: Message, other: Message) -> Message:
    return other


def first_wins(base: Any, partial: Message, other: Message) -> Message:
    (found,) = base.merge(partial, other).values()
    return {"sequence": Rows(found.row.flip(0), found.value.flip(0))}


def without_each(read: Any) -> Any:
    def call(self: Any, data: bytes, **rest: Any) -> Any:
        received = read(self, data, **rest)
        return received._replace(letter=received.letter._replace(each={}))

    return call


@pytest.mark.slow
def test_planted_faults_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in each check at least."""
    faults: list[tuple[Check, Case]] = [
        (checks.by_engine, planted(PTF, faulty("PTFFSR", pack=beyond))),
        (checks.by_a_checkpoint, planted(SUMS, forgetful(entry("TwoStage")))),
        (checks.by_ledger, planted(PTF, faulty("PTFFSR", declares=boasting))),
        (checks.by_two_shards, planted(SUMS, faulty("TwoStage", merge=lost))),
        (checks.by_two_shards, planted(PTF, faulty("PTFFSR", merge=first_wins))),
        (checks.by_bytes, planted(SUMS, faulty("TwoStage", fold=undeclared))),
        (checks.by_new_servers, planted(SUMS, forgetful(entry("TwoStage")))),
        (checks.by_new_servers, planted(PTF, forgetful(entry("PTFFSR")))),
    ]
    for k, (check, case) in enumerate(faults):
        found_by(check, case, tmp_path / str(k))
    with monkeypatch.context() as patched:
        patched.setattr(Letterbox, "read", without_each(Letterbox.read))
        found_by(checks.by_a_device, PTF, tmp_path / "device")
    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "_told", lambda self, sent: {})
        found_by(checks.by_transcript, PTF, tmp_path / "transcript")
    with monkeypatch.context() as patched:
        patched.setattr("veilrec.runs.session.disclosures", lambda *rest: [])
        found_by(checks.by_report, SUMS, tmp_path / "report")


def found_by(check: Check, case: Case, folder: Path) -> None:
    with pytest.raises((AssertionError, BadInput, ClientFailed, KeyError)):
        check(case, folder)


def test_a_server_at_work_is_seen_and_can_be_left(tmp_path: Path) -> None:
    """In the middle of its second round; what was left is done again, to the byte."""
    beats: list[tuple[int, int]] = []
    fed = PTF.federation()
    trained(fed, pulse=lambda done, total: beats.append((done, total)))
    assert beats == [(k, 4) for k in range(4)] * fed.last
    checks.by_a_checkpoint(PTF, tmp_path, leaves="server")


def test_threads_of_a_server_are_ended_when_rounds_are_over_however_they_end() -> None:
    fed, closed = SUMS.federation(), []
    fed.server.close = lambda: closed.append(True)  # type: ignore[method-assign]
    trained(fed)
    assert closed == [True]
    fed.server.finish = None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        trained(fed)
    assert closed == [True, True]


@pytest.mark.parametrize("forwards", [3, "all"])
def test_only_sums_leave_in_place_of_uploads(forwards: Any) -> None:
    with pytest.raises(BadInput, match="uploads of PTFFSR are no numbers that add up"):
        PTF.federation(forwards=forwards)
    one, other = SUMS.federation(), SUMS.federation(forwards=forwards)
    assert checks.same(trained(one).server, trained(other).server)


def test_what_acts_on_training_is_refused_where_nothing_trains() -> None:
    case = replace(SUMS, sets=(*SUMS.sets, "defence=[{name='apm', every='epoch'}]"))
    with pytest.raises(BadInput, match="devices of TwoStage do not train"):
        case.federation()


def test_what_is_asked_for_depends_on_the_answer() -> None:
    """The second letter names what the first answers chose, and the second answers are of that shape."""
    fed, seen = SUMS.federation(), []
    trained(fed, seen)
    first, second = (next(e for e in seen if e.round == k) for k in (1, 2))
    chosen = int((second.sent.all["chosen"] >= 0).sum())
    assert 0 < chosen < 40
    assert first.schema.keys() == {"counts"}
    assert second.schema["pairs"].shape == (chosen, 40)
    assert fed.fleet.schema().keys() == first.schema.keys() | second.schema.keys()


def test_a_pass_is_everybody_once() -> None:
    fed = PTF.federation()
    turns = [fed.sample(k) for k in range(fed.last)]
    assert (fed.last, fed.look_every) == (6, 3)
    for each in (turns[:3], turns[3:]):
        assert torch.equal(torch.cat(each).sort().values, fed.fleet.roster.able)
    assert not torch.equal(turns[0], turns[3])


@pytest.mark.parametrize("case", [PTF, SUMS], ids=str)
@pytest.mark.parametrize("name", ["updates", "parameters", "profile", "embeddings", "withheld", "recovered"])
def test_attackers_who_read_weights_say_in_a_line_that_there_are_none(name: str, case: Case) -> None:
    """An attacker who finds nothing where nothing is read would look like privacy."""
    known = public(case.federation())
    assert known.weights == {}
    assert refusal(known, (), name, ())
    assert bool(refusal(known, ("user_vectors",), name, ())) == (name != "embeddings")


def test_a_device_asks_once_for_each_letter(tmp_path: Path) -> None:
    """By the command too; not before it has taken part, never with a post, and with chance of its own.

    Who could have it asked again with other draws would know all that each of them has left out.
    """
    fed = PTF.federation()
    state, client, kinds = fed.start(), int(fed.sample(0)[0]), ("real", "twin", "seeded")
    for name in kinds:
        node.provision(fed, client, PTF.recipe.toml(), tmp_path / name)
    message, later = (node.letter(fed, replace(state, round=round), client) for round in (0, fed.last))
    with pytest.raises(BadInput, match="has answered no round yet"):
        node.ask(tmp_path / "real", message)
    for name in kinds:
        node.answer(tmp_path / name, message, seeded=name == "seeded")
    asked = {name: {ask(tmp_path / name, message, name) for _ in range(3)} for name in kinds}
    assert [len(asked[name]) for name in kinds] == [1, 1, 1]
    assert asked["real"] != asked["twin"]
    assert node.ledger(tmp_path / "real")["asked"] == 1
    drawn = {ask(tmp_path / "real", later, "real"), ask(tmp_path / "real", message, "real"), *asked["real"]}
    assert len(drawn) > 1
    assert node.ledger(tmp_path / "real")["asked"] == 3
    post = alone(tmp_path / "real", message, "--ask", "--post", str(tmp_path / "post"))
    assert (post.returncode, post.stdout) == (2, b"")
    assert b"who asks posts nothing" in post.stderr


def ask(store: Path, message: bytes, kind: str) -> bytes:
    done = alone(store, message, "--ask", *(["--seeded"] if kind == "seeded" else []))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
