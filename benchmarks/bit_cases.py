"""The cases of `same_bits`: recipes of five rounds on a small synthetic world.

Mostly the last round alone is validated, so that it is the selected one: an earlier one would hide what
came after it. Sixteen devices a chunk make several chunks a round, since their order may change a sum.
"""

from __future__ import annotations

DATA = """
seed = 3
[data]
name = "synthetic"
users = 60
items = 80
"""
CONSENT = "consent = { gender = 0.4, age = 0.5, region = 0.5 }\n"
FEATURES = "include_private_features = true\n"
PLAN = """
[plan]
rounds = 5
cohort = 0.6
epochs = 2
batch = 16
chunk = 16
evaluate_every = 5
lr = 0.1
"""
# One gradient of all events a round, and a server with a memory; chunks as large as the plan makes them.
GRADIENTS = """
[protocol]
sends = "gradients"
server = "adam"
server_lr = { default = 0.01, item = 0.02 }
server_halves = 3
[plan]
rounds = 5
cohort = 0.6
batch = 4096
optimiser = "adam"
evaluate_every = 5
lr = { default = 0.01, user = 0.05 }
"""
PLAIN_GRADIENTS = GRADIENTS.replace(", item = 0.02", "").replace(", user = 0.05", "")
LOOKING = PLAN.replace("evaluate_every = 5", "evaluate_every = 1")
LONG = PLAN.replace("epochs = 2", "epochs = 40")  # rounds long enough to be stopped between two of them
LONG_GRADIENTS = GRADIENTS.replace("batch = 4096", "batch = 8\nepochs = 40")
RECORD = "[record]\nlast = 2\n"  # all but item tables
ROWS = '[record]\nlast = 5\nparts = ["item"]\n'

FEDNCF = '[model]\nname = "FedNCF"\ndim = 8\nhead = [8]\n'
EXPOSED = FEDNCF + 'user = "exposed"\n'
NEUMF = '[model]\nname = "FedNCF"\nkind = "neumf"\ndim = 8\ntower_dim = 6\nhead = [8, 4]\n'
FEDMF = '[model]\nname = "FedMF"\ndim = 8\n'
FEDGCN = '[model]\nname = "FedGCN"\ndim = 8\nhead = [8]\n'
FEDLIGHTGCN = '[model]\nname = "FedLightGCN"\ndim = 8\nhead = [8]\nuser = "exposed"\n'
FEDVAE = '[model]\nname = "FedVAE"\nhidden = 16\ndim = 8\nanneal = 50\n'
FEDRAP = '[model]\nname = "FedRAP"\ndim = 8\n'
PFEDREC = '[model]\nname = "PFedRec"\ndim = 8\n'


def defence(name: str, *options: str) -> str:
    """A defence of a recipe."""
    return "\n".join(["[[defence]]", f'name = "{name}"', *options, ""])


APM = defence("APM", "low = 30", "high = 60", 'rows = "all"')
LAPLACE = defence("Laplace", "clip = 0.3", "scale = 0.01")
PARD = defence("PARD", 'attributes = ["gender", "age"]', "head = [8]")
UC = defence("UCFedRec", "hidden = [8]")
FEDAU2 = defence("FedAU2", "strength = 0.1", "hidden = 8", 'attributes = ["gender"]', 'head = "dsvae"')
POSTHOC = defence("GaussianPosthoc", "parts = { user = 0.5, item = 0.1 }")

THREAT = """
[threat]
attributes = ["gender"]
known = 0.3
also = ["apm@0.3"]
resamples = 100
permutations = 99
along = "apm@0.3"
[[attack]]
name = "AttributeInference"
reads = "updates"
classifiers = ["logistic", "knn"]
"""
GRADIENTS_THREAT = """
[threat]
attributes = ["gender"]
known = 0.3
by_part = false
membership = false
resamples = 100
permutations = 99
[[attack]]
name = "iDLG"
"""

