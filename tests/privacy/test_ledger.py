"""The ledger: exact sums from the run's own counters, and honest words."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import dp_accounting
import pytest
import torch
from dp_accounting.pld import PLDAccountant

from tests.forking import Showing
from tests.node.asking import Asking
from tests.worlds import checkerboard, federation, phones, run
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Rows
from veilrec.base.plan import Plan
from veilrec.defence import Defence, chain
from veilrec.defences.apm import APM
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.accounting import LIMIT, Charge, spend
from veilrec.privacy.ledger import Ledger
from veilrec.privacy.mechanism import DELTA, Mechanism, exact
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.uploads import Exchange, Letter, Uploads

HALF = Fraction(1, 2)


def laplace(name: str, epsilon: str, width: int, table: int | None = None, **rest: Any) -> Mechanism:
    """Noise with an ε per coordinate."""
    return Mechanism("laplace", name, "laplace", 1 / Fraction(epsilon), HALF, width, table, **rest)


def exchange(cohort: list[int], rows: list[int], width: int = 3, table: int = 50) -> Exchange:
    """A chunk in which each client sends so many rows of a table, and a weight that is none."""
    row = torch.full((len(cohort), max(rows)), -1)
    for k, n in enumerate(rows):
        row[k, :n] = torch.arange(table)[:n]
    values: Message = {
        "item": Rows(row, torch.zeros(*row.shape, width)),
        "mlp1.weight": torch.zeros(len(cohort), 4, 2),
    }
    return Exchange(1, Letter({}, {}), Uploads(torch.tensor(cohort), values))


# Sums.


def test_sums_are_exact_for_hundreds_of_schedules() -> None:
    """Each user's sum is the closed form, never falls, and survives a checkpoint anywhere."""
    for trial in range(300):
        keys = Keys.seed(trial).fold("schedule")
        item, head = (Fraction(int(n) + 1, 7) for n in keys.fold("epsilon").integers(500, 2))
        mechanisms = [laplace("item", str(item), 3, 50), laplace("mlp1.weight", str(head), 8)]
        ledger, uploads, rows = Ledger(mechanisms, 6), Counter[int](), Counter[int]()
        before = [Fraction(0)] * 6
        for turn in range(1 + trial % 5):
            cohort = keys.fold(turn).order(6)[: 1 + turn % 6].tolist()
            sent = (1 + keys.fold(turn).fold("rows").integers(50, len(cohort))).tolist()
            ledger(exchange(cohort, sent))
            uploads.update(cohort)
            rows.update(dict(zip(cohort, sent, strict=True)))
            if turn == trial % 3:
                saved, ledger = ledger.state(), Ledger(mechanisms, 6)
                ledger.restore({name: value.clone() for name, value in saved.items()})
            now = [spent.epsilon for spent in ledger.spent()]
            assert all(a <= b for a, b in zip(before, now, strict=True))
            before = [Fraction(epsilon) for epsilon in now]
        expected = [rows[k] * 3 * item + uploads[k] * 8 * head for k in range(6)]
        assert before == expected
        assert all(isinstance(spent.epsilon, Fraction) for spent in ledger.spent())


def test_decimal_numbers_mean_what_they_say() -> None:
    assert Laplace(clip=0.5, scale=0.02).declares(FedMF(4, dim=2), fed_of(Laplace()).protocol)[0].ratio == 50
    assert [spent.epsilon for spent in spend([Charge("laplace", 2 * HALF / exact(0.1))], [[3]])] == [30]
    assert exact(0.1) * 3 == exact(0.3)
    assert exact(1e-7) == Fraction(1, 10**7)


def test_small_sums_are_composed_as_dp_accounting_does() -> None:
    """Laplace with scale 2 and sensitivity 1, fifty times: 17.47 where the sum would be 25."""
    (spent,) = spend([Charge("laplace", HALF)], [[50]], alike=True)
    known = PLDAccountant().compose(dp_accounting.LaplaceDpEvent(2.0), 50).get_epsilon(DELTA)
    assert (spent.how, spent.delta) == ("PLD", DELTA)
    assert spent.epsilon == pytest.approx(known, rel=1e-3)
    assert spent.epsilon == pytest.approx(17.47, abs=0.01)


