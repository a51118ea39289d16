#!/usr/bin/env python3
"""Two nodes whose interfaces are not alike: `interfaces.py --bin FOLDER --rank PROGRAM [--network NAME]
[--runs N] [--within SECONDS] [--only CASE]`.

Each case makes two network namespaces with a daemon in each, waits until their job is ready, and lets its
ranks reduce; or holds the error against what it should name. Prints a line for each case. Ends with 1 if one
was wrong, and with 77 where no namespaces can be made.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))

from cluster_of_namespaces import Cluster, Failed, Nodes, enter_namespaces, inside, run, why_not

SKIPPED = 77
PATIENCE_S = 30
VARIABLES = {"ucx": "UCX_NET_DEVICES", "ofi": "FI_TCP_IFACE"}
FOUR, SIX = "10.66.0.{}/24", "fd66::{}/64"


@dataclass
class Case:
    name: str
    own: tuple = (FOUR,)        # addresses of eth0
    written: str = "10.66.0.[1-2]"  # in the cluster file
    eth1: str = ""              # its address; empty: there is none
    leads: bool = False         # eth1 of both nodes are joined
    mtu: int = 1500             # of eth1
    narrow: bool = False        # what joins them takes packets of 1500 bytes alone, and tells nobody
    interfaces: str = ""        # cluster.interfaces
    variable: str = ""          # what the environment of the daemons says to the library
    hosts: tuple = ()           # lines of /etc/hosts; {own} is the address that a node has for itself
    logged: tuple = ()          # what each node's log has to say, with {variable}
    refused: tuple = ()         # what `muster status` has to say; then there is no job
    doctor: tuple = ()          # what `muster doctor` has to say on node01


CASES = [
    Case("one interface", logged=("uses eth0 (10.66.0.",),
         doctor=("ok data interface eth0 (10.66.0.1, MTU 1500)",
                 "ok path to node02 256 KiB from eth0 (10.66.0.1, MTU 1500) to 10.66.0.2 and back")),
    Case("an eth1 with the same address on both nodes", eth1="172.17.0.1/16", logged=("uses eth0",)),
    Case("an eth1 that leads nowhere, with an MTU of 9000", eth1="10.77.0.{}/24", mtu=9000,
         logged=("uses eth0",)),
    Case("IPv6 alone", own=(SIX,), written="fd66::[1-2]", logged=("uses eth0 (fd66::",),
         doctor=("ok path to node02 256 KiB from eth0 (fd66::1, MTU 1500) to fd66::2 and back",)),
    Case("IPv4 and IPv6, and the file has IPv4", own=(FOUR, SIX), logged=("uses eth0 (10.66.0.",)),
    Case("IPv4 and IPv6, and the file has IPv6", own=(FOUR, SIX), written="fd66::[1-2]",
         logged=("uses eth0 (fd66::",)),
    Case("an eth0 with an address of another subnet before its own", own=("10.88.0.{}/24", FOUR),
         logged=("uses eth0 (10.66.0.",)),
    Case("names, and each node's own means loopback", written="node[01-02]", eth1="172.17.0.1/16",
         hosts=("10.66.0.1 node01", "10.66.0.2 node02", "127.0.1.1 {own}"), logged=("uses eth0 (10.66.0.",)),
    Case("names of IPv6 alone", own=(FOUR, SIX), written="node[01-02]",
         hosts=("fd66::1 node01", "fd66::2 node02"), logged=("uses eth0 (fd66::",)),
    Case("an eth1 that cluster.interfaces names by its subnet", eth1="10.77.0.{}/24", leads=True, mtu=9000,
         interfaces="[10.77.0.0/24]", logged=("uses eth1 (10.77.0.", "cluster.interfaces")),
    Case("an eth0 that cluster.interfaces excludes", eth1="10.77.0.{}/24", leads=True, interfaces="[^eth0]",
         logged=("uses eth1 (10.77.0.",)),
    Case("an eth1 that the daemon's environment names", eth1="10.77.0.{}/24", leads=True, variable="eth1",
         interfaces="[eth0]",
         logged=("{variable}=eth1 of the daemon's environment wins over cluster.interfaces",)),
    Case("a way that takes smaller packets than its interfaces", eth1="10.77.0.{}/24", leads=True, mtu=9000,
         narrow=True, interfaces="[eth1]", logged=("uses eth1 (10.77.0.",),
         doctor=("failure path to node02 small messages pass between eth1 (10.77.0.1, MTU 9000) and",
                 "one of 256 KiB does not come there", "MTU", "cluster.interfaces")),
    Case("an interface that is not there", eth1="172.17.0.1/16", interfaces="[eth7]",
         refused=("cluster.interfaces: 'eth7' matches no network device", "eth0 (10.66.0.",
                  "eth1 (172.17.0.1)"),
         doctor=("failure data interface cluster.interfaces: 'eth7' matches no network device",)),
    Case("an interface that leads nowhere", eth1="10.77.0.{}/24", interfaces="[eth1]",
         refused=("eth1 (10.77.0.", "cluster.interfaces"),
         doctor=("failure path to node02 eth1 (10.77.0.1, MTU 1500) does not reach 10.77.0.2",
                 "cluster.interfaces")),
]


class CaseNodes(Nodes):
    def __init__(self, case):
        super().__init__(2, case.own)
        for n, name in enumerate(self.names) if case.eth1 else ():
            far = f"far{n}"
            run("ip", "link", "add", far, "type", "veth", "peer", "name", "eth1", "netns", name)
            run("ip", "link", "set", far, "mtu", 1500 if case.narrow else case.mtu, "up")
            if case.leads:
                if n == 0:
                    run("ip", "link", "add", "second", "type", "bridge")
                    run("ip", "link", "set", "second", "up")
                run("ip", "link", "set", far, "master", "second")
            run("ip", "-n", name, "link", "set", "eth1", "mtu", case.mtu, "up")
            if case.narrow:  # else one packet that is cut later passes for many
                run("ip", "-n", name, "link", "set", "eth1", "gso_max_segs", "1")
            self.give(name, "eth1", case.eth1.format(n + 1))
        self.case = case

    def remove(self):
        for n, _ in enumerate(self.names) if self.case.eth1 else ():
            run("ip", "link", "del", f"far{n}")  # a namespace may outlive what connections have not sent
        super().remove()
        if self.case.leads:
            run("ip", "link", "del", "second")


class CaseCluster(Cluster):
    def __init__(self, folder, options, nodes, case):
        self.case, self.variable = case, VARIABLES[options.network]
        interfaces = f", interfaces: {case.interfaces}" if case.interfaces else ""
        super().__init__(folder, options.bin, nodes.names, options.network, 1, "dp_shard=2",
                         more_of_cluster=interfaces, addresses=case.written)
        for name in self.names if case.hosts else ():
            loopback = any("{own}" in line for line in case.hosts)
            lines = [line.format(own=name) for line in case.hosts
                     if not (loopback and line.endswith(" " + name))]
            (self.folder / f"{name}.hosts").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def words(self, name):
        words = super().words(name)
        if self.case.variable:
            words = ["env", f"{self.variable}={self.case.variable}", *words]
        if self.case.hosts:
            script = f"mount --bind '{self.folder}/{name}.hosts' /etc/hosts && exec \"$@\""
            words = ["unshare", "--mount", "sh", "-c", script, "sh", *words]
        return words

    def told(self, name):
        return self.muster("status", "--endpoint", self.socket(name))

    def await_refusal(self):
        """Until one of the nodes says what it should; the leader says it first."""
        end = time.monotonic() + PATIENCE_S
        said = ""
        while time.monotonic() < end:
            time.sleep(0.1)
            try:
                said = self.told(self.names[0])
            except Failed:  # the daemon has no socket yet
                continue
            plain = " ".join(said.split())
            if all(text in plain for text in self.case.refused):
                return
        raise Failed(f"`muster status` does not name {self.case.refused}:\n{said}\n{self.logs()}")

    def check_doctor(self):
        """The daemon of node01 must not be the only one: its peer says where it can be tried."""
        if not self.case.doctor:
            return
        end = time.monotonic() + PATIENCE_S
        while True:
            words = [self.programs / "muster", "doctor", "--endpoint", self.socket("node01")]
            done = subprocess.run(inside("node01", *words), capture_output=True, text=True, check=False,
                                  env={**os.environ, "COLUMNS": "400"})
            plain = " ".join(done.stdout.split())
            if all(text in plain for text in self.case.doctor):
                return
            if time.monotonic() > end:
                raise Failed(f"`muster doctor` does not say {self.case.doctor}:\n{done.stdout}{done.stderr}\n"
                             f"{self.logs()}")

    def check_logs(self):
        for name in self.names:
            log = (self.folder / f"{name}.log").read_text(encoding="utf-8")
            for text in self.case.logged:
                if text.format(variable=self.variable) not in log:
                    raise Failed(f"the log of {name} does not say \"{text}\":\n{log[-3000:]}")

    def reduce(self, program):
        ranks = [subprocess.Popen(command, env=environment, text=True, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                 for command, environment in self.ranks([program, "world"])]
        for number, rank in enumerate(ranks):
            _, err = rank.communicate(timeout=PATIENCE_S)
            if rank.returncode != 0:
                raise Failed(f"rank {number} ended with status {rank.returncode}: {err.strip()[-600:]}\n"
                             f"{self.logs()}")


def try_once(options, nodes, case, checks):
    """The seconds from the start of the daemons until the job is ready on both."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = CaseCluster(folder, options, nodes, case)
        begin = time.monotonic()
        with cluster:
            if case.refused:
                cluster.await_refusal()
                seconds = time.monotonic() - begin
                cluster.check_doctor()
                return seconds
            cluster.await_job()
            seconds = time.monotonic() - begin
            cluster.check_logs()
            if checks:
                cluster.check_doctor()
            if not case.narrow:
                cluster.reduce(options.rank)
            return seconds


