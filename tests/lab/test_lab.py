"""The lab: planted leaks are found, nothing is found where nothing is, and the judge cannot be fooled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.worlds import federation, phones, run
from veilrec.attack import Attack, Seen, Task
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.keys import Keys
from veilrec.datasets.synthetic import synthetic
from veilrec.engine.probe import see
from veilrec.errors import BadInput
from veilrec.interactions import id_hashes
from veilrec.lab import examiner
from veilrec.lab.examiner import Examiner
from veilrec.lab.lab import audit
from veilrec.lab.presets import PRESETS, preset
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF

FOUR = ("logistic", "boosting", "knn", "mlp")
QUICK = Threat(resamples=200, permutations=199)


def people(label: Tensor, **more: Any) -> People:
    tags = id_hashes([f"user {k}" for k in range(len(label))])
    return People({"gender": label}, tags, {"gender": ["female", "male"]}, **more)


def world(separation: float, users: int = 800, dim: int = 16, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Vectors in which two classes are so many standard deviations apart, along all coordinates together."""
    keys = Keys.seed(seed)
    label = keys.fold("label").integers(2, users)
    shift = separation / math.sqrt(dim) * (label.double() - 0.5)[:, None]
    return (keys.fold("vector").normal(users, dim) + shift).float(), label


def found(
    vectors: Tensor, who: People, classifiers: Sequence[str] = FOUR, threat: Threat = QUICK
) -> dict[str, Any]:
    attacks = {"embeddings": AttributeInference("embeddings", classifiers=classifiers)}
    return audit(Seen.of_vectors(vectors), who, threat, attacks)


def test_a_planted_leak_is_found_and_told_in_plain_words() -> None:
    vectors, label = world(3.0)
    told = found(vectors, people(label))["attributes"]["gender"]
    verdict = told["verdict"]
    ideal = 0.5 + 0.5 * math.erf(3.0 / 2)
    assert verdict["auc"]["low"] <= ideal + 0.02
    assert verdict["auc"]["value"] > ideal - 0.03
    assert verdict["leaning"] == "above"
    assert verdict["families"] == ["boosting", "linear", "neighbours", "neural"]
    assert verdict["sentence"].startswith("An attacker who sees the user vectors guesses gender right for 9")
    assert (told["known"], told["targets"]) == (160, 640)
    assert told["floors"]["majority"]["micro_f1"] < 0.56
    assert all(attacker["p"] == pytest.approx(1 / 200) for attacker in told["attackers"])
    assert len(verdict["replicates"]) == 200
    kept = told["attackers"][0]["replicates"]
    assert {score: len(some) for score, some in kept.items()} == {
        "auc": 200,
        "balanced_accuracy": 200,
        "macro_f1": 200,
        "micro_f1": 200,
    }
    assert {group["group"] for group in told["groups"]} == {"female", "male"}
    at_1 = 0.5 + 0.5 * math.erf((3.0 - 2.326) / math.sqrt(2))  # of two normals 3 apart: 0.75
    assert all(group["tpr_at_1"]["value"] == pytest.approx(at_1, abs=0.12) for group in told["groups"])


def test_nothing_is_found_where_nothing_is() -> None:
    vectors, label = world(0.0)
    verdict = found(vectors, people(label))["attributes"]["gender"]["verdict"]
    assert verdict["leaning"] == "none"
    assert verdict["sentence"].startswith("No attacker of 4 families finds gender in the user vectors")


@dataclass(frozen=True)
class Told(Attack):
    """Answers with what it was given; a test's own attacker."""

    says: tuple[float, ...]

    def infer(self, seen: Seen, task: Task) -> Tensor:
        scores = torch.tensor(self.says)
        return torch.stack([-scores, scores], 1)


