#!/usr/bin/env python3
"""Trains the small language model on several nodes, each a network namespace with a daemon of its own, and
holds the losses against those of one node.

  demo_cluster.py [--nodes N...] [--network NAME...] [--steps N] [--bin FOLDER]

Everything lies in namespaces of this run and a temporary folder, and goes with them. Without root it takes a
user namespace.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

from cluster_of_namespaces import NEEDS, Cluster, Failed, Nodes, enter_namespaces, run, why_not

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = 8
TOLERANCE = 1e-3  # of a loss: sums of several nodes have another order than those of one
MESHES = {1: "dp_replicate=2,dp_shard=2,tp=2", 2: "dp_replicate=2,dp_shard=2,tp=2",
          4: "dp_replicate=4,dp_shard=2", 8: "dp_replicate=8"}


def say(line):
    print(f"demo-cluster: {line}", flush=True)


def train(cluster, words):
    ranks = [subprocess.Popen(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for command, environment in cluster.ranks(words)]
    outputs = [rank.communicate() for rank in ranks]
    for number, (rank, (_, err)) in enumerate(zip(ranks, outputs)):
        if rank.returncode != 0:
            raise Failed(f"rank {number} ended with status {rank.returncode}: {err.strip()[-800:]}\n"
                         f"{cluster.logs()}")
    return report_in(outputs[0][0])


def report_in(output):
    line = [line for line in output.splitlines() if "{" in line][-1]
    return json.loads(line[line.index("{"):])


def train_words(programs, steps):
    return [str(programs / "train_lm"), "--steps", str(steps), "--seed", "7", "--generate", "0", "--json"]


def alone(programs, mesh, steps):
    return report_in(run(programs / "muster", "run", "--private", "-n", RANKS, "--mesh", mesh, "--",
                         *train_words(programs, steps)))


def demonstrate(options, count, network, reproducible):
    one = alone(options.bin, MESHES[count], options.steps)
    with tempfile.TemporaryDirectory() as folder:
        nodes = Nodes(count)
        try:
            with Cluster(folder, options.bin, nodes.names, network, RANKS // count, MESHES[count],
                         reproducible) as cluster:
                begin = time.monotonic()
                cluster.await_job()
                ready = time.monotonic() - begin
                several = train(cluster, train_words(options.bin, options.steps))
        finally:
            nodes.remove()
    differences = [abs(a - b) for a, b in zip(one["losses"], several["losses"], strict=True)]
    worst = max(differences)
    say(f"{count} nodes by {network}{', reproducible' if reproducible else ''}: {MESHES[count]}, ready after "
        f"{ready:.1f} s, {several['tokens_per_second']:.0f} tokens/s "
        f"(one node {one['tokens_per_second']:.0f}), last loss {several['final_loss']:.4f}, "
        f"at most {worst:.1e} from one node's in {len(differences)} steps")
    if worst > (0 if reproducible else TOLERANCE):
        raise Failed(f"{count} nodes by {network}: the losses are not those of one node")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", choices=sorted(MESHES)[1:], default=[2, 4])
    parser.add_argument("--network", nargs="+", choices=("ucx", "ofi"), default=["ucx", "ofi"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(),
                        default=ROOT / "build" / "release" / "bin")
    options = parser.parse_args()
    for program in ("muster", "musterd", "train_lm"):
        if not (options.bin / program).exists():
            sys.exit(f"demo-cluster: {options.bin / program} is not built; run make demo-cluster")
    if why := why_not():
        sys.exit(f"demo-cluster: this machine makes no nodes: {why}; {NEEDS}")
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("demo-cluster: told to end"))
    try:
        for count in options.nodes:
            for network in options.network:
                for reproducible in (False, True):
                    demonstrate(options, count, network, reproducible)
    except Failed as failure:
        sys.exit(f"demo-cluster: {failure}")


if __name__ == "__main__":
    main()
