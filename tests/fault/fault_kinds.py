"""What can happen to a cluster: how each kind is done and undone, and what it is to each job."""

import signal

from cluster_of_namespaces import PORT, Failed
from fault_cluster import DEADLINE_S
from fault_verdicts import LOCAL_S, REMOTE_S, TIMEOUT, PEER_LOST, Part, Told
from node_faults import RATE

BACK_S = 20  # until a daemon that was started again answers


class Fault:
    """Drawn from a source of chance, and done once."""
    needs_loss = False  # of packets, which takes a BPF program
    quiet = "d"  # the judgement that a job fails if it notices a fault that is nothing to it
    trouble = "h"  # the judgement that it violates if it cannot be done or undone
    limit_s = REMOTE_S  # until all have heard of it

    def __init__(self, cluster, chance):
        self.cluster, self.faults, self.chance = cluster, cluster.faults, chance
        self.train = cluster.jobs[0]
        self.node = chance.choice(cluster.names)
        self.hold_s = chance.uniform(0.4, 1.2)  # it goes on for so long once all have heard

    def what(self):
        return self.node

    def prepare(self):
        """What takes time and is no fault yet."""

    def inject(self):
        raise NotImplementedError

    def heal(self):
        """What is lost comes back; ranks are started again elsewhere."""

    def part(self, job):
        """What it is to the job; None: nothing."""
        return None


class KillRank(Fault):
    """A rank's process is killed."""

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.rank = chance.randrange(self.train.size())
        self.node = self.train.node_of(self.rank)

    def what(self):
        return f"rank {self.rank} on {self.node}"

    def inject(self):
        self.cluster.ranks_of(self.train, {self.rank})[0].kill()

    def part(self, job):
        if job is not self.train:
            return None
        beside = job.ranks_on([self.node])
        told = {rank: Told(LOCAL_S if rank in beside else REMOTE_S, {self.node}, {self.rank})
                for rank in range(job.size()) if rank != self.rank}
        return Part(told, gone={self.rank}, local_may_fail=beside)


class LossOfNode(Fault):
    """What a node has of a job is gone; on others all hear of it."""

    def jobs(self):
        return self.cluster.jobs

    def part(self, job):
        lost = job.ranks_on([self.node])
        if job not in self.jobs() or not lost:
            return None
        return Part({rank: Told(REMOTE_S, {self.node}, lost) for rank in set(range(job.size())) - lost},
                    gone=lost)


class KillEngine(LossOfNode):
    """The engine of one job on one node is killed. Daemon and ranks go on."""

    def jobs(self):
        return [self.train]

    def prepare(self):
        self.pid = self.cluster.engine_of(self.train, self.node)

    def inject(self):
        self.faults.kill(self.pid)

    def part(self, job):
        part = super().part(job)
        if part:
            part.bereft, part.gone = part.gone, set()
        return part


class KillHost(LossOfNode):
    """All processes of a node are killed; its kernel says so to the others."""

    def inject(self):
        self.cluster.power_off(self.node)

    def heal(self):
        self.cluster.start_as_after_power_on(self.node)


class LoseHost(KillHost):
    """A node is switched off: nobody says anything."""

    def inject(self):
        self.faults.part([], [self.node])
        super().inject()

    def heal(self):
        self.faults.heal()
        super().heal()


class Parting(Fault):
    """Two sets of nodes do not reach each other, in one direction at least."""

    def away(self):
        """The nodes of one of the sets."""
        return [self.node]

    def heal(self):
        self.faults.heal()

    def codes(self):
        return (PEER_LOST,)

    def part(self, job):
        sides = [job.ranks_on(self.away()), job.ranks_on(set(job.nodes) - set(self.away()))]
        if not all(sides):
            return None
        told = {}
        for own, other in (sides, reversed(sides)):
            nodes = {job.node_of(rank) for rank in other}
            told |= {rank: Told(self.limit_s, nodes, set(other), self.codes()) for rank in own}
        small = min(map(len, sides))
        may_leave = set().union(*(side for side in sides if len(side) == small))
        return Part(told, may_leave=may_leave, sides=sides)


class LinkDown(Parting):
    """The bridge's end of a node's cable is down. The node sees it."""

    def inject(self):
        self.faults.link_down(self.node)


class Partition(Parting):
    """Two sets of nodes; every link is up."""

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.names = sorted(chance.sample(cluster.names, chance.randrange(1, len(cluster.names))))

    def away(self):
        return self.names

    def what(self):
        return f"{', '.join(self.names)} apart from the others"

    def inject(self):
        self.faults.part([], self.names)


