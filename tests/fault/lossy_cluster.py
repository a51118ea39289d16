#!/usr/bin/env python3
"""Two jobs work while every node loses some of what comes to it. Nobody may call that a death.

  lossy_cluster.py [--seconds N] [--per-million N] [--seed N] [--network NAME] [--bin FOLDER] [--rank PROGRAM]

Three nodes of one rank each. The losses are at random, at the ingress of every node, so each way between two
nodes loses both what is sent and what confirms it. Every result is checked. Afterwards:

  - no operation has failed, no session has ended, and all operations have gone on
  - each job has the epoch that it had, and each engine is the same process
  - no node has been lost to another, and no daemon has written a warning

Prints how often a node was suspected, which is no alarm, and the longest operation. Ends with 1 if something
was otherwise, with 77 if no network namespaces can be made or no packets can be lost.
"""

import json
import pathlib
import re
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy"))

import fault_verdicts
from cluster_of_namespaces import Failed, Nodes, enter_namespaces, run, why_not
from fault_cluster import FaultCluster, parser_of
from node_faults import INTERFACE

COUNT = 3
MILLION = 1_000_000
NETWORKS = ("ofi", "ucx")
START_S = 60
DEADLINE_S = 60  # of an operation
FEW = 2000  # packets, of which the share that is lost says little
SHARE = 0.8, 1.2  # of the losses that were asked for
SKIPPED = 77
SHOWN = 20


def say(line):
    print(line, flush=True)


class Course:
    """The cluster, and what is not as it must be."""

    def __init__(self, options, cluster):
        self.options, self.cluster = options, cluster
        self.found = []
        self.longest_s = 0.0
        self.offsets = {}

    def note(self, text):
        if text not in self.found:
            self.found.append(text)

    # ---- what is there

    def status(self, name):
        return json.loads(self.cluster.muster("status", "--json", "--endpoint", self.cluster.socket(name)))

    def lives(self):
        """By node and job: its epoch and its engine."""
        return {(name, job): (facts["epoch"], facts["engine_pid"], facts["state"])
                for name in self.cluster.names for job, facts in self.cluster.jobs_on(name).items()}

    def log_of(self, name):
        return self.cluster.folder / f"{name}.log"

    def warnings(self, name):
        with open(self.log_of(name), "rb") as file:
            file.seek(self.offsets[name])
            lines = file.read().decode(errors="replace").splitlines()
        return [line for line in lines if not re.search(r"\b(debug|info)\b", line[:60], re.IGNORECASE)]

    @staticmethod
    def packets(name):
        """(received, lost) at the node's ingress. What the kernel has merged counts as one."""
        said = run("tc", "-s", "-n", name, "qdisc", "show", "dev", INTERFACE, "clsact")
        lost = re.search(r"\(dropped (\d+)", said)
        received = json.loads(run("ip", "-n", name, "-j", "-s", "link", "show", INTERFACE))
        return received[0]["stats64"]["rx"]["packets"], int(lost[1]) if lost else 0

    # ---- the course

    def __call__(self):
        if not self.cluster.await_well(START_S):
            raise Failed(f"the jobs do not work after {START_S} s:\n{self.cluster.logs()}")
        for rank in self.cluster.all_ranks:
            rank.forget()
        lives = self.lives()
        self.offsets = {name: self.log_of(name).stat().st_size for name in self.cluster.names}
        for name in self.cluster.names:
            self.cluster.faults.lose(name, self.options.per_million)
        before = sum(self.packets(name)[0] for name in self.cluster.names)
        begin = time.monotonic()
        self.work(begin + self.options.seconds)
        self.judge(lives, before, time.monotonic() - begin)
        self.cluster.faults.heal()
        return self.found

    def work(self, end):
        counts, moved = {}, {}
        while time.monotonic() < end:
            now = time.monotonic()
            self.cluster.until(lambda: False, 0.2)
            for rank in self.cluster.all_ranks:
                seen = rank.seen()
                for _, text in fault_verdicts.unmoved("f", seen):
                    self.note(f"{rank.job.name} rank {rank.number}: {text}")
                for record in seen.of("progress"):
                    at = fault_verdicts.seconds_of(record)
                    self.longest_s = max([self.longest_s] + [at - begun / 1e9
                                                             for begun in record["waiting"].values()])
                count = rank.completed("small")
                if count != counts.get(rank):
                    counts[rank], moved[rank] = count, now
                elif now - moved[rank] > DEADLINE_S:
                    self.note(f"{rank.job.name} rank {rank.number} stands still")
                rank.forget()
            if self.found:
                return

    def judge(self, lives, before, seconds):
        now = self.lives()
        for place in sorted(lives.keys() | now.keys()):
            if lives.get(place) != now.get(place):
                self.note(f"{' '.join(place)}: {lives.get(place)} has become {now.get(place)}")
        doubts = 0
        for name in self.cluster.names:
            for peer in self.status(name)["cluster"]["peers"]:
                doubts += peer["doubts"]
                if peer["state"] != "up" or peer["for_ns"] < seconds * 1e9:
                    self.note(f"{name} says of {peer['node']}: {peer['state']}, for "
                              f"{peer['for_ns'] / 1e9:.1f} s: {peer['why']}")
            for line in self.warnings(name):
                self.note(f"{name} has written: {line}")
        counts = [self.packets(name) for name in self.cluster.names]
        received, lost = (sum(each) for each in zip(*counts))
        received -= before
        share, wanted = lost / max(1, received), self.options.per_million / MILLION
        if received > FEW and not SHARE[0] * wanted <= share <= SHARE[1] * wanted:
            self.note(f"{share:.1%} of the packets were lost, not {wanted:.1%}")
        operations = sum(rank.completed("small") for rank in self.cluster.all_ranks)
        say(f"{seconds:.0f} s by {self.options.network}: {lost} of {received} packets lost, {share:.1%}; "
            f"{operations} small operations; the longest took {self.longest_s:.2f} s; "
            f"{doubts} suspicions; {len(self.found)} alarms")


def parse():
    parser = parser_of(__doc__, "enduring_rank")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--per-million", type=int, default=MILLION // 20)
    parser.add_argument("--network", choices=NETWORKS, default=NETWORKS[0], metavar="NAME")
    return parser.parse_args()


def main():
    options = parse()
    why = why_not()
    if why:
        say(f"skipped: network namespaces cannot be made: {why}")
        return SKIPPED
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("lossy-cluster: told to end"))
    nodes = Nodes(COUNT)
    try:
        with tempfile.TemporaryDirectory(prefix="muster-lossy-") as folder, \
             FaultCluster(pathlib.Path(folder), options.bin, options.rank, nodes, options.network, 1,
                          options.seed, deadline_s=DEADLINE_S) as cluster:
            why = cluster.faults.why_no_loss()
            if why:
                say(f"skipped: {why}")
                return SKIPPED
            found = Course(options, cluster)()
    except Failed as failure:
        found = [str(failure)]
    finally:
        nodes.remove()
    for line in found[:SHOWN]:
        say(f"ALARM {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
