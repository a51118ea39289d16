"""Starts Muster and its peers on nodes that are network namespaces, and returns the lines of their rank 0."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import cluster_of_namespaces
from cluster_of_namespaces import Failed, inside

INTERFACE = "eth0"
LIMIT_SECONDS = 45  # of one program: what it has printed until then counts
PARTING_SECONDS = 1  # for the end of programs once all is measured
LOOK_SECONDS = 0.05
INSTALL = "install {}, and build again (`deploy/bench.sh cluster` builds)"
UCX = {"UCX_NET_DEVICES": INTERFACE, "UCX_WARN_UNUSED_ENV_VARS": "n"}

# The agent by which launchers start their daemons. Its first word that is no option is an address, whose last
# number is the node's; the rest is for a shell.
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
node=node0${1##*.}
shift
exec ip netns exec "$node" unshare --ipc --uts sh -c "hostname $node && $*"
"""


class Programs:
    """Processes that make one measurement together. Their output lies in a folder."""

    def __init__(self, folder, words):
        self.folder = folder
        self.processes = []
        self.last = words[1].split(",")[-1]  # what is measured last, as sweep() goes
        self.largest = int(words[2].split(",")[-1])
        self.seen = (0, False)  # bytes of rank 0's output, and whether that was all

    def start(self, words, environment):
        path = self.folder / f"output-{len(self.processes)}"
        with open(path, "wb") as out, open(f"{path}.err", "wb") as err:
            self.processes.append(subprocess.Popen([str(word) for word in words], env=environment,
                                                   stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                                   start_new_session=True))

    def finish(self):
        """Waits for all. Returns why they did not end well, or None. The first that fails ends the others."""
        end = time.monotonic() + LIMIT_SECONDS
        parting = None
        try:
            while True:
                states = [process.poll() for process in self.processes]
                for number, state in enumerate(states):
                    if state not in (None, 0):
                        words = self.text(f"{number}.err")[-400:]
                        return f"process {number} ended with status {state}: {words}"
                if None not in states:
                    return None
                now = time.monotonic()
                if now > end:
                    return f"it took longer than {LIMIT_SECONDS} s"
                if parting is None and self.complete():
                    parting = now + PARTING_SECONDS
                if parting is not None and now > parting:
                    return f"its processes did not end within {PARTING_SECONDS} s"
                time.sleep(LOOK_SECONDS)
        finally:
            self.end()

    def complete(self):
        """Whether rank 0 has printed the last row, or why there is none."""
        size = (self.folder / "output-0").stat().st_size if self.processes else 0
        if size != self.seen[0]:
            self.seen = (size, any(self.is_last(line) for line in self.lines()))
        return self.seen[1]

    def is_last(self, line):
        """Vectors may be a little smaller than asked for, where they are cut."""
        if "left_out" in line:
            return f": {self.last}: from " in line["left_out"]
        return line.get("operation") == self.last and line["bytes"] > 0.9 * self.largest

    def end(self):
        for sent, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            running = [process for process in self.processes if process.poll() is None]
            for process in running:
                os.killpg(process.pid, sent)
            until = time.monotonic() + patience
            while time.monotonic() < until and any(process.poll() is None for process in running):
                time.sleep(LOOK_SECONDS)

    def text(self, name):
        return (self.folder / f"output-{name}").read_text(encoding="utf-8", errors="replace").strip()

    def lines(self):
        """What rank 0 has printed: whole objects, one a line."""
        found = []
        if not self.processes:
            return found
        for line in self.text(0).splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue  # another program's words, or a line that was cut
        return found


class Contender:
    """One implementation by one path, which its rows name. Of its launchers, the first that is there."""

    LAUNCHERS = ()

    def __init__(self, name, path, program, remedy):
        self.name, self.path, self.program, self.remedy = name, path, program, remedy
        self.launcher = next((found for found in map(shutil.which, self.LAUNCHERS) if found), None)

    def title(self):
        return f"{self.name}/{self.path}"

    def missing(self):
        if self.program.exists() and (self.launcher or not self.LAUNCHERS):
            return None
        return f"{self.title()} is not there: {self.remedy}"

    def measure(self, run, names, per_node, words):
        """Of a run of `words` on `per_node` ranks of each node: (lines, whether that is all, what was wrong
        or None)."""
        programs = Programs(run.new_folder(), words)
        try:
            why = self.launch(programs, run, names, per_node, words)
        finally:
            run.nodes.kill()
        return programs.lines(), programs.complete(), why


