"""The model of the example's model.cpp as torch modules, with the same parameters and initial values."""

import math

import torch
from torch import nn
from torch.nn import functional

from counter_random import CounterRandom

VOCABULARY = 256
NORM_EPSILON = 1e-5
ROTARY_BASE = 10000.0


def hidden_features(width):
    """Of the feed-forward part: 8/3 of the width, in whole times of 32."""
    features = math.ceil(8 * width / 3)
    return math.ceil(features / 32) * 32


def rotary_table(context, features):
    """Cosines and sines, of shape [2, 1, position, 1, feature]. The halves of a head turn together."""
    half = features // 2
    speeds = ROTARY_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.outer(torch.arange(context, dtype=torch.float64), speeds).repeat(1, 2)
    return torch.stack((angles.cos(), angles.sin())).float()[:, None, :, None, :]


def rotated(heads, table):
    first, second = heads.chunk(2, dim=-1)
    return heads * table[0] + torch.cat((-second, first), dim=-1) * table[1]


class Attention(nn.Module):
    """Query, key and value are one product, as in the example."""

    def __init__(self, width, heads):
        super().__init__()
        self.head_features = width // heads
        self.norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.project = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, stream, table):
        parts = self.project(self.norm(stream)).chunk(3, dim=-1)
        # [sequence, position, head, feature]; tensor parallelism leaves this rank some of the heads.
        query, key, value = (part.unflatten(-1, (-1, self.head_features)) for part in parts)
        heads = (rotated(query, table), rotated(key, table), value)
        mixed = functional.scaled_dot_product_attention(
            *(part.transpose(1, 2) for part in heads), is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU. Gate and up are one product."""

    def __init__(self, width):
        super().__init__()
        features = hidden_features(width)
        self.norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.gate_up = nn.Linear(width, 2 * features, bias=False)
        self.down = nn.Linear(features, width, bias=False)

    def forward(self, stream):
        gate, up = self.gate_up(self.norm(stream)).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.feed_forward = FeedForward(width)

    def forward(self, stream, table):
        stream = stream + self.attention(stream, table)
        return stream + self.feed_forward(stream)


class Model(nn.Module):
    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.final_norm = nn.RMSNorm(width, eps=NORM_EPSILON)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.table = rotary_table(context, width // heads)
        self.copies_embedded = False  # a compiled block cannot take a tensor that is still being reduced

    def forward(self, ids):
        stream = self.embedding(ids)
        if self.copies_embedded:
            stream = stream.clone()
        for block in self.blocks:
            stream = block(stream, self.table)
        return self.head(self.final_norm(stream))


def interleaved(matrices, ranks):
    """One matrix of several, whose rows are such that each of `ranks` equal cuts has a cut of every one."""
    cuts = torch.stack([matrix.unflatten(0, (ranks, -1)) for matrix in matrices], dim=1)
    return cuts.flatten(0, 2)


@torch.no_grad()
def initialise(model, seed, tensor_ranks):
    """Writes the values of the example. tensor_ranks: among how many ranks matrices will be cut."""
    width = model.embedding.embedding_dim
    inner = width**-0.5
    outward = inner * (2 * len(model.blocks)) ** -0.5

    def values(name, rows, columns, deviation):
        normals = CounterRandom(seed, name).normals(rows * columns)
        return torch.from_numpy(deviation * normals).float().view(rows, columns)

    model.embedding.weight.copy_(values("embedding", VOCABULARY, width, 0.5))
    for index, block in enumerate(model.blocks):
        attention, feed_forward = block.attention, block.feed_forward
        features = feed_forward.down.in_features

        def of_block(name, rows, columns, deviation, index=index):
            return values(f"block{index}.{name}", rows, columns, deviation)

        attention.project.weight.copy_(interleaved(
            [of_block(name, width, width, inner) for name in ("query", "key", "value")], tensor_ranks))
        attention.output.weight.copy_(of_block("output", width, width, outward))
        feed_forward.gate_up.weight.copy_(interleaved(
            [of_block(name, features, width, inner) for name in ("gate", "up")], tensor_ranks))
        feed_forward.down.weight.copy_(of_block("down", width, features, outward))
    model.head.weight.copy_(values("head", VOCABULARY, width, 0.5 * inner))
