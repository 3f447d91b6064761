"""What a layer's gradient tells of the vector that went into it: all of it, whatever follows the layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.attacks.heads import Watched
from tests.worlds import checkerboard, federation, largest, phones, ragged, run, silos
from veilrec.attack import Public, Seen
from veilrec.attacks.common.readings import covered, read, refusal
from veilrec.attacks.common.recovered import Recovered, heads, recover, solve
from veilrec.base.keys import Keys
from veilrec.base.params import Message, part_of
from veilrec.clients import Clients
from veilrec.defence import Defence, chain
from veilrec.defences.fedau2 import FedAU2
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.engine.probe import public, see, user_vectors
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, id_hashes
from veilrec.lab.lab import audit, fitting
from veilrec.lab.presets import OWN, PRESETS
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange, Letter, Uploads

ITEMS, HIDDEN = 24, 40
GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.01)
BARE = [name for name in PRESETS[OWN].attacks if name not in ("embeddings", "recovered")]


def neumf() -> FedNCF:
    return FedNCF(ITEMS, 1, kind="neumf", dim=5, tower_dim=4, head=(6,))


def log_of(labels: dict[str, Tensor] | None = None) -> Interactions:
    log = ragged((9, 6, 5, 4, 8, 7, 3, 6), ITEMS)
    return log if labels is None else replace(log, attributes=labels)


def trained(
    defence: Defence | None = None,
    model: Recommender | None = None,
    protocol: FedAvg = GRADIENTS,
    clients: Clients | None = None,
    **plan: Any,
) -> tuple[Federation, State]:
    clients = clients or phones(log_of())
    settings = {"lr": 0.3, "batch": 4, "negatives": 2, "chunk": 3, **plan}
    fed = federation(clients, model or neumf(), protocol, defence or FedAU2(hidden=8), **settings)
    return fed, run(fed, 2)


def found(*given: Any, **settings: Any) -> tuple[Recovered, Tensor]:
    """What a server recovers, and the truth that never left the devices."""
    fed, state = trained(*given, **settings)
    return recover(see(fed, state)), user_vectors(fed, state)


def off_by(vectors: Tensor, truth: Tensor) -> float:
    """The largest error, beside the largest number that there is."""
    return largest(vectors, truth) / float(truth.abs().max())


# ---- what is found


@pytest.mark.parametrize(
    ("head", "trigger"),
    [
        pytest.param(head, trigger, marks=() if trigger == "sut" or head == "dsvae" else pytest.mark.slow)
        for head in ("dsvae", "vae", "plain")
        for trigger in ("sut", "continuous", "global")
    ],
)
def test_the_vector_that_never_left_is_found_to_the_last_digit(head: Any, trigger: Any) -> None:
    told, truth = found(FedAU2(hidden=8, head=head, trigger=trigger))
    assert bool(told.there.all())
    assert off_by(told.vector, truth) < 1e-5
    assert float(truth.abs().max()) > 0.01
    assert float(told.off.max()) < 1e-5


@pytest.mark.parametrize(
    "model",
    [
        FedMF(ITEMS, dim=4),
        FedNCF(ITEMS, dim=5, head=(5, 2)),
        FedVAE(ITEMS, hidden=7, dim=4),
        FedRAP(ITEMS, dim=4),
        FedRAP(ITEMS, dim=4, project=6),
    ],
    ids=["FedMF", "FedNCF", "FedVAE", "FedRAP", "FedRAP, projected"],
)
def test_whatever_stands_for_a_user_is_found(model: Recommender) -> None:
    told, truth = found(model=model)
    assert off_by(told.vector, truth) < 1e-5
    assert float(truth.std(0).max()) > 1e-4  # there was something to find


@pytest.mark.slow
def test_a_server_may_watch_many_small_steps_of_it() -> None:
    """The term that is sent once in a round is that of the vector before it moved."""
    told, truth = found(FedAU2(hidden=8), epochs=3, batch=1)
    assert off_by(told.vector, truth) < 1e-5
    mixed, _ = found(FedAU2(hidden=8, each="step"), epochs=3, batch=1)
    assert off_by(mixed.vector, truth) > 1e-3
    assert float(mixed.there.float().mean()) == 1


@pytest.mark.parametrize("lr", [0.3, {"user": 0.3, "default": 0.2}], ids=["one rate", "rates"])
def test_the_change_of_weights_serves_where_it_is_a_gradient(lr: Any) -> None:
    told, truth = found(protocol=FedAvg(), precision="float64", lr=lr)
    assert off_by(told.vector, truth) < 1e-5


def test_of_uc_fedrec_those_are_found_who_share_the_attribute() -> None:
    clients = phones(log_of(), consent=0.5)
    fed, state = trained(UCFedRec(hidden=(6,)), protocol=FedAvg(), clients=clients, batch=100)
    told, truth = recover(see(fed, state)), user_vectors(fed, state)
    shares = torch.stack(list(clients.consents.values())).any(0).flatten()
    assert heads(public(fed)) == ["discriminator_gender", "discriminator_age"]
    assert 0 < int(shares.sum()) < len(shares)
    assert torch.equal(told.there, shares)
    assert off_by(told.vector[shares], truth[shares]) < 1e-4  # of float32 weights, a difference
    assert float(told.vector[~shares].abs().max()) == 0


def test_the_reading_has_nothing_of_a_user_without_a_label() -> None:
    gender = torch.tensor([0, 1, -1, 1, 0, -1, 1, 0])
    fed, state = trained(clients=phones(log_of({"gender": gender})))
    seen = see(fed, state)
    told, truth = recover(seen), user_vectors(fed, state)
    assert torch.equal(told.there, gender >= 0)
    assert float(told.vector[gender < 0].abs().max()) == 0
    assert off_by(told.vector[gender >= 0], truth[gender >= 0]) < 1e-5
    assert bool(covered(seen).all())  # of other readings they have a row
    assert read(seen, "recovered").notes() == {"width": 5, "kept": 5, "blank": 2}


def test_whom_one_attribute_does_not_tell_another_does() -> None:
    gender, age = torch.tensor([0, 1, -1, 1, 0, -1, 1, -1]), torch.tensor([0, -1, 1, 2, 0, 1, -1, -1])
    told, truth = found(clients=phones(log_of({"gender": gender, "age": age})))
    assert told.there.tolist() == [True] * 7 + [False]
    assert off_by(told.vector[:7], truth[:7]) < 1e-5


# ---- defences beside it


@dataclass(frozen=True)
class Noise(Defence):
    """Noise on the gradients of some parts."""

    begins: str = "adversary"
    scale: float = 0.01

    def on_upload(self, upload: Message, device: Device) -> Message:
        def noised(name: str, value: Any) -> Any:
            if not part_of(name).startswith(self.begins):
                return value
            return value + self.scale * device.keys.fold(name).normal(*value.shape)

        return {name: noised(name, value) for name, value in upload.items()}


def test_of_several_heads_the_one_without_noise_is_read() -> None:
    told, truth = found(chain(FedAU2(hidden=8), Noise("adversary_age", 1.0)))
    assert off_by(told.vector, truth) < 1e-5


def test_noise_makes_it_worse_and_stops_nothing() -> None:
    noisy = chain(FedAU2(hidden=8), Noise("adversary", 0.01))
    fed, state = trained(noisy)
    told, truth = recover(see(fed, state)), user_vectors(fed, state)
    assert bool(told.there.all())
    assert float(told.off.min()) > 1e-4 > 1e-5 > float(recover(see(*trained())).off.max())
    assert off_by(told.vector, truth) > 0.01
    assert read(see(fed, state), "recovered").features.shape == (8, 5)


# ---- what is named


def test_a_recommender_may_tell_it_by_a_layer_of_its_own() -> None:
    """The user's half of FedNCF's input is the same in all examples; of the items there is a mean."""
    fed, state = trained(Noise(scale=0.0), FedNCF(ITEMS, dim=5, head=(6,)), batch=100)
    told = recover(see(fed, state), ("mlp1",))
    assert off_by(told.vector[:, :5], user_vectors(fed, state)) < 1e-5
    assert read(see(fed, state), "recovered", ("mlp1",)).width == 10


def test_an_encoder_tells_the_row_of_interactions() -> None:
    fed, state = trained(Noise(scale=0.0), FedVAE(ITEMS, hidden=7, dim=4, dropout=0.0), batch=100)
    row = recover(see(fed, state), ("encoder",)).vector
    log = fed.clients.log
    truth = torch.zeros(8, ITEMS)
    truth[log.user, log.item] = 1
    assert off_by(row, torch.nn.functional.normalize(truth, dim=1)) < 1e-4
    assert torch.equal(row > 0.1, truth > 0)


# ---- what is refused


def why(fed: Federation, *parts: str) -> str:
    """Why a federation's uploads are not read; the reading itself says the same."""
    reason = refusal(public(fed), (), "recovered", parts)
    with pytest.raises(BadInput) as raised:
        read(see(fed, fed.start()), "recovered", parts)
    assert str(raised.value) == f"attack.reads: {reason}"
    return reason


