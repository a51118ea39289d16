#!/usr/bin/env python3
"""Ranks that other launchers start on two nodes form one job: launched_ranks_test.py PROGRAMS RANK_PROGRAM

The nodes are network namespaces with a daemon each. One launcher is Open MPI's mpirun, if it is installed;
its launch agent enters the namespace of a node. Another is torchrun, if `deploy/setup.sh torch` has been run;
the cases that need no more than its variables set these alone. Ends with 77 if no namespaces can be made.
"""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy"))

from cluster_of_namespaces import Cluster, Failed, Nodes, enter_namespaces, inside, why_not

PATIENCE_S = 60
OPERATIONS = 40  # rounds that each rank completes before a test goes on
PER_NODE = 2
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]  # the command behind it ends with this program
TORCHRUN = ROOT / "build/torch/bin/torchrun"
AGENT = """#!/bin/sh
# mpirun calls it with a host, and a command line for a shell there.
node=$1; shift
exec ip netns exec "$node" unshare --ipc --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$node" \\
  "MUSTER_ENDPOINT={folder}/$node; export MUSTER_ENDPOINT; $*"
"""


class LaunchCluster(Cluster):
    """Its daemons soon end a job whose ranks have left."""

    def __init__(self, nodes, folder, programs, *more):
        super().__init__(folder, programs, nodes.names, *more)
        self.addresses = nodes.addresses

    def words(self, name):
        return super().words(name) + ["--set", "limits.made_job_linger=500ms"]

    def status(self, name):
        return json.loads(self.muster("status", "--json", "--endpoint", self.socket(name)))


def until(done, what):
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise Failed(f"not within {PATIENCE_S} s: {what() if callable(what) else what}")
        time.sleep(0.05)


def check(holds, what):
    if not holds:
        raise Failed(what)


