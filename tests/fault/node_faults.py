#!/usr/bin/env python3
"""Faults of nodes that are network namespaces: of their links, and of the processes on them.

  node_faults.py --self-test      shows each fault with sockets in the namespaces; needs no Muster

Only what stock kernels have is used: bridges, tbf, and BPF programs at a device's ingress. Loss is never
injected where packets are sent: a local drop is reported to TCP, which then behaves as on no real network.
"""

import ctypes
import glob
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

SOURCES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent.parent / "deploy"))

from cluster_of_namespaces import Failed, Nodes, enter_namespaces, inside, run, why_not

INTERFACE = "eth0"
ALL = 1_000_000  # of a million packets
RATE = "10mbit"
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def compiler():
    """A compiler for BPF, or None."""
    for name in ("clang-14", "clang"):
        for folder in os.environ.get("PATH", "").split(":"):
            path = pathlib.Path(folder) / name
            if os.access(path, os.X_OK):
                return path
    return None


class NodeFaults:
    """What happens to Nodes. Everything can be undone by heal()."""

    def __init__(self, nodes, folder):
        self.nodes, self.folder = nodes, pathlib.Path(folder)
        self.down, self.lossy, self.limited = set(), set(), set()
        self.moved, self.bridges = set(), 0

    def port(self, name):
        """The end of the node's cable at the bridge."""
        return f"port{self.nodes.names.index(name)}"

    def address(self, name):
        return self.nodes.addresses[self.nodes.names.index(name)]

    # The link

    def link_down(self, name):
        run("ip", "link", "set", self.port(name), "down")
        self.down.add(name)

    def link_up(self, name):
        run("ip", "link", "set", self.port(name), "up")
        self.down.discard(name)

    def part(self, *sets):
        """Nodes of different sets do not reach each other, though each sees its link up. A node that no set
        names belongs to the first."""
        for names in sets[1:]:
            self.bridges += 1
            bridge = f"part{self.bridges}"
            run("ip", "link", "add", bridge, "type", "bridge")
            run("ip", "link", "set", bridge, "up")
            for name in names:
                run("ip", "link", "set", self.port(name), "master", bridge)
                self.moved.add(name)

    def join(self):
        for name in self.moved:
            run("ip", "link", "set", self.port(name), "master", "cluster")
        self.moved.clear()
        for bridge in range(1, self.bridges + 1):
            run("ip", "link", "del", f"part{bridge}")
        self.bridges = 0

    # Loss

    def why_no_loss(self):
        """Why packets cannot be lost here, or None."""
        if compiler() is None:
            return "packets cannot be lost: no clang is installed (deploy/setup.sh clang)"
        name, why = self.nodes.names[0], None
        try:
            self.lose(name)
        except Failed as failure:
            why = "packets cannot be lost: " + " ".join(str(failure).split())
        if name in self.lossy:
            self.keep_all(name)
        return why

    def prepare_loss(self, per_million=ALL, peer=None, port=0, besides=False):
        """The compiled program for lose()."""
        number = 0 if peer is None else int.from_bytes(socket.inet_aton(self.address(peer)), "big")
        definitions = {"LOSS_PER_MILLION": per_million, "PEER": f"{number}u", "PORT": port,
                       "BESIDES": int(besides)}
        program = self.folder / ("loss-" + "-".join(str(value) for value in definitions.values()) + ".o")
        if not program.exists():
            headers = glob.glob("/usr/include/*-linux-gnu")
            run(compiler(), "-target", "bpf", "-O2", *(f"-I{folder}" for folder in headers),
                *(f"-D{name}={value}" for name, value in definitions.items()),
                "-c", SOURCES / "ingress_loss.c", "-o", program)
        return program

    def lose(self, name, *which, **what):
        """So many of the packets that come to the node are lost: see prepare_loss()."""
        program = self.prepare_loss(*which, **what)
        run("tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "clsact")
        self.lossy.add(name)
        run("tc", "-n", name, "filter", "add", "dev", INTERFACE, "ingress", "bpf", "direct-action", "obj",
            program, "section", "classifier")

    def keep_all(self, name):
        run("tc", "-n", name, "qdisc", "del", "dev", INTERFACE, "clsact")
        self.lossy.discard(name)

    # Rate

    def _ends(self, name):
        yield ["tc", "-n", name, "qdisc"], INTERFACE
        yield ["tc", "qdisc"], self.port(name)

    def limit(self, name, rate=RATE):
        """So much goes each way."""
        for command, device in self._ends(name):
            run(*command, "add", "dev", device, "root", "tbf", "rate", rate, "burst", "32kb", "latency",
                "400ms")
        self.limited.add(name)

    def unlimit(self, name):
        for command, device in self._ends(name):
            run(*command, "del", "dev", device, "root")
        self.limited.discard(name)

    # Processes

    @staticmethod
    def kill(pid, number=signal.SIGKILL):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def kill_all(self, name):
        """Everything that runs on the node, at once."""
        for pid in run("ip", "netns", "pids", name).split():
            self.kill(int(pid))

    def heal(self):
        for name in list(self.down):
            self.link_up(name)
        self.join()
        for name in list(self.lossy):
            self.keep_all(name)
        for name in list(self.limited):
            self.unlimit(name)


# What follows shows that the faults are what they say.


class InNamespace:
    """What is opened here belongs to the node, and stays there."""

    def __init__(self, name):
        self.name = name

    @staticmethod
    def _enter(path):
        with open(path, encoding="utf-8") as file:
            if _libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise Failed(f"{path} cannot be entered: {os.strerror(ctypes.get_errno())}")

    def __enter__(self):
        self._back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._enter(f"/run/netns/{self.name}")

    def __exit__(self, *_):
        _libc.setns(self._back, _CLONE_NEWNET)
        os.close(self._back)


class SelfTest:
    """Each fault, and what becomes of packets."""

    PORT, OTHER = 7733, 9000

    def __init__(self, faults):
        self.faults = faults
        self.names = faults.nodes.names
        self.failures = []
        self.datagrams = {(name, port): self._socket(name, socket.SOCK_DGRAM, port)
                          for name in self.names for port in (self.PORT, self.OTHER)}

    def _socket(self, name, kind, port):
        with InNamespace(name):
            opened = socket.socket(socket.AF_INET, kind)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        opened.bind((self.faults.address(name), port))
        return opened

    def share(self, source, target, count=50, port=OTHER):
        """Which part of so many datagrams arrives."""
        receiver = self.datagrams[target, port]
        receiver.setblocking(False)
        self._drain(receiver)
        arrived = 0
        for number in range(count):
            try:
                self.datagrams[source, port].sendto(b"%d" % number, (self.faults.address(target), port))
            except OSError:
                pass  # no route: it is lost as well
            arrived += self._drain(receiver)
        time.sleep(0.05)
        return (arrived + self._drain(receiver)) / count

    @staticmethod
    def _drain(receiver):
        count = 0
        try:
            while receiver.recv(100):
                count += 1
        except BlockingIOError:
            pass
        return count

    def expect(self, what, seen, least, most):
        good = least <= seen <= most
        print(f"{'ok    ' if good else 'FAILED'} {what}: {seen:.3f}, from {least} to {most}", flush=True)
        if not good:
            self.failures.append(what)

    def expect_all(self, what):
        """Every node reaches every other; a link that has just come up may take a moment."""
        end = time.monotonic() + 5
        pairs = [(a, b) for a in self.names for b in self.names if a != b]
        while time.monotonic() < end and any(self.share(a, b, 1) < 1 for a, b in pairs):
            pass
        self.expect(f"{what}, all reach all", min(self.share(a, b) for a, b in pairs), 1, 1)

    def links(self):
        a, b, c = self.names
        self.faults.link_down(a)
        for source, target in ((a, b), (b, a)):
            self.expect(f"link of {a} down, {source} to {target}", self.share(source, target), 0, 0)
        self.expect(f"link of {a} down, {b} to {c}", self.share(b, c), 1, 1)
        self.faults.link_up(a)
        self.expect_all("link up")
        self.faults.part([a], [b, c])
        for source, target in ((a, b), (b, a), (a, c), (c, a)):
            self.expect(f"{a} parted from the others, {source} to {target}", self.share(source, target), 0, 0)
        self.expect(f"{a} parted from the others, {b} to {c}", self.share(b, c), 1, 1)
        self.faults.join()
        self.expect_all("joined")

    def losses(self):
        a, b, c = self.names
        why = self.faults.why_no_loss()
        if why:
            print(f"left out: {why}")
            return
        self.faults.lose(b)
        self.expect(f"{b} hears nothing, {a} to {b}", self.share(a, b), 0, 0)
        self.faults.keep_all(b)
        self.expect_all("loss over")
        # Both know each other's address by now, so what the others answer needs no ARP.
        self.faults.lose(b)
        self.expect(f"{b} hears nothing, {b} to {a}", self.share(b, a), 1, 1)
        self.faults.keep_all(b)
        self.faults.lose(b, peer=a)
        self.expect(f"{b} does not hear {a}, {a} to {b}", self.share(a, b), 0, 0)
        self.expect(f"{b} does not hear {a}, {c} to {b}", self.share(c, b), 1, 1)
        self.faults.keep_all(b)
        for besides in (False, True):
            self.faults.lose(b, port=self.PORT, besides=besides)
            for port in (self.PORT, self.OTHER):
                lost = (port == self.PORT) != besides
                self.expect(f"{b} loses {'all but ' if besides else ''}port {self.PORT}, {a} to {b}:{port}",
                            self.share(a, b, port=port), int(not lost), int(not lost))
            self.faults.keep_all(b)
        self.faults.lose(b, 50_000)
        self.expect(f"{b} loses 5 %, {a} to {b}", self.share(a, b, 4000), 0.93, 0.97)
        self.expect(f"{b} loses 5 %, {b} to {a}", self.share(b, a, 4000), 1, 1)
        self.faults.keep_all(b)
        self.expect_all("loss over")

    def rates(self):
        a, b = self.names[:2]
        unlimited = self.mebibyte_seconds(a, b)
        self.faults.limit(b)
        self.expect(f"{b} limited to {RATE}, a mebibyte to it, s", self.mebibyte_seconds(a, b), 0.7, 3)
        self.expect(f"{b} limited to {RATE}, a mebibyte from it, s", self.mebibyte_seconds(b, a), 0.7, 3)
        self.faults.unlimit(b)
        self.expect("not limited, a mebibyte, s", max(unlimited, self.mebibyte_seconds(a, b)), 0, 0.5)

    def mebibyte_seconds(self, source, target):
        listener = self._socket(target, socket.SOCK_STREAM, 0)
        listener.listen()
        sender = self._socket(source, socket.SOCK_STREAM, 0)
        sender.connect(listener.getsockname())
        receiver, _ = listener.accept()
        receiver.setblocking(False)
        sender.setblocking(False)
        begin, rest, left = time.monotonic(), 1 << 20, 1 << 20
        while left > 0 and time.monotonic() < begin + 20:
            try:
                rest -= sender.send(bytes(min(rest, 65536))) if rest else 0
            except BlockingIOError:
                pass
            try:
                left -= len(receiver.recv(65536))
            except BlockingIOError:
                time.sleep(0.001)
        for each in (listener, sender, receiver):
            each.close()
        return time.monotonic() - begin

    def processes(self):
        a, b = self.names[:2]
        sleepers = {name: [subprocess.Popen(inside(name, "sleep", "600")) for _ in range(3)]
                    for name in (a, b)}
        time.sleep(0.3)
        one = sleepers[a][0]
        self.faults.kill(one.pid, signal.SIGSTOP)
        time.sleep(0.05)
        status = pathlib.Path(f"/proc/{one.pid}/stat").read_text(encoding="utf-8")
        state = status.rpartition(")")[2].split()[0]
        self.expect("stopped processes of one that is stopped", int(state == "T"), 1, 1)
        begin = time.monotonic()
        self.faults.kill_all(a)
        for sleeper in sleepers[a]:
            sleeper.wait(10)
        self.expect(f"all of {a} are gone, s", time.monotonic() - begin, 0, 1)
        self.expect(f"processes of {b}", sum(sleeper.poll() is None for sleeper in sleepers[b]), 3, 3)
        self.faults.kill_all(b)
        for sleeper in sleepers[b]:
            sleeper.wait(10)

    def __call__(self):
        self.expect_all("healthy")
        for part in (self.links, self.losses, self.rates, self.processes):
            part()
        return self.failures


def main():
    if sys.argv[1:] != ["--self-test"]:
        sys.exit(__doc__)
    why = why_not()
    if why:
        print(f"skipped: network namespaces cannot be made: {why}")
        sys.exit(77)
    enter_namespaces()
    nodes = Nodes(3)
    try:
        with tempfile.TemporaryDirectory() as folder:
            failures = SelfTest(NodeFaults(nodes, folder))()
    finally:
        nodes.remove()
    print(f"{len(failures)} failed" if failures else "every fault is what it says")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
