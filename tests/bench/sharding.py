#!/usr/bin/env python3
"""Trains one model by Muster and by torch (FSDP2, HSDP, DDP, tensor parallelism), in turns on one mesh after
another, and measures wrappings, checkpoints and the cost of units.

  sharding.py [--sections NAME...] [--meshes MESH...] [--steps N] [--turns N] [--python FILE] [--json FILE]

Of the turns the median counts: the host of a virtual machine has fast and slow minutes. Of torch, eager or
compiled, the better one counts. Without torch its part is left out.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

import sides

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
SOURCES = pathlib.Path(__file__).resolve().parent
LICENCES = pathlib.Path("/usr/share/common-licenses")
MIB = 2**20
LOSS_TOLERANCE = 0.01
MESHES = ("dp_shard=2", "dp_shard=4", "dp_shard=8", "dp_replicate=8", "dp_replicate=4,dp_shard=2",
          "dp_replicate=2,dp_shard=4", "tp=4", "dp_replicate=2,dp_shard=2,tp=2")
WRAPPINGS = {"root": "blocks; root with the rest", "alone": "each module alone",
             "list": "blocks; [norm, output]"}
FULL = {
    "hsdp": ("dp_shard=8", "dp_replicate=4,dp_shard=2"), "tp": ("tp=4", "dp_shard=4"),
    "wrapping": ("dp_shard=8", []), "wrapping_steps": 10, "memory_steps": 4,
    "checkpoint_ranks": 4, "checkpoint_mib": 512, "overhead_steps": 500, "batch_most": 4096}
QUICK = {
    "hsdp": ("dp_shard=2", "dp_replicate=2"), "tp": ("tp=2", "dp_shard=2"),
    "wrapping": ("dp_shard=2", ["--width", "64", "--hidden", "96", "--key-width", "16", "--vocabulary", "128",
                                "--blocks", "2", "--tokens", "8"]),
    "wrapping_steps": 2, "memory_steps": 2, "checkpoint_ranks": 2, "checkpoint_mib": 4, "overhead_steps": 5,
    "batch_most": 16}
QUICK_MODEL = {"batch": 8, "context": 32, "layers": 2, "width": 64, "heads": 4}


def goal_of(mesh):
    """How many times the tokens/s of torch."""
    return 1.6 if sides.ranks_of(mesh) == 2 else 2.0


def say(line):
    print(line, flush=True)


def shown(value, decimals=0, unit=1.0):
    return "-" if value is None else f"{value / unit:.{decimals}f}"


class Table:
    """Printed row by row, because the last rows come late. The first column is a name."""

    def __init__(self, name, *titles):
        self.widths = [max(7, len(title)) for title in titles]
        self.row(name, *titles)

    def row(self, name, *cells):
        say(f"{name:<31} " + " ".join(f"{cell:>{width}}" for cell, width in zip(cells, self.widths)))


class Campaign:
    def __init__(self, options, muster, torch, text):
        self.options = options
        self.sizes = QUICK if options.quick else FULL
        self.muster = muster
        self.torch = torch
        self.model = {"text": text, "steps": options.steps, "seed": 7, "batch": options.batch,
                      "context": options.context, "layers": options.layers, "width": options.width,
                      "heads": options.heads}
        self.rows = {}  # of meshes that were measured
        self.failures = []

    def log(self, what):
        print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)

    def of_torch(self, what, work):
        """The result, or None where torch is missing or has failed, which is told at the end."""
        if self.torch.absent:
            return None
        self.log(f"torch, {what}")
        try:
            return work()
        except sides.Failed as failure:
            self.failures.append(f"torch, {what}: {failure}")
            return None

    def of_muster(self, what, work):
        self.log(f"muster, {what}")
        return work()

    # ---- the same training on one mesh ----

    def mesh(self, mesh):
        """The row of a mesh, measured once."""
        if mesh not in self.rows:
            self.rows[mesh] = self.measure(mesh)
        return self.rows[mesh]

    def measure(self, mesh):
        eager, compiled, muster, floors = [], [], [], []
        for turn in range(self.options.turns):
            what = f"{mesh}, turn {turn + 1}"
            eager.append(self.of_torch(what, lambda: self.torch.train(mesh, self.model)))
            if not self.options.no_compile:
                compiled.append(self.of_torch(what + ", compiled",
                                              lambda: self.torch.train(mesh, self.model, compiled=True)))
            muster.append(self.of_muster(what, lambda: self.muster.train(mesh, self.model)))
            floors.append(self.of_muster(what + ", without communication",
                                         lambda: self.muster.train_apart(mesh, self.model)))
        short = {**self.model, "steps": self.sizes["memory_steps"]}
        held = self.of_muster(mesh + ", memory", lambda: self.muster.train(mesh, short, watched=True))
        needed = self.of_muster(mesh + ", memory in small segments", lambda: self.muster.train(
            mesh, short, watched=True, environment=sides.SMALL_SEGMENTS))
        torch_held = self.of_torch(mesh + ", memory",
                                   lambda: self.torch.train(mesh, short, watched=True)) or {}
        rates = {name: median_of(rows, "tokens_per_second")
                 for name, rows in (("eager", eager), ("compiled", compiled), ("muster", muster),
                                    ("floor", floors))}
        best = max((rate for rate in (rates["eager"], rates["compiled"]) if rate), default=None)
        row = {
            "mesh": mesh, "ranks": sides.ranks_of(mesh), "goal": goal_of(mesh),
            "torch_eager_tokens_per_second": rates["eager"],
            "torch_compiled_tokens_per_second": rates["compiled"],
            "torch_tokens_per_second": best, "muster_tokens_per_second": rates["muster"],
            "ratio": rates["muster"] / best if best else None,
            "floor_tokens_per_second": rates["floor"],
            "floor_ratio": rates["floor"] / best if best and rates["floor"] else None,
            "torch_loss": last_of(eager, "final_loss"), "muster_loss": last_of(muster, "final_loss"),
            "muster_unsharded_bytes": muster[-1]["peak_unsharded_bytes"],
            "muster_resident_bytes": held["resident_bytes"],
            "muster_sum_of_peaks_bytes": held["sum_of_peaks_bytes"],
            "muster_small_segments_bytes": needed["resident_bytes"],
            "torch_resident_bytes": torch_held.get("resident_bytes"),
            "torch_resident_before_bytes": torch_held.get("resident_before_bytes"),
            "torch_sum_of_peaks_bytes": torch_held.get("sum_of_peaks_bytes"),
            "turns": {"eager": rates_of(eager), "compiled": rates_of(compiled), "muster": rates_of(muster),
                      "floor": rates_of(floors)}}
        for name, rows in (("torch", eager), ("torch compiled", compiled)):
            self.compare(mesh, name, last_of(rows, "final_loss"), row["muster_loss"])
        return row

    def compare(self, mesh, name, theirs, ours):
        """Figures of programs that do not learn the same say nothing. A NaN is not near anything."""
        if theirs is not None and not abs(theirs - ours) <= LOSS_TOLERANCE * ours:
            self.failures.append(f"{mesh}: {name} ends with loss {theirs}, Muster with {ours}")


def rates_of(rows):
    return [row["tokens_per_second"] for row in rows if row]


def median_of(rows, key):
    values = [row[key] for row in rows if row]
    return statistics.median(values) if values else None


def last_of(rows, key):
    return next((row[key] for row in reversed(rows) if row), None)


# ---- sections: each returns what goes into the report, and prints its table ----


def meshes(campaign):
    table = Table("mesh", "ranks", "torch eager", "compiled", "muster", "muster/torch", "goal", "floor/torch",
                  "torch MiB", "before it", "muster MiB", "needed", "unsharded", "torch loss", "muster loss")
    rows = []
    for mesh in campaign.options.meshes:
        row = campaign.mesh(mesh)
        rows.append(row)
        ratio, goal = row["ratio"], f"{row['goal']:.1f}"
        if ratio is not None:
            goal += " met" if ratio >= row["goal"] else " not"
        table.row(mesh, row["ranks"], shown(row["torch_eager_tokens_per_second"]),
                  shown(row["torch_compiled_tokens_per_second"]), shown(row["muster_tokens_per_second"]),
                  shown(ratio, 2), goal, shown(row["floor_ratio"], 2),
                  shown(row["torch_resident_bytes"], 0, MIB),
                  shown(row["torch_resident_before_bytes"], 0, MIB),
                  shown(row["muster_resident_bytes"], 0, MIB),
                  shown(row["muster_small_segments_bytes"], 0, MIB),
                  shown(row["muster_unsharded_bytes"], 2, MIB), shown(row["torch_loss"], 4),
                  shown(row["muster_loss"], 4))
    return rows


def hsdp(campaign):
    rows = [campaign.mesh(mesh) for mesh in campaign.sizes["hsdp"]]
    table = Table("mesh", "muster tokens/s", "torch tokens/s", "muster MiB", "needed", "torch MiB",
                  "unsharded MiB of a rank")
    for row in rows:
        table.row(row["mesh"], shown(row["muster_tokens_per_second"]), shown(row["torch_tokens_per_second"]),
                  shown(row["muster_resident_bytes"], 0, MIB),
                  shown(row["muster_small_segments_bytes"], 0, MIB),
                  shown(row["torch_resident_bytes"], 0, MIB),
                  shown(row["muster_unsharded_bytes"], 2, MIB))
    return rows


def wrapping(campaign):
    mesh, words = campaign.sizes["wrapping"]
    steps = ["--steps", str(campaign.sizes["wrapping_steps"])]
    turns = {name: [] for name in WRAPPINGS}
    for turn in range(campaign.options.turns):
        for name in WRAPPINGS:
            turns[name].append(campaign.of_muster(
                f"wrapping {name}, turn {turn + 1}",
                lambda name=name: campaign.muster.measure(mesh, "wrapping", "--as", name, *steps, *words)))
    table = Table("wrapping", "units", "gathers", "reductions", "whole MiB at most", "in blocks", "places",
                  "gradients", "step ms")
    rows = []
    for name, found in turns.items():
        row = {"wrapping": name, "mesh": mesh, **found[-1], "step_seconds": median_of(found, "step_seconds")}
        rows.append(row)
        table.row(WRAPPINGS[name], row["units"], shown(row["gathers_per_step"], 1),
                  shown(row["reductions_per_step"], 1), shown(row["whole_bytes_peak"], 2, MIB),
                  shown(row["whole_bytes_in_blocks"], 2, MIB), shown(row["place_bytes"], 2, MIB),
                  shown(row["gradient_bytes"], 2, MIB), shown(row["step_seconds"], 2, 1e-3))
    return rows


def tp(campaign):
    rows = []
    say(f"the largest batch within {campaign.options.memory_limit} MiB: resident memory of all processes of "
        "the run together; what they share counts once")
    table = Table("mesh", "muster tokens/s", "muster MiB", "needed", "torch tokens/s", "largest batch",
                  "MiB there")
    for mesh in campaign.sizes["tp"]:
        row = campaign.mesh(mesh)
        batch, held = largest_batch(campaign, mesh)
        rows.append({**row, "memory_limit_bytes": campaign.options.memory_limit * MIB, "largest_batch": batch,
                     "largest_batch_bytes": held})
        table.row(mesh, shown(row["muster_tokens_per_second"]), shown(row["muster_resident_bytes"], 0, MIB),
                  shown(row["muster_small_segments_bytes"], 0, MIB),
                  shown(row["torch_tokens_per_second"]), batch, shown(held, 0, MIB))
    return rows


def largest_batch(campaign, mesh):
    """By doubling, then halving; each batch is trained for two steps. 0: even the smallest is too large."""
    step = max(4, sides.ranks_of(mesh))
    limit, found = campaign.options.memory_limit * MIB, {0: None}

    def fits(batch):
        model = {**campaign.model, "steps": 2, "batch": batch}
        row = campaign.of_muster(f"{mesh}, batch {batch}", lambda: campaign.muster.train(
            mesh, model, watched=True, environment=sides.SMALL_SEGMENTS))
        if row["resident_bytes"] <= limit:
            found[batch] = row["resident_bytes"]
        return row["resident_bytes"] <= limit

    low, high = 0, step
    while high <= campaign.sizes["batch_most"] and fits(high):
        low, high = high, 2 * high
    while high - low > max(step, low // 16) and high <= campaign.sizes["batch_most"]:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low, found[low]


def checkpoint(campaign):
    mib, ranks = campaign.sizes["checkpoint_mib"], campaign.sizes["checkpoint_ranks"]
    mesh = f"dp_shard={ranks}"
    words = ["--mib", str(mib), "--turns", str(max(3, campaign.options.turns))]
    rows = []
    with tempfile.TemporaryDirectory(dir=BENCH) as folder:
        place = pathlib.Path(folder)
        ours = campaign.of_muster("checkpoint", lambda: campaign.muster.measure(
            mesh, "checkpoint", "--folder", str(place / "muster"), *words))
        rows.append({"by": "muster", **ours})
        theirs = campaign.of_torch("checkpoint", lambda: campaign.torch.launched(
            mesh, "checkpoint.py", ["--folder", str(place / "torch"), *words]))
        if theirs:
            rows.append({"by": "torch", **theirs})
        rows.append({"by": "dd", **copied_by_dd(place / "zeroes", mib)})
    say("saves are on the disk when they end (fsync); loads are from the page cache, which is warm")
    table = Table("by", "ranks", "MiB", "save GB/s", "load GB/s", "ms until training goes on")
    for row in rows:
        save, load = (row["bytes"] / row[key] for key in ("save_seconds", "load_seconds"))
        table.row(row["by"], row["ranks"], shown(row["bytes"], 0, MIB), shown(save, 2, 1e9),
                  shown(load, 2, 1e9), shown(row.get("copy_seconds"), 1, 1e-3))
    return rows


def copied_by_dd(path, mib):
    """What one process writes and reads, without checksums."""
    seconds = []
    write = ["if=/dev/zero", f"of={path}", f"count={mib}", "conv=fsync"]
    for words in (write, [f"if={path}", "of=/dev/null"]):
        begin = time.perf_counter()
        subprocess.run(["dd", "bs=1M", *words], check=True, capture_output=True)
        seconds.append(time.perf_counter() - begin)
    return {"ranks": 1, "bytes": mib * MIB, "save_seconds": seconds[0], "load_seconds": seconds[1]}


def overhead(campaign):
    table = Table("ranks", "units", "calls", "step us", "us a unit", "us a call", "gathers", "by hand us",
                  "units add us, each")
    rows = []
    for mesh in ("", "dp_shard=2"):
        found = [campaign.of_muster(f"overhead, {mesh or 'one rank'}, turn {turn + 1}",
                                    lambda mesh=mesh: campaign.muster.measure(
                                        mesh, "overhead", "--steps", str(campaign.sizes["overhead_steps"])))
                 for turn in range(campaign.options.turns)]
        times = ("step_us", "us_per_unit", "us_per_call") + (("by_hand_us",) if mesh else ())
        row = {**found[-1], **{key: median_of(found, key) for key in times}}
        rows.append(row)
        added = (row["step_us"] - row["by_hand_us"]) / row["units"] if mesh else None
        table.row(str(row["ranks"]), row["units"], shown(row["calls"]), shown(row["step_us"], 1),
                  shown(row["us_per_unit"], 2), shown(row["us_per_call"], 3),
                  shown(row["gathers_per_step"], 1), shown(row["by_hand_us"], 1), shown(added, 2))
    return rows


SECTIONS = {"meshes": meshes, "hsdp": hsdp, "wrapping": wrapping, "tp": tp, "checkpoint": checkpoint,
            "overhead": overhead}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--meshes", nargs="+", default=None, metavar="MESH")
    parser.add_argument("--steps", type=int,
                        help=f"the first {sides.FIRST_STEPS} are left out if there are more")
    parser.add_argument("--turns", type=int)
    for name, default in (("batch", 32), ("context", 128), ("layers", 4), ("width", 128), ("heads", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--text", type=pathlib.Path, help="default: the licence texts of the system")
    parser.add_argument("--python", type=pathlib.Path, help="an interpreter that has torch")
    parser.add_argument("--no-compile", action="store_true", help="of torch, only eager")
    parser.add_argument("--memory-limit", type=int, default=512, metavar="MIB", help="of section tp")
    parser.add_argument("--quick", action="store_true", help="a small model, few steps: shows that it runs")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plots", help="accepted beside other benchmarks; there is nothing to draw")
    options = parser.parse_args()
    if options.quick:
        vars(options).update(QUICK_MODEL, no_compile=True)
    options.meshes = options.meshes or (MESHES[:1] if options.quick else MESHES)
    options.steps = options.steps or (3 if options.quick else 40)
    options.turns = options.turns or (1 if options.quick else 2)
    made = SOURCES.parent.parent / "build" / "torch" / "bin" / "python3"  # by deploy/setup.sh torch
    options.python = options.python or (made if made.exists() else pathlib.Path(sys.executable))
    return options


def text_of(options, folder):
    """Both sides read one file."""
    if options.text:
        return options.text.absolute()
    path = pathlib.Path(folder) / "licences.txt"
    texts = sorted(text for text in LICENCES.iterdir() if text.is_file() and not text.is_symlink())
    path.write_bytes(b"".join(text.read_bytes() for text in texts))
    return path


def machine():
    cpu = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), "unknown")
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release()}


def main():
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("sharding.py: told to end"))  # with what it has started
    muster = sides.Muster(BENCH.parent / "bin", BENCH / "peers" / "sharding_rank")
    if missing := muster.missing():
        sys.exit(f"sharding.py: {missing} is not built; run deploy/bench.sh")
    torch = sides.Torch(options.python, SOURCES / "torch", BENCH / "torch-cache")
    report = {"machine": machine(), "torch": torch.version, "torch_absent": torch.absent,
              "steps": options.steps, "turns": options.turns, "sections": {}}
    if torch.absent:
        say(f"torch is left out: {torch.absent}")
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(options, muster, torch, text_of(options, folder))
        try:
            for name in options.sections:
                say(f"== {name}")
                report["sections"][name] = SECTIONS[name](campaign)
        except sides.Failed as failure:
            campaign.failures.append(f"muster: {failure}")
        finally:
            report["failures"] = campaign.failures
            if options.json:
                options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if campaign.failures:
        sys.exit("\n".join(f"sharding.py: {failure}" for failure in campaign.failures))


if __name__ == "__main__":
    main()
