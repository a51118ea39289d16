#!/usr/bin/env python3
"""How long a mesh of 64 ranks on four nodes takes to be there, and how long a run takes to its first step,
beside Open MPI. Nodes are network namespaces of this machine.

  set_up.py [--turns N] [--nodes N] [--ranks-per-node N] [--mesh DIMS] [--network NAME] [--json FILE]

Set-up: of Muster, from the command to a warm cluster until all groups of the mesh are there on all nodes,
engines started and connected. Of MPI, MPI_Comm_split for the same groups, whose ranks run already.
First step: from the start of `muster run --hosts`, or of `mpirun`, to the first word of rank 0 after an
all-reduce of the world.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

SOURCES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent.parent / "deploy"))

import cluster_of_namespaces
from cluster_of_namespaces import Failed, inside, run
from nodes import contenders

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
BIN = BENCH.parent / "bin"
PEERS = BENCH / "peers"
MESH = "pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2"  # which openmpi_set_up has too
LIMIT_S = 120


def say(line=""):
    print(line, flush=True)


def until_first_step(words, environment):
    """Seconds until a line of its output says "first step", or has what MPI measured; and that line."""
    begin = time.monotonic()
    with subprocess.Popen([str(word) for word in words], env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        watchdog = signal.signal(signal.SIGALRM, lambda *_: process.kill())
        signal.alarm(LIMIT_S)
        found = None
        for line in process.stdout:
            if found is None and ("first step" in line or "split_ms" in line):
                found = time.monotonic() - begin, line
        signal.alarm(0)
        signal.signal(signal.SIGALRM, watchdog)
        err = process.stderr.read()
    if process.returncode != 0 or found is None:
        raise Failed(f"{words[0]} ended with status {process.returncode}: {err.strip()[-500:]}")
    return found


class SetUp:
    def __init__(self, options, nodes, folder):
        self.options, self.nodes, self.folder = options, nodes, folder
        self.run = contenders.Run(folder, nodes)
        self.ranks = options.nodes * options.ranks_per_node

    def muster(self):
        """(set-ups in ms, first steps in s)."""
        steps = []
        first, per_node = self.nodes.names[0], self.options.ranks_per_node
        with cluster_of_namespaces.Cluster(self.run.new_folder(), BIN, self.nodes.names, self.options.network,
                                           1, f"dp_shard={self.options.nodes}") as cluster:
            cluster.await_job()
            shares = [word for name in self.nodes.names for word in (name, str(per_node))]
            words = [PEERS / "set_up_job", cluster.socket(first), self.options.mesh, self.options.turns,
                     *shares]
            setups = json.loads(run(*inside(first, *words)))
            launcher = (f"ip netns exec {{host}} env MUSTER_ENDPOINT={cluster.folder}/{{host}} "
                        "sh -c {command}")
            hosts = ",".join(f"{name}:{per_node}" for name in self.nodes.names)
            for turn in range(self.options.turns):
                words = inside(first, BIN / "muster", "run", "--endpoint", cluster.socket(first),
                               "--hosts", hosts, "--launcher", launcher, "--job", f"run-{turn}",
                               "--mesh", self.options.mesh, "--no-prefix", "--", PEERS / "first_step")
                steps.append(until_first_step(words, dict(os.environ))[0])
        return setups, steps

    def openmpi(self):
        mpi = contenders.OpenMpi("tcp", PEERS)
        if mpi.launcher is None or not (PEERS / "openmpi_set_up").exists():
            return None
        setups, steps = [], []
        for _ in range(self.options.turns):
            hosts = ",".join(f"{self.run.address(name)}:{self.options.ranks_per_node}"
                             for name in self.nodes.names)
            words = [mpi.launcher, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                     "--host", hosts, "-n", self.ranks, "--leave-session-attached",
                     "--mca", "plm_rsh_agent", self.run.agent,
                     "--mca", "plm_rsh_no_tree_spawn", "1",
                     "--mca", "oob_tcp_if_include", contenders.INTERFACE,
                     "--mca", "btl_tcp_if_include", contenders.INTERFACE,
                     "--mca", "mpi_yield_when_idle", int(self.ranks > self.run.cores),
                     "--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", PEERS / "openmpi_set_up"]
            total, line = until_first_step(inside(self.nodes.names[0], *words),
                                           {**os.environ, "TMPDIR": str(self.folder)})
            said = json.loads(line)
            setups += said["split_ms"]
            # Splitting comes after the first step, and before its word.
            steps.append(total - sum(said["split_ms"]) / 1e3)
            self.nodes.kill()
        return setups, steps


def report(options, mine, peer):
    rows = []
    say(f"{options.nodes} nodes of {options.ranks_per_node} ranks, {options.mesh}, Muster by "
        f"{options.network}; medians")
    say(f"{'':<34}{'muster':>10}{'Open MPI':>10}{'MPI/muster':>12}")
    for place, (name, unit) in enumerate((("set-up of all groups", "ms"), ("launch to first step", "s"))):
        ours = statistics.median(mine[place])
        theirs = statistics.median(peer[place]) if peer else None
        ratio = theirs / ours if theirs else None
        text = [f"{value:.2f}" if value else "-" for value in (ours, theirs, ratio)]
        say(f"{name + ', ' + unit:<34}{text[0]:>10}{text[1]:>10}{text[2]:>12}")
        rows.append({"what": name, "unit": unit, "muster": mine[place],
                     "openmpi": peer[place] if peer else [], "ratio": ratio})
    return rows


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=4, choices=range(2, 10), metavar="N")
    parser.add_argument("--ranks-per-node", type=int, default=16, metavar="N")
    parser.add_argument("--mesh", default=MESH)
    parser.add_argument("--network", choices=("ucx", "ofi"), default="ucx")
    parser.add_argument("--json", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--plots", help="accepted beside other benchmarks; nothing is drawn")
    return parser.parse_args()


def main():
    options = parsed()
    why = cluster_of_namespaces.why_not()
    rows, left_out = [], []
    if why:
        left_out.append(f"all: this machine makes no nodes: {why}")
    else:
        cluster_of_namespaces.enter_namespaces()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("set_up: told to end"))
        nodes = cluster_of_namespaces.Nodes(options.nodes)
        folder = pathlib.Path(tempfile.mkdtemp())
        try:
            bench = SetUp(options, nodes, folder)
            mine, peer = bench.muster(), bench.openmpi()
            if peer is None:
                left_out.append("Open MPI is not there: install openmpi-bin and libopenmpi-dev, and build "
                                "again")
            rows = report(options, mine, peer)
        except Failed as failure:
            sys.exit(f"set_up: {failure}")
        finally:
            nodes.remove()
            shutil.rmtree(folder, ignore_errors=True)
    for what in left_out:
        say(f"left out: {what}")
    if options.json:
        text = json.dumps({"schema_version": 1, "rows": rows, "left_out": left_out}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