def test_two_laws_of_laplace_are_composed() -> None:
    charges = [Charge("laplace", Fraction(1, 4)), Charge("laplace", Fraction(1, 10))]
    (spent,) = spend(charges, [[20, 40]], alike=True)
    accountant = PLDAccountant().compose(dp_accounting.LaplaceDpEvent(4.0), 20)
    known = accountant.compose(dp_accounting.LaplaceDpEvent(10.0), 40).get_epsilon(DELTA)
    assert spent.epsilon == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(
    ("ratio", "units", "alike"),
    [("1/10", LIMIT + 1, True), ("50", 100, True), ("1/10", 100, False), ("1/10", 1, True), ("3", 0, True)],
    ids=["many", "large", "unlike", "one", "none"],
)
def test_other_sums_are_added_exactly(ratio: str, units: int, alike: bool) -> None:
    (spent,) = spend([Charge("laplace", Fraction(ratio))], [[units]], alike=alike)
    assert spent == (units * Fraction(ratio), 0.0, "exact addition")


def test_what_is_composed_never_falls_when_it_turns_into_a_sum() -> None:
    units = [[n] for n in (1, 2, 100, LIMIT - 1, LIMIT, LIMIT + 1)]
    epsilons = [spent.epsilon for spent in spend([Charge("laplace", Fraction(1, 50))], units, alike=True)]
    assert epsilons == sorted(epsilons)


@pytest.mark.parametrize(("uploads", "coordinates"), [(1, 1), (1, 64), (30, 64)])
def test_gaussian_noise_composes_in_closed_form(uploads: int, coordinates: int) -> None:
    (spent,) = spend([Charge("gaussian", Fraction(1, 20))], [[uploads * coordinates]])
    event = dp_accounting.GaussianDpEvent(20.0)
    known = PLDAccountant().compose(event, uploads * coordinates).get_epsilon(DELTA)
    assert (spent.how, spent.delta) == ("Gaussian closed form", DELTA)
    assert spent.epsilon == pytest.approx(known, rel=1e-3)
    together = dp_accounting.get_epsilon_gaussian(20.0 / (uploads * coordinates) ** 0.5, DELTA)
    assert spent.epsilon == pytest.approx(together, rel=1e-9)


def test_both_laws_add_up() -> None:
    charges = [Charge("laplace", Fraction(2)), Charge("gaussian", Fraction(1, 20))]
    (spent,) = spend(charges, [[3, 4]])
    assert spent.epsilon == pytest.approx(6 + dp_accounting.get_epsilon_gaussian(10.0, DELTA), rel=1e-9)
    assert spent.how == "exact addition and Gaussian closed form"


def draw(score: str, scale: str, width: int = 1, **rest: Any) -> Mechanism:
    """Items drawn by scores between ± a bound."""
    return Mechanism("draw", "seq", "exponential", Fraction(scale), Fraction(score), width, **rest)


@pytest.mark.parametrize(("bound", "scale"), [(0.5, 1.0), (1.0, 0.5), (0.25, 2.0)])
def test_a_draw_costs_what_its_closed_form_says(bound: float, scale: float) -> None:
    """The most that the odds of an item can change, from the worst scores to the best, nears ε."""
    mechanism = draw(str(bound), str(scale))

    def change(n: int) -> float:
        best = torch.tensor([bound] + [-bound] * (n - 1), dtype=torch.float64) / scale
        return float((best.log_softmax(0) - (-best).log_softmax(0))[0])

    changes = [change(n) for n in (2, 10, 1000, 10**6)]
    assert changes == sorted(changes)
    assert changes[-1] < mechanism.epsilon == 4 * bound / scale
    assert changes[-1] == pytest.approx(mechanism.epsilon, abs=1e-3)


