"""Who is known and who is attacked: shares, classes, folds; nobody is ever both."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from veilrec.base.keys import Keys
from veilrec.errors import BadInput
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People, goals_of, trial_of

LABEL = torch.tensor([0] * 60 + [1] * 30 + [-1] * 10)
TAGS = torch.arange(100) * 7919


@pytest.mark.parametrize("stratified", [True, False])
def test_known_users_are_a_share_and_the_same_whatever_the_order(stratified: bool) -> None:
    threat = Threat(known=0.2, stratified=stratified)
    draw = threat.draw(LABEL, TAGS, Keys.seed(3))
    assert int(draw.known.sum()) == 18
    assert not bool((draw.known | draw.target)[LABEL < 0].any())
    hidden = draw.hide(LABEL)
    assert torch.equal(hidden[draw.known], LABEL[draw.known])
    assert bool((hidden[~draw.known] == -1).all())
    if stratified:
        assert (int((hidden == 0).sum()), int((hidden == 1).sum())) == (12, 6)
    order = Keys.seed(5).order(100)
    assert torch.equal(threat.draw(LABEL[order], TAGS[order], Keys.seed(3)).known, draw.known[order])


def test_balancing_leaves_users_out_until_classes_are_level() -> None:
    draw = Threat(known=0.2, balanced=True).draw(LABEL, TAGS, Keys.seed(3))
    there = draw.known | draw.target
    assert torch.bincount(LABEL[there]).tolist() == [30, 30]
    other = Threat(known=0.2, balanced=True).draw(LABEL, TAGS, Keys.seed(4))
    assert not torch.equal(there, other.known | other.target)  # another draw leaves others out


def test_a_class_that_nobody_has_does_not_count_as_the_smallest() -> None:
    label = torch.tensor([0] * 150 + [2] * 150)
    draw = Threat(known=0.2, balanced=True).draw(label, torch.arange(300), Keys.seed(0))
    assert (int(draw.known.sum()), int(draw.target.sum())) == (60, 240)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-1, 3), min_size=8, max_size=60),
    st.floats(0.05, 0.95),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_nobody_is_known_and_target(
    labels: list[int], share: float, stratified: bool, balanced: bool, seed: int
) -> None:
    label = torch.tensor(labels)
    if not bool((label >= 0).any()):
        return
    threat = Threat(known=share, stratified=stratified, balanced=balanced)
    draw = threat.draw(label, torch.arange(len(label)), Keys.seed(seed))
    assert not bool((draw.known & draw.target).any())
    assert bool((label[draw.known | draw.target] >= 0).all())
    if not balanced:
        assert torch.equal(draw.known | draw.target, label >= 0)


def test_folds_cut_the_known_users_and_hide_each_from_whoever_judges_it() -> None:
    draw = Threat(known=0.5).draw(LABEL, TAGS, Keys.seed(1))
    held = torch.zeros(100, dtype=torch.int64)
    for known, part in draw.folds(LABEL, TAGS, Keys.seed(1), 3):
        held += part
        assert bool((known[part] == -1).all())
        assert not bool((part & draw.target).any())
        assert torch.equal(known >= 0, draw.known & ~part)
        assert len(LABEL[part].unique()) == 2  # both classes in every part
    assert torch.equal(held == 1, draw.known)
    assert int(held.max()) == 1


def test_values_are_drawn_and_hidden_too() -> None:
    value = torch.cat([torch.arange(40).double(), torch.full((5,), torch.nan, dtype=torch.float64)])
    draw = Threat(known=0.25).draw(value, torch.arange(45), Keys.seed(0))
    assert (int(draw.known.sum()), int(draw.target.sum())) == (10, 30)
    assert int((~draw.hide(value).isnan()).sum()) == 10
    parts = [part for _, part in draw.folds(value, torch.arange(45), Keys.seed(0), 2)]
    assert [int(part.sum()) for part in parts] == [5, 5]


def test_those_who_consent_are_known_whatever_is_drawn() -> None:
    consents = torch.zeros(100, dtype=torch.bool)
    consents[[0, 1, 2, 60, 61, 95]] = True  # nobody knows what the last one is
    for threat in (Threat(known="consenting"), Threat(known="consenting", stratified=False)):
        for seed in (0, 1):
            draw = threat.draw(LABEL, TAGS, Keys.seed(seed), consents)
            assert draw.known.nonzero().squeeze(1).tolist() == [0, 1, 2, 60, 61]
            assert draw.target.nonzero().squeeze(1).tolist() == [*range(3, 60), *range(62, 90)]
    assert not bool(Threat(known="consenting").draw(LABEL, TAGS, Keys.seed(0)).known.any())


def test_a_share_does_not_ask_who_consents() -> None:
    drawn = [Threat(known=0.2).draw(LABEL, TAGS, Keys.seed(3), asked) for asked in (None, LABEL == 1)]
    assert torch.equal(drawn[0].known, drawn[1].known)
    assert torch.equal(drawn[0].target, drawn[1].target)


def test_those_who_consent_are_levelled_apart_from_the_others() -> None:
    consents = torch.zeros(100, dtype=torch.bool)
    consents[[*range(12), *range(60, 64), 99]] = True  # 12 and 4 of the classes
    threat = Threat(known="consenting", balanced=True)
    one, other = (threat.draw(LABEL, TAGS, Keys.seed(seed), consents) for seed in (0, 1))
    for draw in (one, other):
        assert torch.bincount(LABEL[draw.known]).tolist() == [4, 4]
        assert torch.bincount(LABEL[draw.target]).tolist() == [26, 26]
        assert not bool((draw.known & ~consents).any())
        assert not bool((draw.target & consents).any())
    assert not torch.equal(one.target, other.target)  # another draw leaves others out
    nobody = threat.draw(LABEL, TAGS, Keys.seed(0), torch.zeros_like(consents))
    assert (int(nobody.known.sum()), int(nobody.target.sum())) == (0, 60)


def test_folds_cut_those_who_consent() -> None:
    consents = torch.arange(100) % 4 == 0
    draw = Threat(known="consenting").draw(LABEL, TAGS, Keys.seed(0), consents)
    parts = [part for _, part in draw.folds(LABEL, TAGS, Keys.seed(0), 3)]
    assert torch.equal(torch.stack(parts).sum(0) == 1, consents & (LABEL >= 0))
    assert max(int(part.sum()) for part in parts) - min(int(part.sum()) for part in parts) <= 1


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"known": "consent"}, "threat.known: consent is no share; give a number between 0 and 1, or"),
        ({"known": 0.0}, "threat.known"),
        ({"known": 1.0}, "threat.known"),
        ({"repeats": 0}, "threat.repeats"),
        ({"folds": 1}, "threat.folds"),
        ({"grants": ("gender",)}, "threat.grants"),
        ({"resamples": 5}, "threat.resamples"),
        ({"own": False}, "threat.own"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(options: dict[str, object], where: str) -> None:
    with pytest.raises(BadInput, match=where):
        Threat(**options)  # type: ignore[arg-type]


def test_the_others_are_all_who_did_not_ask() -> None:
    asks = torch.arange(100) < 20
    who = People({"gender": LABEL}, TAGS, asks=asks)
    threat = Threat(("gender",), "others")
    goal = goals_of(who, threat, torch.ones(100, dtype=torch.bool))[0]
    for repeat in range(2):
        draw = trial_of(goal._replace(label=LABEL.roll(50)), threat, TAGS, 0, repeat).draw
        assert torch.equal(draw.target, asks & (LABEL.roll(50) >= 0))
        assert torch.equal(draw.known, ~asks & (LABEL.roll(50) >= 0))
    for nobody, word in ((None, "nobody"), (asks & False, "nobody"), (asks | True, "everybody")):
        with pytest.raises(BadInput, match=f"{word} asked"):
            goals_of(replace(who, asks=nobody), threat, asks | True)