class OneWay(Parting):
    """A node hears nothing any more, and is heard."""
    needs_loss = True
    which = {}

    def what(self):
        return f"{self.node} hears nothing"

    def prepare(self):
        self.faults.prepare_loss(**self.which)

    def inject(self):
        self.faults.lose(self.node, **self.which)


class OneWayPair(OneWay):
    """A node does not hear one other."""

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.other = chance.choice([name for name in cluster.names if name != self.node])
        self.which = {"peer": self.other}

    def what(self):
        return f"{self.node} does not hear {self.other}"

    def part(self, job):
        pair = [job.ranks_on([name]) for name in (self.node, self.other)]
        if not all(pair):
            return None
        told = {}
        for rank in range(job.size()):
            others = {self.node, self.other} - {job.node_of(rank)}
            told[rank] = Told(self.limit_s, others, job.ranks_on(others))
        return Part(told, may_leave=pair[0] | pair[1], sides=pair)


class OneWayData(OneWay):
    """A node hears the other daemons, and no data. No daemon has a reason to give a node up, so the deadline
    of an operation may have to pass."""
    which = {"port": PORT, "besides": True}
    limit_s = DEADLINE_S + 1.5

    def what(self):
        return f"{self.node} hears daemons alone"

    def codes(self):
        return (PEER_LOST, TIMEOUT)

    def part(self, job):
        part = super().part(job)
        if part:
            for told in part.told.values():
                told.nodes, told.ranks = set(), set()
        return part


class Harmless(Fault):
    """No operation may fail."""
    quiet = "f"

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.hold_s = chance.uniform(1, 3)


class OneWayControl(Harmless):
    """A node hears the data of its jobs, and no other daemon. Engines vouch for each other's nodes."""
    needs_loss = True

    def what(self):
        return f"{self.node} hears no daemon"

    def prepare(self):
        self.faults.prepare_loss(port=PORT)

    def inject(self):
        self.faults.lose(self.node, port=PORT)

    def heal(self):
        self.faults.heal()


class SlowLink(Harmless):
    """A node's link carries little, each way."""

    def what(self):
        return f"{self.node} at {RATE}"

    def inject(self):
        self.faults.limit(self.node)

    def heal(self):
        self.faults.heal()


class LossyLink(Harmless):
    """A node loses some of what comes to it, at random."""
    needs_loss = True

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.per_million = chance.choice((10_000, 50_000))

    def what(self):
        return f"{self.node} loses {self.per_million // 10_000} %"

    def prepare(self):
        self.faults.prepare_loss(self.per_million)

    def inject(self):
        self.faults.lose(self.node, self.per_million)

    def heal(self):
        self.faults.heal()


class StopRank(Harmless):
    """A rank is stopped, for less than the deadline of its operations."""

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.rank = chance.randrange(self.train.size())
        self.hold_s = chance.uniform(0.2, DEADLINE_S / 2)

    def what(self):
        return f"rank {self.rank} for {self.hold_s:.1f} s"

    def signal(self, number):
        self.faults.kill(self.cluster.ranks_of(self.train, {self.rank})[0].process.pid, number)

    def inject(self):
        self.signal(signal.SIGSTOP)

    def heal(self):
        self.signal(signal.SIGCONT)


class KillDaemon(Harmless):
    """A daemon is killed. Its service manager starts it again, with the descriptors that it has kept."""
    quiet = trouble = "g"

    def __init__(self, cluster, chance):
        super().__init__(cluster, chance)
        self.hold_s = chance.uniform(0.05, 1)

    def inject(self):
        self.cluster.daemon(self.node).kill()

    def heal(self):
        self.cluster.start_again(self.node)
        if not self.cluster.until(lambda: self.cluster.answers(self.node), BACK_S):
            raise Failed(f"the daemon of {self.node} does not answer after {BACK_S} s")


class UpgradeDaemon(Harmless):
    """A daemon is replaced by another instance, which takes over."""
    quiet = trouble = "g"

    def inject(self):
        self.cluster.muster("upgrade", "--endpoint", self.cluster.socket(self.node))


KINDS = {"kill-rank": KillRank, "kill-engine": KillEngine, "kill-host": KillHost, "lose-host": LoseHost,
         "link-down": LinkDown, "partition": Partition, "one-way": OneWay, "one-way-pair": OneWayPair,
         "one-way-control": OneWayControl, "one-way-data": OneWayData, "slow-link": SlowLink,
         "lossy-link": LossyLink, "stop-rank": StopRank, "kill-daemon": KillDaemon,
         "upgrade-daemon": UpgradeDaemon}
