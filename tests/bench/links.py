#!/usr/bin/env python3
"""Messages between two processes over the loopback device: by each network of Muster, by the tools of UCX and
libfabric, and by a plain TCP stream, in turns.

  links.py [--turns N] [--quick] [--json FILE] [--plots FOLDER]

Of the turns the best counts: what else runs on the machine only makes it slower. All use TCP and `lo`, as
between nodes; within a node UCX would choose shared memory.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # the tree stays as it was

BENCH = pathlib.Path(sys.argv[0]).absolute().parent  # build/PRESET/bench, by a link
NETWORKS = BENCH.parent / "bin" / "networks"
SIZES = (8, 65536, 4 << 20)
PORT = 7744  # of link_pair, between nodes
LONGEST = 120  # seconds of one tool


class Ends:
    """Where the two sides of a tool run: the words before it, and by what the client finds the server."""

    def __init__(self, interface, address, server=(), client=()):
        self.address, self.server, self.client = address, server, client
        self.environment = {**os.environ, "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": interface,
                            "UCX_WARN_UNUSED_ENV_VARS": "n", "FI_TCP_IFACE": interface}

    def apart(self):
        return bool(self.server)

    def run(self, words):
        words = [str(word) for word in [*self.client, *words]]
        done = subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False, timeout=LONGEST)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ended with status {done.returncode}: {done.stderr[-300:]}")
        return done.stdout

    def against_server(self, words, *introduction):
        """The output of the client; the server is the same program without an address."""
        with subprocess.Popen([str(word) for word in [*self.server, *words]], env=self.environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as server:
            try:
                for attempt in range(50):
                    time.sleep(0.1)
                    try:
                        return self.run([*words, *introduction, self.address])
                    except RuntimeError:
                        if attempt == 49 or server.poll() is not None:
                            raise
            finally:
                server.kill()
        return ""


LOOPBACK = Ends("lo", "127.0.0.1")


def muster(ends, network, quick):
    words = [BENCH / "peers" / "link_pair", network, "--networks", NETWORKS, "--bytes", *SIZES,
             "--milliseconds", 20 if quick else 400]
    if ends.apart():
        text = ends.against_server([*words, "--port", PORT], "--peer")
    else:
        text = ends.run(words)
    rows = json.loads(text)["rows"]
    return {row["bytes"]: (row["half_trip_us"], row["stream_gb_per_s"]) for row in rows}


def final_row(text):
    """The numbers of the last line that ucx_perftest has printed."""
    rows = [line.split() for line in text.split("\n") if re.match(r"\s*\d", line) or "Final" in line]
    return [float(number) for number in rows[-1][-7:]]


def ucx_perftest(ends, _, quick):
    found = {}
    for size in SIZES:
        count = (20000 if size < 1 << 20 else 500) // (10 if quick else 1)
        words = ["ucx_perftest", "-s", size, "-n", count, "-w", 10, "-f"]
        latency = final_row(ends.against_server([*words, "-t", "tag_lat"]))[0]
        megabytes = final_row(ends.against_server([*words, "-t", "tag_bw"]))[4]
        found[size] = (latency, megabytes * 2**20 / 1e9)
    return found


def fi_pingpong(ends, _, quick):
    """It has no stream; a trip of the largest message stands for it."""
    found = {}
    for size in SIZES:
        count = (5000 if size < 1 << 20 else 200) // (10 if quick else 1)
        text = ends.against_server(["fi_pingpong", "-p", "tcp;ofi_rxm", "-e", "rdm", "-m", "tagged",
                                    "-S", size, "-I", count])
        microseconds = float(text.strip().split("\n")[-1].split()[-2])
        found[size] = (microseconds, size / microseconds / 1e3)
    return found


CONTENDERS = {"TCP stream": (muster, "tcp"),
              "muster ucx": (muster, "ucx"), "ucx_perftest": (ucx_perftest, None),
              "muster ofi": (muster, "ofi"), "fi_pingpong": (fi_pingpong, None)}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few messages: shows that it runs")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plots", help="accepted beside other benchmarks; there is nothing to draw")
    return parser.parse_args()


def measured(ends, turns, quick, names=tuple(CONTENDERS)):
    """({contender: {bytes: (half a trip in µs, GB/s)}}, {contender that is missing: why})."""
    best = {}
    missing = {}
    for _ in range(turns):
        for name in names:
            measure, argument = CONTENDERS[name]
            if measure is not muster and shutil.which(name) is None:
                missing[name] = "not installed"
                continue
            try:
                found = measure(ends, argument, quick)
            except (RuntimeError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
                missing[name] = str(error)
                continue
            for size, (trip, rate) in found.items():
                before = best.setdefault(name, {}).get(size, (trip, rate))
                best[name][size] = (min(before[0], trip), max(before[1], rate))
    return best, missing


def print_table(best):
    print(f"{'':14}" + "".join(f"{f'{size} B, µs':>16}{'GB/s':>8}" for size in SIZES))
    for name, rows in best.items():
        print(f"{name:14}" + "".join(f"{rows[size][0]:16.2f}{rows[size][1]:8.2f}" for size in SIZES))
    for own, tool in (("muster ucx", "ucx_perftest"), ("muster ofi", "fi_pingpong")):
        if own in best and tool in best:
            trips = [best[own][size][0] / best[tool][size][0] for size in SIZES]
            rates = [best[own][size][1] / best[tool][size][1] for size in SIZES]
            print(f"{own} / {tool}: half a trip " + ", ".join(f"{trip:.2f}" for trip in trips) +
                  "; stream " + ", ".join(f"{rate:.2f}" for rate in rates))


def main():
    options = parsed()
    best, missing = measured(LOOPBACK, options.turns, options.quick)
    print_table(best)
    for name, why in missing.items():
        print(f"without {name}: {why}")
    if options.json:
        options.json.write_text(json.dumps({"best": best, "missing": missing}, indent=1) + "\n")
    return 0 if all(name in best for name, (measure, _) in CONTENDERS.items() if measure is muster) else 1


if __name__ == "__main__":
    sys.exit(main())
