#!/usr/bin/env python3
"""One rank of PhysicsNeMo's ShardTensor on CPUs: the layers of domain_layers, by the same numbers.

  shard_tensor.py STACKS FOLDER --rank R --ranks N [--channels-last] [--threads N]

STACKS and what goes into FOLDER are those of domain_layers. What is refused is a line of the JSON too. Rank 0
ends its standard output with one line of JSON.
"""

import argparse
import json
import math
import pathlib
import time
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard
from torch.nn import functional

import physicsnemo.domain_parallel as domain_parallel
from physicsnemo.distributed import DistributedManager
from physicsnemo.domain_parallel import ShardTensor

from counter_random import CounterRandom

SEED = 23
EPSILON = 1e-5
NORM_REACH = 0.125  # of scales around 1, and of shifts around 0
IDLE_SECONDS = 0.5  # long enough for others to see what it holds
LONGEST = timedelta(seconds=60)


def begin(options):
    """A process group made by hand: PhysicsNeMo's own set-up takes CUDA alone."""
    store = dist.FileStore(str(options.folder / "store"), options.ranks)
    dist.init_process_group("gloo", store=store, rank=options.rank, world_size=options.ranks, timeout=LONGEST)
    DistributedManager._shared_state.update(
        _is_initialized=True, _rank=options.rank, _world_size=options.ranks, _local_rank=options.rank,
        _device=torch.device("cpu"), _distributed=True)
    domain_parallel.register_custom_ops()
    return dist.init_device_mesh("cpu", (options.ranks,))


def uniforms(stream, first, count, middle, reach):
    drawn = CounterRandom(SEED, stream).uniforms(first + np.arange(count, dtype=np.uint64))
    return torch.from_numpy((middle + reach * (2 * drawn - 1)).astype(np.float32))


class Stack:
    """The layers, and this rank's rows of a field [1, channels, rows, columns]."""

    def __init__(self, said, mesh, channels_last):
        self.said, self.mesh = said, mesh
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.rank = mesh.get_local_rank()
        self.parameters = []  # a list for each layer
        channels = said["channels"]
        for index, layer in enumerate(said["layers"]):
            channels = self.add(index, layer, channels)
        self.x = self.part(said["lengths"], said["columns"], said["channels"], "input", said["base"],
                           said["spread"]).detach().requires_grad_()
        self.weights = None

    def add(self, index, layer, channels):
        stream = f"{self.said['name']}.layer{index}"
        if layer["op"] == "norm":
            self.parameters.append([uniforms(f"{stream}.{name}", 0, channels, middle, NORM_REACH)
                                    for name, middle in (("scale", 1), ("shift", 0))])
        else:
            terms = layer["kernel"] ** 2 * channels
            weight = uniforms(stream, 0, layer["out"] * terms, 0, math.sqrt(3 / terms))
            weight = weight.view(layer["out"], layer["kernel"], layer["kernel"], channels)
            self.parameters.append([weight.permute(0, 3, 1, 2).contiguous(memory_format=self.format)])
            channels = layer["out"]
        for each in self.parameters[-1]:
            each.requires_grad_()
        return channels

    def part(self, lengths, columns, channels, stream, middle, reach):
        first, row = sum(lengths[:self.rank]), columns * channels
        values = uniforms(f"{self.said['name']}.{stream}", first * row, lengths[self.rank] * row, middle,
                          reach)
        local = values.view(1, lengths[self.rank], columns, channels).permute(0, 3, 1, 2)
        shapes = [torch.Size((1, channels, length, columns)) for length in lengths]
        return ShardTensor.from_local(local.contiguous(memory_format=self.format), self.mesh, (Shard(2),),
                                      sharding_shapes={0: shapes})

    def forward(self):
        y = self.x
        for layer, parameters in zip(self.said["layers"], self.parameters):
            if layer["op"] == "norm":
                y = functional.group_norm(y, layer["groups"], *parameters, eps=EPSILON)
                continue
            pad = layer["pad"]
            if layer["circular"]:
                y, pad = functional.pad(y, (pad,) * 4, mode="circular"), 0
            y = functional.conv2d(y, *parameters, stride=layer["stride"], padding=pad)
        return y

    def mean_of(self, y):
        if not self.said["weighted"]:
            return y.mean()
        if self.weights is None:
            lengths = [shape[2] for shape in y._spec.sharding_shapes()[0]]
            self.weights = self.part(lengths, y.shape[3], y.shape[1], "mean", 0, 1)
        return (y * self.weights).mean()

    def step(self):
        self.x.grad = None
        for parameters in self.parameters:
            for each in parameters:
                each.grad = None
        y = self.forward()
        mean = self.mean_of(y)
        mean.backward()
        return y, mean

    def gradients(self):
        """Of all parameters, end to end, in the order of domain_layers."""
        flat = [whole(each.grad).permute(0, 2, 3, 1) if each.ndim == 4 else whole(each.grad)
                for parameters in self.parameters for each in parameters]
        return torch.cat([each.flatten() for each in flat]) if flat else torch.empty(0)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def write(path, tensor):
    tensor.detach().contiguous().numpy().astype(np.float32).tofile(path)


def rows_of(tensor):
    return tensor.to_local().detach().permute(0, 2, 3, 1)


def run(said, mesh, options):
    """The figures, or what refused the stack and where."""
    stack = Stack(said, mesh, options.channels_last)
    seconds, place = [], options.folder / said["name"]
    try:
        y = stack.forward()
        write(f"{place}.y.{options.rank}", rows_of(y))
        found = {"mean": whole(stack.mean_of(y)).item()}
        for _ in range(said["steps"]):
            dist.barrier()
            started = time.perf_counter()
            y, mean = stack.step()
            seconds.append(time.perf_counter() - started)
        write(f"{place}.dx.{options.rank}", rows_of(stack.x.grad))
        if options.rank == 0:
            write(f"{place}.dw", stack.gradients())
    except Exception as error:  # whatever it is, it is what a user would see
        text = (str(error).strip() or "without a word").splitlines()[0]
        return {"refused": f"{type(error).__name__}: {text}"}
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return {**found, "mean": whole(mean).item(), "step_seconds": slowest.tolist()}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stacks", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels-last", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    mesh = begin(options)
    stacks = json.loads(options.stacks.read_text(encoding="utf-8"))
    if not stacks:
        time.sleep(IDLE_SECONDS)
    results = {said["name"]: run(said, mesh, options) for said in stacks}
    if options.rank == 0:
        print(json.dumps({"torch": torch.__version__, "stacks": results}), flush=True)
    dist.barrier()
    DistributedManager.cleanup()


if __name__ == "__main__":
    main()
