"""An experiment: data, a model, a protocol, a defence and a plan become a result. The one file that knows everyone."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from typing import Protocol as Shape

import numpy
import safetensors
import torch

import veilrec
from veilrec import clock, folder
from veilrec.attack import Attack, Threat
from veilrec.checkpoint import Checkpoints
from veilrec.clients import Clients
from veilrec.defence import Chain, Defence
from veilrec.defences.none import Undefended
from veilrec.disk import Digest, atomic, digest
from veilrec.errors import BadInput
from veilrec.evaluation import Evaluation, Scored, evaluate, popularity
from veilrec.fingerprint import data_fingerprint, describe, fingerprint, toml
from veilrec.interactions import Interactions
from veilrec.interrupt import Stop, stoppable
from veilrec.journal import Journal
from veilrec.keys import Keys
from veilrec.model import Recommender
from veilrec.plan import Plan
from veilrec.protocol import Protocol, State
from veilrec.protocols.fedavg import FedAvg
from veilrec.recorder import Recorder
from veilrec.result import RESULT, Result, Utility
from veilrec.rounds import Federation
from veilrec.training import Progress, Training
from veilrec.transcript import Record
from veilrec.workers import workers
from veilrec.world import save_world
