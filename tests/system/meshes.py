#!/usr/bin/env python3
"""Makes meshes over four nodes, each a network namespace with a daemon of its own, and lets every group of
each reduce: `meshes.py --bin FOLDER --rank PROGRAM [--count N] [--network NAME]`.

Prints a line for each mesh. Ends with 1 if a sum was wrong or a group was missing, and with 77 where no
namespaces can be made.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))

from cluster_of_namespaces import Cluster, Failed, Nodes, enter_namespaces, why_not

NODES = 4
SKIPPED = 77
PATIENCE_S = 120  # of the ranks of one mesh
# (mesh, ranks, groups of each rank, groups of all together, each rank set once, and their names). The meshes
# are those of the eager creation of groups by FSDP, HSDP, context, tensor and pipeline parallelism.
MESHES = [
    ("dp_replicate=2,dp_shard=2,tp=2", 8, 6, 17, "dp_replicate dp_shard tp dp weight world"),
    ("dp_shard=8", 8, 1, 1, "dp_shard world"),
    ("dp_replicate=2,dp_shard=4", 8, 3, 7, "dp_replicate dp_shard dp world"),
    ("dp_shard=4,tp=2", 8, 3, 7, "dp_shard tp weight world"),
    ("pp=2,dp_shard=2,tp=2", 8, 5, 15, "pp dp_shard tp weight world"),
    ("dp_shard=2,cp=2,tp=2", 8, 5, 15, "dp_shard cp tp dp_shard_cp world"),
    ("pp=2,tp=4", 8, 3, 7, "pp tp world"),
    ("pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2", 64, 11, 171,
     "pp dp_replicate dp_shard cp tp dp dp_shard_cp dp_cp weight non_pp world"),
]


def sets_in(output):
    """The rank sets of the groups that one rank has found right."""
    return {frozenset(map(int, line.split()[1:])) for line in output.splitlines() if line}


def judge(mesh, ranks, outputs):
    """Why that is not what the mesh should have, or None."""
    dims, _, of_each, of_all, _ = mesh
    every = set()
    for rank, output in enumerate(outputs):
        own = sets_in(output)
        if len(own) != of_each or not all(rank in group for group in own):
            return f"{dims}: rank {rank} has {len(own)} groups, and {of_each} are right"
        every |= own
    if len(every) != of_all or len(outputs) != ranks:
        return f"{dims}: {len(every)} groups of {len(outputs)} ranks, and {of_all} of {ranks} are right"
    return None


def run_ranks(cluster, words):
    ranks = [subprocess.Popen(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for command, environment in cluster.ranks(words)]
    end = time.monotonic() + PATIENCE_S
    outputs = []
    try:
        for number, rank in enumerate(ranks):
            out, err = rank.communicate(timeout=max(1, end - time.monotonic()))
            if rank.returncode != 0:
                raise Failed(f"rank {number} ended with status {rank.returncode}: {err.strip()[-600:]}\n"
                             f"{cluster.logs()}")
            outputs.append(out)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"rank {len(outputs)} is not done after {PATIENCE_S} s\n{cluster.logs()}") from late
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    return outputs


def try_mesh(options, nodes, mesh):
    dims, ranks, _, of_all, names = mesh
    with tempfile.TemporaryDirectory() as folder:
        with Cluster(folder, options.bin, nodes.names, options.network, ranks // NODES, dims) as cluster:
            begin = time.monotonic()
            cluster.await_job()
            ready = time.monotonic() - begin
            outputs = run_ranks(cluster, [options.rank, *names.split()])
            done = time.monotonic() - begin
    wrong = judge(mesh, ranks, outputs)
    if wrong:
        raise Failed(wrong)
    print(f"{dims}: {ranks} ranks on {NODES} nodes by {options.network}, {of_all} groups right; ready after "
          f"{ready:.1f} s, all after {done:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--rank", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--count", type=int, default=len(MESHES), help="so many of the meshes")
    parser.add_argument("--network", choices=("ucx", "ofi"), default="ucx")
    options = parser.parse_args()
    why = why_not()
    if why:
        print(f"no nodes can be made here: {why}")
        return SKIPPED
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("meshes: told to end"))
    nodes = Nodes(NODES)
    try:
        for mesh in MESHES[:options.count]:
            try_mesh(options, nodes, mesh)
    except Failed as failure:
        print(failure)
        return 1
    finally:
        nodes.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