def test_whoever_is_wrong_more_often_than_chance_has_learned_it() -> None:
    _, label = world(0.0, users=400)
    noise = Keys.seed(3).normal(400)
    flipped = noise - 0.75 * (label.double() - 0.5)
    told = audit(
        Seen.of_vectors(torch.zeros(400, 1)), people(label), QUICK, {"flipped": Told(tuple(flipped.tolist()))}
    )
    verdict = told["attributes"]["gender"]["verdict"]
    assert verdict["auc"]["value"] == pytest.approx(0.30, abs=0.06)
    assert verdict["leaning"] == "below"
    assert "reads gender turned round" in verdict["sentence"]


def test_an_attacker_who_says_the_same_of_everybody_is_not_taken_for_a_defence() -> None:
    label = torch.arange(400) % 2
    silent = {"silent": Told((0.3,) * 400)}
    told = audit(Seen.of_vectors(torch.zeros(400, 1)), people(label), QUICK, silent)
    verdict = told["attributes"]["gender"]["verdict"]
    assert verdict["auc"] == {"value": 0.5, "low": 0.5, "high": 0.5}
    assert verdict["sentence"].endswith("says the same of everybody: it has failed, and tells nothing.")
    moved = {"silent": Told((*(0.3,) * 399, 0.4))}
    told = audit(Seen.of_vectors(torch.zeros(400, 1)), people(label), QUICK, moved)
    assert "has failed" not in told["attributes"]["gender"]["verdict"]["sentence"]


def test_a_defence_that_fools_one_family_is_no_defence() -> None:
    """The label is the parity of a sign pattern: linear attackers see nothing, trees do."""
    keys = Keys.seed(5)
    vectors = keys.fold("v").normal(1600, 4)
    label = ((vectors[:, 0] > 0) ^ (vectors[:, 1] > 0)).long()
    told = found(vectors, people(label))["attributes"]["gender"]
    by = {attacker["classifier"]: attacker["scores"]["auc"]["value"] for attacker in told["attackers"]}
    assert abs(by["logistic"] - 0.5) < 0.1
    assert told["verdict"]["auc"]["value"] > 0.85
    assert told["verdict"]["attacker"] != "embeddings/logistic"


@dataclass(frozen=True)
class Peeks(Attack):
    """Right about the targets and wrong about the known users who are held out: what luck would look like."""

    truth: tuple[int, ...]

    def infer(self, seen: Seen, task: Task) -> Tensor:
        label = torch.tensor(self.truth)
        many = int((task.known >= 0).sum()) > 100  # the last fit has all known users, the inner ones fewer
        right = label if many else Keys.seed(task.seed).fold("x").integers(2, len(label))
        return torch.nn.functional.one_hot(right, 2).double()


def test_the_targets_have_no_say_in_who_is_chosen() -> None:
    vectors, label = world(1.0, users=600)
    attacks = {
        "lucky": Peeks(tuple(label.tolist())),
        "embeddings": AttributeInference("embeddings", classifiers=("logistic", "boosting", "knn")),
    }
    told = audit(Seen.of_vectors(vectors), people(label), QUICK, attacks)["attributes"]["gender"]
    best = max(told["attackers"], key=lambda attacker: attacker["scores"]["auc"]["value"])
    assert best["name"] == "lucky"
    assert told["verdict"]["attacker"].startswith("embeddings/")


@dataclass(frozen=True)
class Watching(Attack):
    """Notes what it is told."""

    seen: ClassVar[list[Tensor]] = []

    def infer(self, seen: Seen, task: Task) -> Tensor:
        self.seen.append(task.known)
        return torch.zeros(len(task.known), 2)


def test_an_attack_never_hears_a_targets_label() -> None:
    _, label = world(0.0, users=200)
    Watching.seen.clear()
    audit(Seen.of_vectors(torch.zeros(200, 1)), people(label), QUICK, {"a": Watching(), "b": Watching()})
    told = torch.stack(Watching.seen) >= 0
    assert len(told) == 8  # two attackers, each once with all known users and once without each third of them
    assert int(told.any(0).sum()) == 40


