"""Applying: one order on a finished run: its vectors, and all that was made of them, in one change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.files import read_json
from veilrec.base.params import Scope, part_of
from veilrec.engine.evaluation import Scored
from veilrec.eraser import AttributeEraser
from veilrec.erasers.leace_null import LeaceNull
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions
from veilrec.lab.trials import People
from veilrec.model import Recommender
from veilrec.protocol import State
from veilrec.result import RESULT, Result
from veilrec.rounds import Federation
from veilrec.runs.erasing import forgotten, user_vectors
from veilrec.runs.fingerprint import data_fingerprint, fingerprint
from veilrec.runs.folder import DRAWS, MODEL, PER_USER, USERS, Run, per_user, tables_of
from veilrec.runs.integrity.changes import Change
from veilrec.runs.integrity.manifest import RECEIPT
from veilrec.runs.requests.choosing import Asked, Choice, KnownUsers, choose
from veilrec.runs.requests.looking import Witness, without_counts
from veilrec.runs.requests.orders import MANY, UnlearnOrder
from veilrec.runs.requests.purging import purge, without_classes, without_helpers, without_posts
from veilrec.runs.requests.telling import done_of, is_not, notes_of
from veilrec.runs.summary import replicates, summary
from veilrec.runs.world import IDS, WORLD, world_tables

__all__ = ["Make", "Prepared", "Reopened", "apply", "prepare", "remembered"]

LOTS = DRAWS.format("request")
Make = Callable[[str], AttributeEraser | None]
"""The eraser of a name; None where nobody was named."""


class Reopened(Protocol):
    """A finished run with its federation, in the selected state."""

    @property
    def run(self) -> Run:
        """The run."""

    @property
    def federation(self) -> Federation:
        """Its federation."""

    @property
    def state(self) -> State:
        """The selected state."""


@dataclass(frozen=True)
class Prepared:
    """An order against a run: all that can be wrong with it is found out.

    Attributes:
        order: What is asked.
        asks: ``[users]`` of the whole log, who asks.
        users: ``[n]`` those who have a vector.
        vectors: ``[n, width]``.
        choice: How it will be carried out.
    """

    order: UnlearnOrder
    asks: Tensor
    users: Tensor
    vectors: Tensor
    choice: Choice


def prepare(order: UnlearnOrder, opened: Reopened, make: Make) -> Prepared:
    """What will be done to a run, of which nothing is changed.

    Raises:
        BadInput: Where a user, an attribute or a method is unknown, the method refuses, or the model has no
            vectors of users.
    """
    data, fleet = opened.run.data, opened.federation.fleet
    _refuse_told(opened.federation, order)
    weights = LeaceNull().weights(fleet.model)
    everybody = KnownUsers(data.user_ids, data.attributes, data.classes)
    asks = torch.ones(data.n_users, dtype=torch.bool)
    if order.users is not None:
        asks = everybody.places(order.users)
    lends = _lenders(opened.federation, order, everybody)
    users, vectors = user_vectors(fleet, weights)
    if not bool(asks[users].any()):
        what = "those who ask never took part: the run holds no vector of theirs"
        raise BadInput("--user", what, "there is nothing to forget")
    names = [name for name in data.attributes if name in order.attributes]
    if missing := [name for name in order.attributes if name not in names]:
        raise BadInput(
            "--attribute", f'the run knows no "{missing[0]}"', nearest(missing[0], data.attributes)
        )
    known = KnownUsers(
        [data.user_ids[user] for user in users.tolist()],
        {name: data.attributes[name][users] for name in names},
        {name: data.classes.get(name, ()) for name in names},
    )
    seen = any(fleet.model.parts[part_of(name)].scope is Scope.EXPOSED for name in weights)
    asked = Asked(
        names,
        None if bool(asks.all()) else asks[users],
        None if lends is None else lends[users],
        order.copies or seen or bool({"checkpoint", "transcript"} & set(order.keeps)),
        order.method,
        make(order.method),
    )
    choice = _from_whom(choose(asked, known), order, consents=lends is not None)
    choice.eraser.check(fleet.model)
    choice.eraser.forget(vectors, choice.request, Draws())  # in vain: what fails, fails before it is taken
    return Prepared(order, asks, users, vectors, choice)


def _lenders(federation: Federation, order: UnlearnOrder, everybody: KnownUsers) -> Tensor | None:
    """``[users]`` who are named, or share openly all that is asked about; None where nobody was asked to."""
    if order.lenders is not None:
        return everybody.places(order.lenders, "--lenders")
    clients = federation.clients
    given = [clients.consents[name] for name in order.attributes if name in clients.consents]
    if order.users is None or not given or not all(bool(one.any()) for one in given):
        return None
    lends = torch.zeros(clients.log.n_users, dtype=torch.bool)
    lends[clients.seats[torch.stack(given).all(0)].cpu()] = True
    return lends


def _from_whom(choice: Choice, order: UnlearnOrder, *, consents: bool) -> Choice:
    """The same choice, which says from whom it learns where nobody was named."""
    if order.lenders is not None or choice.request.lends is None or choice.eraser.needs_labels:
        return choice
    whom = "the others who consent" if consents else "all others"
    return choice._replace(why=f"{choice.why}, and it learns from {whom}")


def _refuse_told(federation: Federation, order: UnlearnOrder) -> None:
    """Refuse a model that is told the attribute itself, again and again."""
    told = {name.partition("=")[0] for name in federation.clients.log.feature_names if "=" in name}
    if again := sorted(told & set(order.attributes)):
        what = f"the model reads {again[0]} itself, as a feature that devices tell it"
        raise BadInput("--attribute", what, "train without data.include_private_features")


def apply(new: Change, prepared: Prepared, opened: Reopened) -> dict[str, Any]:
    """Put into a change what a run is after an order; returns the receipt.

    What was drawn lies beside the run before the first vector changes, and goes with the change.
    """
    folder, federation, order = opened.run.path, opened.federation, prepared.order
    choice, fleet = prepared.choice, opened.federation.fleet
    draws = Draws.at(folder / LOTS, prepared.vectors) if choice.eraser.secret else Draws()
    witness = _witness(prepared, opened) if order.audits else None
    was = witness.side(opened.state) if witness else None
    after = choice.eraser.forget(prepared.vectors, choice.request, draws)
    forgotten(fleet, choice.eraser, prepared.users, after, choice.request.moves)
    without_helpers(federation, prepared.asks)
    state = without_posts(federation, opened.state, prepared.asks)
    now = witness.side(state) if witness else None
    scored = now.scored if now else federation.evaluate(state, "test")
    data = opened.run.data
    if WORLD in new.before.files and not order.keeps_labels:  # else they are in the dataset, out of reach
        data = without_classes(data, order.attributes, prepared.asks)
    before = opened.run.manifest.files
    new.write_tensors(USERS, tables_of(state, fleet.devices)[1], secret=True)
    _write_world(new, data, order)
    with new.writing(PER_USER, secret=True) as sink:
        sink.write(per_user(scored, data))
    purged = purge(new, order.keeps)
    if draws.path is not None:
        new.drop(LOTS)
    told = {
        "asked": _asked(order),
        "done": done_of(choice, (after != prepared.vectors).any(1)),
        "model": {name: _hashes(name, new) for name in (MODEL, USERS) if name in before},
        "purged": purged,
        "kept": _kept(order),
        "stale": _stale(opened.run.result),
        "notes": [*notes_of(choice), *_notes(order, new, fleet.model)],
        "is_not": is_not(order.attributes),
    }
    result = _result(opened, state, scored, data, told)
    told["utility"] = {
        "select": result.utility.select,
        "before": dict(opened.run.result.utility.test),
        "after": dict(result.utility.test),
    }
    new.write_json(RESULT, result.values())
    if witness and was and now:
        told = witness.told(choice, was, now, witness.later(state), told)
    new.write_json(RECEIPT, _with_earlier(told, new, order), secret=True)
    return told if order.keeps_labels else without_counts(told)


def _with_earlier(told: dict[str, Any], new: Change, order: UnlearnOrder) -> dict[str, Any]:
    """The receipt as a run keeps it: with those of its earlier requests, the latest first."""
    if RECEIPT in new.before.files:
        last = read_json(new.before.path(RECEIPT), MANY)
        told = {**told, "earlier": [last, *last.pop("earlier", [])]}
    kept: dict[str, Any] = told if order.keeps_labels else without_counts(told)
    return kept


def _witness(prepared: Prepared, opened: Reopened) -> Witness:
    """Who looks at the run on both sides of a request."""
    weights = prepared.choice.eraser.weights(opened.federation.fleet.model)
    return Witness(opened.federation, People.of(opened.run.data), prepared.users, weights)


def _write_world(new: Change, data: Interactions, order: UnlearnOrder) -> None:
    """The log without the classes of those who ask, where the run holds it at all."""
    if WORLD in new.before.files and not order.keeps_labels:
        tensors, ids = world_tables(data)
        new.write_tensors(WORLD, tensors, secret=True)
        new.write_json(IDS, ids, secret=True, indent=None)


def _result(
    opened: Reopened, state: State, scored: Scored, data: Interactions, told: dict[str, Any]
) -> Result:
    """The result made anew: usefulness is measured, counts are taken again, and audits of before are gone."""
    federation, before = opened.federation, opened.run.result
    test, popular = scored.means(), before.utility  # what popularity reaches no vector decides
    collapsed = test[popular.select] < popular.floor[popular.select]
    utility = replace(popular, test=test, collapsed=collapsed, users=len(scored.user))
    if federation.fleet.validates:
        utility = replace(utility, validation=federation.evaluate(state, "validation").means())
    device = federation.keys.value.device.type
    settings = _settings(before.settings, told)
    entry = {**told["asked"], "eraser": told["done"]["eraser"]["name"], "kept": told["kept"]}
    return replace(
        before,
        utility=utility,
        data=summary(data, federation.clients, settings),
        settings=settings,
        privacy={},
        utility_replicates=replicates(scored, data, federation.evaluation.select),
        fingerprint=fingerprint({**settings, "device": device}, federation.model, data),
        data_fingerprint=data_fingerprint(data),
        erased=[*before.erased, {**entry, "stale": told["stale"]}],
    )


def _settings(before: Mapping[str, Any], told: dict[str, Any]) -> dict[str, Any]:
    """The settings with the eraser behind those of the recipe, once however often it was asked for."""
    entry = {**told["done"]["eraser"], "attributes": told["asked"]["attributes"], "on_request": True}
    found = list(before.get("eraser", ()))
    return {**before, "eraser": found if entry in found else [*found, entry]}


def _asked(order: UnlearnOrder) -> dict[str, Any]:
    return {
        "attributes": list(order.attributes),
        "users": "all" if order.users is None else len(order.users),
        "method": order.method,
        "at": order.at,
    }


def _hashes(name: str, new: Change) -> dict[str, str]:
    return {"before": new.before.files[name].sha256, "after": new.files[name].sha256}


def _kept(order: UnlearnOrder) -> list[str]:
    return [*order.keeps, *(["labels"] if order.keeps_labels else [])]


def _stale(before: Result) -> list[str]:
    """What was measured on the vectors of before, and is still there, or went."""
    audits = [f"result.json: audit {name}: gone; attack the run again" for name in before.privacy]
    return [*audits, "metrics.jsonl, curves: measured while the model was trained"]


def _notes(order: UnlearnOrder, new: Change, model: Recommender) -> list[str]:
    private = [n for n, p in model.parts.items() if p.scope is Scope.PRIVATE and not p.helper and not p.rows]
    notes = [f"each device's own {name} stays as it was trained on the vectors of before" for name in private]
    if order.keeps:
        notes.append(f"kept, and still telling: {', '.join(order.keeps)}")
    if order.keeps_labels:
        notes.append("the run goes on knowing the classes of those who ask")
    if WORLD not in new.before.files:
        notes.append("the run was written without its data: classes in the dataset are out of its reach")
    notes.append("copies of the run, reports and backups elsewhere are out of its reach")
    return notes


def remembered(before: list[UnlearnOrder], order: UnlearnOrder) -> dict[str, Any]:
    """What a run remembers of requests, this one among them."""
    return {"version": 1, "requests": [asdict(one) for one in (*before, order)]}
