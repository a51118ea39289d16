#!/usr/bin/env python3
"""Saves and loads matrices whose rows are divided among ranks, by torch.distributed.checkpoint.

  python -m torch.distributed.run --nproc-per-node N checkpoint.py --folder FOLDER --mib 512 --turns 3

Rank 0 ends its standard output with one line of JSON.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor

TENSORS = 16
COLUMNS = 1024


def timed(work):
    """The slowest rank's seconds."""
    dist.barrier()
    begin = time.perf_counter()
    work()
    seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def turn(state, folder):
    values = torch.arange(state["matrix0"].to_local().numel()).remainder_(8191).add_(1).float()
    for tensor in state.values():
        tensor.to_local().copy_(values.view_as(tensor.to_local()))
    saved = timed(lambda: dcp.save(state, storage_writer=dcp.FileSystemWriter(folder)))
    for tensor in state.values():
        tensor.to_local().zero_()
    loaded = timed(lambda: dcp.load(state, storage_reader=dcp.FileSystemReader(folder)))
    for name, tensor in state.items():
        if not torch.equal(tensor.to_local().flatten(), values):
            sys.exit(f"checkpoint.py: {name} is not what was saved")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    return saved, loaded


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    rows = options.mib * 2**20 // (TENSORS * COLUMNS * 4)
    state = {f"matrix{i}": distribute_tensor(torch.zeros(rows, COLUMNS), mesh, [Shard(0)], src_data_rank=None)
             for i in range(TENSORS)}
    seconds = [turn(state, options.folder / f"turn{i}") for i in range(options.turns)]
    if dist.get_rank() == 0:
        print(json.dumps({"ranks": dist.get_world_size(), "bytes": TENSORS * rows * COLUMNS * 4,
                          "save_seconds": statistics.median(saved for saved, _ in seconds),
                          "load_seconds": statistics.median(loaded for _, loaded in seconds)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