def test_draws_are_added_exactly_and_composed_as_their_worst_case() -> None:
    """Of many answers that are true with odds e^ε, which is the worst that a pure ε allows."""
    charge, ratio = Charge("exponential", HALF), 0.5
    (one,) = spend([charge], [[50]])
    assert one == (25, 0.0, "exact addition")
    (spent,) = spend([charge], [[50]], alike=True)
    p = math.exp(ratio) / (1 + math.exp(ratio))

    def odds(k: int) -> float:
        return p ** (50 - k) * (1 - p) ** k

    def delta(epsilon: float) -> float:
        return sum(math.comb(50, k) * max(0, odds(k) - math.exp(epsilon) * odds(50 - k)) for k in range(51))

    assert spent.how == "PLD"
    assert delta(float(spent.epsilon) + 1e-3) <= DELTA <= delta(float(spent.epsilon) - 0.1)


def test_draws_that_are_all_but_certain_are_added() -> None:
    assert spend([Charge("exponential", Fraction(1000))], [[3]], alike=True)[0] == (
        3000,
        0.0,
        "exact addition",
    )


def test_draws_add_up_with_both_kinds_of_noise() -> None:
    charges = [Charge("laplace", Fraction(2)), Charge("exponential", HALF), Charge("gaussian", HALF)]
    (spent,) = spend(charges, [[3, 4, 1]])
    assert spent.epsilon == pytest.approx(8 + dp_accounting.get_epsilon_gaussian(2.0, DELTA), rel=1e-9)


# From a run's own counters.


def fed_of(defence: Defence, model: Any = None, consent: float = 0.0, **plan: Any) -> Federation:
    settings = {"lr": 0.5, "chunk": 5, "rounds": 4, "cohort": 0.5, **plan}
    clients, made = phones(checkerboard(), consent), model or FedMF(24, dim=4, user="exposed")
    return federation(clients, made, None, defence, **settings)


def watched(fed: Federation, rounds: int = 4) -> tuple[Ledger, dict[int, list[int]]]:
    """The ledger after some rounds, and how many coordinates each upload of each client really held."""
    ledger, held = Ledger.of(fed), dict[int, list[int]]()

    def count(exchange: Exchange) -> None:
        for place, client in enumerate(exchange.received.cohort.tolist()):
            sizes = [
                int((v.row[place] >= 0).sum()) * v.value.shape[2] if isinstance(v, Rows) else v[place].numel()
                for v in exchange.received.values.values()
            ]
            held.setdefault(client, []).append(sum(sizes))

    run(fed, rounds, watch=[ledger, count])
    return ledger, held


@pytest.mark.parametrize("rows", ["touched", "all"])
@pytest.mark.parametrize("model", [FedMF(24, dim=4, user="exposed"), FedNCF(24, dim=4, head=(6,))])
def test_what_was_sent_is_what_is_counted(model: Any, rows: Any) -> None:
    ledger, held = watched(fed_of(Laplace(rows=rows, scale=0.02), model))
    told = ledger.summary()
    sums = {client: 50 * sum(sizes) for client, sizes in held.items()}
    assert [spent.epsilon for spent in ledger.spent()] == [sums.get(k, 0) for k in range(24)]
    assert told["per_upload"] == {
        "epsilon": 50.0 * max(max(sizes) for sizes in held.values()),
        "delta": 0.0,
        "how": "exact addition",
    }
    assert told["composed"]["uploads"] == {"max": max(map(len, held.values())), "mean": 48 / len(held)}
    assert told["composed"]["epsilon"]["max"] == max(sums.values())
    assert told["composed"]["epsilon"]["mean"] == pytest.approx(sum(sums.values()) / len(sums))
    assert told["guarantee"] is True
    assert "ε = 50 per coordinate" in told["statement"]
    assert "rules nothing out" in told["statement"]
    assert any("touched rows is in the clear" in note for note in told["notes"]) == (rows == "touched")
    assert not any("numbers of examples" in note for note in told["notes"])
    for words in ("not private", "amplifies nothing"):
        assert any(words in note for note in told["notes"])


def test_counted_examples_are_told_to_be_in_the_clear() -> None:
    told = [
        Ledger.of(federation(phones(checkerboard()), FedMF(24, dim=4), FedAvg(weigh=weigh), Laplace()))
        for weigh in ("clients", "examples")
    ]
    for ledger in told:
        ledger.uploads += 1
        ledger.largest += 1
    notes = [" ".join(ledger.summary()["notes"]) for ledger in told]
    assert ["numbers of examples are in the clear" in note for note in notes] == [False, True]


