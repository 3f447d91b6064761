"""Known are those who consent: exactly they, for each attribute its own, wherever an audit asks for them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cli.commands import call
from tests.report.results import result as reported
from tests.worlds import federation, log_of, phones, run, silos
from veilrec.base.plan import Plan
from veilrec.cli import main
from veilrec.datasets.synthetic import synthetic
from veilrec.defences.pard import PARD
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.lab.examiner import Examiner
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People, goals_of, trial_of
from veilrec.metrics.arms import families
from veilrec.models.fedncf import FedNCF
from veilrec.recipe import Recipe
from veilrec.report.protocol import audits

USERS = 12
EVERYBODY = torch.ones(USERS, dtype=torch.bool)
GENDER = torch.tensor([0, 1] * 6)
AGE = torch.tensor([0, 1, 2] * 3 + [0, 1, -1])
THREAT = Threat(known="consenting", resamples=100, permutations=99)


def mask(*users: int) -> Tensor:
    return torch.isin(torch.arange(USERS), torch.tensor(users))


def people(**consents: Tensor) -> People:
    years = {"years": torch.arange(USERS).double()}
    return People({"gender": GENDER, "age": AGE}, torch.arange(USERS) * 7919, values=years, consents=consents)


SHARING = people(gender=mask(0, 1, 2, 5), age=mask(0, 1, 4, 6, 11))


def test_each_attribute_has_its_own_known_users_and_every_draw_the_same() -> None:
    goals = goals_of(SHARING, THREAT, EVERYBODY)
    assert [goal.name for goal in goals] == ["gender", "age"]  # nobody can share years
    meant = {"gender": [0, 1, 2, 5], "age": [0, 1, 4, 6]}  # of the last one no age is known
    for goal in goals:
        trials = [trial_of(goal, THREAT, SHARING.tags, 0, repeat) for repeat in range(3)]
        for trial in trials:
            assert trial.draw.known.nonzero().squeeze(1).tolist() == meant[goal.name]
            assert trial.task.labelled.tolist() == meant[goal.name]
            others = [k for k in range(11 if goal.name == "age" else 12) if k not in meant[goal.name]]
            assert trial.draw.target.nonzero().squeeze(1).tolist() == others
            assert torch.equal(torch.stack([held for _, held in trial.inner]).sum(0) == 1, trial.draw.known)
        assert len({trial.task.seed for trial in trials}) == 3  # attackers still draw anew


def test_only_users_of_whom_something_was_seen_are_known() -> None:
    goal = goals_of(SHARING, replace(THREAT, attributes=("gender",), folds=2), ~mask(1, 7))[0]
    draw = trial_of(goal, replace(THREAT, folds=2), SHARING.tags, 0, 0).draw
    assert draw.known.nonzero().squeeze(1).tolist() == [0, 2, 5]
    assert not bool(draw.target[7])


@pytest.mark.parametrize("make", [phones, partial(silos, n=5)])
def test_who_shares_is_as_the_clients_have_it(make: Any) -> None:
    data = synthetic(users=60, items=40)
    clients = make(data, consent=0.3)
    found = People.of(data).sharing(clients)
    assert set(found.consents) == {"gender", "age", "region"}
    meant = {
        int(user)
        for seats, given in zip(clients.seats, clients.consents["age"], strict=True)
        for user, yes in zip(seats, given, strict=True)
        if yes and user >= 0
    }
    assert 0 < len(meant) < 60
    assert set(found.consents["age"].nonzero().squeeze(1).tolist()) == meant


@pytest.mark.parametrize(
    ("who", "attributes", "message"),
    [
        (
            people(),
            ("gender",),
            "nobody shares gender, so that no label is known; give a larger",
        ),
        (people(age=mask(11)), ("age",), "nobody shares age"),  # of whom no age is known
        (
            people(gender=EVERYBODY),
            ("gender",),
            "everybody shares gender, so that nobody is left to attack; ",
        ),
        (people(age=~mask(11)), ("age",), "everybody shares age"),
        (
            people(gender=mask(0, 2, 4)),
            ("gender",),
            "3 users with 1 values of gender would be known, 9 attacked;",
        ),
        (
            people(gender=mask(0, 1)),
            ("gender",),
            "2 users with 2 values of gender would be known, 10 attacked;",
        ),
        (
            people(gender=~mask(4)),
            ("gender",),
            "11 users with 2 values of gender would be known, 1 attacked;",
        ),
        (
            people(gender=~mask(4, 6)),
            ("gender",),
            "10 users with 2 values of gender would be known, 2 attacked who",
        ),
        (people(gender=mask(0, 1, 2)), (), "nobody shares age"),  # all attributes, of which one is not shared
        (
            SHARING,
            ("years",),
            "years is a number, and only classes can be shared openly; name attributes with",
        ),
    ],
)
def test_what_leaves_nothing_to_learn_or_to_attack_is_refused(
    who: People, attributes: tuple[str, ...], message: str
) -> None:
    threat = replace(THREAT, attributes=attributes)
    with pytest.raises(BadInput) as raised:
        [trial_of(goal, threat, who.tags, 0, 0) for goal in goals_of(who, threat, EVERYBODY)]
    where = "threat.attributes: " if "is a number" in message else "data.consent: "
    assert str(raised.value).startswith(where)
    assert message in str(raised.value)
    assert str(raised.value).count("\n") == 0


def test_a_class_that_nobody_shares_may_still_be_attacked() -> None:
    who = people(age=mask(0, 1, 3, 4))  # classes 0 and 1 of three
    goal = goals_of(who, replace(THREAT, attributes=("age",)), EVERYBODY)[0]
    draw = trial_of(goal, THREAT, who.tags, 0, 0).draw
    assert AGE[draw.known].unique().tolist() == [0, 1]
    assert AGE[draw.target].unique().tolist() == [0, 1, 2]


def posted(consent: Any, threat: Threat) -> tuple[dict[str, Any], set[int]]:
    """The findings after a round of PARD, and whose posts lie in D_pub."""
    data = synthetic(users=60, items=40)
    clients = phones(data, consent)
    defence = PARD(attributes=("gender", "age"))
    fed = federation(clients, FedNCF(40, 1, dim=4, head=(4,)), defence=defence)
    state = run(fed)
    found = Examiner.of(data, threat, {}, 0).examine(fed, state, 1, None, lambda *told: None)
    return found, set(clients.seats.flatten()[state.posts.owner].tolist())


@pytest.mark.slow
def test_pard_is_attacked_by_whoever_reads_what_is_posted(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, set[int]] = {}
    draw = Threat.draw

    def noted(self: Threat, label: Tensor, *rest: Any) -> Any:
        drawn = draw(self, label, *rest)
        known.setdefault(str(self.known), set()).update(drawn.known.nonzero().squeeze(1).tolist())
        return drawn

    monkeypatch.setattr(Threat, "draw", noted)
    wanted = ("gender", "age")
    threat = Threat(attributes=wanted, also=("pard", "pard@consenting"), own=False)
    threat = replace(threat, resamples=100, permutations=99)
    found, public = posted(0.3, threat)
    assert list(found) == ["pard", "pard@consenting"]
    assert 5 < len(public) < 40
    assert known["consenting"] == public
    assert known["0.2"] != public
    for name in wanted:
        told = found["pard@consenting"]["attributes"][name]
        assert (told["known"], told["targets"]) == (len(public), 60 - len(public))
    kept = found["pard@consenting"]["threat"]
    assert (kept["known"], found["pard"]["threat"]["known"]) == ("consenting", 0.2)
    assert json.loads(json.dumps(kept)) == kept


def experiment(consent: Any, **more: Any) -> Experiment:
    threat = Threat(
        attributes=("gender",), own=False, also=("pard@consenting",), resamples=100, permutations=99
    )
    return Experiment(
        synthetic(users=60, items=40),
        partial(FedNCF, dim=4, head=(4,)),
        plan=Plan(rounds=2, evaluate_every=1, workers=1),
        threat=replace(threat, **more),
        consent=consent,
    )


@pytest.mark.slow
def test_a_whole_run_with_a_curve_and_several_repeats() -> None:
    one = experiment(0.4, along="fedau2@consenting", also=("fedau2@consenting",))
    label, sharing = one.data.attributes["gender"], one.federation().clients.consents["gender"].squeeze(1)
    level = [2 * int(torch.bincount(label[side]).min()) for side in (sharing, ~sharing)]
    result = one.run()
    told = result.privacy["fedau2@consenting"]["attributes"]["gender"]
    assert [told["known"], told["targets"]] == level
    assert result.privacy["fedau2@consenting"]["threat"]["repeats"] == 40
    assert all(value is not None for value in result.curves["bacc@gender"])


def test_nobody_who_consents_is_told_before_any_training(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nobody shares gender"):
        experiment(0.0).run(tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()


RECIPE = """
[data]
name = "synthetic"
users = 60
items = 40
consent = 0.3

