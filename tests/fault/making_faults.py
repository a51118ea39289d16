#!/usr/bin/env python3
"""Kills what a job over several nodes is being made of, at random moments, and looks what is left of it.

  making_faults.py [--count N] [--seed N] [--from N] [--kinds NAME...] [--network NAME...] [--brief]
                   [--bin FOLDER] [--rank PROGRAM]

Three nodes of one rank each. `muster run --hosts` makes a job on all of them, and meanwhile an engine, a
daemon, all of a node or the run itself is killed. Or all nodes are switched on, the job of the cluster file
is made, and the same happens. The moment is drawn from the time that an undisturbed making takes, and a bit
more. Whatever it is:

  ended   the run ends, or its ranks work: nothing hangs
  named   a run that ends says which node or rank is lost
  left    once the node is back, no node has anything of the job, nor a process of it
  next    the next run of a job of that name works, with every result checked

Fault number i of a seed is always the same kind at the same moment. Ends with 1 if something was otherwise,
with 77 if no network namespaces can be made.
"""

import contextlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy"))

from cluster_of_namespaces import Failed, Nodes, enter_namespaces, inside, run, why_not
from fault_cluster import WITH_PARENT, FaultCluster, parser_of

COUNT = 3
BLOCK = 12  # faults on one cluster
NETWORKS = ("ofi", "ucx")
MADE, OF_FILE = "made", "train"
PATIENCE_S = 30  # a bound for a machine under load: what takes longer hangs
LINGER = "1s"
LATE = 1.5  # the last moment, in times that an undisturbed making takes
LOOK_S = 0.005
KEPT = 400  # characters of what a run said
SKIPPED = 77


def say(line):
    print(line, flush=True)


def until(condition, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_S)
    return True


