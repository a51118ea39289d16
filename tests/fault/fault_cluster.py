"""A cluster of namespaces in which things fail: its daemons, and the ranks of two jobs.

Job `train` is on all nodes. Job `beside` is on all but the last.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

SOURCES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent.parent / "deploy"))

from cluster_of_namespaces import Cluster, Failed, inside
from fault_verdicts import Job, Seen
from node_faults import NodeFaults

BUILD = SOURCES.parent.parent / "build" / "release"
DEADLINE_S = 8.0  # of both jobs
LOOK_S = 0.02
STORE_ROOM = 256
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # the command behind it ends with this program
# The command behind its first word gets those descriptors from 3 on, as sd_listen_fds(3) has it.
WITH_DESCRIPTORS = """
import fcntl, os, sys
given = [int(number) for number in sys.argv[1].split(",") if number]
high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 1000) for number in given]
for place, number in enumerate(high):
    os.dup2(number, 3 + place)
os.closerange(3 + len(high), 1000)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


def absolute(text):
    return pathlib.Path(text).resolve()


def parser_of(purpose, rank):
    """The options that all programs here have. `rank`: what the ranks run, if nobody says another."""
    parser = argparse.ArgumentParser(description=purpose,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=4711)
    parser.add_argument("--bin", type=absolute, default=BUILD / "bin")
    parser.add_argument("--rank", type=absolute, default=BUILD / "tests" / rank)
    return parser


class Steward:
    """What systemd is to one daemon: it keeps descriptors, and hands them to the next one."""

    def __init__(self, path):
        self.path = path
        self.kept = []  # (name, descriptor)
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        threading.Thread(target=self._hear_all, daemon=True).start()

    def _hear_all(self):
        while True:
            text, descriptors, _, _ = socket.recv_fds(self._socket, 4096, 64)
            if text == b"":
                return
            words = dict(line.split("=", 1) for line in text.decode().splitlines() if "=" in line)
            name = words.get("FDNAME", "")
            with self._lock:
                if words.get("FDSTOREREMOVE") == "1":
                    self._drop(name)
                elif words.get("FDSTORE") == "1":
                    self.kept += [(name, descriptor) for descriptor in descriptors]

    def _drop(self, name):
        for known, descriptor in self.kept:
            if name in (None, known):
                os.close(descriptor)
        self.kept = [entry for entry in self.kept if name not in (None, entry[0])]

    def forget(self):
        """As a machine that was switched off."""
        with self._lock:
            self._drop(None)

    def close(self):
        self.forget()
        self._socket.sendto(b"", str(self.path))

    def start(self, name, words, log):
        """The daemon, on the node of this name."""
        with self._lock:
            kept = list(self.kept)
        descriptors = [descriptor for _, descriptor in kept]
        environment = {**os.environ, "NOTIFY_SOCKET": str(self.path), "FDSTORE": str(STORE_ROOM),
                       "LISTEN_FDS": str(len(kept)),
                       "LISTEN_FDNAMES": ":".join(known for known, _ in kept)}
        numbers = ",".join(map(str, descriptors))
        command = inside(name, sys.executable, "-c", WITH_DESCRIPTORS, numbers, *words)
        return subprocess.Popen(WITH_PARENT + command, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                stderr=log, pass_fds=descriptors)


