"""Runs Muster and torch on one mesh: commands, environments, and the JSON that each prints last."""

import concurrent.futures
import json
import math
import os
import re
import signal
import socket
import subprocess

from resident import Peak

LIMIT_SECONDS = 1800
# Memory of buffers grows in small steps, not by what there is already: so it shows what buffers need.
SMALL_SEGMENTS = {"MUSTER_SET_limits__arena_segment": "2MiB"}
ONE_WORKER = {"MUSTER_SET_node__workers": "1"}
FIRST_STEPS = 10  # left out of the steady rate: plans, buffers and compilations are made in them


class Failed(Exception):
    """A run that did not end well, in one sentence."""


def ranks_of(mesh):
    return math.prod(int(part.partition("=")[2]) for part in mesh.split(","))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def end(process):
    """A launcher that is told to end ends its ranks. What is left of its group is killed."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def run(words, environment=None, watched=False):
    """Returns the JSON of the last line that has some, standard error, and the memory if it is watched."""
    words = [str(word) for word in words]
    process = subprocess.Popen(words, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        if watched:
            with Peak(process.pid) as peak:
                out, err = process.communicate(timeout=LIMIT_SECONDS)
        else:
            peak = None
            out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        end(process)
        raise Failed(f"{' '.join(words)} took longer than {LIMIT_SECONDS} s") from None
    except BaseException:
        end(process)
        raise
    lines = [line for line in out.splitlines() if "{" in line and line.endswith("}")]
    if process.returncode != 0 or not lines:
        raise Failed(f"{' '.join(words)} ended with status {process.returncode}: {err[-1500:]}")
    return json.loads(lines[-1][lines[-1].index("{"):]), err, peak  # muster run puts the rank before it


def with_memory(row, peak):
    if peak is not None:
        row["resident_bytes"] = peak.resident_bytes
        row["sum_of_peaks_bytes"] = peak.sum_of_peaks_bytes
    return row


class Muster:
    def __init__(self, bin_folder, rank_program):
        self.bin = bin_folder
        self.rank_program = rank_program

    def missing(self):
        programs = (self.bin / "muster", self.bin / "train_lm", self.rank_program)
        return next((program for program in programs if not program.exists()), None)

    def launched(self, mesh):
        words = [self.bin / "muster", "run", "--private", "-n", ranks_of(mesh) if mesh else 1]
        return words + (["--mesh", mesh] if mesh else []) + ["--"]

    def train(self, mesh, model, watched=False, environment=None):
        words = self.launched(mesh) + [self.bin / "train_lm", "--json", "--generate", "0", *words_of(model)]
        row, err, peak = run(words, environment, watched)
        row["tokens_per_second_of_all"] = row["tokens_per_second"]
        row["tokens_per_second"] = self.steady_rate(row, err, model)
        return with_memory(row, peak)

    def train_apart(self, mesh, model):
        """What the ranks would reach if communication took no time: as many single ranks at once, each with
        its share of the batch and one worker. None where the batch does not divide."""
        ranks = ranks_of(mesh)
        if model["batch"] % ranks != 0:
            return None
        share = {**model, "batch": model["batch"] // ranks}
        with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
            rows = list(pool.map(lambda _: self.train(None, share, environment=ONE_WORKER), range(ranks)))
        return {"tokens_per_second": sum(row["tokens_per_second"] for row in rows)}

    @staticmethod
    def steady_rate(row, err, model):
        """train_lm says after ten steps how fast it was until then. What is left is the rest."""
        steps, tokens = model["steps"], model["batch"] * model["context"]
        first = re.search(rf"step {FIRST_STEPS}/\d+ .*? (\d+) tokens/s", err)
        if steps <= FIRST_STEPS or not first:
            return row["tokens_per_second"]
        seconds = steps * tokens / row["tokens_per_second"] - FIRST_STEPS * tokens / float(first[1])
        return (steps - FIRST_STEPS) * tokens / seconds

    def measure(self, mesh, *words):
        return run(self.launched(mesh) + [self.rank_program, *words])[0]


class Torch:
    """`absent` says why there is none, or is None."""

    def __init__(self, python, programs, cache):
        self.python = python
        self.programs = programs
        self.environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                            "TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self.version = None
        self.absent = None
        try:
            asked = subprocess.run([str(python), "-c", "import numpy, torch; print(torch.__version__)"],
                                   cwd="/", capture_output=True, text=True, check=True)
            self.version = asked.stdout.strip()
        except subprocess.CalledProcessError as error:
            why = (error.stderr.strip() or "it ended without a word").splitlines()[-1]
            self.absent = f"no torch by {python}: {why}"
        except OSError as error:
            self.absent = f"no torch by {python}: {error.strerror}"

    def launched(self, mesh, program, words, watched=False):
        launcher = [self.python, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node",
                    ranks_of(mesh), "--master-addr", "127.0.0.1", "--master-port", free_port()]
        row, _, peak = run([*launcher, self.programs / program, *words], self.environment, watched)
        return with_memory(row, peak)

    def train(self, mesh, model, compiled=False, watched=False):
        words = ["--mesh", mesh, *words_of(model), *(["--compile"] if compiled else [])]
        return self.launched(mesh, "train.py", words, watched)


def words_of(model):
    return [word for name, value in model.items() for word in (f"--{name}", str(value))]