def test_only_users_that_were_seen_are_attacked() -> None:
    _, label = world(0.0, users=200)
    label[::4] = -1
    told = audit(Seen.of_vectors(torch.zeros(200, 1)), people(label), QUICK, {"a": Watching()})
    assert sum(told["attributes"]["gender"]["counts"]) == 150


def test_a_continuous_attribute_is_met_by_regression() -> None:
    keys = Keys.seed(2)
    vectors = keys.fold("v").normal(500, 8)
    years = (40 + 10 * vectors[:, 0] + 3 * keys.fold("n").normal(500)).double()
    who = people(keys.fold("l").integers(2, 500), values={"years": years})
    threat = Threat(attributes=("years",), resamples=200, permutations=99)
    told = found(vectors, who, ("logistic", "forest", "knn", "random"), threat)["attributes"]["years"]
    assert told["kind"] == "value"
    assert told["verdict"]["spearman"]["value"] > 0.9
    assert told["attackers"][0]["scores"]["mae"]["value"] < 0.5 * told["floors"]["median"]["mae"]
    assert "without looking" in told["verdict"]["sentence"]


def test_nothing_is_claimed_of_a_value_that_nothing_tells() -> None:
    keys = Keys.seed(21)
    years = (40 + 10 * keys.fold("y").normal(500)).double()
    who = people(keys.fold("l").integers(2, 500), values={"years": years})
    threat = Threat(attributes=("years",), resamples=200, permutations=199)
    told = found(keys.fold("v").normal(500, 8), who, ("logistic", "forest", "knn"), threat)["attributes"][
        "years"
    ]
    assert told["verdict"]["leaning"] == "none"
    assert told["verdict"]["sentence"].startswith("No attacker of 3 families finds years in the user vectors")


def test_a_draw_that_leaves_nothing_to_learn_or_to_attack_is_refused() -> None:
    vectors, _ = world(0.0, users=60)
    rare = torch.tensor([0] * 59 + [1])
    with pytest.raises(BadInput, match=r"threat\.known"):
        found(vectors, people(rare), FOUR, Threat(balanced=True))
    with pytest.raises(BadInput, match=r"threat\.known"):
        found(vectors[:8], people(torch.arange(8) % 2), FOUR, Threat(known=0.95))


def test_what_was_granted_is_in_the_sentence() -> None:
    vectors, label = world(3.0, users=400)
    threat = Threat(grants=("user_vectors",), resamples=200, permutations=199)
    told = found(vectors, people(label), FOUR, threat)
    assert "was granted the user vectors" in told["attributes"]["gender"]["verdict"]["sentence"]
    assert told["seed"] == 0


@pytest.mark.slow
def test_an_oracle_is_marked_and_never_below_the_last_stage() -> None:
    vectors, label = world(1.0, users=300, dim=32)
    kept = {}
    for selection in ("last", "validation", "oracle"):
        threat = Threat(selection=selection, resamples=200, permutations=99)  # type: ignore[arg-type]
        told = found(vectors, people(label), ("mlp-pard",), threat)
        assert told["oracle"] == (selection == "oracle")
        assert (told["attributes"]["gender"]["attackers"][0]["p"] is None) == (selection == "oracle")
        kept[selection] = told["attributes"]["gender"]["attackers"][0]["scores"]["auc"]["value"]
    assert kept["oracle"] >= max(kept["last"], kept["validation"])


def test_repeats_are_averaged_and_differ() -> None:
    vectors, label = world(1.0, users=300)
    one = found(vectors, people(label), ("logistic",))["attributes"]["gender"]["attackers"][0]["scores"][
        "auc"
    ]
    three = found(vectors, people(label), ("logistic",), Threat(repeats=3, resamples=200, permutations=199))[
        "attributes"
    ]["gender"]["attackers"][0]["scores"]["auc"]
    assert one != three
    assert three["low"] < three["value"] < three["high"]


