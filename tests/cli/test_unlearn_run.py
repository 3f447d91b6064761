"""``veilrec unlearn RUN``: done once, told, nothing old is left in any byte, and the run works on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cli.commands import Answer, call, tree
from tests.runs.requests.scan import found_in
from veilrec.base import tensors
from veilrec.cli import finished
from veilrec.cli.unlearn import _eraser
from veilrec.lab.forgetting import receipt
from veilrec.lab.forgetting.case import Effort
from veilrec.recipe import catalogue
from veilrec.result import Result
from veilrec.runs.requests import taking
from veilrec.runs.requests.orders import PENDING, UnlearnOrder
from veilrec.runs.world import load_world

USERS = 90
RECIPE = """
seed = 4
[data]
name = "synthetic"
users = 90
items = 30
consent = 0.5
[model]
name = "FedMF"
dim = 4
user = "{user}"
[plan]
rounds = 2
optimiser = "adam"
evaluate_every = 1
[evaluation]
candidates = 9
ks = [5, 10]
[record]
last = 1
"""
QUICK = Effort(("logistic",), ("logistic",), permutations=99)
SOME = [f"u{number:04}" for number in range(1, 41)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of private vectors, with checkpoints and a transcript, and one of exposed ones."""
    from veilrec.recipe import Recipe

    place = tmp_path_factory.mktemp("made")
    for user in ("private", "exposed"):
        (place / f"{user}.toml").write_text(RECIPE.format(user=user), encoding="utf-8")
        recipe = Recipe.load(place / f"{user}.toml")
        recipe.experiment(recipe.data()).run(place / user, recipe=recipe)
    return place


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(made / "private", tmp_path / "run"))


