"""A receipt says what an erasure has left, and no more than was looked at."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.eraser import Request
from veilrec.erasers.leace import LEACE
from veilrec.erasers.lethe import Lethe
from veilrec.errors import BadInput
from veilrec.interactions import id_hashes
from veilrec.lab.forgetting.case import Effort, Erasure, lists_of
from veilrec.lab.forgetting.receipt import receipt
from veilrec.lab.forgetting.words import Left, conclusion, left, limits
from veilrec.lab.trials import People

USERS = 240
QUICK = Effort(("lda",), ("lda",), resamples=100, permutations=199)
GENDER = torch.arange(USERS) % 2
KEYS = Keys.seed(11)
BEFORE = KEYS.fold("rows").normal(USERS, 4) + 2.0 * GENDER[:, None]


def people(asks: torch.Tensor | None = None) -> People:
    return People(
        {"gender": GENDER}, id_hashes([str(k) for k in range(USERS)]), {"gender": ["f", "m"]}, asks=asks
    )


def erased(asks: torch.Tensor | None = None, **more: Any) -> Erasure:
    request = Request({"gender": GENDER}, asks=asks)
    after = Lethe().forget(BEFORE, request, Draws(Keys.seed(1)))
    return Erasure(BEFORE, after, people(asks), ("gender",), Lethe(), **more)


def test_a_receipt_has_both_sides_and_is_plain_json() -> None:
    user = torch.arange(USERS).repeat_interleave(3)
    item = torch.cat([torch.tensor([g, 2 + g, 4]) for g in GENDER.tolist()])
    table = KEYS.fold("items").normal(9, 4)
    hits = KEYS.fold("hits").uniform(USERS).double()
    hits[0] = torch.nan
    case = erased(lists=lists_of(table, BEFORE, BEFORE, user, item, 4), history=(user, item))
    case = Erasure(**{**vars(case), "metrics": {"hr@10": (hits, hits - 0.125)}, "later": {5: BEFORE}})
    told = {
        "asked": {"at": "2026-01-02"},
        "done": {"eraser": {"name": "Lethe", "lots": "keyed"}},
        "purged": ["a"],
    }
    found = receipt(case, told, QUICK)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    told = found["attributes"]["gender"]
    assert [row["known"] for row in told["vectors"]] == [0.2, 0.8]
    assert all(row["before"]["auc"]["value"] > 0.9 for row in told["vectors"])
    assert all(row["after"]["leakage"] < 0.25 for row in told["vectors"])
    assert told["difference"]["both"]["auc"]["value"] > 0.95  # the label decides where a user is moved to
    assert told["history"]["auc"]["value"] == 1.0
    assert [row["lists"] for row in told["lists"]] == ["unseen", "all"]
    assert (told["later"][0]["rounds"], told["later"][0]["leaning"]) == (5, "above")
    cost = found["usefulness"]["hr@10"]
    assert cost["users"] == USERS - 1
    assert cost["difference"] == {"value": -0.125, "low": -0.125, "high": -0.125}  # the same for each user
    assert cost["before"]["high"] > cost["before"]["low"]
    assert "gender can be read from it" in found["conclusion"][1]
    assert found["done"]["changed"] == USERS
    assert found["asked"] == {"at": "2026-01-02", "attributes": ["gender"], "users": USERS, "of": USERS}
    assert (found["purged"], found["for_release"]) == (["a"], False)
    assert told["requesters"] is None
    assert found["by_chance"].startswith(
        "4 looks at what is left; if nothing were, chance alone would raise 0.2."
    )
    assert found["who_asked"] is None


def test_those_who_asked_are_attacked_by_who_knows_all_others() -> None:
    asks = torch.arange(USERS) < 80
    found = receipt(erased(asks), effort=QUICK)
    told = found["attributes"]["gender"]["requesters"]
    assert (told["before"]["known_users"], told["before"]["targets"]) == (160, 80)
    assert told["before"]["auc"]["value"] > 0.9
    assert {"naive", "adaptive"} <= told.keys()
    assert all("auc" in look for look in told.values())
    assert found["done"]["changed"] == 80
    assert found["done"]["changed_of_others"] == 0
    assert found["who_asked"]["after"]["targets"] == 48  # a fifth of everybody
    share = found["attributes"]["gender"]["vectors"][0]["after"]
    assert share["known_users"] + share["targets"] == 80


def test_an_attacker_who_does_the_same_first_reads_what_the_naive_one_does_not() -> None:
    """A shift of those who asked hides them from who learns on raw vectors, and from nobody else."""

    class Shift(LEACE):
        def transform(self, vectors: torch.Tensor, request: Request, draws: Draws) -> torch.Tensor:
            return -vectors

    asks = torch.arange(USERS) < 80
    after = torch.where(asks[:, None], -BEFORE, BEFORE)
    told = receipt(Erasure(BEFORE, after, people(asks), ("gender",), Shift()), effort=QUICK)
    looks = told["attributes"]["gender"]["requesters"]
    assert looks["naive"]["turned"] or looks["naive"]["leakage"] < 0.2
    assert looks["adaptive"]["auc"]["value"] > 0.9
    assert "still tell gender" in told["conclusion"][0]
    assert "Who asked can be told" in " ".join(told["is_not"])


def test_of_a_few_who_asked_a_receipt_is_the_same_whatever_their_classes() -> None:
    """All alike or not, nothing but the hashes and vectors differs: of so few anything tells."""
    alike = (GENDER == 0).nonzero().flatten()[:5]
    mixed = torch.cat([alike[:3], (GENDER == 1).nonzero().flatten()[:2]])
    told = []
    for who in (alike, mixed):
        asks = torch.zeros(USERS, dtype=torch.bool)
        asks[who] = True
        told.append(receipt(Erasure(BEFORE, BEFORE, people(asks), ("gender",)), effort=QUICK)["attributes"])
    assert told[0] == told[1]
    assert "fewer than 10 asked" in told[0]["gender"]["requesters"]["naive"]["missing"]


def test_what_cannot_be_measured_is_said_and_stops_nothing() -> None:
    asks = torch.arange(USERS) == 3
    nothing, blank = torch.zeros(0, dtype=torch.int64), torch.full((USERS,), torch.nan)
    more: dict[str, Any] = {"lists": lists_of(torch.zeros(0, 4), BEFORE, BEFORE, nothing, nothing, 3)}
    more |= {"history": (nothing, nothing), "metrics": {"hr@10": (blank, blank)}}
    case = Erasure(BEFORE, BEFORE, people(asks), ("gender",), None, **more)
    found = receipt(case, effort=QUICK)
    told = found["attributes"]["gender"]
    assert all("missing" in row[side] for row in told["vectors"] for side in ("before", "after"))
    assert "missing" in told["requesters"]["naive"]
    assert "counts" not in told
    assert "could not be measured" in found["conclusion"][0]
    assert "missing" in found["usefulness"]["hr@10"]
    everybody = receipt(Erasure(BEFORE, BEFORE, people(), ("gender",), **more), effort=QUICK)
    looks = everybody["attributes"]["gender"]
    assert [looks["history"]["leaning"], looks["lists"][0]["after"]["leaning"]] == ["none", "none"]
    assert "forgotten" not in " ".join(found["conclusion"])


def test_vectors_that_hold_the_attribute_itself_are_doubted() -> None:
    after = BEFORE.clone()
    after[:, 1] = 3.0 - GENDER
    found = receipt(Erasure(BEFORE, after, people(), ("gender",)), effort=QUICK)
    assert any("gender itself" in doubt for doubt in found["doubts"])
    assert receipt(erased(), effort=QUICK)["doubts"] == []


def test_several_attributes_are_told_apart_and_summed_up_in_two_sentences() -> None:
    who = People({"gender": GENDER, "luck": KEYS.fold("luck").integers(2, USERS)}, people().tags)
    found = receipt(Erasure(BEFORE, BEFORE, who, ("gender", "luck")), effort=QUICK)
    assert found["conclusion"][0].startswith("The vectors still tell gender: given one 0 and one 1")
    assert "no attacker that was tried reads luck" in found["conclusion"][0]
    assert "as before" in found["conclusion"][0]
    assert len(found["conclusion"]) == 2


def test_vectors_and_attributes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(BadInput, match='no attribute "gendre"'):
        Erasure(BEFORE, BEFORE, people(), ("gendre",))
    with pytest.raises(BadInput, match="one row a user"):
        Erasure(BEFORE, BEFORE[1:], people(), ("gender",))
    with pytest.raises(BadInput, match="no attribute was to be forgotten"):
        Erasure(BEFORE, BEFORE, people(), ())


def test_lists_leave_out_what_was_touched_and_those_of_all_do_not() -> None:
    table = torch.tensor([[3.0], [2.0], [1.0]])
    vectors = torch.tensor([[1.0], [-1.0]])
    pair = lists_of(table, vectors, -vectors, torch.tensor([1, 0]), torch.tensor([2, 0]), 2)
    assert pair["unseen"].before.tolist() == [[1, 2], [1, 0]]
    assert pair["all"].before.tolist() == [[0, 1], [2, 1]]
    assert pair["all"].after.tolist() == [[2, 1], [0, 1]]
    short = lists_of(table, vectors, vectors, torch.tensor([0, 0]), torch.tensor([0, 1]), 2)
    assert short["unseen"].before.tolist() == [[2, -1], [2, 1]]


LOOKS = st.sampled_from(["above", "below", "none", "missing"])


def look(leaning: str, leakage: float = 0.2) -> dict[str, Any]:
    if leaning == "missing":
        return {"missing": "too few"}
    return {"auc": {}, "leaning": leaning, "leakage": leakage, "turned": leaning == "below"}


@settings(max_examples=60, deadline=None)
@given(LOOKS, LOOKS, st.lists(LOOKS, max_size=2), LOOKS, LOOKS, st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_forgotten_is_said_only_where_nobody_who_looked_reads_it_in_vectors_and_lists(
    before: str, after: str, lists: list[str], adaptive: str, both: str, was: float, now: float
) -> None:
    entry = {
        "classes": ["f", "m"],
        "vectors": [{"before": look(before, was), "after": look(after, now)}],
        "requesters": {"before": look("above"), "naive": look(after), "adaptive": look(adaptive)},
        "lists": [{"after": look(one)} for one in lists],
        "difference": {"both": look(both)},
        "history": look("above"),
    }
    one = left("gender", entry)
    said = conclusion([one])
    assert len(said) == 2
    assert all(len(text.split(". ")) == 1 and text.endswith(".") for text in said)
    vectors = {after, adaptive} & {"above", "below"}
    clean = {after, adaptive} == {"none"} and set(lists) == {"none"}
    assert ("forgotten" in " ".join(said)) == clean
    assert said[0].startswith("The vectors still tell gender") == bool(vectors)
    assert bool(one.difference) == (both in ("above", "below"))
    told = " ".join(limits([one], keyed=True))
    assert "no deletion of data under any law" in told
    assert "Not for release" in told
    assert ("copies that are out undo" in told) == bool(one.difference)


def test_what_nobody_read_before_was_not_forgotten() -> None:
    one = Left("gender", ["f", "m"], None, None, True, False, True, True)
    said = conclusion([one])
    assert said[0] == "No attacker that was tried reads gender from the vectors, and none did before."
    assert said[1].startswith("Nor do the lists tell it, so that nothing was seen to go; the history")


def test_what_is_read_turned_round_is_said_in_the_same_unit_as_before() -> None:
    told = look("below", 0.31)
    one = Left("gender", ["f", "m"], look("above", 0.25), told, True, True, True, None)
    assert conclusion([one])[0] == (
        "The vectors still tell gender: given one f and one m, the best attacker, with its answers turned "
        "round, says which is which 81 times of 100, more than before (75); a coin would say it 50 times."
    )
