"""A device alone: (bytes from the server, its own store) to (bytes to the server, its own store).

Run as ``python -m veilrec.node STORE < message > upload`` it is a process of its own that holds one
device's data and nothing else. It does what the engine does for a cohort of one, so a deployment is a thin
wrapper around it. Noise, and what is drawn for a pass, are the operating system's, which nobody can repeat;
with ``--seeded`` they are the simulation's, to compare the two. What a defence draws once and keeps is drawn
in the device's first round, and a store stays with the kind of noise that it began with. No round is answered
twice.

What a user posts openly is a message of its own, as `Defence.posts` declares it. It is written to the file
that ``--post`` names, where the defence posts and the user consents; else no file is written. Without
``--post`` nothing is posted, and whoever learns from posts does without this user's.

Where a protocol's server scores, ``--ask`` answers a letter with what the device asks for recommendations
with; the store stays as it is, and a device may ask as often as its user wants.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilrec.base import process

if __name__ == "__main__":
    process.hear()  # before what takes seconds to be imported

import torch
from torch import Tensor

from veilrec.base import tensors
from veilrec.base.defaults import own_defaults
from veilrec.base.files import atomic, read_json, write_json
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, under
from veilrec.clients import Clients
from veilrec.defence import secretly
from veilrec.engine import serving
from veilrec.engine.in_process import InProcess
from veilrec.engine.respond import Failed, respond
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, Split
from veilrec.model import made, overrides
from veilrec.protocol import Counterpart, Protocol, State
from veilrec.recipe import Recipe, assembly, catalogue
from veilrec.rounds import Federation
from veilrec.wire import codec, halves
from veilrec.wire.halves import tensors_of
from veilrec.wire.uploads import EACH, Letter, Uploads

__all__ = ["answer", "ask", "letter", "main", "provision"]

RECIPE, CARD, OWN = "recipe.toml", "node.json", "own.safetensors"
POST = "post/"  # before the names of what consenting users have posted
VERSION = 2  # of a store; in those before it the simulation had drawn what a defence keeps
SEEDED = "seeded"  # how a store's noise was drawn; not there until the first answer
ROUND = "round"  # the last one that was answered
RUN = "run"  # the name of the only run that is answered, once a letter has named one
USAGE = "python -m veilrec.node STORE [--seeded] [--ask | --post FILE] [--plugin FILE]…"


@own_defaults()
def letter(
    federation: Federation,
    state: State,
    client: int,
    *,
    run: str = "",
    recipe: str = "",
    missed: Sequence[int] = (),
) -> bytes:
    """Encode what the server sends to a device of the coming round, posts included.

    Args:
        federation, state: The server's.
        client: To whom.
        run: The name of the run: a device answers one run alone.
        recipe: The text of its recipe, of which the letter carries a hash.
        missed: Rounds in which this client's answer did not count; the device goes on from what it has.
    """
    sent = federation.letter(state, torch.tensor([client]))
    message: Message = {**sent.all, **{EACH + name: value[0] for name, value in sent.each.items()}}
    message |= {POST + name: value for name, value in sent.posts.items()}
    round = torch.tensor(sent.round, dtype=torch.int32)
    return codec.encode({**message, "round": round}, halves.notes(run, recipe, missed))


@own_defaults()
def provision(federation: Federation, client: int, recipe: str, folder: Path) -> None:
    """Write the store of one simulated phone: its own events, labels, weights and settings, nobody else's.

    Nothing in it is drawn or blurred by a defence: the events are those before `Defence.prepare`, and what a
    defence keeps on a device is left out where nothing has moved it. The first `answer` sees to both.
    """
    clients = federation.fleet.given
    log = clients.log
    if clients.n_seats > 1:
        raise BadInput("data.silos", "a silo is more than one person's device", "set it to 0")
    user = int(clients.seats[client, 0])
    own = _weights(federation, client) | _data(clients, client)
    own |= {f"value/{name}": value[user] for name, value in log.values.items()}
    columns = {"rating": log.rating, "time": log.time}
    own |= {name: column[log.user == user] for name, column in columns.items() if column is not None}
    card = {"version": VERSION, "user": clients.name(client), "items": log.n_items}
    card |= {"features": list(log.feature_names), "classes": {n: list(c) for n, c in log.classes.items()}}
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / RECIPE) as file:
        file.write(recipe.encode())
    tensors.write(folder / OWN, own, secret=True)
    write_json(folder / CARD, card, secret=True)  # last: it vouches for what the tensors mean


def _weights(federation: Federation, client: int) -> Params:
    """The weights that a device holds, less parts of a defence still as drawn: it draws them itself."""
    fleet = federation.fleet
    devices, helpers = fleet.devices, fleet.task().helpers
    alone = torch.tensor([client], device=devices.device)
    now = devices.get(alone)
    first = fleet.fresh(alone) if bool((devices.clients() == client).any()) else now
    kept = [name for name in now if name not in helpers or not torch.equal(now[name], first[name])]
    return {f"own/{name}": now[name][0] for name in kept}


def _data(clients: Clients, client: int) -> Params:
    """The data of a phone's user that training reads."""
    log, user = clients.log, int(clients.seats[client, 0])
    data = {"item": log.item[log.user == user]}
    data |= {f"attribute/{name}": label[user] for name, label in log.attributes.items()}
    data |= {f"consent/{name}": given[client, 0] for name, given in clients.consents.items()}
    return data if log.features is None else {**data, "features": log.features[user]}