def test_mechanisms_are_told_by_part() -> None:
    ledger, _ = watched(fed_of(Laplace(epsilon=30, clip=0.25), FedNCF(24, dim=4, head=(6,))), 1)
    told = {entry["part"]: entry for entry in ledger.summary()["mechanisms"]}
    assert {part: entry["coordinates"] for part, entry in told.items()} == {"item": 96, "mlp1": 54, "mlp2": 7}
    assert told["item"]["scale"] == pytest.approx(0.5 / 30)
    assert (told["item"]["clip"], told["item"]["rows"]) == (0.25, "touched")
    assert all(entry["epsilon_per_coordinate"] == 30 for entry in told.values())


@pytest.mark.parametrize(("epsilon", "told"), [(30.0, False), (2.0, False), (1.0, True)])
def test_where_bits_are_too_few_for_a_small_epsilon_it_is_said(epsilon: float, told: bool) -> None:
    ledger, _ = watched(fed_of(Laplace(epsilon=epsilon, clip=0.25)), 1)
    assert any("finitely many bits" in note for note in ledger.summary()["notes"]) == told


def test_a_clipped_norm_costs_the_same_however_much_is_sent() -> None:
    defence = Gaussian(clip=0.5, scale=2.0, clip_by="norm", what="change")
    ledger, held = watched(fed_of(defence))
    assert len({size for sizes in held.values() for size in sizes}) > 1
    told = ledger.summary()
    assert told["per_upload"]["epsilon"] == pytest.approx(dp_accounting.get_epsilon_gaussian(2.0, DELTA))
    most = max(map(len, held.values()))
    known = dp_accounting.get_epsilon_gaussian(2.0 / most**0.5, DELTA)
    assert told["composed"]["epsilon"]["max"] == pytest.approx(known)


# Words.


@dataclass(frozen=True)
class Meddle(Defence):
    """Changes uploads and declares nothing."""

    def on_upload(self, upload: Message, device: Device) -> Message:
        return upload


@pytest.mark.parametrize("defence", [Undefended(), Showing(), Meddle(), Laplace(scale=0.0)])
def test_without_declared_noise_there_is_no_guarantee(defence: Defence) -> None:
    ledger, _ = watched(fed_of(defence), 1)
    told = ledger.summary()
    assert (told["guarantee"], told["statement"]) == (False, "no formal guarantee")
    assert (told["mechanisms"], told["per_upload"], told["composed"]) == ([], None, None)


def test_a_part_without_noise_undoes_the_guarantee() -> None:
    ledger, _ = watched(fed_of(Laplace(parts=("item",))), 1)
    told = ledger.summary()
    assert told["guarantee"] is False
    assert told["statement"].startswith("no formal guarantee: without noise leaves user;")
    assert told["per_upload"]["epsilon"] > 0


def test_who_meddles_after_the_noise_undoes_the_guarantee() -> None:
    assert Ledger.of(fed_of(chain(Meddle(), Laplace()))).guarantee
    after = Ledger.of(fed_of(chain(Laplace(), Meddle())))
    assert not after.guarantee
    assert after.loose == ("Meddle",)


class Late(Defence):
    """Changes weights after each epoch and says nothing about it."""

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {name: value * 0 for name, value in params.items()}


def test_noise_of_an_epoch_is_undone_by_whatever_comes_later() -> None:
    early = APM(every="epoch")
    assert Ledger.of(fed_of(early)).guarantee
    assert Ledger.of(fed_of(chain(Late(), early))).guarantee  # the noise comes after it
    assert Ledger.of(fed_of(chain(APM(), Late()))).guarantee  # at the upload, which is later still
    for loose in (chain(early, Late()), chain(early, Meddle()), chain(Meddle(), early)):
        assert not Ledger.of(fed_of(loose)).guarantee


@pytest.mark.parametrize(
    ("defence", "what"),
    [
        (Showing(), "vector"),
        (PARD(head=(8,)), "pard.user, pard.user_re, pard.items, pard.label.gender"),
    ],
)
def test_whoever_posts_without_noise_undoes_the_guarantee(defence: Defence, what: str) -> None:
    ledger, _ = watched(fed_of(chain(defence, Laplace()), consent=0.5), 1)
    told = ledger.summary()
    assert told["guarantee"] is False
    assert told["statement"].startswith(f"no formal guarantee: users who consent post {what} without noise;")
    assert "what consenting users post is in the clear" in told["notes"]
    assert told["per_upload"]["epsilon"] > 0