[model]
name = "FedNCF"
dim = 4
head = [4]

[plan]
rounds = 1

[evaluation]
candidates = 9

[threat]
known = "consenting"
also = ["pard@consenting", "apm@0.3"]
attributes = ["gender"]
"""


def test_a_recipe_says_consenting_in_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(RECIPE)
    recipe = Recipe.load(tmp_path / "a.toml")
    assert recipe.values["threat"]["known"] == "consenting"
    (tmp_path / "again.toml").write_text(recipe.toml())
    assert Recipe.load(tmp_path / "again.toml") == recipe
    made = recipe.experiment()
    assert made.threat is not None
    shares = [one.threat.known for one in Examiner.of(made.data, made.threat, {}, 0).audits]
    assert shares == ["consenting", "consenting", 0.3]


def test_a_finished_run_is_attacked_by_those_who_know_who_consents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text(RECIPE.split("[threat]")[0])
    place = tmp_path / "run"
    assert main(["run", str(tmp_path / "a.toml"), "--out", str(place), "--quiet"]) == 0
    options = ["--reads", "updates", "--classifier", "logistic", "--attribute", "gender", "--quiet"]
    answer = call(capsys, "attack", place, "--known", "consenting", *options)
    assert answer.code == 0, answer.err
    assert "known are those who share the attribute openly." in " ".join(answer.out.split())
    made = Recipe.load(place / "recipe.toml").experiment().federation().clients
    count = int(made.consents["gender"].sum())
    found = json.loads((place / "result.json").read_text())["privacy"]["custom"]
    assert (found["threat"]["known"], found["attributes"]["gender"]["known"]) == ("consenting", count)
    for wrong, said in (
        ("half", '--known: "half" is no share; give'),
        ("2", '--known: "2" is no share; give a number between 0 and 1, or consenting'),
    ):
        answer = call(capsys, "attack", place, "--known", wrong, *options)
        assert (answer.code, answer.err.count("\n")) == (2, 1)
        assert said in answer.err


def test_a_report_says_whose_labels_are_known() -> None:
    before = reported("none", 0)
    audit = {**before.privacy["veilrec"]}
    audit["threat"] = {**audit["threat"], "known": "consenting"}
    after = replace(before, privacy={"veilrec": audit})
    tables = [
        {row[0]: row[1] for row in audits(families([("a", one)])[0][0])[0].threat.rows}
        for one in (before, after)
    ]
    assert [table["known"] for table in tables] == ["0.2", "consenting"]


def test_the_draws_of_a_share_are_what_they_were() -> None:
    """Results that were made before anybody could ask for those who consent stay comparable."""
    threat = Threat(known=0.25, folds=2)
    for who in (people(), SHARING):
        gender, age, years = goals_of(who, threat, EVERYBODY)
        drawn = [trial_of(goal, threat, who.tags, 0, 0).draw.known for goal in (gender, age, years)]
        assert [known.nonzero().squeeze(1).tolist() for known in drawn] == [
            [0, 7, 9, 10],
            [5, 6, 10],
            [0, 7, 9],
        ]


def test_a_world_without_attributes_has_nobody_to_ask() -> None:
    data = log_of(*[(u, (u + k) % 9, k) for u in range(6) for k in range(4)])
    assert People.of(data).sharing(phones(data)).consents == {}