class Ranks:
    """Steady ranks, each as torchrun starts it."""

    def __init__(self, cluster, program, folder):
        self.cluster, self.program, self.folder = cluster, program, folder
        self.stop = folder / "stop"
        self.running = {}
        self.variables = {}  # beside those of torchrun
        self.container = lambda rank: []  # the words that make one for the rank
        folder.mkdir()

    def name_of(self, rank):
        return self.cluster.names[rank // PER_NODE]

    def world(self):
        return PER_NODE * len(self.cluster.names)

    def start(self, rank):
        name = self.name_of(rank)
        variables = {"MUSTER_ENDPOINT": str(self.cluster.socket(name)), "RANK": str(rank),
                     "WORLD_SIZE": str(self.world()), "LOCAL_RANK": str(rank % PER_NODE),
                     "LOCAL_WORLD_SIZE": str(PER_NODE), "GROUP_RANK": str(rank // PER_NODE),
                     "GROUP_WORLD_SIZE": str(len(self.cluster.names)), "ROLE_RANK": str(rank),
                     "ROLE_WORLD_SIZE": str(self.world()), "ROLE_NAME": "default",
                     "MASTER_ADDR": "node01", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none",
                     "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0"}
        with open(self.folder / f"{rank}.out", "w", encoding="utf-8") as out:
            self.running[rank] = subprocess.Popen(
                WITH_PARENT + inside(name, *self.container(rank), self.program, f"{self.stop}-{rank}"),
                env={**os.environ, **variables, **self.variables},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def said(self, rank):
        return (self.folder / f"{rank}.out").read_text(encoding="utf-8")

    def leave(self):
        """All leave together once one has seen its file."""
        for rank in self.running:
            pathlib.Path(f"{self.stop}-{rank}").touch()

    def work(self, count):
        """Each of so many has completed some rounds, and was right."""
        def done():
            for rank, process in self.running.items():
                check(process.poll() is None, f"rank {rank} has ended: {self.said(rank)}")
            return len(working(self.stop)) == count
        until(done, self.cluster.logs)

    def end(self, rank):
        """The exit code."""
        return self.running.pop(rank).wait(PATIENCE_S)


def working(stop):
    return [path for path in glob.glob(f"{stop}*.progress")
            if int.from_bytes(pathlib.Path(path).read_bytes()[:8], sys.byteorder) >= OPERATIONS]


def job_at(cluster, name, prefix):
    return [job for job in cluster.status(name)["jobs"] if job["name"].startswith(prefix)]


def expect_gone(cluster, prefix):
    until(lambda: not any(job_at(cluster, name, prefix) for name in cluster.names),
          f"the job {prefix}… stays although its ranks have left")


def waits_for(cluster, name, words):
    return any(words in entry["why"] for entry in cluster.status(name)["cluster"]["waiting"])


def ranks_like_torchruns_form_one_job(cluster, program, folder):
    ranks = Ranks(cluster, program, folder / "torchrun")
    for rank in (3, 0, 2):
        ranks.start(rank)
    for name in cluster.names:
        until(lambda node=name: waits_for(cluster, node, "waits for ranks 1"), "status tells who is missing")
    ranks.running[2].kill()
    ranks.end(2)
    until(lambda: waits_for(cluster, "node01", "waits for ranks 1 2"), "a rank that died is missing again")
    ranks.start(2)
    ranks.start(1)
    ranks.work(ranks.world())
    for name in cluster.names:
        job = job_at(cluster, name, "torchrun-none.29500")[0]
        check(job["nodes"] == cluster.names and job["world"] == ranks.world(), f"on {name} it is {job}")
    ranks.leave()
    for rank in range(ranks.world()):
        check(ranks.end(rank) == 0 and "operations" in ranks.said(rank), f"rank {rank}: {ranks.said(rank)}")
    expect_gone(cluster, "torchrun-")


def a_launcher_restarts_with_other_numbers(cluster, program, folder):
    """As torchrun does: with fewer ranks, on fewer nodes, and with all again. The former job goes at once."""
    for restart, world in enumerate((4, 3, 2, 4)):
        ranks = Ranks(cluster, program, folder / f"restart{restart}")
        for rank in range(world):
            here = min(PER_NODE, world - rank // PER_NODE * PER_NODE)
            ranks.variables = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(here),
                               "TORCHELASTIC_RESTART_COUNT": str(restart)}
            ranks.start(rank)
        ranks.work(world)
        job = job_at(cluster, "node01", "torchrun-none.29500")[0]
        check(job["world"] == world, f"after {restart} restarts it is {job}")
        ranks.leave()
        for rank in range(world):
            check(ranks.end(rank) == 0, f"rank {rank} of {world}: {ranks.said(rank)}")
    expect_gone(cluster, "torchrun-")


def a_killed_rank_is_heard_of(cluster, program, folder):
    ranks = Ranks(cluster, program, folder / "killed")
    for rank in range(ranks.world()):
        ranks.start(rank)
    ranks.work(ranks.world())
    ranks.running[1].send_signal(signal.SIGKILL)
    ranks.end(1)
    for rank in (0, 2, 3):
        check(ranks.end(rank) == 1, f"rank {rank}: {ranks.said(rank)}")
        check("rank 1" in ranks.said(rank), f"rank {rank} hears no name: {ranks.said(rank)}")
    expect_gone(cluster, "torchrun-")


def containers_form_one_job_by_key(cluster, program, folder):
    """Two on each node, of two kinds; no daemon has, says or logs the key."""
    key = "5e" * 16
    own_namespaces = (["--pid", "--mount-proc"], ["--pid", "--mount-proc", "--user", "--map-root-user"])
    ranks = Ranks(cluster, program, folder / "keyed")
    ranks.container = lambda rank: ["unshare", "--fork", "--kill-child", *own_namespaces[rank % PER_NODE]]
    for rank in range(ranks.world()):
        ranks.start(rank)
    for rank in range(ranks.world()):
        check(ranks.end(rank) == 1 and "MUSTER_JOB_KEY" in ranks.said(rank),
              f"without a key rank {rank} hears of it: {ranks.said(rank)}")
    ranks.variables = {"MUSTER_JOB_KEY": key}
    for rank in range(ranks.world()):
        ranks.start(rank)
    ranks.work(ranks.world())
    for name in cluster.names:
        status = cluster.status(name)
        job = job_at(cluster, name, "torchrun-none.29500@key.")[0]
        check(job["nodes"] == cluster.names and job["attached"] == PER_NODE, f"on {name} it is {job}")
        check(key not in json.dumps(status), f"{name} says the key")
    ranks.leave()
    for rank in range(ranks.world()):
        check(ranks.end(rank) == 0 and "operations" in ranks.said(rank), f"rank {rank}: {ranks.said(rank)}")
    expect_gone(cluster, "torchrun-")
    check(key not in cluster.logs(), "a log has the key")


def torchrun_forms_one_job(cluster, program, folder):
    """Its agent on each node makes the ranks of that node."""
    stop = folder / "agents"
    said = [folder / f"agent.{name}.out" for name in cluster.names]
    agents = []
    for node, name in enumerate(cluster.names):
        words = inside(name, TORCHRUN, "--nnodes", len(cluster.names), "--nproc-per-node", PER_NODE,
                       "--node-rank", node, "--master-addr", cluster.addresses[0], "--master-port", 29600,
                       "--no-python", program, stop)
        with open(said[node], "w", encoding="utf-8") as out:
            agents.append(subprocess.Popen(
                WITH_PARENT + words, env={**os.environ, "MUSTER_ENDPOINT": str(cluster.socket(name))},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def all_said():
        return "".join(path.read_text(encoding="utf-8") for path in said)
    until(lambda: any(agent.poll() is not None for agent in agents)
          or len(working(stop)) == PER_NODE * len(agents), lambda: all_said() + cluster.logs())
    check(all(agent.poll() is None for agent in agents), all_said())
    for node, name in enumerate(cluster.names):
        job = job_at(cluster, name, "torchrun-none.29600")[0]
        check(job["local"] == [PER_NODE * node, PER_NODE * node + 1], f"on {name} it is {job}")
    stop.touch()
    check([agent.wait(PATIENCE_S) for agent in agents] == [0] * len(agents), all_said())
    check(all_said().count("operations") == PER_NODE * len(agents), f"not all ranks were right: {all_said()}")
    expect_gone(cluster, "torchrun-")


def mpirun_forms_one_job(cluster, program, folder):
    """Ranks by nodes, and then in turn: rank 0 and 2 on the first node."""
    agent = folder / "agent"
    agent.write_text(AGENT.replace("{folder}", str(cluster.folder)), encoding="utf-8")
    agent.chmod(0o700)
    hosts = ",".join(f"{name}:{PER_NODE}" for name in cluster.names)
    for order in ("slot", "node"):
        stop = folder / f"mpirun-{order}"
        words = inside("node01", "mpirun", "-n", PER_NODE * len(cluster.names), "--host", hosts, "--map-by",
                       order, "--mca", "plm_rsh_agent", agent, "--mca", "btl", "self,tcp", program, stop)
        environment = {**os.environ, "MUSTER_ENDPOINT": str(cluster.socket("node01")),
                       "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with open(f"{stop}.out", "w+", encoding="utf-8") as out:
            run = subprocess.Popen(WITH_PARENT + words, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=out)
            said = pathlib.Path(f"{stop}.out")
            until(lambda: run.poll() is not None or len(working(stop)) == 4,
                  lambda: said.read_text(encoding="utf-8") + cluster.logs())
            check(run.poll() is None, said.read_text(encoding="utf-8"))
            job = job_at(cluster, "node02", "openmpi-")[0]
            local = {"slot": [2, 3], "node": [1, 3]}[order]
            check(job["local"] == local, f"on node02 it is {job}")
            stop.touch()
            check(run.wait(PATIENCE_S) == 0, said.read_text(encoding="utf-8"))
            check(said.read_text(encoding="utf-8").count("operations") == 4, "four ranks were right")
        expect_gone(cluster, "openmpi-")


def main():
    programs, rank_program = sys.argv[1:]
    if why := why_not():
        print(f"skipped: no network namespaces can be made here: {why}")
        return 77
    enter_namespaces()
    cases = [ranks_like_torchruns_form_one_job, a_launcher_restarts_with_other_numbers,
             a_killed_rank_is_heard_of, containers_form_one_job_by_key]
    if TORCHRUN.exists():
        cases.append(torchrun_forms_one_job)
    else:
        print("left out: torchrun_forms_one_job, for there is no torchrun (deploy/setup.sh torch)")
    if shutil.which("mpirun"):
        cases.append(mpirun_forms_one_job)
    else:
        print("left out: mpirun_forms_one_job, for there is no mpirun (openmpi-bin)")
    with tempfile.TemporaryDirectory(prefix="muster-launched-") as folder:
        nodes = Nodes(2)
        try:
            folder = pathlib.Path(folder)
            with LaunchCluster(nodes, folder, pathlib.Path(programs), "ofi", PER_NODE,
                               "dp_replicate=2,tp=2") as cluster:
                cluster.await_job()
                for case in cases:
                    begin = time.monotonic()
                    case(cluster, rank_program, folder)
                    print(f"{case.__name__}: well, in {time.monotonic() - begin:.1f} s", flush=True)
        finally:
            nodes.remove()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        print(f"failed: {failed}")
        sys.exit(1)