class Rank:
    """A rank of a job: its processes, one after the other, and what they write."""

    def __init__(self, job, number, folder):
        self.job, self.number, self.node = job, number, job.node_of(number)
        self.log = folder / f"{job.name}-{number}.jsonl"
        self.errors = folder / f"{job.name}-{number}.err"
        self.log.touch()
        self.process = None
        self.records = []
        self.killed = False  # by us
        self.crash = ""
        self.well_at = None
        self._offset = 0
        self._latest = None
        self._base = None  # the first progress behind _base_from
        self._base_from = float("inf")

    def start(self, command, environment):
        self.killed = False
        with open(self.log, "a", encoding="utf-8") as out, open(self.errors, "a", encoding="utf-8") as errors:
            self.process = subprocess.Popen(WITH_PARENT + command, env=environment, stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=errors)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        self.killed = True
        self.process.kill()

    def note_crash(self):
        """How its process has ended, if neither we nor its session's end has ended it."""
        code = None if self.process is None else self.process.poll()
        if code not in (None, 3, 4) and not self.killed and not self.crash:
            self.crash = f"its process ended with {code}: {self.errors.read_text(encoding='utf-8')[-300:]}"

    def read(self):
        with open(self.log, "rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[:data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # cut off by a kill
            self.records.append(record)
            if record["what"] == "progress":
                self._progressed(record)

    def _progressed(self, record):
        self._latest = record
        if record["at"] / 1e9 < self._base_from:
            return
        if self._base is None or self._base["life"] != record["life"]:
            self._base, self.well_at = record, None
        elif self.well_at is None and all(count > self._base["counts"][op]
                                          for op, count in record["counts"].items()):
            self.well_at = record["at"] / 1e9

    def completed(self, op):
        return self._latest["counts"][op] if self._latest else 0

    def forget(self):
        """A new fault: only the latest progress counts as written."""
        self.records = [self._latest] if self._latest else []
        self.crash = ""
        self.well_at, self._base, self._base_from = None, None, float("inf")

    def forget_errors(self):
        self.records = [record for record in self.records if record["what"] != "error"]

    def await_all_from(self, at):
        """From then on it is well once each of its operations was completed."""
        self.well_at, self._base, self._base_from = None, None, at

    def seen(self):
        self.note_crash()
        return Seen(self.number, self.records, self.well_at if self.running() else None, self.crash)


class FaultCluster(Cluster):
    """Daemons, engines and ranks on nodes that fail."""

    def __init__(self, folder, programs, rank_program, nodes, network, per_node, seed, deadline_s=DEADLINE_S,
                 settings=None):
        """`settings`: keys and values of the daemons, beside those that every one has."""
        count = len(nodes.names)
        deadline = f"    lanes: {{deadline: {deadline_s:.0f}s}}\n"
        self.settings = settings or {}
        self.jobs = [Job("train", nodes.names, per_node), Job("beside", nodes.names[:-1], per_node)]
        beside = ("  - name: beside\n"
                  f"    ranks: {self.jobs[1].size()}\n"
                  "    mesh:\n"
                  f"      dims: {{dp_replicate: {count - 1}, tp: {per_node}}}\n")
        super().__init__(folder, programs, nodes.names, network, per_node,
                         f"dp_replicate={count},tp={per_node}", more_of_job=deadline,
                         other_jobs=[beside + deadline])
        self.rank_program, self.seed, self.network = rank_program, seed, network
        self.faults = NodeFaults(nodes, self.folder)
        self.stewards = {name: Steward(self.folder / f"{name}.notify") for name in self.names}
        self.all_ranks = [Rank(job, number, self.folder) for job in self.jobs for number in range(job.size())]

    def start(self, name):
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            return self.stewards[name].start(name, self.words(name), log)

    def __exit__(self, *_):
        with contextlib.suppress(Failed):
            self.faults.heal()
        for process in self.daemons + [rank.process for rank in self.all_ranks if rank.process]:
            process.kill()
            process.wait()
        for steward in self.stewards.values():
            steward.close()

    # Daemons

    def words(self, name):
        return super().words(name) + [word for key, value in self.settings.items()
                                      for word in ("--set", f"{key}={value}")]

    def daemon(self, name):
        return self.daemons[self.names.index(name)]

    def start_again(self, name):
        self.daemon(name).wait(10)
        self.daemons[self.names.index(name)] = self.start(name)

    def start_as_after_power_on(self, name):
        self.stewards[name].forget()
        self.start_again(name)

    def jobs_on(self, name):
        answer = json.loads(self.muster("jobs", "--json", "--endpoint", self.socket(name)))
        return {job["name"]: job for job in answer["jobs"]}

    def answers(self, name):
        try:
            return bool(self.jobs_on(name))
        except (Failed, ValueError):
            return False

    def power_off(self, name):
        """Everything on the node ends at once."""
        for rank in self.all_ranks:
            rank.killed = rank.killed or rank.node == name
        self.faults.kill_all(name)

    def engine_of(self, job, name):
        jobs = self.jobs_on(name)
        if job.name not in jobs:
            raise Failed(f"{name} has no job {job.name}")
        return jobs[job.name]["engine_pid"]

    # Ranks

    def ranks_of(self, job, numbers=None):
        return [rank for rank in self.all_ranks
                if rank.job is job and (numbers is None or rank.number in numbers)]

    def start_rank(self, rank):
        settings = {"MUSTER_ENDPOINT": str(self.socket(rank.node)), "MUSTER_JOB": rank.job.name,
                    "MUSTER_RANK": str(rank.number), "MUSTER_WORLD_SIZE": str(rank.job.size())}
        rank.start(inside(rank.node, self.rank_program, self.seed), {**os.environ, **settings})

    def revive(self):
        """As a launcher: every rank whose process has ended is started again."""
        for rank in self.all_ranks:
            if not rank.running():
                rank.note_crash()
                self.start_rank(rank)

    def read(self):
        for rank in self.all_ranks:
            rank.read()

    def until(self, condition, seconds, meanwhile=lambda: None):
        end = time.monotonic() + seconds
        while True:
            meanwhile()
            self.read()
            if condition():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_S)

    def await_well(self, seconds):
        """True once each operation of each rank was completed from now on. Starts ranks that have ended."""
        now = time.monotonic()
        for rank in self.all_ranks:
            rank.await_all_from(now)
        return self.until(lambda: all(rank.well_at is not None and rank.running() for rank in self.all_ranks),
                          seconds, self.revive)