def bare(defence: Defence | None, model: Recommender | None = None, **settings: Any) -> Federation:
    protocol, clients = settings.pop("protocol", GRADIENTS), settings.pop("clients", phones(log_of()))
    return federation(clients, model or neumf(), protocol, defence, **settings)


def test_without_a_head_there_is_nothing_to_read() -> None:
    reason = 'devices share no head that reads user vectors; read "updates", or name parts'
    assert why(bare(None)) == reason
    assert why(bare(None, FedNCF(ITEMS, dim=8, head=(8, 2)))) == reason  # mlp2 is as wide as a user vector
    assert why(bare(None, FedVAE(ITEMS, hidden=7, dim=4))) == reason


def test_a_silo_is_many_users() -> None:
    clients = silos(checkerboard(), 3)
    fed = bare(FedAU2(hidden=4), FedMF(24, clients.n_seats, dim=4), clients=clients)
    told = 'the gradient of a silo is that of all its users together; read "embeddings"'
    assert why(fed) == told


def test_weights_after_other_steps_than_those_of_sgd_are_no_gradient() -> None:
    fed = bare(FedAU2(hidden=4), protocol=FedAvg(), optimiser="adam")
    assert why(fed).startswith("weights tell no gradient unless")


def test_a_part_that_is_named_must_begin_with_a_shared_layer() -> None:
    fed = bare(FedAU2(hidden=4))
    assert why(fed, "item").startswith('"item" does not begin with a shared layer')
    assert why(fed, "user").startswith('no part "user" is uploaded')
    widths = why(fed, "mlp1", "adversary_age")
    assert widths == "mlp1 and adversary_age read vectors of different widths; name one of them"
    assert why(bare(FedAU2(hidden=4), FedVAE(ITEMS, hidden=7, dim=4)), "encoder", "latent")


