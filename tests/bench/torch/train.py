#!/usr/bin/env python3
"""Trains the model of the example by torch, over the same mesh: the same weights, batches and optimiser.

  python -m torch.distributed.run --nproc-per-node N train.py --mesh dp_shard=2,tp=2 --text FILE --steps N

dp_shard is FSDP2 (fully_shard), with dp_replicate HSDP; dp_replicate alone is DDP; tp is parallelize_module
with loss_parallel. --compile compiles each block. Rank 0 ends its standard output with one line of JSON.
"""

import argparse
import contextlib
import json
import math
import pathlib
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn import functional

import model as example
from counter_random import CounterRandom

DIMS = ("dp_replicate", "dp_shard", "tp")
FIRST_STEPS = 10  # which the steady rate leaves out, as does the line that the example prints after ten steps
DECAY = 0.1
BETAS = (0.9, 0.95)
EPSILON = 1e-8


class Mesh:
    """Sizes and places of the dims, of which those of size 1 are not in torch's mesh."""

    def __init__(self, text):
        said = dict(part.split("=") for part in text.split(",") if part)
        if unknown := set(said) - set(DIMS):
            sys.exit(f"train.py: no such dims: {unknown}; there are {DIMS}")
        self.size = {dim: int(said.get(dim, 1)) for dim in DIMS}
        if math.prod(self.size.values()) != dist.get_world_size():
            sys.exit(f"train.py: {text} is not {dist.get_world_size()} ranks")
        self.dims = tuple(dim for dim in DIMS if self.size[dim] > 1)
        sizes = tuple(self.size[dim] for dim in self.dims)
        self.whole = dist.init_device_mesh("cpu", sizes, mesh_dim_names=self.dims) if self.dims else None
        self.place = {dim: self.whole.get_local_rank(dim) if dim in self.dims else 0 for dim in DIMS}

    def part(self, *dims):
        wanted = tuple(dim for dim in dims if dim in self.dims)
        return self.whole[wanted] if wanted else None

    def group(self, *dims):
        """Of all ranks along the dims; None if that is this rank alone."""
        part = self.part(*dims)
        if part is None:
            return None
        return part.get_group() if part.ndim == 1 else part._flatten("_".join(dims)).get_group()


def cut_over_tensor_ranks(model, mesh):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    plan = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    for index in range(len(model.blocks)):
        for name in ("attention.project", "feed_forward.gate_up"):
            plan[f"blocks.{index}.{name}"] = ColwiseParallel()
        for name in ("attention.output", "feed_forward.down"):
            plan[f"blocks.{index}.{name}"] = RowwiseParallel()
    # Each rank has made the same whole values, so none is the source of the others'.
    parallelize_module(model, mesh.part("tp"), plan, src_data_rank=None)


def shard(model, mesh):
    """The units of the example: embedding, each block, final norm and head. The root has none of its own."""
    from torch.distributed.fsdp import fully_shard

    over = mesh.part("dp_replicate", "dp_shard")
    fully_shard(model.embedding, mesh=over)
    for block in model.blocks:
        fully_shard(block, mesh=over)
    fully_shard([model.final_norm, model.head], mesh=over, reshard_after_forward=False)
    fully_shard(model, mesh=over)
    model.embedding.set_unshard_in_backward(False)  # its backward reads no parameter


def parallel(model, mesh, compiled):
    if mesh.size["tp"] > 1:
        cut_over_tensor_ranks(model, mesh)
    if compiled:
        for block in model.blocks:
            block.compile()
        model.copies_embedded = mesh.size["tp"] > 1
    if mesh.size["dp_shard"] > 1:
        shard(model, mesh)
    elif mesh.size["dp_replicate"] > 1:
        if mesh.size["tp"] > 1:
            sys.exit("train.py: dp_replicate with tp needs dp_shard")
        return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model


class Text:
    def __init__(self, options):
        self.bytes = np.fromfile(options.text, dtype=np.uint8)
        self.random = CounterRandom(options.seed, "batch")
        self.batch, self.context = options.batch, options.context

    def rows(self, step, first, count):
        """Inputs and targets of the rows [first, first + count) of a step's global batch."""
        starts = self.random.bits(step * self.batch + np.arange(first, first + count))
        starts = (starts % np.uint64(self.bytes.size - self.context)).astype(np.int64)
        tokens = self.bytes[np.add.outer(starts, np.arange(self.context + 1))].astype(np.int64)
        return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())


