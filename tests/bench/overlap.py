#!/usr/bin/env python3
"""What overlaps on a slow link between two nodes, which are network namespaces of this machine.

  overlap.py [--sections NAME...] [--networks NAME...] [--rounds N] [--quick] [--json FILE]

reduce: an all-reduce behind as much work. With A, W and B the seconds of the all-reduce alone, of the work
alone and of both, overlap = 1 - (B - max(A, W)) / min(A, W), the median of rounds.
halo: a halo of 8 KiB alone, while an all-gather, or that and a reduce-scatter, fills the link, and on one
lane with them; what it waits for is told apart. The same on one node.
field: layers of convolutions whose halos cross the link, with a halo for each and with one for all; and
the same kernels beside plain sockets.
train: train_lm over both nodes, with prefetch 0, 1 and 2.
winds: a trace of the U-Net on domain=2,dp_shard=2 over both nodes: how long a gather, a reduction and a halo
are in flight at once; and what of a step waits for halos on two ranks of one node.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # the tree stays as it was

SOURCES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent.parent / "deploy"))

import cluster_of_namespaces
import sides
from cluster_of_namespaces import Failed, run
from nodes import contenders

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
BIN = BENCH.parent / "bin"
RANK, FIELD = BENCH / "peers" / "overlap_rank", BENCH / "peers" / "field_rank"
INTERFACE = contenders.INTERFACE
SECTIONS = ("reduce", "halo", "field", "train", "winds")
KIB, MIB = 2**10, 2**20
GIGABIT, SLOW = "1gbit", "100mbit"
ON_SLOW = ("field", "train", "winds")
BYTES_PER_SECOND = {GIGABIT: 125e6, SLOW: 12.5e6}
HALO = 8 * KIB
BOTH = ["gather", "reduction"]
CHUNK = MIB  # that a connection's library has at once: chunk_room.hpp
LOW_WATER = 128 * KIB  # that a socket takes beyond what is on its way
LOOK_SECONDS = 0.05
LIMIT_SECONDS = 300
WORK = {"all": "arithmetic on both nodes", "one": "arithmetic on one node",
        "kernels": "kernels on both nodes"}
FULL = {"reduce_bytes": 16 * MIB, "rounds": 7, "work": list(WORK),
        "bulk_bytes": {GIGABIT: 64 * MIB, SLOW: 8 * MIB}, "halo_seconds": 2.0,
        "prefetch": (0, 1, 2), "steps": 20,
        "model": {"batch": 192, "context": 64, "layers": 4, "width": 128, "heads": 4},
        "field": ((64, 480, 32, 4, 9), (96, 480, 32, 4, 9), (32, 480, 32, 4, 9)), "winds_steps": 6}
QUICK = {"reduce_bytes": 256 * KIB, "rounds": 1, "work": ["one"],
         "bulk_bytes": {GIGABIT: 8 * MIB, SLOW: 3 * MIB}, "halo_seconds": 0.05, "prefetch": (1,), "steps": 2,
         "model": {"batch": 4, "context": 16, "layers": 1, "width": 32, "heads": 2},
         "field": ((16, 32, 8, 2, 1),), "winds_steps": 3}


def say(line=""):
    print(line, flush=True)


def percent(part):
    return f"{100 * part:.1f} %"


def milliseconds(seconds):
    return f"{1e3 * seconds:.1f}"


class Sockets(threading.Thread):
    """Looks at what the sockets between the nodes, and the queue of the link, hold on a node."""

    def __init__(self, name):
        super().__init__(daemon=True)
        self.name_of_node = name
        self.ended = threading.Event()
        self.socket_bytes, self.link_bytes = [], []

    def run(self):
        of_daemons = f":{cluster_of_namespaces.PORT}"
        while not self.ended.wait(LOOK_SECONDS):
            shown = run("ip", "netns", "exec", self.name_of_node, "ss", "--tcp", "--no-header", "--numeric",
                        "state", "established")
            self.socket_bytes.append(sum(
                int(sent) for _, sent, here, there, *_ in map(str.split, shown.splitlines())
                if not here.endswith(of_daemons) and not there.endswith(of_daemons)))
            queues = run("tc", "-n", self.name_of_node, "-s", "-j", "qdisc", "show", "dev", INTERFACE)
            self.link_bytes.append(max(queue.get("backlog", 0) for queue in json.loads(queues)))

    def stop(self):
        self.ended.set()
        self.join()


class CoreOfItsOwn(cluster_of_namespaces.Cluster):
    """Each node has a core, as nodes have: else the kernel lets one wait for the other's time slices."""

    def core(self, name):
        return ["taskset", "-c", str(self.names.index(name) % os.cpu_count())]

    def words(self, name):
        return self.core(name) + super().words(name)

    def ranks(self, words):
        for rank, (command, environment) in enumerate(super().ranks(words)):
            yield self.core(self.names[rank // self.devices]) + command, environment


class Overlap:
    def __init__(self, options, nodes, folder):
        self.options, self.nodes = options, nodes
        self.sizes = QUICK if options.quick else FULL
        self.turns = contenders.Run(folder, nodes)

    def log(self, what):
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)

    # ---- the link ----

    def limit(self, rate):
        """So much leaves each node. A burst is longer than the packets that sockets give, so that the
        node's core cuts none; on the slow link a halo is no burst."""
        burst, packet = {GIGABIT: ("128kb", 65536), SLOW: ("16kb", 15000)}[rate]
        for name in self.nodes.names:
            run("ip", "-n", name, "link", "set", INTERFACE, "gso_max_size", packet)
            run("tc", "-n", name, "qdisc", "replace", "dev", INTERFACE, "root", "tbf", "rate", rate,
                "burst", burst, "latency", "20ms")

    def keep_low(self, low_water):
        """How many bytes a socket takes that are not on their way yet; None: as many as it likes."""
        for name in self.nodes.names:
            run("ip", "netns", "exec", name, "sh", "-c",
                f"echo {low_water or 2**32 - 1} >/proc/sys/net/ipv4/tcp_notsent_lowat")

    # ---- programs on the nodes ----

    def cluster(self, network, ranks=1, mesh=None, kind=cluster_of_namespaces.Cluster):
        """With so many ranks on each node."""
        return kind(self.turns.new_folder(), BIN, self.nodes.names, network, ranks,
                    mesh or f"dp_shard={len(self.nodes.names)}")

    def on_one_node(self, mesh, ranks, words):
        """The JSON of rank 0's last line."""
        said = run(BIN / "muster", "run", "--private", "-n", ranks, "--mesh", mesh, "--", *words)
        line = [line for line in said.splitlines() if "{" in line][-1]
        return json.loads(line[line.index("{"):])

    def on_all(self, cluster, words):
        """Of a program on each node: (the JSON of rank 0's last line, what it says otherwise)."""
        ranks = [subprocess.Popen([str(word) for word in command], env=environment, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  start_new_session=True)
                 for command, environment in cluster.ranks(words)]
        try:
            said = [rank.communicate(timeout=LIMIT_SECONDS) for rank in ranks]
        except subprocess.TimeoutExpired:
            raise Failed(f"{words[0]} took longer than {LIMIT_SECONDS} s\n{cluster.logs()}") from None
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    os.killpg(rank.pid, signal.SIGKILL)
        for rank, (out, err) in zip(ranks, said):
            if rank.returncode != 0:
                raise Failed(f"{words[0]} ended with status {rank.returncode}: {err[-800:]}\n"
                             f"{cluster.logs()}")
        lines = [line for line in said[0][0].splitlines() if line.startswith("{")]
        return json.loads(lines[-1]), said[0][1]

    # ---- sections ----

    def reduce(self, network):
        rows = []
        for work in self.sizes["work"]:
            self.log(f"{network}: an all-reduce behind {WORK[work]}")
            with self.cluster(network) as cluster:
                cluster.await_job()
                found, _ = self.on_all(cluster, [RANK, "reduce", self.sizes["reduce_bytes"],
                                                 self.options.rounds or self.sizes["rounds"], work])
            rows.append({"network": network, "work": work, "bytes": self.sizes["reduce_bytes"], **found})
        return rows

    def halo(self, network):
        rows = []
        for rate, low_water, bulk in ((GIGABIT, None, ["gather"]), (GIGABIT, LOW_WATER, ["gather"]),
                                      (GIGABIT, None, BOTH), (SLOW, None, BOTH)):
            self.log(f"{network}: a halo beside {' and '.join(bulk)} on {rate}")
            self.limit(rate)
            self.keep_low(low_water)
            bulk_bytes = self.sizes["bulk_bytes"][rate]
            with self.cluster(network) as cluster:
                cluster.await_job()
                sockets = Sockets(self.nodes.names[0])
                sockets.start()
                try:
                    found, _ = self.on_all(cluster, self.halo_words(bulk, bulk_bytes))
                finally:
                    sockets.stop()
                groups = json.loads(cluster.muster(
                    "top", "--json", "--once", "--interval", "0.2", "--job", "train", "--endpoint",
                    cluster.socket(self.nodes.names[0])))["groups"]
            rows.append({"network": network, "link": rate, "bulk": bulk, "low_water": low_water,
                         "halo_bytes": HALO, "bulk_bytes": bulk_bytes, **found,
                         "engine_bytes": max(group["bulk_ahead_bytes"] for group in groups),
                         "socket_bytes": max(sockets.socket_bytes, default=0),
                         "link_bytes": max(sockets.link_bytes, default=0)})
        self.keep_low(None)
        self.limit(GIGABIT)
        if network == self.options.networks[0]:
            self.log("a halo beside both on one node")
            rows.append({"network": "one node", "bulk": BOTH,
                         **self.on_one_node("dp_shard=2", 2,
                                            self.halo_words(BOTH, self.sizes["bulk_bytes"][GIGABIT]))})
        return rows

    def halo_words(self, bulk, bulk_bytes):
        return [RANK, "halo", bulk_bytes, HALO // 2, self.sizes["halo_seconds"],
                *(["both"] if bulk == BOTH else [])]

    def field(self, network):
        rows = []
        for sizes in self.sizes["field"]:
            self.log(f"{network}: layers on {sizes[0]} rows of each node")
            with self.cluster(network, kind=CoreOfItsOwn) as cluster:
                cluster.await_job()
                found, _ = self.on_all(cluster, [FIELD, *sizes, self.nodes.addresses[0]])
            rows.append({"network": network, "rows": sizes[0], **found})
        return rows

    def winds(self, network):
        self.log(f"{network}: a trace of winds on domain=2,dp_shard=2")
        words = [BIN / "winds", "--seed", "7", "--steps", self.sizes["winds_steps"], "--json"]
        with self.cluster(network, 2, "domain=2,dp_shard=2") as cluster:
            cluster.await_job()
            trace = self.turns.new_folder() / "winds.trace.json"
            found, _ = self.on_all(cluster, [*words, "--trace", trace])
            row = {"network": network, "exposed": found["exposed_fraction"],
                   "halo_exposed": found["halo_exposed_fraction"], **at_once(json.loads(trace.read_text()))}
        self.log("winds on two ranks of one node")
        alone = self.on_one_node("domain=2", 2, words)
        row["one_node_halo_exposed"] = alone["halo_exposed_fraction"]
        row["one_node_exposed"] = alone["exposed_fraction"]
        return [row]

    def train(self, network):
        mesh = f"dp_shard={len(self.nodes.names)}"
        model = {**self.sizes["model"], "steps": self.sizes["steps"], "seed": 7}
        tokens = model["batch"] * model["context"]
        self.log("train_lm without communication")
        apart = sides.Muster(BIN, RANK).train_apart(mesh, model)
        rows = []
        for prefetch in self.sizes["prefetch"]:
            self.log(f"{network}: train_lm with prefetch {prefetch}")
            with self.cluster(network) as cluster:
                cluster.await_job()
                before = self.turns.sent_bytes(self.nodes.names[0])
                words = [BIN / "train_lm", "--json", "--generate", "0", "--prefetch", prefetch]
                found, err = self.on_all(cluster, words + sides.words_of(model))
                sent = self.turns.sent_bytes(self.nodes.names[0]) - before
            step = tokens / sides.Muster.steady_rate(found, err, model)
            alone = tokens / apart["tokens_per_second"]
            rows.append({"network": network, "prefetch": prefetch, "step_s": step, "without_s": alone,
                         "exposed_s": step - alone, "waiting": found["exposed_fraction"],
                         "sent_bytes_a_step": sent / model["steps"], "loss": found["final_loss"]})
        return rows


def at_once(trace):
    """How often, and for how many ms, a gather, a reduction and a halo of one rank were in flight at once."""
    kinds = ("gather", "reduce", "halo")
    moments = {}
    for event in trace["traceEvents"]:
        kind = event.get("cat", "").split("/")[0]
        if event.get("ph") == "X" and kind in kinds:
            of_rank = moments.setdefault(event["pid"], [])
            of_rank += [(event["ts"], 1, kind), (event["ts"] + event["dur"], -1, kind)]
    times, long = 0, 0.0
    for of_rank in moments.values():
        open_now, since = dict.fromkeys(kinds, 0), None
        for moment, change, kind in sorted(of_rank):
            open_now[kind] += change
            if all(open_now.values()):
                since = moment if since is None else since
            elif since is not None:
                times, long, since = times + (moment > since), long + moment - since, None
    return {"at_once": times, "at_once_ms": long / 1e3}


# ---- what was found ----


def print_reduce(rows):
    say(f"\nan all-reduce of {rows[0]['bytes'] // KIB} KiB behind as much work, on {GIGABIT}; ms, medians of "
        f"{rows[0]['rounds']}; how many of {os.cpu_count()} cores are busy, and the overlap that they allow")
    say(f"{'work':<26}{'by':<5}{'alone':>8}{'work':>8}{'both':>8}{'overlap':>10}"
        f"{'cores: alone':>14}{'work':>7}{'both':>7}{'allow':>10}")
    for row in rows:
        cores = [row[f"{name}_core_s"] / row[f"{name}_s"] for name in ("alone", "work", "both")]
        # All that both need, on all cores.
        shorter, longer = sorted((row["alone_s"], row["work_s"]))
        least = max(longer, (row["alone_core_s"] + row["work_core_s"]) / os.cpu_count())
        row["allowed"] = 1 - (least - longer) / shorter
        say(f"{WORK[row['work']]:<26}{row['network']:<5}"
            + "".join(f"{milliseconds(row[name]):>8}" for name in ("alone_s", "work_s", "both_s"))
            + f"{percent(row['overlap']):>10}{cores[0]:>14.2f}{cores[1]:>7.2f}{cores[2]:>7.2f}"
            f"{percent(row['allowed']):>10}")


def print_halo(rows):
    between = [row for row in rows if "engine_bytes" in row]
    say(f"\na halo of {HALO // KIB} KiB, alone, beside an all-gather, or that and a reduce-scatter, of "
        f"{between[0]['bulk_bytes'] // MIB} MiB each ({SLOW}: {between[-1]['bulk_bytes'] // MIB}), and "
        "behind these on one lane; what was before it at most, in KiB and in ms of the link")
    say(f"{'by':<5}{'link':<9}{'beside':<8}{'unsent, of a socket':<21}{'alone µs':>9}"
        f"{'beside ms':>10}{'p99':>7}{'one lane ms':>13}{'engine':>14}{'sockets':>15}{'link':>12}")
    for row in between:
        held = [(row[name] / KIB, 1e3 * row[name] / BYTES_PER_SECOND[row["link"]])
                for name in ("engine_bytes", "socket_bytes", "link_bytes")]
        low_water = f"{row['low_water'] // KIB} KiB" if row["low_water"] else "no limit"
        say(f"{row['network']:<5}{row['link']:<9}{'both' if row['bulk'] == BOTH else 'gather':<8}"
            f"{low_water:<21}{row['alone_us']['median']:>9.0f}"
            f"{row['behind_us']['median'] / 1e3:>10.1f}{row['behind_us']['p99'] / 1e3:>7.1f}"
            f"{row['one_lane_us']['median'] / 1e3:>13.1f}"
            + "".join(f"{kib:>{width}.0f} {ms:>5.1f}" for (kib, ms), width in zip(held, (8, 9, 6))))
    for row in rows:
        if row not in between:
            beside = row["behind_us"]
            found = f"{beside['median']:.0f} (p99 {beside['p99']:.0f})" if beside["count"] else "no sample"
            say(f"on one node, µs: alone {row['alone_us']['median']:.0f}, beside both {found}, on one lane "
                f"{row['one_lane_us']['median']:.0f}")
    most = max(row["engine_bytes"] for row in between)
    say(f"in the engine it waits for {-(-most // CHUNK)} chunks of {CHUNK // KIB} KiB at most")


def print_train(rows):
    say(f"\ntrain_lm, dp_shard over both nodes, on {SLOW}; ms a step. Exposed is what a step takes longer "
        "than without communication; its share is of the time that the link takes for the step's bytes")
    say(f"{'by':<5}{'prefetch':>8}{'step':>9}{'without':>9}{'exposed':>9}{'on the link':>13}{'share':>9}"
        f"{'kernels waited':>16}")
    for row in rows:
        link = row["sent_bytes_a_step"] / BYTES_PER_SECOND[SLOW]
        say(f"{row['network']:<5}{row['prefetch']:>8}{milliseconds(row['step_s']):>9}"
            f"{milliseconds(row['without_s']):>9}{milliseconds(row['exposed_s']):>9}{milliseconds(link):>13}"
            f"{percent(row['exposed_s'] / link):>9}{percent(row['waiting']):>16}")


def print_field(rows):
    say(f"\n{rows[0]['layers']} layers of convolutions on two nodes, on {SLOW}; ms, medians. The bound is "
        "1.1 max(interior, halo) + boundary. Sockets: the same kernels, as many bytes by plain sockets")
    say(f"{'by':<5}{'rows':>5}{'halos':>9}{'interior':>10}{'halo':>8}{'boundary':>10}{'step':>8}{'bound':>8}"
        f"{'sockets':>9}{'no overlap':>12}")
    for row in rows:
        for kind in ("shallow", "deep"):
            found = row[kind]
            found["bound_s"] = 1.1 * max(found["interior_s"], found["halo_s"]) + found["boundary_s"]
            say(f"{row['network']:<5}{row['rows']:>5}{kind:>9}{milliseconds(found['interior_s']):>10}"
                f"{milliseconds(found['halo_s']):>8}{milliseconds(found['boundary_s']):>10}"
                f"{milliseconds(found['step_s']):>8}{milliseconds(found['bound_s']):>8}"
                f"{milliseconds(found['sockets_s']):>9}{milliseconds(found['apart_s']):>12}")


def print_winds(rows):
    for row in rows:
        say(f"\nwinds on domain=2,dp_shard=2 by {row['network']}, on {SLOW}: a gather, a reduction and a "
            f"halo of a rank at once {row['at_once']} times, {row['at_once_ms']:.1f} ms; kernels waited "
            f"{percent(row['exposed'])} of the time, {percent(row['halo_exposed'])} for halos")
        say(f"winds on two ranks of one node: {percent(row['one_node_exposed'])}, and "
            f"{percent(row['one_node_halo_exposed'])} for halos")


PRINTED = {"reduce": print_reduce, "halo": print_halo, "field": print_field, "train": print_train,
           "winds": print_winds}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--networks", nargs="+", choices=("ucx", "ofi"))
    parser.add_argument("--rounds", type=int, help="of the section reduce")
    parser.add_argument("--quick", action="store_true", help="small sizes, one network: shows that it runs")
    parser.add_argument("--json", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--plots", help="accepted beside other benchmarks; nothing is drawn")
    options = parser.parse_args()
    options.networks = options.networks or (("ucx",) if options.quick else ("ucx", "ofi"))
    return options


def measured(options):
    nodes = cluster_of_namespaces.Nodes(2)
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        overlap = Overlap(options, nodes, folder)
        found = {}
        for section in options.sections:
            overlap.limit(SLOW if section in ON_SLOW else GIGABIT)
            rows = [getattr(overlap, section)(network) for network in options.networks]
            found[section] = sum(rows, [])
            PRINTED[section](found[section])
    finally:
        nodes.remove()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def main():
    options = parsed()
    why = cluster_of_namespaces.why_not()
    found, left_out = {}, []
    if why:
        left_out.append(f"all: this machine makes no nodes: {why}")
        say(f"left out: {left_out[0]}")
    else:
        cluster_of_namespaces.enter_namespaces()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("overlap: told to end"))
        try:
            found = measured(options)
        except Failed as failure:
            sys.exit(f"overlap: {failure}")
    if options.json:
        text = json.dumps({"schema_version": 1, **found, "left_out": left_out}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