def test_the_same_seed_finds_the_same() -> None:
    vectors, label = world(1.0, users=200)
    first, again = (found(vectors, people(label), ("mlp", "boosting")) for _ in range(2))
    for told in (first, again):
        told.pop("seconds")
        for attacker in told["attributes"]["gender"]["attackers"]:
            attacker.pop("seconds")
    assert first == again


@pytest.mark.parametrize(
    ("label", "threat", "match"),
    [
        (torch.zeros(50, dtype=torch.int64), QUICK, "cannot be attacked"),
        (torch.tensor([0, 1, -1, -1]), QUICK, "cannot be attacked"),
        (torch.arange(50) % 2, Threat(attributes=("gendr",)), "gender"),
    ],
)
def test_what_cannot_be_attacked_is_refused(label: Tensor, threat: Threat, match: str) -> None:
    with pytest.raises(BadInput, match=match):
        found(torch.zeros(len(label), 2), people(label), FOUR, threat)


def test_an_answer_that_is_none_is_refused() -> None:
    @dataclass(frozen=True)
    class Wrong(Attack):
        def infer(self, seen: Seen, task: Task) -> Tensor:
            return torch.full((len(task.known), 2), torch.nan)

    with pytest.raises(BadInput, match="not finite"):
        audit(Seen.of_vectors(torch.zeros(60, 1)), people(torch.arange(60) % 2), QUICK, {"wrong": Wrong()})


def test_protocols_of_papers_are_theirs() -> None:
    assert PRESETS["pard"].threat.selection == "oracle"
    assert set(PRESETS["pard"].threat.grants) == {"interactions", "user_vectors"}
    assert [name for name, one in PRESETS.items() if "withheld" in one.threat.grants] == ["pard-halves"]
    assert (PRESETS["apm"].threat.known, PRESETS["aegis"].threat.known) == (0.1, 0.8)
    assert (PRESETS["fedau2"].threat.repeats, PRESETS["fedau2"].threat.balanced) == (40, True)
    assert not PRESETS["veilrec"].threat.grants
    assert preset("apm", ("age",)).threat.attributes == ("age",)
    with pytest.raises(BadInput, match="pard"):
        preset("prad")


def test_a_protocol_may_name_its_share_of_known_users() -> None:
    found = preset("apm@0.2", ("age",))
    assert (found.name, found.threat.known, found.threat.attributes) == ("apm@0.2", 0.2, ("age",))
    assert (found.attacks, found.alone) == (PRESETS["apm"].attacks, PRESETS["apm"].alone)
    assert preset("pard@.10").name == "pard@0.1"
    assert preset("pard@.10").threat.selection == "oracle"
    assert (PRESETS["apm"].name, PRESETS["apm"].threat.known) == ("apm", 0.1)  # the table itself stays
    theirs = preset("pard@consenting", ("age",))
    assert (theirs.name, theirs.threat.known) == ("pard@consenting", "consenting")
    assert theirs.threat == replace(PRESETS["pard"].threat, attributes=("age",), known="consenting")


@pytest.mark.parametrize("share", ["", "0", "1", "2", "-0.1", "nan", "inf", "ten", "consent", "Consenting"])
def test_a_share_that_is_none_is_refused_in_one_line(share: str) -> None:
    with pytest.raises(BadInput) as raised:
        preset(f"apm@{share}", where="--preset")
    fix = "give a number between 0 and 1, as in apm@0.2, or apm@consenting"
    assert str(raised.value) == f'--preset: "{share}" in "apm@{share}" is no share of the users; {fix}'


def test_the_protocol_of_apm_reads_wide_and_learns_with_its_own() -> None:
    found = [PRESETS[name].attacks["updates"] for name in ("apm", "apm-four")]
    learners = [("mlp-apm",), ("mlp-apm", "tree-apm", "svc-apm", "knn-apm")]
    for entry, classifiers in zip(found, learners, strict=True):
        assert isinstance(entry, AttributeInference)
        assert (entry.classifiers, entry.columns) == (classifiers, 4096)
    assert PRESETS["apm"].alone.columns == 4096
    assert PRESETS["apm"].alone.classifiers == ("mlp-apm",)
    assert PRESETS["veilrec"].alone.classifiers == ("logistic",)