class Muster(Contender):
    def __init__(self, network, bin_folder):
        super().__init__("muster", network, bin_folder / "networks" / f"{network}.so",
                         f"build muster_network_{network}")
        self.bin = bin_folder

    def launch(self, programs, run, names, per_node, words):
        ranks = per_node * len(names)
        try:
            with cluster_of_namespaces.Cluster(run.new_folder(), self.bin, names, self.path, per_node,
                                               f"dp_shard={ranks}") as cluster:
                cluster.await_job()
                for command, environment in cluster.ranks([self.bin / "muster-bench", "--as-rank", *words]):
                    programs.start(command, environment)
                why = programs.finish()
                return f"{why}\n{cluster.logs()[-600:]}" if why else None
        except Failed as failure:
            return str(failure)


class OpenMpi(Contender):
    """The launcher runs on the first node. Cores belong to all nodes, so nothing is bound to them."""

    LAUNCHERS = ("mpirun.openmpi", "orterun")

    def __init__(self, path, peers):
        super().__init__("openmpi", path, peers / "openmpi_peer",
                         INSTALL.format("openmpi-bin and libopenmpi-dev"))

    def launch(self, programs, run, names, per_node, words):
        ranks = per_node * len(names)
        transport = {
            "tcp": ["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"],
            "ucx": ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca",
                    "opal_common_ucx_devices", "any"]}
        command = [self.launcher, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                   "--host", ",".join(f"{run.address(name)}:{per_node}" for name in names), "-n", ranks,
                   "--leave-session-attached", "--mca", "plm_rsh_agent", run.agent,
                   "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", INTERFACE,
                   "--mca", "btl_tcp_if_include", INTERFACE,
                   "--mca", "mpi_yield_when_idle", int(ranks > run.cores),
                   *transport[self.path], self.program, *words]
        environment = {**os.environ, **UCX, "UCX_TLS": "self,posix,cma,tcp", "TMPDIR": str(run.folder)}
        programs.start(inside(names[0], *command), environment)
        return programs.finish()


class Mpich(Contender):
    """It has no way to yield. Bound to cores, ranks that share one at least have slices in turn. Some of its
    versions do not always end: in MPI_Finalize a rank waits for one that no longer looks at the network."""

    LAUNCHERS = ("mpiexec.mpich", "mpiexec.hydra")

    def __init__(self, peers):
        super().__init__("mpich", "ch4", peers / "mpich_peer", INSTALL.format("mpich and libmpich-dev"))

    def launch(self, programs, run, names, per_node, words):
        command = [self.launcher, "-launcher", "ssh", "-launcher-exec", run.agent, "-iface", INTERFACE,
                   "-hosts", ",".join(f"{run.address(name)}:{per_node}" for name in names),
                   "-n", per_node * len(names)]
        if per_node >= run.cores:
            command += ["-bind-to", "core"]
        command += [self.program, *words]
        programs.start(inside(names[0], *command), {**os.environ, **UCX, "UCX_TLS": "self,posix,cma,tcp"})
        return programs.finish()


class Gloo(Contender):
    def __init__(self, peers):
        super().__init__("gloo", "tcp", peers / "gloo_peer", INSTALL.format("libgloo-dev"))

    def launch(self, programs, run, names, per_node, words):
        store = run.new_folder()
        for number, name in enumerate(names):
            here = f"{per_node}@{number * per_node}/{per_node * len(names)}"
            programs.start(inside(name, self.program, store, here, *words),
                           {**os.environ, "GLOO_SOCKET_IFNAME": INTERFACE})
        return programs.finish()


def all_contenders(bin_folder, peers):
    return [Muster("ucx", bin_folder), Muster("ofi", bin_folder), OpenMpi("tcp", peers),
            OpenMpi("ucx", peers), Mpich(peers), Gloo(peers)]


class Run:
    """The nodes, and a folder with what the programs of this run leave behind."""

    def __init__(self, folder, nodes):
        self.folder, self.nodes = pathlib.Path(folder), nodes
        self.cores = len(os.sched_getaffinity(0))
        self.agent = self.folder / "agent"
        self.agent.write_text(AGENT, encoding="utf-8")
        self.agent.chmod(0o700)
        self.folders = 0

    def address(self, name):
        return self.nodes.addresses[self.nodes.names.index(name)]

    def new_folder(self):
        self.folders += 1
        folder = self.folder / str(self.folders)
        folder.mkdir()
        return folder

    def sent_bytes(self, name):
        """Through the interface of a node, since it was made."""
        words = ("ip", "-n", name, "-s", "-j", "link", "show", INTERFACE)
        return json.loads(cluster_of_namespaces.run(*words))[0]["stats64"]["tx"]["bytes"]
