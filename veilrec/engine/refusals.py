"""Refusals: settings of a federation that cannot work together, found before any work is done."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from veilrec.attack import Attack
from veilrec.base.limits.bounds import fitted
from veilrec.base.params import Scope
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.engine.devices import private_rows
from veilrec.engine.evaluation import Evaluation
from veilrec.eraser import Eraser
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions
from veilrec.lab.threat import Threat
from veilrec.model import Recommender, overrides
from veilrec.protocol import Protocol
from veilrec.wire.transcript import Record

__all__ = ["refuse", "refuse_kinds"]

FRAME = "write it as CSV, and read that with veilrec.datasets.delimited.csv(path, user=..., item=...)"
NAMED = "give veilrec.synthetic(), or what veilrec.datasets.ml_100k.ml_100k(path) and its like return"
MADE = "give the class, or functools.partial({}, dim=8): the data tell the rest"
KINDS: Mapping[str, tuple[type, str, str]] = {  # what each part of an experiment is, and how one gets it
    "data": (Interactions, "a log", NAMED),
    "protocol": (Protocol, "a protocol", "give veilrec.FedAvg(...)"),
    "defence": (Defence, "a defence", "give one, as veilrec.Laplace(scale=0.1); several by veilrec.chain"),
    "plan": (Plan, "a plan", "give veilrec.Plan(rounds=100)"),
    "evaluation": (Evaluation, "an evaluation", "give veilrec.Evaluation(...)"),
    "attacks": (Mapping, "attacks by name", 'give {"mine": veilrec.attacks.attribute.AttributeInference()}'),
    "record": (Record, "a record", "give veilrec.wire.transcript.Record(last=1)"),
}
EACH = {"attacks": (Attack, "an attack"), "erasers": (Eraser, "an eraser")}


def refuse(
    clients: Clients, model: Recommender, protocol: Protocol, defence: Defence, plan: Plan, judge: Evaluation
) -> None:
    """Complain of the first that is found.

    Raises:
        BadInput: Where there is one.
    """
    private_rows.check(model)
    _check_parts(model, protocol, plan)
    _check_names(model, protocol)
    _check_sums(protocol, defence, plan)
    _check_rounds(clients, defence, plan)
    _check_looks(defence, plan, judge)
    _check_data(clients, plan)
    defence.declares(model, protocol)  # complains by itself of what the protocol does not send


def refuse_kinds(parts: Mapping[str, Any]) -> None:
    """Complain of the first part of an experiment that is something else, by name, with the way out.

    Raises:
        BadInput: Where there is one.
    """
    for name, (kind, noun, fix) in KINDS.items():
        if not isinstance(parts[name], kind):
            framed = name == "data" and hasattr(parts[name], "columns")
            raise _other(name, parts[name], noun, FRAME if framed else fix)
    if (threat := parts["threat"]) is not None and not isinstance(threat, Threat):
        raise _other("threat", threat, "a threat", "give veilrec.Threat(known=0.2)")
    for name, (kind, noun) in EACH.items():
        given = parts[name].values() if isinstance(parts[name], Mapping) else parts[name]
        for one in [given] if isinstance(given, str) else given:
            if not isinstance(one, kind):
                raise _other(name, one, noun, f"`veilrec list {name}` names them; give what they make")
    _refuse_model(parts["model"])


def _other(name: str, value: Any, noun: str, fix: str) -> BadInput:
    return BadInput(f"experiment.{name}", f"{_called(value)} where {noun} should be", fix)


def _refuse_model(model: Any) -> None:
    """Complain of a model that is made already, of what makes none, and of arguments that it has not."""
    if isinstance(model, Recommender):
        name = type(model).__name__
        raise BadInput("experiment.model", f"a {name} that is made already", MADE.format(name))
    if not callable(model):
        raise _other("model", model, "what makes a model", MADE.format("veilrec.FedMF"))
    if isinstance(model, partial):
        signature = inspect.signature(model.func)
        fitted("experiment.model", model.func, signature, model.args, model.keywords, some=True)


def _called(value: Any) -> str:
    """What somebody gave, as a line has room for it."""
    if isinstance(value, str):
        return f'the name "{value[:60]}"'
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _check_parts(model: Recommender, protocol: Protocol, plan: Plan) -> None:
    """Parts that nobody would step, or that are stepped on the wrong side."""
    for name, part in model.parts.items():
        if (part.helper or model.personal) and part.scope is Scope.SHARED and protocol.sends_gradients:
            raise BadInput("protocol.sends", f"part {name!r} is stepped by devices", 'set it to "weights"')
        if isinstance(plan.lr, Mapping) and not part.helper and not {name, "default"} & plan.lr.keys():
            raise BadInput("plan.lr", f"no rate for the part {name!r}", "add one, or one for `default`")


def _check_names(model: Recommender, protocol: Protocol) -> None:
    """Whether what is uploaded and what is asked with can be told apart: each has noise of its own."""
    if clash := sorted(protocol.schema(model).keys() & protocol.query_schema(model).keys()):
        raise BadInput("protocol", f"{clash[0]!r} is both uploaded and asked with", "name one of them anew")


def _check_rounds(clients: Clients, defence: Defence, plan: Plan) -> None:
    """Refuse a plan that ends before the defence begins to guard."""
    last = plan.last(max(1, sum(n > 0 for n in clients.sizes)))
    if 0 < defence.guards_from >= last:
        what = f"of {last} rounds none is left that it guards after {defence.guards_from}"
        raise BadInput("defence", what, "let it begin earlier, or give more plan.rounds")


def _check_looks(defence: Defence, plan: Plan, judge: Evaluation) -> None:
    """Refuse patience or a target where validation never measures what they wait for."""
    measured = [f"{name}@{k}" for name in judge.metrics for k in judge.ks]
    watched = [name for link in defence.links for name in link.watches]
    if lacking := [name for name in watched if name not in measured]:
        raise BadInput("defence.metric", f'"{lacking[0]}" is not measured', nearest(lacking[0], measured))
    if not judge.validation and (plan.patience or watched):
        who = "plan.patience" if plan.patience else "defence.target"
        what = "it waits for looks at validation items, and evaluation.validation is off"
        raise BadInput(who, what, "switch that on, or leave this out")


def _check_data(clients: Clients, plan: Plan) -> None:
    """Refuse data without an event to train on, or without untouched items for negatives."""
    if not any(clients.sizes):
        raise BadInput("data", "no user has an event left to train on", "give users at least three events")
    counts = clients.log.counts
    if plan.negatives and int(counts.max()) >= clients.log.n_items:
        who = clients.log.user_ids[int(counts.argmax())]
        what = f"user {who} has touched every item"
        raise BadInput("plan.negatives", what, "drop that user or set it to 0")


def _check_sums(protocol: Protocol, defence: Defence, plan: Plan) -> None:
    """Refuse sums of uploads that do not add up, and hooks on training where devices do not train."""
    if plan.forwards != "each" and not protocol.partial_is_sum:
        what = f"uploads of {type(protocol).__name__} are no numbers that add up"
        raise BadInput("plan.forwards", what, 'set it to "each"')
    if not overrides(protocol, Protocol, "learn"):
        return
    for hook in ("helper_loss", "penalty", "after_epoch"):
        if defence.acts(hook):
            what = f"acts on local training, and devices of {type(protocol).__name__} do not train"
            raise BadInput("defence", what, "choose one that acts on uploads, or leave it out")
