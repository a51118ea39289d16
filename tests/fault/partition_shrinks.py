#!/usr/bin/env python3
"""Parts a cluster of network namespaces, and has the ranks of both sides shrink their group.

  partition_shrinks.py [--bin FOLDER] [--rank PROGRAM] [--network NAME]

Four nodes of one rank each. Parted in halves, the side of the tie-breaker goes on. Parted 3 + 1, three go on.
The others hear MUSTER_ERR_MINORITY, with the silent nodes. Healed, they reach those who have gone on, and
then all work together again. Ends with 1 if something was otherwise, with 77 if no network namespaces can be
made.
"""

import argparse
import pathlib
import queue
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the tree stays as it was

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy"))

from cluster_of_namespaces import Cluster, Failed, Nodes, enter_namespaces, inside, why_not
from node_faults import NodeFaults

COUNT = 4
TIE_BREAKER = "node03"
MESH = f"dp_replicate={COUNT}"
PATIENCE_S = 60
CALL_MS = 20_000  # of a rank's operations, and of muster_group_shrink
AGAIN, PAUSE_S = 80, 0.25  # a call is made again so often while nodes come back
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # the command behind it ends with this program
OK, PEER_LOST, MINORITY = "MUSTER_OK", "MUSTER_ERR_PEER_LOST", "MUSTER_ERR_MINORITY"


class Rank:
    """tests/system/scripted_rank.cpp on its node: a step goes in, a line comes out."""

    def __init__(self, cluster, program, number):
        self.number, self.node = number, cluster.names[number]
        words = [program, cluster.socket(self.node), "train", number, COUNT, MESH, CALL_MS, "listen"]
        self.process = subprocess.Popen(WITH_PARENT + inside(self.node, *words), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def line(self):
        try:
            return self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise Failed(f"rank {self.number} says nothing for {PATIENCE_S} s") from None

    def tell(self, step):
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Course:
    """The ranks, and what they should have said."""

    def __init__(self, cluster, faults, program):
        self.cluster, self.faults = cluster, faults
        self.ranks = [Rank(cluster, program, number) for number in range(COUNT)]
        for rank in self.ranks:
            if rank.line() != "attached":
                raise Failed(f"rank {rank.number} does not attach")

    def step(self, step, status, *words, ranks=None):
        """The same step for those ranks; each must end it with that status, and say those words."""
        ranks = self.ranks if ranks is None else ranks
        for rank in ranks:
            rank.tell(step)
        values = []
        for rank, line in [(rank, rank.line()) for rank in ranks]:
            said = line.split(" ", 3)
            if said[1] != status or not all(word in line for word in words):
                raise Failed(f"rank {rank.number}, {step}: {line}; expected {status} {', '.join(words)}")
            values.append(int(said[2]))
        return values

    def go_on(self, ranks):
        members = self.step("shrink", OK, ranks=ranks)
        if members != [len(ranks)] * len(ranks):
            raise Failed(f"the survivors' group has {members} members, not {len(ranks)}")
        self.step("run:@", OK, ranks=ranks)
        self.step("start:@", OK, ranks=ranks)

    def part(self, away, winners):
        """`away`: the nodes of one side; `winners`: those that go on."""
        self.faults.part([], away)
        self.step("run:@", PEER_LOST)
        win = [rank for rank in self.ranks if rank.node in winners]
        lose = [rank for rank in self.ranks if rank.node not in winners]
        self.step("shrink", MINORITY, "silent", *winners, f"{len(lose)} of the group's {COUNT} members",
                  ranks=lose)
        self.go_on(win)
        print(f"parted from {', '.join(away)}: {', '.join(winners)} went on", flush=True)
        self.faults.heal()
        self.await_reached(lose[0])
        self.step("whole", OK)
        self.step("run:@", OK)

    def await_reached(self, rank):
        """Once it reaches those who have gone on, it hears so, or waits for them in vain."""
        for _ in range(AGAIN):
            rank.tell("hurry")
            line = rank.line()
            if "silent" not in line and "not connected" not in line:
                if "went on without this node" in line or "did not call" in line:
                    return
                raise Failed(f"rank {rank.number}, hurry: {line}")
            time.sleep(PAUSE_S)
        raise Failed(f"rank {rank.number}, after {AGAIN} calls: {line}")

    def run(self):
        names = self.cluster.names
        self.step("run:@", OK)
        self.part(names[:2], names[2:])
        self.part(names[3:], names[:3])

    def end(self):
        for rank in self.ranks:
            rank.kill()


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    build = ROOT / "build" / "release"
    parser.add_argument("--bin", type=pathlib.Path, default=build / "bin")
    parser.add_argument("--rank", type=pathlib.Path, default=build / "tests" / "scripted_rank")
    parser.add_argument("--network", default="ucx")
    return parser.parse_args()


def main():
    options = parse()
    why = why_not()
    if why:
        print(f"skipped: network namespaces cannot be made: {why}")
        sys.exit(77)
    enter_namespaces()
    nodes = Nodes(COUNT)
    course = None
    try:
        with tempfile.TemporaryDirectory() as folder, \
             Cluster(folder, options.bin.resolve(), nodes.names, options.network, 1, MESH,
                     more_of_cluster=f", tie_breaker: {TIE_BREAKER}") as cluster:
            try:
                cluster.await_job()
                course = Course(cluster, NodeFaults(nodes, folder), options.rank.resolve())
                course.run()
            except Failed as failure:
                print(f"{failure}\n{cluster.logs()}")
                sys.exit(1)
            finally:
                if course:
                    course.end()
    finally:
        nodes.remove()


if __name__ == "__main__":
    main()
