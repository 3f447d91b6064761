"""No undeclared private value is left by a run: in files, result and report, in what it prints and logs."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.canary import Canaries, Found
from tests.canary_world import USERS, canaries_of, canary_world, few_bits, older, outside, spying
from tests.contract import Case, cases
from veilrec import node
from veilrec.attacks.attribute import AttributeInference
from veilrec.base import tensors
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.cli import main
from veilrec.clients import Clients
from veilrec.defence import Defence, Posting
from veilrec.defences.pard import PARD
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import id_hashes
from veilrec.lab.threat import Threat
from veilrec.metrics.resampling import weights
from veilrec.model import Device, Recommender
from veilrec.models.fedncf import FedNCF
from veilrec.recipe import Recipe
from veilrec.report import render
from veilrec.result import Result
from veilrec.wire.transcript import Record

LOG = canary_world()
PRIVATE = canaries_of(LOG, classes=False)
AGGREGATE = ("result.json", "stdout", "report.html")  # where classes are named, beside counts and averages
THREAT = Threat(by_part=False, resamples=100, permutations=99)


def experiment(**parts: Any) -> Experiment:
    settings: dict[str, Any] = {
        "plan": Plan(rounds=2, evaluate_every=1, workers=1, lr=0.5, optimiser="adam", precision="float64"),
        "record": Record(last=1),
        "consent": 0.5,
        **parts,
    }
    return Experiment(LOG, partial(FedNCF, dim=6, head=(8,)), **settings)


class Left(NamedTuple):
    """What a run leaves behind."""

    place: Path
    result: Result
    documents: dict[str, bytes]
    canaries: Canaries
    posters: frozenset[int] = frozenset()

    def search(self, more: dict[str, bytes] | None = None) -> list[Found]:
        """Canaries in everything that is not private, and names of classes where nothing is averaged."""
        return self.search_in({**self.documents, **(more or {})})

    def search_in(self, documents: dict[str, bytes]) -> list[Found]:
        """The same in some documents alone, such as those that were made of a run already searched."""
        classes = Canaries()
        for names in LOG.classes.values():
            classes.texts("class", names)
        strict = {name: data for name, data in documents.items() if name not in AGGREGATE}
        hits = self.canaries.scan(documents) + classes.scan(strict)
        undue = [hit for hit in hits if not posted(hit, self.posters)]
        return [hit for hit in undue if not by_chance(hit, {**self.documents, **documents})]


def posted(hit: Found, posters: frozenset[int]) -> bool:
    """Whether somebody's z^re was met where they have put it themselves: in D_pub, under its own name.

    Their open vector, their mean item and their labels are no canaries; all else that they hold stays one,
    and so does z^re in any other place.
    """
    place = re.fullmatch(r"pard\.user_re (?:posted|sent) in [a-z ]*\d+ of (\d+)", hit.place)
    owner = re.fullmatch(r"user_re \(message \d+\) of (\d+)", hit.canary)
    if place is None or owner is None:
        return False
    return place[1] == owner[1] and int(owner[1]) in posters


def posters_of(what: Experiment) -> frozenset[int]:
    """Who may post: where a defence asks people to, those who share every attribute that it guards."""
    if not what.defence.acts("posts"):
        return frozenset()
    consents = what.federation().clients.consents
    names = getattr(what.defence, "attributes", ()) or consents
    everything = torch.stack([consents[name][:, 0] for name in names]).all(0)
    return frozenset(everything.nonzero().squeeze(1).tolist())


def by_chance(hit: Found, documents: dict[str, bytes]) -> bool:
    """Whether a number of few bits was met in the first letter, or in the upload of somebody else.

    A device that gives away its own is found all the same.
    """
    if older(hit, documents):
        return True
    sender = re.fullmatch(r"upload \d+ of client (\d+)", hit.place)
    owner = re.fullmatch(r"user \(message \d+\) of (\d+)", hit.canary)
    others = sender is not None and owner is not None and sender[1] != owner[1]
    return others and few_bits(hit, documents)


@contextlib.contextmanager
def heard() -> Iterator[dict[str, bytes]]:
    """What is printed and logged, down to the last detail; filled when it is over."""
    out, err, log, said = io.StringIO(), io.StringIO(), io.StringIO(), dict[str, bytes]()
    root, handler = logging.getLogger(), logging.StreamHandler(log)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield said
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        said |= {"stdout": out.getvalue().encode(), "stderr": err.getvalue().encode()}
        said["log"] = log.getvalue().encode()


def leave(what: Experiment, place: Path) -> Left:
    canaries = PRIVATE.copy()
    with heard() as said, spying(canaries, apart=["pard.user_re"]) as spy:
        result = what.run(place)
    documents = {**outside(place), **spy.messages, **said}
    return Left(place, result, documents, canaries, posters_of(what))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    attacked = experiment(threat=THREAT, attacks={"guess": AttributeInference(classifiers=("majority",))})
    return leave(attacked, tmp_path_factory.mktemp("canary") / "run")


def test_a_run_leaves_no_canary(left: Left) -> None:
    told = {
        "model.safetensors",
        "metrics.jsonl",
        "timing.jsonl",
        "recipe.toml",
        "result.json",
        "stderr",
        "log",
    }
    assert told <= left.documents.keys()
    assert any(name.startswith("checkpoint/round-") for name in left.documents)
    assert len(left.documents) > 3 * USERS
    assert left.canaries.count > 3000
    assert left.search() == []


def test_its_private_files_hold_them(left: Left) -> None:
    """Or the search above would prove nothing."""
    files = [path for path in left.place.rglob("*") if path.is_file()]
    found = {path.name for path in files if left.canaries.find(path.read_bytes())}
    states = {name for name in found if name.startswith("state-")}
    assert states
    assert found - states == {"users.safetensors", "world.safetensors", "ids.json", "per_user.csv"}


def lists_of(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Every list and table in a JSON value, with its length."""
    if isinstance(value, dict | list):
        yield path, len(value)
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from lists_of(inner, f"{path}/{key}")