@own_defaults()
def answer(folder: Path, message: bytes, *, seeded: bool = False, post: Path | None = None) -> bytes:
    """One round of the device whose store is `folder`: changes the store, returns the upload.

    The first one prepares the data and draws what the defence keeps; later ones find both in the store.

    Args:
        folder: The store.
        message: What the server sent.
        seeded: Draw noise from the experiment's keys, as a simulation does: not private.
        post: The file for what the user posts, where that is anything; without it nothing is posted.

    Raises:
        BadInput: If the message is not what the protocol declares, its round was answered before, or the
            store's noise was drawn in the other way; the store stays as it was.
    """
    if post is not None and (post.is_dir() or not post.parent.is_dir()):
        raise BadInput(post, "is no place for a file", "name another")  # before the round counts as answered
    card, own = _opened(folder, seeded=seeded)
    fleet = _fleet(folder, card, own, seeded=seeded)
    received, notes = _received(fleet, message), codec.notes_of(message)
    _check_run(folder, own, notes)
    if ROUND in own and received.round <= int(own[ROUND]):  # noise drawn again could be averaged away
        what = f"this device has answered round {int(own[ROUND]) + 1}"
        raise BadInput("message", what, "send a later one; who carries answers must keep them")
    uploads, kept = _answered(fleet, received, own)
    reply = codec.encode(codec.one(uploads.values, 0))
    own = _data(fleet.clients, 0) | {f"own/{n}": v[0] for n, v in kept.items()}
    # What is kept and how it was drawn lie in one file, so that no crash can part them.
    marks = {SEEDED: torch.tensor(seeded), ROUND: torch.tensor(received.round)}
    if RUN in own or "run" in notes:
        marks[RUN] = own.get(RUN, _text(notes.get("run", "")))
    tensors.write(folder / OWN, own | marks, secret=True)
    if post is not None and len(uploads.posts.owner):
        with atomic(post) as file:
            file.write(codec.encode(codec.one({**uploads.posts.values}, 0)))
    return reply


@own_defaults()
def ask(folder: Path, message: bytes, *, seeded: bool = False) -> bytes:
    """What the device whose store is `folder` asks for recommendations with; the store stays as it was.

    Args:
        folder: The store.
        message: What the server sent, as for a round.
        seeded: Draw what is random as a simulation does: not private.

    Raises:
        BadInput: If the message is not what the protocol declares, or the protocol's server does not score.
    """
    card, own = _opened(folder, seeded=seeded)
    fleet, alone = _fleet(folder, card, own, seeded=seeded), torch.tensor([0])
    if not overrides(fleet.protocol, Protocol, "query"):
        what = f"under {type(fleet.protocol).__name__} devices score for themselves"
        raise BadInput("--ask", what, "ask a device whose server scores")
    if SEEDED not in own:  # else each question would draw anew what a defence draws once
        raise BadInput("--ask", "this device has answered no round yet", "let it take part in one first")
    received = _received(fleet, message)
    _check_run(folder, own, codec.notes_of(message))
    server = Counterpart(lambda cohort: received, _not_here)
    fleet.devices.put(alone, _held(fleet, own))
    with fleet.working() as pool:
        query = serving.asker(fleet, server, pool, None if seeded else fleet.keys)(alone)
    return codec.encode(codec.one(query, 0))


def _not_here(query: Message, items: Tensor | None) -> Tensor:
    raise NotImplementedError("scores are the server's")


def _received(fleet: InProcess, message: bytes) -> Letter:
    """A letter from its bytes: what is for all, what is for this device alone, and posts."""
    sheet = fleet.protocol.letter(fleet.model, fleet.plan.dtype)
    found = tensors_of(codec.decode(message, sheet, freely=POST))
    round = int(found.pop("round"))
    each = {name: value[None] for name, value in under(found, EACH).items()}
    common = {name: value for name, value in found.items() if not name.startswith((POST, EACH))}
    return Letter(common, each, under(found, POST), round)


def _check_run(folder: Path, own: Params, notes: Mapping[str, str]) -> None:
    """Refuse the letter of another run than the store's first, or of another recipe than lies in it."""
    if "run" in notes and RUN in own and not torch.equal(own[RUN], _text(notes["run"])):
        raise BadInput("message", f'of another run, "{notes["run"]}"', "provision a store for that one")
    mine = halves.fingerprint((folder / RECIPE).read_text(encoding="utf-8"))
    if notes.get("recipe", mine) != mine:
        raise BadInput("message", "of a run with another recipe", "provision the store anew")