def unlearn(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    return call(capsys, "unlearn", "run", *arguments, "--quiet")


def held(run: Path) -> dict[str, torch.Tensor]:
    """What devices keep, in the order of the users."""
    own = tensors.read(run / "users.safetensors")
    order = own["client"].argsort()
    return {name: value[order] for name, value in own.items() if len(value) == len(order)}


def vectors(run: Path, name: str = "user") -> np.ndarray:
    return held(run)[name].reshape(USERS, -1).numpy()


def asks(users: list[str]) -> list[str]:
    return [word for user in users for word in ("--user", user)]


def test_everybody_forgets_and_no_byte_of_before_is_left(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {name: vectors(run, name) for name in ("user", "m/user", "v/user")}
    assert {path.split(":")[0] for path in found_in(run, old["user"])} >= {"users.safetensors"}
    (run / "report.html").write_text("a page", encoding="utf-8")
    answer = unlearn(capsys, "--attribute", "gender")
    assert answer.code == 0, answer.err
    assert "90 vectors were changed to forget gender, 0 are as they were" in answer.out
    assert "Method: Lethe" in answer.out
    assert {path.name for path in run.iterdir()} & {"checkpoint", "report.html", PENDING} == set()
    assert [path for old_one in old.values() for path in found_in(run, old_one)] == []
    assert not vectors(run, "m/user").any()
    world = load_world(run / "world.safetensors", run / "ids.json")
    assert world.attributes["gender"].unique().tolist() == [-1]
    assert world.attributes["age"].min() >= 0
    assert Result.load(run).data["attributes"]["gender"] == {}
    assert call(capsys, "verify", "run").code == 0


def test_who_does_not_ask_stays_to_the_bit(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, old = held(run), vectors(run)
    answer = unlearn(capsys, "--attribute", "gender", *asks(SOME))
    assert answer.code == 0, answer.err
    assert "Method: Lethe" in answer.out
    after = held(run)
    mine, others = slice(0, len(SOME)), slice(len(SOME), USERS)
    for name, value in before.items():
        assert torch.equal(after[name][others], value[others]), name
    assert (after["user"][mine] != before["user"][mine]).flatten(1).any(1).all()
    assert not after["v/user"][mine].any()
    assert found_in(run, old[mine]) == []
    label = load_world(run / "world.safetensors", run / "ids.json").attributes["gender"]
    assert (label[mine] == -1).all()
    assert (label[others] >= 0).all()


def test_a_request_that_comes_again_changes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unlearn(capsys, "--attribute", "gender", *asks(SOME)).code == 0
    before = tree(run)
    for users in (SOME, SOME[:3]):
        answer = unlearn(capsys, "--attribute", "gender", *asks(users))
        assert (answer.code, "was asked for before" in answer.out) == (0, True)
    assert tree(run) == before
    first = json.loads((run / "receipt.json").read_text(encoding="utf-8"))
    assert unlearn(capsys, "--attribute", "gender", *asks(SOME), "--receipt", "old.json").code == 0
    assert json.loads(Path("old.json").read_text(encoding="utf-8")) == first
    more = unlearn(capsys, "--attribute", "gender", *asks([SOME[0], "u0060"]))
    assert more.code == 0
    assert "1 vector was changed to forget gender, 89" in more.out  # and the other one not again
    assert "learns from the others who consent" in " ".join(more.out.split())
    last = json.loads((run / "receipt.json").read_text(encoding="utf-8"))
    assert (last["asked"]["users"], last["earlier"]) == (1, [first])


def test_who_consents_lends_unless_others_are_named(run: Path) -> None:
    opened = finished.reopen(run)
    clients = opened.federation.clients
    given = torch.zeros(USERS, dtype=torch.bool)
    given[clients.seats[:, 0]] = clients.consents["gender"][:, 0]
    assert 20 < int(given.sum()) < 70
    lends = taking.prepare(UnlearnOrder(["gender"], ["u0001"]), opened, _eraser).choice.request.lends
    given[0] = False  # who asks
    assert lends is not None
    assert torch.equal(lends, given)
    named = [f"u{number:04}" for number in range(2, 30)]
    lends = taking.prepare(UnlearnOrder(["gender"], ["u0001"], named), opened, _eraser).choice.request.lends
    assert lends is not None
    assert lends.nonzero().flatten().tolist() == list(range(1, 29))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--attribute", "gender", "--user", "nobody"), 'nobody is called "nobody"'),
        (("--attribute", "sex"), 'the run knows no "sex"'),
        (("--attribute", "gender", "--user", "u0001", "--method", "lethe"), "take --method leace_null"),
        ((), "--attribute: nothing is named"),
        (("--attribute", "gender", "--keep", "all"), "--keep"),
        (("--attribute", "gender", "-o", "new"), "is a run, which is changed where it lies"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    before = tree(run)
    answer = unlearn(capsys, *arguments)
    assert (answer.code, said in answer.err, answer.err.count("\n")) == (2, True, 1)
    assert tree(run) == before


LONG = ("Obliviator",)
ERASERS = [
    pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
    for name in catalogue.entries("erasers")
]


@pytest.mark.parametrize("method", ERASERS)
def test_every_eraser_does_it_or_refuses_before_anything_is_written(
    run: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    before = tree(run)
    answer = unlearn(capsys, "--attribute", "gender", "--method", method)
    if answer.code:
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert tree(run) == before
        assert unlearn(capsys, "--attribute", "gender").code == 0  # the run is not stuck
    assert not (run / PENDING).exists()
    assert Result.load(run).erased


def test_an_order_that_cannot_be_done_says_which_file_has_to_go(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    UnlearnOrder(["gender"], method="aegis_fed").write(run)
    answer = unlearn(capsys, "--attribute", "gender")
    assert (answer.code, PENDING in answer.err, "remove that file" in answer.err) == (2, True, True)


def test_where_vectors_were_uploaded_auto_takes_what_needs_no_label(
    made: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And neither the transcript nor posts of those who ask are left."""
    shutil.rmtree(run)
    shutil.copytree(made / "exposed", run)
    old = vectors(run)
    assert any("transcript" in place for place in found_in(run, old))
    answer = unlearn(capsys, "--attribute", "gender")
    assert (answer.code, "Method: LeaceNull" in answer.out) == (0, True)
    assert found_in(run, old) == []


def test_what_is_kept_is_kept_and_told(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = vectors(run)
    options = ("--keep", "checkpoint", "--keep", "transcript", "--keep-labels", "--json")
    answer = unlearn(capsys, "--attribute", "gender", "--method", "lethe", *options)
    told = json.loads(answer.out)
    assert told["kept"] == ["checkpoint", "transcript", "labels"]
    assert any("kept, and still telling: checkpoint, transcript" in note for note in told["notes"])
    assert {place.split("/")[0] for place in found_in(run, old)} == {"checkpoint"}
    assert (run / "transcript.safetensors").exists()
    assert load_world(run / "world.safetensors", run / "ids.json").attributes["gender"].min() >= 0


@pytest.mark.slow
def test_the_run_works_on_and_training_on_is_refused(
    run: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_world(run / "world.safetensors", run / "ids.json")
    names = [data.classes["gender"][k] for k in data.attributes["gender"].tolist()]
    lines = [f"{user},{name}" for user, name in zip(data.user_ids, names, strict=True)]
    Path("users.csv").write_text("\n".join(["user_id,gender", *lines]), encoding="utf-8")
    assert unlearn(capsys, "--attribute", "gender").code == 0
    for words in (
        ("recommend", "run", "--user", "u0001", "-k", "2"),
        ("evaluate", "run", "-q"),
        ("report", "run", "-o", "page.html"),
        ("compare", "run", str(made / "private")),
    ):
        assert call(capsys, *words).code == 0, words
    before = tree(run)
    quick = ("attack", "run", "-q", "--classifier", "logistic", "--repeats", "1", "--attribute", "gender")
    assert "bring them with --attributes USERS" in call(capsys, *quick).err  # nobody's is known
    answer = call(
        capsys, *quick, "--attributes", "users.csv", "--grant", "user_vectors", "--reads", "embeddings"
    )
    assert (answer.code, "gender" in answer.out) == (0, True)
    resume = ("run", str(made / "private.toml"), "--out", "run", "--resume", "-q")
    answer = call(capsys, *resume)
    assert (answer.code, "made to forget on request" in answer.err) == (2, True)
    answer = call(capsys, *resume, "--after-unlearning")
    assert (answer.code, "nothing was trained" in answer.err) == (0, True)
    assert tree(run) == before


@pytest.mark.filterwarnings("always::veilrec.cli.finished.CutOff")
def test_what_was_cut_off_after_it_was_taken_is_done_once(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(taking, "_done", cut_off)
        assert unlearn(capsys, "--attribute", "gender", *asks(SOME)).code == 130
    assert (run / PENDING).stat().st_mode & 0o077 == 0
    assert "a request to forget was cut off" in call(capsys, "verify", "run").out
    assert "a request to forget was cut off" in call(capsys, "recommend", "run", "--user", "u0001").err
    answer = unlearn(capsys)  # without naming anything
    assert (answer.code, "40 vectors were changed to forget gender" in answer.out) == (0, True)
    after = tree(run)
    assert "was asked for before" in unlearn(capsys, "--attribute", "gender", *asks(SOME)).out
    assert tree(run) == after


@pytest.mark.slow
@pytest.mark.parametrize("who", [(), asks(SOME)])
def test_the_receipt_has_both_sides_and_none_has_counts(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, who: tuple[str, ...]
) -> None:
    monkeypatch.setattr(receipt, "usual", lambda users: QUICK)
    answer = unlearn(capsys, "--attribute", "gender", *who, "--receipt", "r.json")
    assert answer.code == 0, answer.err
    told = json.loads(Path("r.json").read_text(encoding="utf-8"))
    about = told["attributes"]["gender"]
    assert told["asked"]["users"] == (len(SOME) if who else USERS)
    assert told["done"]["changed_of_others"] == 0
    assert {row["lists"] for row in about["lists"]} == {"unseen", "all"}
    assert [row["rounds"] for row in about["later"]] == [1, 5, 20]
    assert (about["requesters"] is None) == (not who)
    assert set(told["usefulness"]) >= {"ndcg@5", "hr@10"}
    assert "checkpoint" in told["purged"]
    kept = (run / "receipt.json").read_text(encoding="utf-8")
    assert '"counts"' not in kept + json.dumps(told)  # less those of whom it is known still: who asked
    assert json.loads(kept) == told
    assert call(capsys, "verify", "run").code == 0
    measured = finished.judge(finished.reopen(run))[
        "test"
    ]  # on the erased vectors, not those 20 rounds later
    assert measured == told["utility"]["after"]


@pytest.mark.slow
def test_a_hundred_requests_one_after_the_other(run: Path) -> None:
    """Of all attributes in turn; each changes one vector, and usefulness hardly."""
    before, first = Result.load(run).utility.test["ndcg@5"], vectors(run)
    everybody = [f"u{number:04}" for number in range(1, USERS + 1)]
    for turn in range(100):
        who, name = [f"u{turn % 80 + 1:04}"], ("gender", "age")[turn // 80]
        order = UnlearnOrder([name], who, everybody, method="leace_null")  # those who consent would run out
        old = vectors(run)
        taken = taking.take(run, order, lambda: finished.reopen(run, warns=False), _eraser, lambda said: None)
        assert taken.receipt is not None
        assert np.flatnonzero((vectors(run) != old).any(1)).tolist() == [turn % 80]
        assert found_in(run, old[[turn % 80]]) == []
    assert abs(Result.load(run).utility.test["ndcg@5"] - before) < 0.2
    assert found_in(run, first[:80]) == []
    assert found_in(run, first[80:]) != []


@pytest.mark.slow
def test_what_a_defence_has_of_who_asks_goes_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Posts, with the class in them, and estimators that learned from it."""
    from veilrec.recipe import Recipe

    monkeypatch.chdir(tmp_path)
    defence = '[[defence]]\nname = "pard"\nattributes = ["gender"]\nhead = [4]\n'
    text = RECIPE.format(user="exposed").replace("FedMF", "FedNCF").replace("dim = 4", "dim = 8")
    Path("r.toml").write_text(text + defence, encoding="utf-8")
    recipe = Recipe.load(Path("r.toml"))
    recipe.experiment(recipe.data()).run(tmp_path / "run", recipe=recipe)
    before = tensors.read(tmp_path / "run" / "users.safetensors")
    owner = before["posts/owner"].tolist()
    user = next(number for number in owner if number in before["client"].tolist())
    assert unlearn(capsys, "--attribute", "gender", "--user", f"u{user + 1:04}").code == 0
    after = tensors.read(tmp_path / "run" / "users.safetensors")
    assert after["posts/owner"].tolist() == [number for number in owner if number != user]
    helpers = [name for name in before if name.startswith("estimators")]
    differs = {name: (after[name] != before[name]).flatten(1).any(1) for name in helpers}
    assert {number for d in differs.values() for number in after["client"][d].tolist()} == {user}
    moments = [name for name in after if name[:2] in ("m/", "v/")]
    assert [name for name in moments if after[name][after["client"] == user].any()] == []


@pytest.mark.slow
def test_a_run_without_its_data_forgets_as_far_as_it_can(
    run: Path, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(run)
    words = ("run", str(made / "private.toml"), "--out", "run", "--no-world", "-q")
    assert call(capsys, *words).code == 0
    answer = unlearn(capsys, "--attribute", "gender")
    assert (answer.code, "out of its reach" in answer.out) == (0, True)
    assert call(capsys, "evaluate", "run", "-q").code == 0


@pytest.mark.slow
def test_a_model_without_vectors_of_users_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from veilrec.recipe import Recipe

    monkeypatch.chdir(tmp_path)
    text = RECIPE.format(user="private").replace('user = "private"\n', "").replace("FedMF", "FedVAE")
    Path("r.toml").write_text(text.replace("dim = 4\n", "").replace("consent = 0.5", ""), encoding="utf-8")
    recipe = Recipe.load(Path("r.toml"))
    recipe.experiment(recipe.data()).run(tmp_path / "run", recipe=recipe)
    before = tree(tmp_path / "run")
    answer = unlearn(capsys, "--attribute", "gender")
    assert (answer.code, "holds no vector of a user's own" in answer.err) == (2, True)
    assert tree(tmp_path / "run") == before