def per_user(result: dict[str, Any]) -> list[str]:
    """What has one entry for each user."""
    return [path for path, length in lists_of(result) if length == USERS]


def test_a_result_has_no_entry_for_each_user(left: Left) -> None:
    saved = json.loads((left.place / "result.json").read_bytes())
    assert per_user(saved) == []
    assert per_user({**saved, "map": {"label": LOG.attributes["gender"].tolist()}}) == ["/map/label"]


def page_of(left: Left, **more: Any) -> bytes:
    """The report of a run."""
    return render([("run", replace(left.result, **more))]).encode()


def test_a_report_holds_no_canary(left: Left) -> None:
    assert left.search_in({"report.html": page_of(left)}) == []
    somebody = {**left.result.data, "name": LOG.user_ids[3]}
    (hit, *_) = left.search_in({"report.html": page_of(left, data=somebody)})
    assert (hit.place, hit.canary) == ("report.html", f"user id {LOG.user_ids[3]}")


@pytest.mark.parametrize(
    "what",
    ["id", "vector", *(pytest.param(w, marks=pytest.mark.slow) for w in ("history", "one weight", "hex"))],
)
def test_planted_a_result_with_a_private_value_is_found(what: str, left: Left) -> None:
    vector = tensors.read(left.place / "users.safetensors")["user"][5, 0]
    leaks = {
        "id": {"worst user": LOG.user_ids[5]},
        "vector": [round(x, 5) for x in vector.tolist()],
        "history": LOG.item[LOG.user == 5].tolist(),
        "one weight": float(vector[2]),
        "hex": vector.half().numpy().tobytes().hex(),
    }
    saved = json.loads((left.place / "result.json").read_bytes())
    data = json.dumps({**saved, "notes": leaks[what]}).encode()
    assert {hit.place for hit in left.search({"result.json": data})} == {"result.json"}


