#!/usr/bin/env python3
"""Injects faults into a cluster of network namespaces while two jobs work on it, and judges what ranks hear.

  cluster_faults.py [--count N] [--seed N] [--from N] [--kinds NAME...] [--network NAME...] [--keep FOLDER]
                    [--brief] [--promised] [--bin FOLDER] [--rank PROGRAM] [--list]

Fault number i of a seed is always the same: `--from i --count 1` repeats it on a cluster of its own. Prints a
line for each fault, with --brief only for those with a violation. fault_verdicts.py says what the letters of
judgements mean. With --promised, times count as they are promised: on a machine that does nothing else. Ends
with 1 if a judgement was not kept, with 77 if no network namespaces can be made.
"""

import contextlib
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "deploy"))

import fault_verdicts
from cluster_of_namespaces import Failed, Nodes, enter_namespaces, why_not
from fault_cluster import FaultCluster, absolute, parser_of
from fault_kinds import KINDS
from node_faults import NodeFaults

BLOCK = 10  # faults on one cluster, if it survives them
SHAPES = ((2, 2), (3, 1), (3, 2), (4, 1))  # nodes, and ranks on each
NETWORKS = ("ucx", "ofi")
START_S = 60
OPERATIONS_MOST = 60  # after so many, at most, comes the next fault
SETTLE_S = 0.2
SLACK = 4  # times what is promised, after which somebody counts as not told at all
SKIPPED = 77
SHOWN = 6  # violations of one fault


def say(line):
    print(line, flush=True)


def kind_of(seed, index, kinds):
    """Each kind comes once before one comes again."""
    order = list(kinds)
    random.Random(f"{seed}/kinds/{index // len(kinds)}").shuffle(order)
    return order[index % len(kinds)]


