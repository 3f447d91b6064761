"""The benchmark's round as a Flower app: one client per user, touched rows up, a mean on the server."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import cache

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from benchmarks import fedncf, loop, worlds
from benchmarks.examples import Sampler

SHAPE = "VEILREC_BENCH_SHAPE"  # environment: reaches the processes that Ray starts
DEADLINE = 600

client = ClientApp()


@cache
def world() -> worlds.World:
    """The world, made once in each process."""
    torch.set_num_threads(1)
    return worlds.make(os.environ[SHAPE])


@cache
def sampler() -> Sampler:
    """The sampler of that world."""
    return Sampler(world())


@client.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """One local epoch of one user, whose vector is kept in Flower's client state."""
    number, me = int(message.content["config"]["round"]), int(context.node_config["partition-id"])
    examples = sampler().draw(number, me)
    if "user" in context.state:
        user = context.state["user"].to_torch_state_dict()["vector"]
    else:
        user = fedncf.first_users(world())[me]
    weights = unpack(message.content["arrays"])
    upload = loop.local_epoch(weights, user, examples, fedncf.labels())
    context.state["user"] = ArrayRecord({"vector": user})
    head = {f"head.{place}": change for place, change in enumerate(upload.head)}
    arrays = ArrayRecord({"touched": upload.touched, "item": upload.item, **head})
    return Message(content=RecordDict({"arrays": arrays}), reply_to=message)


def pack(weights: fedncf.Weights) -> ArrayRecord:
    """Weights as a Flower record."""
    head = {f"head.{place}": weight for place, weight in enumerate(weights.head)}
    return ArrayRecord({"item": weights.item, **head})


def unpack(record: ArrayRecord) -> fedncf.Weights:
    """A Flower record as weights."""
    tensors = record.to_torch_state_dict()
    return fedncf.Weights(tensors["item"], tuple(tensors[f"head.{place}"] for place in range(6)))


def fold(change: fedncf.Weights, replies: Iterable[Message]) -> int:
    """Add the uploads of all replies to a sum; the number of clients that answered."""
    count = 0
    for reply in replies:
        if reply.has_error():
            raise RuntimeError(f"a client failed: {reply.error.reason}")
        tensors = reply.content["arrays"].to_torch_state_dict()
        head = tuple(tensors[f"head.{place}"] for place in range(len(change.head)))
        loop.fold(change, loop.Upload(tensors["touched"], tensors["item"], head))
        count += 1
    return count


def server(rounds: int, times: list[float], moved: list[float]) -> ServerApp:
    """A server that runs one untimed round, then `rounds` more, and leaves what it found in the lists."""
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        first = fedncf.first_weights(world())
        weights = fedncf.first_weights(world())
        while len(nodes := list(grid.get_node_ids())) < world().shape.users:
            time.sleep(0.1)
        for number in range(rounds + 1):
            start = time.perf_counter()
            one_round(grid, nodes, weights, number)
            times.append(time.perf_counter() - start)
            moved.append(fedncf.moved(first, weights))

    return app


def one_round(grid: Grid, nodes: list[int], weights: fedncf.Weights, number: int) -> None:
    """Send the weights to every client, wait for all answers, and average."""
    content = RecordDict({"arrays": pack(weights), "config": ConfigRecord({"round": number})})
    messages = [Message(content=content, message_type="train", dst_node_id=node) for node in nodes]
    change = loop.zeros_like(weights)
    answered = fold(change, grid.send_and_receive(messages, timeout=DEADLINE))
    if answered != len(nodes):
        raise RuntimeError(f"{len(nodes) - answered} clients did not answer in {DEADLINE} s")
    loop.average(weights, [change], answered)