def test_planted_a_private_file_that_others_may_read_is_found(left: Left, tmp_path: Path) -> None:
    for name in ("users.safetensors", "per_user.csv"):
        (tmp_path / name).write_bytes((left.place / name).read_bytes())
        (tmp_path / name).chmod(0o644)
        with pytest.raises(AssertionError, match="others may read it"):
            outside(tmp_path)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "debug.bin").write_bytes((left.place / "users.safetensors").read_bytes())
    assert left.canaries.scan(outside(tmp_path))


@dataclass(frozen=True)
class Talking(Defence):
    """A device that says too much while it gets ready."""

    says: str = "user"
    how: str = "stderr"

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        log = clients.log
        label = log.classes["gender"][int(log.attributes["gender"][6])]
        text = f"client 6: {log.user_ids[6] if self.says == 'user' else label}"
        if self.how == "log":
            logging.getLogger("device").debug(text)
        else:
            print(text, file=getattr(sys, self.how))
        return clients


@pytest.mark.parametrize(
    ("says", "how"),
    [
        ("user", "stdout"),
        pytest.param("user", "stderr", marks=pytest.mark.slow),
        pytest.param("label", "log", marks=pytest.mark.slow),
    ],
)
def test_planted_a_client_that_logs_one_attribute_is_found(says: str, how: str, tmp_path: Path) -> None:
    found = leave(experiment(defence=Talking(says, how)), tmp_path / "run").search()
    assert {hit.place for hit in found} == {how}


@pytest.mark.slow
@pytest.mark.parametrize("defence", cases("defences"), ids=str)
@pytest.mark.parametrize("protocol", cases("protocols"), ids=str)
def test_no_method_leaves_a_canary(protocol: Case, defence: Case, tmp_path: Path) -> None:
    try:
        left = leave(experiment(protocol=protocol.build(), defence=defence.build()), tmp_path / "run")
    except BadInput as refused:
        pytest.skip(f"they do not go together: {refused}")
    assert left.canaries.count > 2500
    assert left.search() == []


def test_a_checksum_is_no_list_of_numbers() -> None:
    canaries = Canaries()
    canaries.histories("history", [torch.tensor([3, 50, 7, 12, 9, 31])])
    canaries.numbers("weights", 0.1 * Keys.seed(0).normal(40, 5000))
    assert canaries.find(b'"sha256": "' + b"a3b50c7d12f9f31a".ljust(64, b"d") + b'"') == []
    assert canaries.find(b'"items": "3b50c7d12f9f31"') != []


BY_NAME = {"gender": 0.7, "age": 0.4}  # some share one of the two


def pard(defence: PARD | None = None, **parts: Any) -> Experiment:
    return experiment(defence=defence or PARD(head=(8,)), consent=BY_NAME, **parts)