def try_case(options, case):
    nodes = CaseNodes(case)
    try:
        runs = 1 if case.refused else options.runs
        seconds = sorted(try_once(options, nodes, case, checks=n == 0) for n in range(runs))
    finally:
        nodes.remove()
    if case.refused:
        print(f"{options.network}, {case.name}: named after {seconds[0]:.1f} s", flush=True)
        return
    good = sum(each <= options.within for each in seconds)
    print(f"{options.network}, {case.name}: ready within {options.within:g} s {good} of {runs} times; median "
          f"{seconds[runs // 2]:.2f} s, at most {seconds[-1]:.2f} s", flush=True)
    if good < runs and options.strict:
        raise Failed(f"{case.name}: {runs - good} runs took longer than {options.within:g} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--rank", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--network", choices=("ucx", "ofi"), default="ucx")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--within", type=float, default=2.0)
    parser.add_argument("--strict", action="store_true", help="a job that takes longer is a failure")
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    why = why_not()
    if why:
        print(f"no nodes can be made here: {why}")
        return SKIPPED
    for variable in VARIABLES.values():
        os.environ.pop(variable, None)
    enter_namespaces()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("interfaces: told to end"))
    try:
        for case in CASES:
            if options.only in case.name:
                try_case(options, case)
    except Failed as failure:
        print(f"{options.network}, {case.name}: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