def test_a_head_by_the_plain_name_counts_and_one_on_other_things_does_not() -> None:
    clients = phones(checkerboard())
    assert heads(public(bare(Watched(hidden=4), FedMF(24, dim=4), clients=clients))) == ["adversary"]
    fed = bare(FedAU2(hidden=4))
    assert heads(public(fed)) == ["adversary_gender", "adversary_age"]
    fed.model.dim += 1
    assert heads(public(fed)) == []


def test_an_outsider_has_no_gradient() -> None:
    with pytest.raises(BadInput, match="no uploads"):
        recover(Seen.of_vectors(torch.ones(3, 2)))


# ---- the sum itself


@given(st.integers(0, 10**6), st.floats(-25, 20), st.integers(0, 6))
def test_dead_units_and_tiny_gradients_do_no_harm(seed: int, power: float, dead: int) -> None:
    keys = Keys.seed(seed)
    vector, bias = keys.fold("vector").normal(3, 4), keys.fold("bias").normal(3, 7)
    bias[:, :dead] = 0
    bias *= 10**power
    told = solve(bias[:, :, None] * vector[:, None], bias)
    assert bool(told.there.all())
    assert largest(told.vector, vector) < 1e-4
    assert float(told.off.max()) < 1e-5


def test_what_cannot_be_divided_by_is_not_there() -> None:
    bias = torch.tensor([[0.0, 0.0], [1e-38, 0.0], [torch.nan, 1.0], [torch.inf, 1.0], [2.0, 0.0]])
    told = solve(bias[:, :, None] * torch.ones(5, 1, 3), bias)
    assert told.there.tolist() == [False] * 4 + [True]
    assert told.vector.tolist() == [[0.0] * 3] * 4 + [[1.0] * 3]
    assert told.off.isinf().tolist() == [True] * 4 + [False]