class Run:
    """`muster run` over all nodes. Its ranks work until their stop file is there."""

    def __init__(self, cluster, rank_program, maker, job):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=cluster.folder))
        self.stop = self.folder / "stop"
        self.nodes = [maker] + [name for name in cluster.names if name != maker]
        launcher = f"ip netns exec {{host}} env MUSTER_ENDPOINT={cluster.folder}/{{host}}"
        # The job of the cluster file has its ranks in the order of the nodes.
        hosts = ",".join(f"{name}:1" for name in (cluster.names if job == OF_FILE else self.nodes))
        words = inside(maker, cluster.programs / "muster", "run", "--endpoint", cluster.socket(maker),
                       "--hosts", hosts, "--job", job, "--mesh", f"dp_replicate={COUNT}", "--launcher",
                       launcher, "--timeout", PATIENCE_S, "--grace", "1", "--", rank_program, self.stop)
        with open(self.folder / "said", "w", encoding="utf-8") as out:
            self.process = subprocess.Popen(WITH_PARENT + words, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out)

    def said(self):
        return (self.folder / "said").read_text(encoding="utf-8", errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def operations(self):
        """Of each rank that has begun (steady_rank.hpp)."""
        counts = []
        for path in self.folder.glob("stop.*.progress"):
            if words := path.read_bytes()[:8]:
                counts += struct.unpack("Q", words)
        return counts

    def works(self):
        return len(self.operations()) == COUNT and min(self.operations()) > 0

    def settle(self):
        """False if neither of the two comes."""
        return until(lambda: self.ended() or self.works())

    def finish(self):
        """Its exit code; None: it does not end."""
        self.stop.touch()
        return self.process.returncode if until(self.ended) else None

    def kill(self):
        self.process.kill()
        self.process.wait()


class MakingFault:
    """What is killed, where and when."""
    KINDS = ("engine", "daemon", "host", "run", "file-engine", "file-daemon", "file-host")

    def __init__(self, kinds, seed, index, cluster):
        order = list(kinds)
        random.Random(f"{seed}/kinds/{index // len(order)}").shuffle(order)
        chance = random.Random(f"{seed}/{index}")
        self.kind = order[index % len(order)]
        self.what = self.kind.removeprefix("file-")
        self.job = OF_FILE if self.kind.startswith("file-") else MADE
        self.maker, self.victim = chance.choice(cluster.names), chance.choice(cluster.names)
        if self.job == OF_FILE:
            self.maker = cluster.names[0]  # its leader
        if self.what == "run":
            self.victim = self.maker
        self.moment = chance.uniform(0, LATE)
        self.hold_s = chance.uniform(0.05, 1)

    def text(self):
        return f"{self.kind} on {self.victim}, asked on {self.maker}, at {self.moment:.2f}"


class Course:
    """All faults of a run of this program, and what came of them."""

    def __init__(self, options):
        self.options = options
        self.faults = self.bad = 0
        self.refused = self.worked = 0
        self.making_s = 0.0
        self.cluster = None

    def run(self):
        index, end = self.options.first, self.options.first + self.options.count
        while index < end:
            index = self.run_block(index, min(end, (index // BLOCK + 1) * BLOCK))

    def run_block(self, index, end):
        network = self.options.network[index // BLOCK % len(self.options.network)]
        nodes = Nodes(COUNT)
        try:
            with tempfile.TemporaryDirectory(prefix="muster-making-") as folder, \
                 FaultCluster(pathlib.Path(folder), self.options.bin, self.options.rank, nodes, network, 1,
                              self.options.seed, settings={"limits.made_job_linger": LINGER}) as cluster:
                self.cluster = cluster
                if not until(self.is_whole):
                    raise Failed(f"the cluster is not whole:\n{cluster.logs()}")
                self.making_s = self.measure()
                for number in range(index, end):
                    self.run_fault(number)
        finally:
            nodes.remove()
        return end

    # ---- what is there

    def jobs(self, name):
        """The jobs of a node, and the jobs and nodes that it waits for; None: it does not answer."""
        try:
            answer = json.loads(self.cluster.muster("status", "--json", "--endpoint",
                                                    self.cluster.socket(name)))
        except (Failed, ValueError):
            return None
        waiting = [entry["job"] for entry in answer["cluster"]["waiting"]]
        waiting += [peer["node"] for peer in answer["cluster"]["peers"] if peer["state"] != "up"]
        return {job["name"]: job for job in answer["jobs"]}, waiting

    def is_whole(self):
        """The jobs of the cluster file are on their nodes, in one epoch each, and nothing waits."""
        epochs = {}
        for name in self.cluster.names:
            there = self.jobs(name)
            if there is None or there[1]:
                return False
            wanted = {job.name for job in self.cluster.jobs if name in job.nodes}
            if wanted - set(there[0]):
                return False
            for job, facts in there[0].items():
                epochs.setdefault(job, set()).add(facts["epoch"] if facts["state"] == "ready" else None)
        return all(len(found) == 1 and None not in found for found in epochs.values())

    def processes(self, name):
        """(number, program) of all on the node."""
        for pid in run("ip", "netns", "pids", name).split():
            with contextlib.suppress(OSError):
                yield int(pid), pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()

    def engines(self, name):
        return {pid for pid, program in self.processes(name) if program.startswith("muster-engine")}

    def left(self, name):
        """What a node still has of the job that was made; empty: nothing."""
        there = self.jobs(name)
        if there is None:
            return "it does not answer"
        if MADE in there[0] or MADE in there[1]:
            return f"job {MADE} {there[0].get(MADE, {}).get('state', 'waits')}"
        engines = len(self.engines(name))
        if engines != len(there[0]):
            return f"{engines} engines for {len(there[0])} jobs"
        others = {program for _, program in self.processes(name)} - {"musterd", "muster-engine"}
        return f"processes {', '.join(sorted(others))}" if others else ""

    # ---- one fault

    def begin(self, fault):
        """Has the job made, and returns the run that asks for it, if one does. All nodes that are switched on
        make the job of the cluster file."""
        if fault.job == MADE:
            return Run(self.cluster, self.options.rank, fault.maker, MADE)
        for name in self.cluster.names:
            self.cluster.power_off(name)
        for name in self.cluster.names:
            self.cluster.start_as_after_power_on(name)
        return None

    def log_of(self, name):
        return self.cluster.folder / f"{name}.log"

    def await_line(self, name, offset, text):
        def there():
            with open(self.log_of(name), "rb") as file:
                file.seek(offset)
                return text.encode() in file.read()

        return until(there, 10)

    def measure(self):
        """How long a making takes that nothing disturbs."""
        name = self.cluster.names[0]
        offset = self.log_of(name).stat().st_size
        whole = Run(self.cluster, self.options.rank, name, MADE)
        begun = self.await_line(name, offset, f"job {MADE} is being made")
        at = time.monotonic()
        ready = begun and self.await_line(name, offset, f"job {MADE} is ready")
        seconds = time.monotonic() - at
        if not ready or not whole.settle() or whole.finish() != 0:
            raise Failed(f"an undisturbed run does not work: {whole.said()}")
        return seconds

    def inject(self, fault, known):
        """`known`: the engines that the victim had before. False: the job was not begun there."""
        moment = fault.moment * self.making_s
        if fault.what == "engine":
            if not until(lambda: self.engines(fault.victim) - known, 10):
                return False
            time.sleep(moment)
            for pid in self.engines(fault.victim) - known:
                self.cluster.faults.kill(pid)
            return True
        time.sleep(moment)
        if fault.what == "daemon":
            self.cluster.daemon(fault.victim).kill()
        elif fault.what == "host":
            self.cluster.power_off(fault.victim)
        return True

    def heal(self, fault):
        if fault.what == "daemon":
            self.cluster.start_again(fault.victim)
        elif fault.what == "host":
            self.cluster.start_as_after_power_on(fault.victim)

    def run_fault(self, index):
        fault = MakingFault(self.options.kinds, self.options.seed, index, self.cluster)
        found = []
        known = self.engines(fault.victim) if fault.job == MADE else set()
        offset = self.log_of(fault.maker).stat().st_size
        asked = self.begin(fault)
        if not self.await_line(fault.maker, offset, f"job {fault.job} is being made"):
            found.append("ended: the job was never begun")
        if fault.what == "run":
            time.sleep(fault.moment * self.making_s)
            asked.kill()
        elif not self.inject(fault, known):
            found.append("ended: the victim has never begun the job")
        time.sleep(fault.hold_s)
        self.heal(fault)
        found += self.judge_run(fault, asked)
        found += self.judge_rest()
        self.report(f"{index:4} {fault.text()}", found)
        if found and not until(self.is_whole):
            raise Failed(f"the cluster is not whole any more:\n{self.cluster.logs()}")

    def judge_run(self, fault, asked):
        if asked is None:
            return
        if not asked.settle():
            yield f"ended: neither ends nor works: {asked.said()[-KEPT:]}"
            return asked.kill()
        if not asked.ended():
            self.worked += 1
            code = asked.finish()
            # Its ranks may still have heard of the loss, and have ended with it.
            if code is None:
                yield f"ended: does not end: {asked.said()[-KEPT:]}"
                asked.kill()
            if code == 0:
                return
        self.refused += 1
        rank = asked.nodes.index(fault.victim)
        names = [fault.victim, f"rank {rank}", f"ranks {rank}"]
        if fault.what == "daemon":
            names += asked.nodes  # it is back, and parts of the job may still end on other nodes
        died = asked.process.returncode == -signal.SIGKILL and fault.victim == fault.maker
        if not died and not any(name in asked.said() for name in names):
            yield f"named: ended with {asked.process.returncode} without a word of {fault.victim}: " \
                  f"{asked.said()[-KEPT:]}"

    def judge_rest(self):
        """Nothing is left, and the next run works."""
        if not until(lambda: self.is_whole() and not any(map(self.left, self.cluster.names))):
            for name in self.cluster.names:
                yield f"left: {name}: {self.left(name) or 'nothing'}; {str(self.jobs(name))[:KEPT]}"
        for job in (MADE, OF_FILE):
            again = Run(self.cluster, self.options.rank, self.cluster.names[0], job)
            if not again.settle() or again.ended() or again.finish() != 0:
                code = again.process.poll()
                yield f"next: a run of {job} does not work, code {code}: {again.said()[-KEPT:]}"
                again.kill()

    def report(self, what, found):
        self.faults += 1
        self.bad += bool(found)
        if found:
            say(f"{what}: VIOLATED")
            for line in found:
                say(f"       {line}")
        elif not self.options.brief:
            say(what)

    def summary(self):
        say(f"{self.faults} faults of seed {self.options.seed} while a job was made, {self.bad} with a "
            f"violation; of the runs {self.refused} ended and {self.worked} worked; an undisturbed making "
            f"took {self.making_s * 1000:.0f} ms")


def parse():
    parser = parser_of(__doc__, "steady_rank")
    parser.add_argument("--count", type=int, default=7)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--kinds", nargs="+", choices=MakingFault.KINDS, default=MakingFault.KINDS,
                        metavar="NAME")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NAME")
    parser.add_argument("--brief", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    why = why_not()
    if why:
        say(f"skipped: network namespaces cannot be made: {why}")
        return SKIPPED
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("making-faults: told to end"))
    course = Course(options)
    try:
        course.run()
    except Failed as failure:
        say(f"making-faults: {failure}")
        course.bad += 1
    course.summary()
    return 1 if course.bad or course.faults < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