def by_part(model: Recommender, **more: Any) -> dict[str, dict[str, Any]]:
    """What each part of a model gives away about gender, by part."""
    data = synthetic(users=60, items=40)
    fed = federation(phones(data), model, lr=0.5)
    quick = replace(QUICK, attributes=("gender",))
    told = audit(see(fed, run(fed)), People.of(data), quick, {"a": Watching()}, **more)
    return {entry["part"]: entry for entry in told["attributes"]["gender"]["parts"]}


def test_layers_of_a_perceptron_are_attacked_alone_and_together() -> None:
    found = by_part(FedNCF(40, 1, dim=4, head=(4,)))
    assert list(found) == ["item", "item, rows picked", "mlp1", "mlp2", "mlp"]
    for entry in found.values():
        assert entry["classifier"] == "logistic"
        for score in ("auc", "macro_f1", "micro_f1"):
            assert entry[score]["low"] <= entry[score]["value"] <= entry[score]["high"]
            assert len(entry["replicates"][score]) == 200
    assert found["mlp"] != {**found["mlp1"], "part": "mlp"}


@pytest.mark.slow
def test_tables_called_after_a_perceptron_are_none_of_its_layers() -> None:
    neumf = by_part(FedNCF(40, 1, kind="neumf", dim=4, head=(6, 4)))
    assert "mlp" in neumf
    assert "mlp" not in by_part(FedNCF(40, 1, kind="neumf", dim=4, head=(4,)))  # mlp_item is a table


def test_who_attacks_the_parts_is_the_protocols_own() -> None:
    found = by_part(FedNCF(40, 1, dim=4, head=(4,)), alone=PRESETS["apm"].alone)
    assert {entry["classifier"] for entry in found.values()} == {"mlp-apm"}
    assert found["mlp1"] != by_part(FedNCF(40, 1, dim=4, head=(4,)))["mlp1"]


def test_many_rare_classes_do_not_look_like_a_leak_among_the_known() -> None:
    """Pooled over folds, a class of which more is held out would seem to be ranked lower."""
    keys = Keys.seed(11)
    vectors = keys.fold("v").normal(600, 8)
    label = keys.fold("l").integers(15, 600)
    who = People({"gender": label}, id_hashes([str(k) for k in range(600)]))
    told = found(vectors, who, ("logistic", "mlp", "lda"), Threat(resamples=100, permutations=99))
    for attacker in told["attributes"]["gender"]["attackers"]:
        assert abs(attacker["validation"] - 0.5) < 0.05


def test_the_protocols_of_papers_may_be_run_alone() -> None:
    data = synthetic(users=60, items=40)
    for own, names in ((True, ["veilrec", "apm@0.3"]), (False, ["apm@0.3"])):
        threat = Threat(attributes=("gender",), also=("apm@0.3",), own=own)
        assert [one.name for one in Examiner.of(data, threat, {}, 0).audits] == names


@pytest.mark.slow
def test_what_was_read_for_one_protocol_is_there_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    data = synthetic(users=60, items=40)
    fed = federation(phones(data), FedMF(40, 1, dim=4), lr=0.5)
    looks = []
    see_it = examiner.see
    monkeypatch.setattr(examiner, "see", lambda *given: looks.append(given[2]) or see_it(*given))
    threat = Threat(
        attributes=("gender",), also=("apm", "apm@0.3", "pard"), own=False, resamples=100, permutations=99
    )
    found = Examiner.of(data, threat, {}, 0).examine(fed, run(fed), 1, None, lambda *told: None)
    assert list(found) == ["apm", "apm@0.3", "pard"]
    assert looks == [(), ("interactions", "user_vectors")]
