"""Several nodes on one machine: network namespaces on a bridge, and on them daemons with a job over all.

Everything lies in namespaces of the program that imports this, and goes with them. Without root they lie in a
user namespace.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

PATIENCE_SECONDS = 60
END_SECONDS = 20  # for a daemon that is told to end
PORT = 7733  # on which daemons hear each other
NEEDS = ("each node is a network namespace with mounts of its own, which takes root or user namespaces, "
         "no chroot, and the program ip (package iproute2)")
_INSIDE = "MUSTER_CLUSTER_OF_NAMESPACES"  # set once the program runs in namespaces of its own


class Failed(Exception):
    """In one sentence."""


def run(*words, **more):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
                          **more)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)} ended with status {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def _unshare():
    words = ["unshare", "--net", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    return words


def why_not():
    """Why no nodes can be made here, or None."""
    if _INSIDE in os.environ:
        return None
    attempt = ("mount -t tmpfs tmpfs /run && ip link add cluster type bridge && "
               "ip link add port type veth peer name eth0 && mkdir /run/netns && ip netns add node01")
    try:
        run(*_unshare(), "sh", "-c", attempt)
    except (Failed, OSError) as error:
        return str(error)
    return None


def enter_namespaces():
    """Starts this program again, where bridges and mounts are its own."""
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        words = _unshare()
        os.execvp(words[0], words + [sys.executable, *sys.argv])
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    os.mkdir("/run/netns")


class Nodes:
    """Namespaces node01, node02, …, joined by a bridge. They end with the namespaces of this program.
    `addresses`: those of each node's eth0, with its number in the place of {}."""

    def __init__(self, count, addresses=("10.66.0.{}/24",)):
        self.names = [f"node{n + 1:02}" for n in range(count)]
        self.addresses = [addresses[0].partition("/")[0].format(n + 1) for n in range(count)]
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "cluster", "type", "bridge")
        run("ip", "link", "set", "cluster", "up")
        for n, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "link", "add", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", f"port{n}", "master", "cluster", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
            for address in addresses:
                self.give(name, "eth0", address.format(n + 1))
            run("ip", "-n", name, "link", "set", "eth0", "up")

    def give(self, name, interface, address):
        # An address of IPv6 can be used at once if nobody is asked for it.
        run("ip", "-n", name, "addr", "add", address, "dev", interface, *["nodad"] * (":" in address))

    def kill(self):
        """What still runs in the nodes, whoever has started it."""
        for name in self.names:
            for pid in run("ip", "netns", "pids", name).split():
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def remove(self):
        self.kill()
        for n, name in enumerate(self.names):
            run("ip", "link", "del", f"port{n}")
            run("ip", "netns", "del", name)
        run("ip", "link", "del", "cluster")


def inside(name, *words):
    """The command that runs `words` on a node. They get a host name and an IPC namespace too: by these
    libraries know whether a peer is on their machine and may be reached through memory."""
    return ["ip", "netns", "exec", name, "unshare", "--ipc", "--uts", "sh", "-c",
            'hostname "$0" && exec "$@"', name, *[str(word) for word in words]]


class Cluster:
    """Daemons on these nodes, with the job `train` over them. `more_of_job` and `other_jobs` are lines of the
    cluster file, `more_of_cluster` keys of its first one. `addresses`: of the nodes, as that file has
    them."""

    def __init__(self, folder, programs, names, network, devices, dims, reproducible=False, more_of_job="",
                 other_jobs=(), more_of_cluster="", addresses=None):
        self.folder, self.programs, self.names = pathlib.Path(folder), programs, names
        self.devices = devices
        self.daemons = []
        count = len(names)
        addresses = addresses or f"10.66.0.[1-{count}]"
        self.file = self.folder / "cluster.yaml"
        self.file.write_text(
            f"cluster: {{name: demo, port: {PORT}, network: {network}{more_of_cluster}}}\n"
            "nodes:\n"
            f"  - {{host: \"node[01-{count:02}]\", address: \"{addresses}\", "
            f"devices: {{kind: host, count: {devices}}}}}\n"
            "jobs:\n"
            f"  - name: train\n    reproducible: {'true' if reproducible else 'false'}\n"
            "    mesh:\n      dims: {" + dims.replace("=", ": ").replace(",", ", ") + "}\n" + more_of_job +
            "".join(other_jobs), encoding="utf-8")
        self.file.chmod(0o600)
        self.certificates = self.folder / "certificates"
        self.certificates.mkdir()
        self.muster("certs", "init", "--cluster", "demo", "--folder", self.certificates)
        self.muster("certs", "node", *names, "--folder", self.certificates)

    def muster(self, *words):
        return run(self.programs / "muster", *words)

    def socket(self, name):
        return self.folder / name / "ranks" / "musterd.sock"

    def words(self, name):
        """The command of the node's daemon."""
        settings = {"node.name": name, "jobs_from": self.file, "peers.certificates": self.certificates}
        words = [self.programs / "musterd", "--directory", self.folder / name]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def start(self, name):
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            return subprocess.Popen(inside(name, *self.words(name)), stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=log)

    def __enter__(self):
        for name in self.names:
            (self.folder / name).mkdir()
            self.daemons.append(self.start(name))
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def await_job(self):
        end = time.monotonic() + PATIENCE_SECONDS
        for name, daemon in zip(self.names, self.daemons):
            while not self.is_ready(name):
                if time.monotonic() > end or daemon.poll() is not None:
                    raise Failed(f"the job is not ready on {name}:\n{self.logs()}")
                time.sleep(0.05)

    def logs(self):
        return "".join((self.folder / f"{name}.log").read_text(encoding="utf-8")[-1500:]
                       for name in self.names)

    def is_ready(self, name):
        """A daemon that has just started has no socket yet."""
        try:
            return " ready " in self.muster("jobs", "--endpoint", self.socket(name))
        except Failed:
            return False

    def ranks(self, words):
        """(command, environment) of each rank as a launcher starts it: it attaches to the daemon of its
        node."""
        count = len(self.names) * self.devices
        for rank in range(count):
            name = self.names[rank // self.devices]
            yield inside(name, *words), {**os.environ, "MUSTER_ENDPOINT": str(self.socket(name)),
                                         "MUSTER_JOB": "train", "MUSTER_RANK": str(rank),
                                         "MUSTER_WORLD_SIZE": str(count)}