def _text(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _opened(folder: Path, *, seeded: bool) -> tuple[dict[str, Any], Params]:
    """The card and the tensors of a store, unless its noise is not of the kind that is asked for."""
    card, own = read_json(folder / CARD), tensors.read(folder / OWN)
    if card.get("version") != VERSION:
        raise BadInput(folder, "a store of another version", "provision it anew")
    if SEEDED in own and bool(own[SEEDED]) != seeded:
        if seeded:
            raise BadInput(folder, "its noise is the operating system's", "leave out --seeded")
        what = "its noise was drawn from the experiment's seed, which is not private"
        raise BadInput(folder, what, "provision it anew, or answer with --seeded to compare")
    return card, own


def _answered(fleet: InProcess, letter: Letter, own: Params) -> tuple[Uploads, Params]:
    """Answer a letter: what the one device sends, and what it holds from then on."""
    alone = torch.tensor([0])
    fleet.devices.put(alone, _held(fleet, own))
    chunk = fleet.chunk(letter, alone, alone, fleet.keys)
    try:
        answer = respond(fleet.task(), chunk, fleet.schema(letter), fleet.announced)
    except Failed as failure:
        raise failure.cause from failure
    return answer.uploads, answer.kept


def _held(fleet: InProcess, own: Params) -> Params:
    """What the one device of a store holds: what it has kept, and else what it begins with."""
    kept = {name: value[None] for name, value in under(own, "own/").items()}
    return fleet.fresh(torch.tensor([0])) | kept


def _fleet(folder: Path, card: dict[str, Any], own: Params, *, seeded: bool) -> InProcess:
    """A fleet of one phone, with the keys of the large one or secret ones; prepared if it was not yet.

    Which items a pass draws as untouched must be as secret as noise: a server that could draw them again
    would know the others for touched.
    """
    parts = assembly.build(Recipe.load(folder / RECIPE, has_data=False).values)
    log = Interactions(
        user=torch.zeros_like(own["item"]),
        item=own["item"],
        n_users=1,
        n_items=card["items"],
        user_ids=[card["user"]],
        item_ids=[""] * card["items"],  # a device has no need of the original ids
        rating=own.get("rating"),
        time=own.get("time"),
        attributes={name: label[None] for name, label in under(own, "attribute/").items()},
        classes=card["classes"],
        values={name: value[None] for name, value in under(own, "value/").items()},
        features=own["features"][None] if "features" in own else None,
        feature_names=card["features"],
    )
    nobody = torch.tensor([-1])
    given = {name: consent[None, None] for name, consent in under(own, "consent/").items()}
    clients = replace(Clients.phones(Split(log, nobody, nobody)), consents=given)
    width = own["features"].shape[-1] if "features" in own else 0
    model = made(parts["model"], card["items"], 1, width)
    defence = parts["defence"] if seeded else secretly(parts["defence"])
    kinds = parts["protocol"], defence, parts["plan"]
    secret = None if seeded else Keys.secret()
    fresh = SEEDED not in own
    return InProcess.of(clients, model, *kinds, seed=parts["seed"], secret=secret, prepare=fresh)


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m veilrec.node STORE``: the message on standard input, the reply on standard output."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return process.run(lambda: _reply(words))


def _reply(words: Sequence[str]) -> int:
    process.check_text(words)
    seeded, asks = "--seeded" in words, "--ask" in words
    store, post = _named([word for word in words if word not in ("--seeded", "--ask")])
    if asks and post is not None:
        raise BadInput("--post", "who asks posts nothing", USAGE)
    message, how = sys.stdin.buffer.read(), {"seeded": seeded}
    reply = ask(store, message, **how) if asks else answer(store, message, **how, post=post)
    with process.writing_output():
        sys.stdout.buffer.write(reply)
        sys.stdout.buffer.flush()
    return 0


def _named(words: Sequence[str]) -> tuple[Path, Path | None]:
    """The store that a command names, and the file for the post; the plugins that it names are loaded."""
    folder, *rest = [*words, ""]
    flags, files = rest[:-1:2], rest[1:-1:2]
    if not folder or len(flags) != len(files) or {*flags} - {"--plugin", "--post"}:
        raise BadInput("node", "the arguments are a store, a file for the post and plugins", USAGE)
    named = {flag: [Path(f) for g, f in zip(flags, files, strict=True) if g == flag] for flag in flags}
    if len(named.get("--post", ())) > 1:
        raise BadInput("--post", "named twice", USAGE)
    if not (Path(folder) / CARD).is_file():
        raise BadInput(folder, "is no device's store", f"give the folder that holds {CARD}")
    for path in named.get("--plugin", ()):
        catalogue.load_plugin(path)
    (post,) = named.get("--post", [None])
    return Path(folder), post


if __name__ == "__main__":
    process.launch(main)