def test_a_vector_of_zeros_is_one() -> None:
    told = solve(torch.zeros(1, 2, 3), torch.ones(1, 2))
    assert (told.there.tolist(), told.off.tolist(), told.vector.tolist()) == ([True], [0.0], [[0.0] * 3])


# ---- the audit


def planted(users: int, label: Tensor) -> Seen:
    """Uploads by hand: the label turns one number of the private vector, and is nowhere else.

    The head guesses something else, and ∇b is noise of either sign, so that no sum of ∇W tells the label.
    """
    clients, keys = phones(checkerboard()), Keys.seed(3)
    fed = bare(FedAU2(hidden=HIDDEN, attributes=("gender",)), FedMF(ITEMS, dim=4), clients=clients)
    model, known = fed.model, public(fed)
    vector = keys.fold("vector").normal(users, 4)
    vector[:, 2] += 6.0 * label - 3.0
    bias = keys.fold("bias").normal(users, HIDDEN)
    whole: dict[str, Tensor] = {
        name: keys.fold(name).normal(users, *spec.shape)
        for name, spec in known.schema.items()
        if isinstance(spec, Spec) and spec.table is None and name != "examples"
    }
    whole |= {
        "adversary_gender.hidden.bias": bias,
        "adversary_gender.hidden.weight": vector[:, :, None] * bias[:, None],
    }
    schema = {name: known.schema[name] for name in whole}
    told = Public(model, schema, True, None, torch.arange(users)[:, None], users)

    def probe(*parts: object) -> Iterator[Exchange]:
        for some in torch.arange(users).split(100):
            values: Message = {name: value[some] for name, value in whole.items()}
            sent = {name: torch.zeros(value.shape[1:]) for name, value in whole.items()}
            yield Exchange(1, Letter(sent, {}), Uploads(some, values))

    return Seen(told, probe)


@pytest.mark.slow
def test_our_own_audit_finds_by_it_what_no_other_reading_tells() -> None:
    users = 400
    label = Keys.seed(8).integers(2, users)
    seen, people = (
        planted(users, label),
        People({"politics": label}, id_hashes([str(k) for k in range(users)])),
    )
    assert seen.public is not None
    attacks = fitting(PRESETS[OWN], seen.public)
    assert list(attacks) == ["updates", "recovered"]
    quick = Threat(resamples=100, permutations=99, by_part=False, membership=False)
    entry = audit(seen, people, quick, attacks)["attributes"]["politics"]
    told = entry["verdict"]
    assert told["attacker"].startswith("recovered/")
    assert told["auc"]["value"] > 0.98
    assert "An attacker who sees the uploads guesses politics right" in told["sentence"]
    others = [one["scores"]["auc"] for one in entry["attackers"] if one["name"].startswith("updates/")]
    assert others
    assert all(auc["value"] < 0.75 for auc in others)


def test_our_own_audit_of_a_federation_without_a_head_is_what_it_was() -> None:
    assert list(fitting(PRESETS[OWN], public(bare(None)))) == BARE
    uploaded = FedMF(ITEMS, dim=4, user="exposed")
    assert list(fitting(PRESETS[OWN], public(bare(None, uploaded)))) == [*BARE, "embeddings"]
    assert list(fitting(PRESETS[OWN], public(bare(FedAU2(hidden=4))))) == [*BARE, "recovered"]
    adam = bare(FedAU2(hidden=4), protocol=FedAvg(), optimiser="adam")
    assert list(fitting(PRESETS[OWN], public(adam))) == BARE