CASES: dict[str, str] = {
    "fedncf": DATA + FEDNCF + PLAN,
    "fedncf-recorded": DATA + EXPOSED + PLAN + ROWS,
    "fedncf-neumf": DATA + NEUMF + PLAN + RECORD + "[evaluation]\ncandidates = 30\n",
    "fedncf-personal": DATA + FEDNCF + "personal = true\n" + PLAN,
    "fedncf-apm": DATA + EXPOSED + PLAN + RECORD + APM,
    "fedncf-apm-epoch": DATA + EXPOSED + PLAN + APM + 'every = "epoch"\n',
    "fedncf-laplace": DATA + EXPOSED + PLAN + ROWS + LAPLACE,
    "fedncf-gaussian": DATA + EXPOSED + PLAN + defence("Gaussian", "epsilon = 1.0", 'clip_by = "norm"'),
    "fedncf-pard": DATA + CONSENT + EXPOSED + PLAN + RECORD + PARD,
    "fedncf-uc-fedrec": DATA + CONSENT + EXPOSED + PLAN + RECORD + UC,
    "fedncf-fedau2": DATA + NEUMF + GRADIENTS + RECORD + FEDAU2,
    "fedncf-fedau2-labels": DATA + FEDNCF + GRADIENTS + FEDAU2 + "label_epsilon = 1.0\n",
    "fedncf-f-dpmf": DATA + FEDNCF + PLAN + RECORD + defence("FDPMF", "clients = 60"),
    "fedncf-early-stop": DATA + FEDNCF + LOOKING + defence("EarlyStop", "rounds = 4", "target = 0.9"),
    "fedncf-chain": DATA + CONSENT + EXPOSED + PLAN + RECORD + UC + LAPLACE,
    "fedgcn-f-gerai": DATA + FEATURES + FEDGCN + PLAN + RECORD + defence("FGERAI"),
    "fedgcn-apm": DATA + FEATURES + FEDGCN + PLAN + ROWS + APM,
    "fedlightgcn-pard": DATA + CONSENT + FEDLIGHTGCN + PLAN + RECORD + PARD,
    "fedvae": DATA + FEDVAE + PLAIN_GRADIENTS + RECORD,
    "fedvae-fedau2": DATA + FEDVAE + PLAIN_GRADIENTS + RECORD + FEDAU2,
    "fedrap-fedau2": DATA + FEDRAP + PLAIN_GRADIENTS + RECORD + FEDAU2,
    "pfedrec": DATA + PFEDREC + PLAN + ROWS,
    "fedmf-exposed": DATA + FEDMF + 'user = "exposed"\n' + PLAN + RECORD,
    "popularity": DATA + '[model]\nname = "Popularity"\n' + PLAN,
    "gradients-adam": DATA + FEDMF + GRADIENTS,
    "gradients-recorded": DATA + FEDMF + GRADIENTS + ROWS,
    "silos": DATA + "silos = 7\n" + FEDNCF + PLAN + ROWS,
    "float64": DATA + FEDNCF + PLAN + 'precision = "float64"\n' + RECORD,
    "disk": DATA + FEDRAP + PLAN + 'keeps = "disk"\n',
    "probe": DATA + EXPOSED + PLAN + RECORD + THREAT,
    "probe-adversary": DATA + NEUMF + GRADIENTS + RECORD + FEDAU2 + GRADIENTS_THREAT,
    "gaussian-posthoc": DATA + EXPOSED + PLAN + POSTHOC,
    "resume": DATA + FEDNCF + LONG_GRADIENTS + RECORD + FEDAU2,
    "resume-posts": DATA + CONSENT + EXPOSED + LONG + RECORD + PARD,
    "resume-tables": DATA + FEDRAP + LONG + 'optimiser = "adam"\n',
}
# The old tree runs through these, the new one is stopped and resumed.
RESUMED = frozenset(name for name in CASES if name.startswith("resume"))

# A case as the new tree spells it, where that is not as above: its whole recipe. It is tried first there, and
# where it is refused (exit code 2) the one above is, so that a line may be here before that tree can read it.
RENAMED: dict[str, str] = {
    # What changes a finished model is an eraser there, no defence.
    "gaussian-posthoc": CASES["gaussian-posthoc"].replace("[[defence]]", "[[eraser]]"),
}
