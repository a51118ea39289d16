#!/usr/bin/env python3
"""Collectives between nodes that are network namespaces on one bridge: Muster by each of its networks beside
its peers, in turns; beside them messages between two nodes, and the bytes that go over the interfaces.

  cluster.py [--nodes N...] [--ranks-per-node N...] [--operations NAME...] [--bytes N...]
             [--contenders NAME...] [--turns N] [--minutes N] [--quick] [--json FILE]

Of the turns the best median counts: what else runs on the machine only makes it slower. The first turn is
taken by all; later ones begin no further program after so many minutes.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

SOURCES = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(SOURCES.parent.parent / "deploy"))

import cluster_of_namespaces
import links
from nodes import contenders

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
BIN = BENCH.parent / "bin"
NAMES = ("muster", "openmpi", "mpich", "gloo")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "halo")
COUNTED = ("all_reduce", "all_gather")
KIB, MIB = 2**10, 2**20
SIZES = [8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB, 64 * MIB]
QUICK_SIZES = [8, 64 * KIB]
QUICK_LINKS = ("TCP stream", "muster ucx")
# Seconds and number of the samples of a cell, seconds beyond which there are fewer, and seconds that one
# operation may take.
EFFORT = (0.03, 9, 0.1, 1.0)
QUICK_EFFORT = (0.005, 3, 0.01, 1.0)
ONE_RUN = (0.01, 1, 0.0, 100.0)
# What one node must send of a vector, if it has one rank and all nodes do the same.
PAYLOADS = {"all_reduce": lambda nodes: 2 * (nodes - 1) / nodes,
            "all_gather": lambda nodes: (nodes - 1) / nodes}


def say(line=""):
    print(line, flush=True)


def bytes_of(text):
    match = re.fullmatch(r"(\d+)(KiB|MiB)?", text)
    size = int(match[1]) * {None: 1, "KiB": KIB, "MiB": MIB}[match[2]] if match else 0
    if size < 4:
        raise argparse.ArgumentTypeError(f"'{text}': a number from 4 on, with KiB or MiB if you like")
    return size


def size_text(size):
    if size % MIB == 0:
        return f"{size // MIB} MiB"
    return f"{size // KIB} KiB" if size % KIB == 0 else f"{size} B"


def figure_text(value):
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def words_of(contender, operations, sizes, effort):
    """What a rank is to measure, as cells.hpp says."""
    seconds, samples, limit, patience = effort
    return [contender.path, ",".join(operations), ",".join(map(str, sizes)),
            *map(str, (seconds, samples, limit, patience, os.getpid()))]


class Campaign:
    """All that a run finds."""

    def __init__(self, options, run):
        self.options, self.run = options, run
        self.begun = time.monotonic()
        self.rows = {}  # by (nodes, ranks of a node, operation, bytes, contender's title)
        self.versions = {}
        self.left_out = []
        self.remarks = []
        self.cut = {}  # why an operation of a contender ends with a size, by both
        self.traffic = []
        self.links = {}
        self.contenders = []
        for contender in contenders.all_contenders(BIN, BENCH / "peers"):
            if contender.name not in options.contenders:
                continue
            why = contender.missing()
            if why:
                self.leave_out(why)
            else:
                self.contenders.append(contender)

    def log(self, what):
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)

    def leave_out(self, what):
        if what not in self.left_out:
            self.left_out.append(what)
            self.log(f"left out: {what}")

    def remark(self, what):
        self.remarks.append(what)
        self.log(what)

    def leave_out_cut(self):
        """What no turn has measured to the end."""
        largest = 0.9 * self.options.bytes[-1]  # a vector that is cut may be a little smaller
        whole = {(f"{title}, {nodes} nodes of {per_node}", operation)
                 for nodes, per_node, operation, size, title in self.rows if size > largest}
        for key, why in self.cut.items():
            if key not in whole:
                self.leave_out(f"{key[0]}: {': '.join(why.split(': ')[2:])}")

    def names(self, nodes):
        return self.run.nodes.names[:nodes]

    def measure_all(self):
        for turn in range(self.options.turns):
            for nodes in self.options.nodes:
                for per_node in self.options.ranks_per_node:
                    for contender in self.contenders:
                        if turn > 0 and time.monotonic() - self.begun > 60 * self.options.minutes:
                            return
                        self.measure(contender, nodes, per_node, turn)

    def measure(self, contender, nodes, per_node, turn):
        what = f"{contender.title()}, {nodes} nodes of {per_node}"
        begin = time.monotonic()
        effort = QUICK_EFFORT if self.options.quick else EFFORT
        lines, complete, why = contender.measure(self.run, self.names(nodes), per_node, words_of(
            contender, self.options.operations, self.options.bytes, effort))
        self.log(f"turn {turn + 1}, {what}: {time.monotonic() - begin:.1f} s")
        if why and complete:
            self.remark(f"{what}: all was measured, but {why}")
        elif why:
            self.leave_out(f"{what}: the rest, because {why}")
        for line in lines:
            if "wrong" in line.get("left_out", ""):
                self.leave_out(f"{what}: {line['left_out']}")
            elif "left_out" in line:
                self.cut[(what, *line["left_out"].split(": ")[2:3])] = line["left_out"]
            elif "version" in line:
                self.versions[line["peer"]] = line["version"]
            elif "operation" in line:
                key = (nodes, per_node, line["operation"], line["bytes"], contender.title())
                known = self.rows.setdefault(key, {**line, "nodes": nodes, "ranks_per_node": per_node})
                for name in ("median_us", "minimum_us"):
                    known[name] = min(known[name], line[name])

    def measure_links(self):
        first, second = self.names(2)
        ends = links.Ends(contenders.INTERFACE, self.run.address(second),
                          cluster_of_namespaces.inside(second), cluster_of_namespaces.inside(first))
        self.log("messages between two nodes")
        names = QUICK_LINKS if self.options.quick else tuple(links.CONTENDERS)
        self.links, missing = links.measured(ends, self.options.turns, True, names)  # few messages are enough
        for name, why in missing.items():
            self.leave_out(f"messages by {name}: {why}")

    def count_traffic(self):
        """One operation on the largest vector and nothing else, with one rank on each node."""
        size = self.options.bytes[-1]
        for nodes in self.options.nodes:
            for operation in COUNTED[:1] if self.options.quick else COUNTED:
                if operation in self.options.operations:
                    for contender in self.contenders:
                        self.count(contender, nodes, operation, size)

    def count(self, contender, nodes, operation, size):
        names = self.names(nodes)
        before = [self.run.sent_bytes(name) for name in names]
        _, complete, why = contender.measure(self.run, names, 1,
                                             words_of(contender, [operation], [size], ONE_RUN))
        sent = [self.run.sent_bytes(name) - begin for name, begin in zip(names, before)]
        if not complete:
            self.leave_out(f"bytes of {contender.title()}, {operation} on {nodes} nodes: {why}")
            return
        self.traffic.append({"nodes": nodes, "operation": operation, "bytes": size, "peer": contender.name,
                             "path": contender.path, "sent_bytes": sent,
                             "payload_bytes": round(PAYLOADS[operation](nodes) * size)})

    # ---- what was found ----

    def best(self, cell, titles):
        """(median in µs, title) of the fastest of these, or (None, "-")."""
        found = [(self.rows[(*cell, title)]["median_us"], title)
                 for title in titles if (*cell, title) in self.rows]
        return min(found, default=(None, "-"))

    def titles(self, ours):
        return [contender.title() for contender in self.contenders if (contender.name == "muster") == ours]

    def cells(self, nodes, per_node):
        found = {key[2:4] for key in self.rows if key[:2] == (nodes, per_node)}
        return [(nodes, per_node, *cell)
                for cell in sorted(found, key=lambda cell: (OPERATIONS.index(cell[0]), cell[1]))]

    def print_cells(self):
        peers = self.titles(False)
        ratios = []
        for nodes in self.options.nodes:
            for per_node in self.options.ranks_per_node:
                say(f"\n{nodes} nodes of {per_node}: medians in µs; muster by its better network")
                say(f"{'operation':<15}{'bytes':>8}{'muster':>9}  {'by':<4}" +
                    "".join(f"{title:>13}" for title in peers) + f"{'best/muster':>13}")
                for cell in self.cells(nodes, per_node):
                    mine, title = self.best(cell, self.titles(True))
                    peer, _ = self.best(cell, peers)
                    ratio = peer / mine if mine and peer else None
                    ratios += [ratio] if ratio else []
                    say(f"{cell[2]:<15}{size_text(cell[3]):>8}{figure_text(mine):>9}  "
                        f"{title.split('/')[-1]:<4}" +
                        "".join(f"{figure_text(self.best(cell, [peer])[0]):>13}" for peer in peers) +
                        f"{figure_text(ratio):>13}")
        if ratios:
            say(f"\nahead of the best peer in {sum(ratio > 1 for ratio in ratios)} of {len(ratios)} cells; "
                f"best peer/muster {min(ratios):.2f} at least, {statistics.median(ratios):.2f} in the median")

    def print_traffic(self):
        """Bytes beside what must be sent, and the speed of that beside a TCP stream between two nodes."""
        if not self.traffic:
            return
        streams = [rates[1] for rates in self.links.get("TCP stream", {}).values()]
        say(f"\n{'one rank a node':<15}{'bytes':>8}{'nodes':>6}  {'by':<12}{'must send':>10}{'sent':>10}"
            f"{'sent/must':>10}{'GB/s':>7}{'of stream':>10}")
        for row in self.traffic:
            title = f"{row['peer']}/{row['path']}"
            median, _ = self.best((row["nodes"], 1, row["operation"], row["bytes"]), [title])
            rate = row["payload_bytes"] / median / 1e3 if median else None
            row["gb_per_s"] = rate
            most = max(row["sent_bytes"])
            share = f"{100 * rate / max(streams):.0f} %" if rate and streams else "-"
            say(f"{row['operation']:<15}{size_text(row['bytes']):>8}{row['nodes']:>6}  {title:<12}"
                f"{row['payload_bytes'] / MIB:>6.1f} MiB{most / MIB:>6.1f} MiB"
                f"{most / row['payload_bytes']:>10.3f}{figure_text(rate):>7}{share:>10}")

    def print(self):
        self.print_cells()
        if self.links:
            say("\nmessages between two nodes, one rank each")
            links.print_table(self.links)
        self.print_traffic()
        say()
        for peer, version in sorted(self.versions.items()):
            say(f"{peer} {version}")
        for what in self.remarks:
            say(f"note: {what}")
        for what in self.left_out:
            say(f"left out: {what}")

    def report(self):
        order = sorted(self.rows, key=lambda key: (key[0], key[1], OPERATIONS.index(key[2]), *key[3:]))
        return {"schema_version": 1,
                "machine": {"cores": self.run.cores, "kernel": platform.release(),
                            "load_average": self.options.load,
                            "minutes": (time.monotonic() - self.begun) / 60},
                "versions": self.versions, "rows": [self.rows[key] for key in order],
                "links": {name: [{"bytes": size, "half_trip_us": trip, "gb_per_s": rate}
                                 for size, (trip, rate) in rows.items()]
                          for name, rows in self.links.items()},
                "traffic": self.traffic, "remarks": self.remarks, "left_out": self.left_out}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", choices=range(2, 10), metavar="N")
    parser.add_argument("--ranks-per-node", type=int, nargs="+", choices=range(1, 17), metavar="N")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS)
    parser.add_argument("--bytes", type=bytes_of, nargs="+", help="of the full vector: 8 64KiB 1MiB")
    parser.add_argument("--contenders", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=10, help="after which no further turn goes on")
    parser.add_argument("--quick", action="store_true", help="two sizes, one turn: shows that it runs")
    parser.add_argument("--json", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--plots", help="accepted beside other benchmarks; nothing is drawn")
    options = parser.parse_args()
    options.nodes = options.nodes or ([2] if options.quick else [2, 4])
    options.ranks_per_node = options.ranks_per_node or ([2] if options.quick else [1, 2, 4])
    options.bytes = sorted(options.bytes or (QUICK_SIZES if options.quick else SIZES))
    options.operations = [name for name in OPERATIONS if name in (options.operations or OPERATIONS)]
    options.turns = 1 if options.quick else options.turns
    options.load = os.getloadavg()[0]
    return options


def told_to_end(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough, and what follows is not to be cut
    sys.exit("cluster: told to end")


def measure(options):
    with tempfile.TemporaryDirectory() as folder:
        nodes = cluster_of_namespaces.Nodes(max(options.nodes))
        try:
            campaign = Campaign(options, contenders.Run(folder, nodes))
            campaign.measure_all()
            campaign.leave_out_cut()
            campaign.measure_links()
            campaign.count_traffic()
        finally:
            nodes.remove()
    campaign.print()
    return campaign.report()


def main():
    options = parsed()
    if not (BIN / "muster-bench").exists():
        sys.exit("cluster: no programs beside it; `deploy/bench.sh cluster` builds and starts it")
    why = cluster_of_namespaces.why_not()
    if why:
        say(f"cluster: left out, because this machine makes no nodes: {why}")
        report = {"schema_version": 1, "rows": [], "left_out": [f"all: this machine makes no nodes: {why}"]}
    else:
        cluster_of_namespaces.enter_namespaces()
        signal.signal(signal.SIGTERM, told_to_end)
        try:
            report = measure(options)
        except cluster_of_namespaces.Failed as failure:
            sys.exit(f"cluster: {failure}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