class Course:
    """All faults of a run, and what came of them."""

    def __init__(self, options):
        self.options = options
        self.kinds = list(options.kinds)
        self.faults = 0
        self.slack = 1 if options.promised else SLACK
        self.remote = {}  # seconds until ranks of other nodes had heard, by kind
        self.local = {}  # and of the same node
        self.recoveries = {}
        self.violations = {letter: 0 for letter in fault_verdicts.LETTERS}
        self.failed_faults = 0

    def run(self):
        """Every block has a cluster of its own; one on which all is not well again is given up earlier."""
        self.leave_out_loss()
        index, end = self.options.first, self.options.first + self.options.count
        while index < end and self.kinds:
            index = self.run_block(index, min(end, (index // BLOCK + 1) * BLOCK))

    def run_block(self, index, end):
        block = index // BLOCK
        count, per_node = SHAPES[(self.options.seed + block) % len(SHAPES)]
        network = self.options.network[(block + block // len(SHAPES)) % len(self.options.network)]
        nodes = Nodes(count)
        try:
            with self.folder(index) as folder, \
                 FaultCluster(folder, self.options.bin, self.options.rank, nodes, network, per_node,
                              self.options.seed) as cluster:
                self.start(cluster)
                if not self.options.brief:
                    say(f"cluster of {count} nodes of {per_node} ranks, by {network}")
                while index < end:
                    well = self.run_fault(cluster, index)
                    index += 1
                    if not well:
                        break
        finally:
            nodes.remove()
        return index

    @staticmethod
    def start(cluster):
        if not cluster.await_well(START_S):
            said = [f"{rank.job.name} rank {rank.number}: {record}" for rank in cluster.all_ranks
                    for record in rank.records if record["what"] != "progress"]
            raise Failed(f"the jobs do not work after {START_S} s:\n" + "\n".join(said[:SHOWN]) +
                         f"\n{cluster.logs()}")
        for rank in cluster.all_ranks:
            rank.forget_errors()  # one that comes late at the start may be missed

    @contextlib.contextmanager
    def folder(self, index):
        path = pathlib.Path(tempfile.mkdtemp(prefix="muster-faults-"))
        try:
            yield path
        finally:
            if self.options.keep:
                kept = self.options.keep / f"from-{index}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(path, kept, ignore=shutil.ignore_patterns("socket", "*.notify", "*.sock"))
            shutil.rmtree(path, ignore_errors=True)

    def leave_out_loss(self):
        """Where packets cannot be lost."""
        lossy = [kind for kind in self.kinds if KINDS[kind].needs_loss]
        nodes = Nodes(1)
        try:
            with tempfile.TemporaryDirectory() as folder:
                why = NodeFaults(nodes, folder).why_no_loss() if lossy else None
        finally:
            nodes.remove()
        if why:
            self.kinds = [kind for kind in self.kinds if kind not in lossy]
            say(f"left out: {', '.join(lossy)}: {why}")

    def run_fault(self, cluster, index):
        """False if the cluster is not well afterwards."""
        kind = kind_of(self.options.seed, index, self.kinds)
        chance = random.Random(f"{self.options.seed}/{index}")
        fault = KINDS[kind](cluster, chance)
        operations = chance.randrange(OPERATIONS_MOST)
        what = f"{index:4} {kind}: {fault.what()}, after {operations} operations"
        try:
            fault.prepare()
        except Failed as failure:
            self.report(what, "", [(fault.trouble, "", str(failure))])
            return False
        first = cluster.all_ranks[0]
        begin = first.completed("small")
        cluster.until(lambda: first.completed("small") >= begin + operations, 5)
        time.sleep(chance.uniform(0, 0.1))  # progress is told ten times a second
        cluster.read()
        before = self.judge_quiet_time(cluster)
        for rank in cluster.all_ranks:
            rank.forget()
        parts = {job.name: fault.part(job) for job in cluster.jobs}
        at, healed, troubles = self.suffer(cluster, fault, parts)
        well = cluster.await_well(fault_verdicts.RECOVERY_S)
        cluster.until(lambda: False, SETTLE_S)
        found = before + [(fault.trouble, "", trouble) for trouble in troubles]
        found += self.judge(cluster, fault, parts, at, healed)
        self.report(what, self.times(cluster, kind, parts, at, healed, well), found)
        for rank in cluster.all_ranks:
            rank.forget()
        return well

    def suffer(self, cluster, fault, parts):
        """The fault, until it is healed."""
        troubles = []
        at = time.monotonic()
        try:
            fault.inject()
            cluster.until(lambda: self.all_have_heard(cluster, parts), fault.limit_s * self.slack + 0.3)
            cluster.until(lambda: False, fault.hold_s)
        except Failed as failure:
            troubles.append(str(failure))
        healed = time.monotonic()
        try:
            fault.heal()
        except Failed as failure:
            troubles.append(str(failure))
        return at, healed, troubles

    @staticmethod
    def all_have_heard(cluster, parts):
        for job in cluster.jobs:
            part = parts[job.name]
            if part:
                for rank in cluster.ranks_of(job, set(part.told) | part.bereft):
                    seen = rank.seen()
                    if not seen.of("ended") and not fault_verdicts.first_error(seen, part):
                        return False
        return True

    @staticmethod
    def judge_quiet_time(cluster):
        """What went wrong since the last fault was judged."""
        return [(letter, f"{rank.job.name} rank {rank.number}, before: ", text) for rank in cluster.all_ranks
                for letter, text in fault_verdicts.unmoved("e", rank.seen())]

    def judge(self, cluster, fault, parts, at, healed):
        found = []
        for job in cluster.jobs:
            seen = [rank.seen() for rank in cluster.ranks_of(job)]
            part = parts[job.name]
            for letter, rank, text in fault_verdicts.judge(part, seen, at, healed, fault.quiet, self.slack):
                found.append((letter, f"{job.name}: " if rank is None else f"{job.name} rank {rank}: ", text))
        return found

    def times(self, cluster, kind, parts, at, healed, well):
        """How soon ranks heard of it, and how soon all was well again, in words."""
        heard = []
        for within, by_kind in ((fault_verdicts.REMOTE_S, self.remote), (fault_verdicts.LOCAL_S, self.local)):
            for job in cluster.jobs:
                seen = [rank.seen() for rank in cluster.ranks_of(job)]
                seconds = list(fault_verdicts.detection_seconds(parts[job.name], seen, at, within))
                by_kind.setdefault(kind, []).extend(seconds)
                heard += seconds
        words = f"heard after {min(heard):.2f} to {max(heard):.2f} s, " if heard else ""
        if not well:
            return f"{words}never well again"
        recovery = max(rank.well_at for rank in cluster.all_ranks) - healed
        self.recoveries.setdefault(kind, []).append(recovery)
        return f"{words}well again after {recovery:.2f} s"

    def report(self, what, times, found):
        self.faults += 1
        for letter, _, _ in found:
            self.violations[letter] += 1
        if not found:
            if not self.options.brief:
                say(f"{what}: {times}")
            return
        self.failed_faults += 1
        say(f"{what}: VIOLATED {''.join(sorted({letter for letter, _, _ in found}))}: {times}")
        for letter, who, text in found[:SHOWN]:
            say(f"       {letter} {who}{text}")
        if len(found) > SHOWN:
            say(f"       and {len(found) - SHOWN} more")

    def summary(self):
        for kind in self.kinds:
            titles = (("other nodes hear after", self.remote), ("the same node hears after", self.local),
                      ("well again after", self.recoveries))
            said = [f"{title} {self.figures(values[kind])}" for title, values in titles if values.get(kind)]
            if said:
                say(f"{kind}: {'; '.join(said)}")
        heard = [seconds for values in self.remote.values() for seconds in values]
        if heard:
            say(f"{len(heard)} ranks heard of losses of other nodes: {self.figures(heard)}")
        say("violations: " + ", ".join(f"{letter} {count}" for letter, count in self.violations.items()))
        say(f"{self.faults} faults of seed {self.options.seed}, {self.failed_faults} with a violation")

    @staticmethod
    def figures(values):
        return ", ".join(f"{title} {fault_verdicts.percentile(values, percent):.2f}"
                         for title, percent in (("p50", 50), ("p99", 99), ("max", 100))) + " s"

    def judge_detection(self):
        """What was heard of too late, over all faults."""
        if self.options.promised:
            for letter, text in fault_verdicts.judge_detection(self.remote):
                self.violations[letter] += 1
                self.failed_faults += 1
                say(f"VIOLATED {letter}: {text}")


def parse():
    parser = parser_of(__doc__, "enduring_rank")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="NAME")
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=NETWORKS, metavar="NAME")
    parser.add_argument("--keep", type=absolute, metavar="FOLDER")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--promised", action="store_true")
    parser.add_argument("--list", action="store_true")
    return parser.parse_args()


def main():
    options = parse()
    if options.list:
        for name, kind in KINDS.items():
            say(f"{name:16} {kind.__doc__.splitlines()[0]}")
        return 0
    for program in (options.bin / "muster", options.bin / "musterd", options.rank):
        if not program.exists():
            say(f"cluster-faults: {program} is not built")
            return 2
    why = why_not()
    if why:
        say(f"skipped: network namespaces cannot be made: {why}")
        return SKIPPED
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("cluster-faults: told to end"))
    course = Course(options)
    try:
        course.run()
    except Failed as failure:
        say(f"cluster-faults: {failure}")
        course.summary()
        return 1
    course.judge_detection()
    course.summary()
    return 1 if course.failed_faults or course.faults < options.count else 0


if __name__ == "__main__":
    sys.exit(main())