@pytest.fixture(scope="module")
def posting(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """What a run under PARD leaves."""
    return leave(pard(), tmp_path_factory.mktemp("posting") / "run")


def test_those_who_post_leave_what_they_post_and_nothing_else(posting: Left) -> None:
    """All messages and public files of a run under PARD."""
    left = posting
    some = torch.stack(list(pard().federation().clients.consents.values())).any(0)
    assert 5 < len(left.posters) < int(some.sum()) < USERS
    assert {"model.safetensors", "metrics.jsonl", "result.json"} <= left.documents.keys()
    assert left.search() == []
    found = {int(hit.place.split(" of ")[1]) for hit in left._replace(posters=frozenset()).search()}
    assert found == left.posters  # what is spared is there, or nothing would be proved


@pytest.mark.slow
def test_an_attacker_who_is_given_what_stays_leaves_none_of_it(tmp_path: Path) -> None:
    """The audit of the halves is granted z^re: its scores are written down, and nothing else."""
    left = leave(pard(threat=replace(THREAT, own=False, also=("pard-halves",))), tmp_path / "run")
    read = {one["name"] for one in left.result.privacy["pard-halves"]["attributes"]["gender"]["attackers"]}
    assert "withheld/mlp-pard" in read
    written = {name: data for name, data in left.documents.items() if " " not in name}  # all but messages
    assert {"result.json", "metrics.jsonl", "stdout", "stderr", "log"} <= written.keys()
    assert left.search_in(written) == []
    assert kept_in(left, page_of(left)) == set()
    vector = tensors.read(left.place / "users.safetensors")["user_re"][5, 0]
    assert kept_in(left, page_of(left, data={**left.result.data, "name": str(vector.tolist())})) == {
        "user_re"
    }


def kept_in(left: Left, page: bytes) -> set[str]:
    """Private weights in a report; beside so many small ones, digits of its style look like ratings."""
    hits = left.search_in({"report.html": page})
    return {hit.canary.split()[0] for hit in hits} - {"ratings"}


def test_the_view_of_the_server_holds_no_more_than_was_posted(posting: Left) -> None:
    """The transcript is for its owner only, and yet no estimator and no head is in it, and z^re if posted."""
    left = posting
    views = {path.name: path.read_bytes() for path in left.place.rglob("transcript.safetensors")}
    assert sum(map(len, views.values())) > 10_000
    documents = {**left.documents, **views}
    hits = [hit for hit in left.canaries.scan(views) if not older(hit, documents)]
    assert hits
    owners = [re.fullmatch(r"user_re \(message \d+\) of (\d+)", hit.canary) for hit in hits]
    assert all(owner is not None and int(owner[1]) in left.posters for owner in owners)


def everybody(posting: Posting | None, consents: dict[str, Tensor]) -> Tensor:
    return torch.ones_like(consents["gender"])


def anything(posting: Posting | None, consents: dict[str, Tensor]) -> Tensor:
    """Those who share some attribute, and keep another that z^re tells."""
    return torch.stack(list(consents.values())).any(0)


@pytest.mark.slow  # of one round: `test_canary`
@pytest.mark.parametrize("who", [everybody, anything])
def test_planted_a_post_of_somebody_who_keeps_an_attribute_is_found(
    who: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Posting, "willing", who)
    left = leave(pard(), tmp_path / "run")
    consents = pard().federation().clients.consents
    wrongly = set(who(None, consents)[:, 0].nonzero().squeeze(1).tolist()) - left.posters
    assert len(wrongly) > 3
    hits = left.search()
    assert {int(hit.place.split(" of ")[1]) for hit in hits} == wrongly
    assert {hit.place.split(" in ")[0] for hit in hits} == {"pard.user_re posted", "pard.user_re sent"}


@dataclass(frozen=True)
class Careless(PARD):
    """Posts a private weight beside or instead of z^re, or uploads z^re of those who may post it.

    Of the estimators it posts what a value stands for.
    """

    how: str = "beside"

    def _post(self, model: Recommender, device: Device) -> Params:
        weights, posts = dict(model.named_parameters()), super()._post(model, device)
        if self.how in ("beside", "instead"):
            name = "pard.items" if self.how == "beside" else "pard.user_re"
            posts[name] = weights["predictor.0.bias"][None, : model.dim]
        if self.how == "value":
            posts["pard.user_re"] = weights["estimators.ip.weight"][0, :1]
        return posts

    def after_epoch(self, params: Params, device: Device) -> Params:
        if self.how != "upload":
            return params
        first = torch.arange(len(params["item"]))[:, None] == 0
        may = torch.stack(list(device.batch.consents.values())).all(0)
        return {**params, "item": torch.where(first & may, params["user_re"], params["item"])}


@pytest.mark.parametrize(
    ("how", "place", "what"),
    [
        pytest.param("beside", "post ", "predictor.0.bias", marks=pytest.mark.slow),
        pytest.param("instead", "pard.user_re posted", "predictor.0.bias", marks=pytest.mark.slow),
        pytest.param("value", "pard.user_re posted", "estimators.ip.weight", marks=pytest.mark.slow),
        pytest.param("upload", "upload ", "user_re", marks=pytest.mark.slow),
    ],
)
def test_planted_whoever_posts_gives_away_no_more(how: str, place: str, what: str, tmp_path: Path) -> None:
    left = leave(pard(Careless(head=(8,), how=how)), tmp_path / "run")
    hits = [hit for hit in left.search() if hit.place.startswith(place)]
    assert {hit.canary.split()[0] for hit in hits} >= {what}
    assert {int(re.findall(r"\d+", hit.place)[-1]) for hit in hits} == left.posters


def test_the_metrics_of_single_users_cannot_be_solved_for(left: Left) -> None:
    """Whoever knows the ids knows how often each resample counts each user: an equation per resample."""
    metric, means = next(iter(left.result.utility_replicates.items()))
    drawn = weights(id_hashes(LOG.user_ids), len(means)).double()
    guess = np.linalg.lstsq((drawn / drawn.sum(1, keepdim=True)).numpy(), np.array(means), rcond=None)[0]
    lines = (left.place / "per_user.csv").read_text().splitlines()
    column = lines[0].split(",").index(metric)
    truth = np.array([float(line.split(",")[column]) for line in lines[1:]])
    assert np.corrcoef(guess, truth)[0, 1] < 0.9


def test_a_device_of_its_own_tells_no_more(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sets = [
        "data.name='synthetic'",
        "model.name='FedNCF'",
        "model.dim=6",
        "model.head=[8]",
        "plan.precision='float64'",
    ]
    recipe = Recipe.load(None, sets)
    fed = replace(recipe.experiment(), data=LOG).federation()
    canaries, documents, state = canaries_of(LOG), dict[str, bytes](), fed.start()
    for client in (0, 7, 40):
        place = tmp_path / str(client)
        node.provision(fed, client, recipe.toml(), place)
        for round in range(2):
            letter = node.letter(fed, replace(state, round=round), client)
            documents[f"letter {round} to {client}"] = letter
            canaries.numbers(f"user {client}", tensors.read(place / node.OWN)["own/user"])
            documents[f"upload {round} of {client}"] = node.answer(place, letter)
        canaries.numbers(f"user {client}", tensors.read(place / node.OWN)["own/user"])
        documents |= {f"{client}/{name}": data for name, data in outside(place).items()}
        with pytest.raises(BadInput) as refused:
            node.answer(place, letter[:-9])
        documents[f"error of {client}"] = str(refused.value).encode()
    out, err = capfd.readouterr()
    documents |= {"stdout": out.encode(), "stderr": err.encode()}
    assert canaries.scan(documents) == []
    own = (tmp_path / "7" / node.OWN).read_bytes()
    assert canaries.find(documents["upload 1 of 7"] + own)


@pytest.mark.slow
def test_real_attackers_and_the_commands_about_them_tell_no_more(tmp_path: Path) -> None:
    """Attackers that read everybody's uploads, then `attack`, `compare` and `evaluate` on what they left."""
    reads = {name: AttributeInference(name, classifiers=("lda", "knn")) for name in ("profile", "updates")}  # type: ignore[arg-type]
    run = leave(experiment(threat=THREAT, attacks=reads), tmp_path / "run")
    assert run.search() == []
    with heard() as said:
        for arguments in (
            ["attack", str(run.place), "--reads", "parameters", "--classifier", "lda"],
            ["compare", str(run.place), "--audit", "custom"],
            ["evaluate", str(run.place)],
        ):
            assert main(arguments) == 0
    assert b"AUC" in said["stdout"]
    assert run.search({**said, "result.json": (run.place / "result.json").read_bytes()}) == []
    planted = said["stdout"] + str(LOG.user_ids[7]).encode()
    assert run.search({"stdout": planted}) != []