def learning_rate(step, options):
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    done = (step - options.warmup) / max(1, options.steps - options.warmup)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Trainer:
    def __init__(self, options):
        self.options = options
        self.mesh = Mesh(options.mesh)
        self.text = Text(options)
        model = example.Model(options.layers, options.width, options.heads, options.context)
        example.initialise(model, options.seed, self.mesh.size["tp"])
        self.parameter_count = sum(parameter.numel() for parameter in model.parameters())
        self.model = parallel(model, self.mesh, options.compile)
        matrices = [parameter for parameter in self.model.parameters() if parameter.ndim == 2]
        norms = [parameter for parameter in self.model.parameters() if parameter.ndim == 1]
        self.parameters = matrices + norms
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": norms, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=BETAS, eps=EPSILON, fused=True)
        self.weight_group = self.mesh.group("dp_shard", "tp")
        self.data_group = self.mesh.group("dp_replicate", "dp_shard")
        size, place = self.mesh.size, self.mesh.place
        self.data_ranks = size["dp_replicate"] * size["dp_shard"]
        self.data_place = place["dp_replicate"] * size["dp_shard"] + place["dp_shard"]
        if options.batch % self.data_ranks != 0:
            sys.exit(f"train.py: a batch of {options.batch} does not divide among {self.data_ranks} ranks")

    def loss_of(self, ids, targets):
        if self.mesh.size["tp"] == 1:
            within = contextlib.nullcontext()
        else:
            from torch.distributed.tensor.parallel import loss_parallel
            within = loss_parallel()
        with within:
            loss = functional.cross_entropy(self.model(ids).flatten(0, 1), targets.flatten())
            loss.backward()
        return local(loss.detach()).clone()

    @torch.no_grad()
    def clip(self):
        """The norm over all ranks counts each element once: what tp does not cut, on its first rank."""
        squares = torch.zeros((), dtype=torch.float64)
        gradients = []
        for parameter in self.parameters:
            # Without FSDP2, torch leaves a gradient of the cut embedding whole on each tp rank.
            if isinstance(parameter, DTensor) and parameter.grad.placements != parameter.placements:
                parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
            gradients.append(local(parameter.grad))
            if parameter.ndim == 2 or self.mesh.place["tp"] == 0:
                squares += torch.linalg.vector_norm(gradients[-1]).double() ** 2
        if self.weight_group is not None:
            dist.all_reduce(squares, group=self.weight_group)
        scale = self.options.clip / (squares.sqrt().item() + 1e-6)
        if self.options.clip > 0 and scale < 1:
            torch._foreach_mul_(gradients, scale)

    def step(self, step):
        rows = self.options.batch // self.data_ranks
        loss = self.loss_of(*self.text.rows(step, self.data_place * rows, rows))
        averaged = None
        if self.data_group is not None:
            averaged = dist.all_reduce(loss, group=self.data_group, async_op=True)
        self.clip()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(step, self.options)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if averaged is not None:
            averaged.wait()
        return loss.item() / self.data_ranks


def resident_bytes():
    """Of all ranks together. Pages that several share count once."""
    dist.barrier()
    lines = pathlib.Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    kib = torch.tensor(next(int(line.split()[1]) for line in lines if line.startswith("Pss:")))
    dist.all_reduce(kib)
    return 1024 * kib.item()


def run(options):
    dist.init_process_group("gloo")
    before = resident_bytes()
    trainer = Trainer(options)
    tokens = options.batch * options.context
    losses, ends = [], []
    dist.barrier()
    begin = time.perf_counter()
    for step in range(options.steps):
        losses.append(trainer.step(step))
        ends.append(time.perf_counter() - begin)
        if dist.get_rank() == 0 and (step == 0 or (step + 1) % 10 == 0):
            print(f"step {step + 1}/{options.steps}  loss {losses[-1]:.4f}", file=sys.stderr)
    left_out = FIRST_STEPS if options.steps > FIRST_STEPS else 0
    seconds = ends[-1] - (ends[left_out - 1] if left_out else 0)
    if dist.get_rank() == 0:
        print(json.dumps({
            "steps": options.steps, "final_loss": losses[-1], "first_loss": losses[0],
            "tokens_per_second": (options.steps - left_out) * tokens / seconds,
            "tokens_per_second_of_all": options.steps * tokens / ends[-1], "left_out": left_out,
            "parameters": trainer.parameter_count, "resident_before_bytes": before,
            "torch": torch.__version__, "threads": torch.get_num_threads()}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", default="", help="dp_replicate=A,dp_shard=B,tp=C; 1 where it says nothing")
    parser.add_argument("--text", required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="sequences a step, of all ranks together")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--compile", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