def test_where_nobody_posts_the_guarantee_holds() -> None:
    ledger, _ = watched(fed_of(chain(Showing(), Laplace())), 1)
    assert ledger.summary()["statement"].startswith("values are differentially private")
    assert "what consenting users post is in the clear" not in ledger.summary()["notes"]


def test_of_two_noises_on_one_weight_the_better_counts() -> None:
    """The later one is post-processing of the earlier, and clips whatever it gets: either holds alone."""
    for pair in ((Laplace(scale=0.1), Laplace(scale=0.5)), (Laplace(scale=0.5), Laplace(scale=0.1))):
        ledger, held = watched(fed_of(chain(*pair)))
        told = ledger.summary()
        assert told["per_upload"]["epsilon"] == 2 * max(max(sizes) for sizes in held.values())
        assert sorted(entry["counted"] for entry in told["mechanisms"]) == [False, False, True, True]
        assert any("post-processing" in note for note in told["notes"])


def test_noises_on_different_parts_add_up() -> None:
    both = chain(Laplace(scale=0.5, parts=("user",)), Laplace(scale=0.1, parts=("item",), rows="all"))
    ledger, _ = watched(fed_of(both), 1)
    told = ledger.summary()
    assert told["guarantee"]
    assert told["per_upload"]["epsilon"] <= 4 * 2 + 96 * 10
    exact_sum = spend(ledger.charges, [ledger.largest.tolist()])[0].epsilon
    assert exact_sum == 4 * 2 + 96 * 10


def test_two_norms_are_two_charges() -> None:
    one = Gaussian(scale=2.0, clip_by="norm", parts=("user",))
    ledger, _ = watched(fed_of(chain(one, replace(one, parts=("item",)))), 1)
    assert ledger.largest.tolist() == [1, 1]
    known = dp_accounting.get_epsilon_gaussian(2.0 / 2**0.5, DELTA)
    assert ledger.summary()["per_upload"]["epsilon"] == pytest.approx(known)


def test_a_table_once_whole_stays_whole() -> None:
    model, protocol = FedMF(24, dim=4), fed_of(Laplace()).protocol
    touched, whole = Laplace(), Laplace(rows="all", scale=0.05)
    assert [m.rows for m in chain(touched, whole).declares(model, protocol)] == ["touched", "all"]
    assert [m.rows for m in chain(whole, touched).declares(model, protocol)] == ["all", "all"]
    ledger, _ = watched(fed_of(chain(touched, whole), model), 1)
    assert not any("touched rows" in note for note in ledger.summary()["notes"])
    ledger, _ = watched(fed_of(chain(replace(touched, scale=1.0), whole), model), 1)
    assert any("touched rows" in note for note in ledger.summary()["notes"])  # the first is the one counted


# Planted bugs: each must be caught by a test above.


def padding_is_counted(patch: pytest.MonkeyPatch) -> None:
    original = Ledger.__call__

    def call(self: Ledger, exchange: Exchange) -> None:
        values = {
            n: Rows(v.row.clamp(min=0), v.value) if isinstance(v, Rows) else v
            for n, v in exchange.received.values.items()
        }
        original(self, replace(exchange, received=replace(exchange.received, values=values)))

    patch.setattr(Ledger, "__call__", call)


def floats_are_added(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Charge, "ratio", property(lambda self: float(self[1])))


def a_checkpoint_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "restore", lambda self, state: None)


@pytest.mark.parametrize("plant", [padding_is_counted, floats_are_added, a_checkpoint_is_forgotten])
def test_planted_bugs_in_sums_are_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test_sums_are_exact_for_hundreds_of_schedules()


def test_in_a_chain_the_noise_counts_whose_whole_upload_costs_least() -> None:
    """A norm bounds all values at once: its ε is that of an upload, not of one value."""
    common = {"name": "item", "width": 4, "table": 100, "rows": "all"}
    per_value = Mechanism("laplace", kind="laplace", scale=Fraction(1), clip=Fraction(2), **common)  # type: ignore[arg-type]
    together = Mechanism(
        "gaussian",
        kind="gaussian",
        scale=Fraction(1),
        clip=Fraction(1),
        by="norm",
        place=1,
        **common,  # type: ignore[arg-type]
    )
    assert together.epsilon > per_value.epsilon  # an upload against one value of 400
    assert Ledger([per_value, together], 1).counted == [together]


def test_a_question_is_charged_for_by_itself() -> None:
    """Not once an upload: how often people ask their devices know, and what one question costs is said."""
    plain, asking = (
        federation(phones(checkerboard()), FedMF(24, dim=4), protocol, Laplace(scale=0.1), rounds=3)
        for protocol in (FedAvg(), Asking())
    )
    told = []
    for fed in (plain, asking):
        ledger = Ledger.of(fed)
        run(fed, 3, watch=[ledger])
        assert ledger.guarantee
        told.append(ledger.summary())
    assert told[0]["composed"] == told[1]["composed"]
    assert told[0]["per_upload"] == told[1]["per_upload"]
    assert "per_question" not in told[0]
    assert told[1]["per_question"] == {"epsilon": 4.0, "delta": 0.0}
    assert "each question for recommendations 4 more" in told[1]["statement"]
    assert any("only their own devices count" in note for note in told[1]["notes"])
    assert not any("noise on noise" in note for note in told[1]["notes"])


def test_looks_at_held_out_items_are_questions_too() -> None:
    """Whoever has a held-out item asks once at each look; what is asked is not charged to the uploads."""
    fed = federation(phones(checkerboard()), FedMF(24, dim=4), Asking(), Laplace(scale=0.1), rounds=3)
    ledger, other = Ledger.of(fed), Ledger.of(fed)
    run(fed, 3, watch=[ledger])
    before = ledger.summary()
    held = fed.clients.validation.clone()
    held[5] = -1
    for _ in range(2):
        ledger.look(held)
    ledger.look(fed.clients.test)
    after = ledger.summary()
    assert ledger.asked.tolist() == [3] * 5 + [1] + [3] * 18
    assert after["composed"] == before["composed"]
    assert after["questions"]["asked"] == {"max": 3, "mean": (23 * 3 + 1) / 24}
    assert 11 < after["questions"]["epsilon"]["max"] == after["questions"]["epsilon"]["median"] < 12  # at δ
    assert "4 more, 11.96 for the 3 that one user asked" in after["statement"]
    other.restore(ledger.state())
    assert other.summary() == after
    other.merge(ledger.state())
    assert other.asked.tolist() == [6] * 5 + [2] + [6] * 18
    sent, both = ledger.spent()[0].epsilon, ledger.spent("both")[0].epsilon
    assert sent + 11 < both <= sent + 12


def test_a_ledger_of_before_questions_were_counted_is_taken_up() -> None:
    fed = federation(phones(checkerboard()), FedMF(24, dim=4), Asking(), Laplace(scale=0.1), rounds=3)
    ledger = Ledger.of(fed)
    ledger.restore({name: value for name, value in ledger.state().items() if name != "asked"})
    assert ledger.asked.tolist() == [0] * 24


def test_a_run_counts_the_questions_of_its_looks() -> None:
    """One for each look at the validation items, and one for the test."""
    made = Experiment(
        checkerboard(),
        partial(FedMF, dim=4),
        Asking(),
        Laplace(scale=0.1),
        Plan(rounds=5, evaluate_every=2, workers=1),
    )
    assert made.run().ledger["questions"]["asked"] == {"max": 4, "mean": 4.0}


def test_a_question_without_noise_voids_the_guarantee() -> None:
    fed = federation(phones(checkerboard()), FedMF(24, dim=4), Asking(noise=False), Laplace(scale=0.1))
    assert Ledger.of(fed).bare == ("asked",)
    assert not Ledger.of(fed).guarantee


def test_what_is_asked_with_has_another_name_than_what_is_uploaded() -> None:
    with pytest.raises(BadInput, match="'item' is both uploaded and asked with"):
        federation(phones(checkerboard()), FedMF(24, dim=4), Asking(uploads="item"))
