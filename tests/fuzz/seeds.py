#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets that need a hint: `seeds.py CORPUS` fills CORPUS/NAME.

The inputs of the other targets are found by the fuzzer from nothing; corpus/ keeps those that add coverage.
"""

import json
import random
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOSTLISTS = ["localhost", "node[01-03,20],login1", "n[9-11]", "n[1,01]", "r[1-2]n[1-2].lab", "a[1-2",
             "a[5-2]", "a[01-100]", "a[1-5,3]", "a1,b,a[0-3]", "a,,b", "[1-2]", "n[0-70000]",
             "a[1][1][1][1][1]", "x" * 254, "x" * 200 + "[1-3]" + "y" * 60]
SETTINGS = ["node:\n  workers: 4\n  directory_mode: \"0750\"\nlog: {level: info}\n",
            "limits:\n  arena_per_rank_max: 1MiB\n  arena_segment: 2MiB\n",
            "defaults: {deadline: 100ms}\n",
            "limits: {arena_segment: 999999999999999999TiB}\ndefaults: {deadline: 999999999h}\n",
            "a: &b [1]\nc: *b\n", "a: 1\na: 2\n", "- - - -\n", "? {a: b}\n: c\n", "a: |\n  b\n",
            "a: 'it''s\n"]


def cbor(value):
    """The encoding of RFC 8949, as far as control messages use it."""
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        for code, form in ((24, ">B"), (25, ">H"), (26, ">I"), (27, ">Q")):
            if number < 1 << (8 << (code - 24)):
                return bytes([major << 5 | code]) + struct.pack(form, number)
        raise ValueError(number)
    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())


def job(**more):
    return {"name": "job", "world": 4, "mesh": "dp_shard=2,tp=2", "flatten": [], "claim": "owner"} | more


def handshakes():
    commands = [{"command": "job_create", "spec": job(), "keep": True},
                {"command": "job_create", "spec": job(claim="token", world=8, mesh="pp=2,dp_shard=-1,cp=2")},
                {"command": "job_create", "spec": job(flatten=[{"name": "all", "dims": ["dp_shard", "tp"]}])},
                {"command": "job_create", "spec": job(mesh="dp_replicate=2,dp_shard=2,ep=2")},
                {"command": "job_create", "spec": job(epoch=5)}, {"command": "job_create", "spec": 7},
                {"command": "token", "job": "job", "rank": 1}, {"event": "failed", "error": "x"}]
    answers = [{"ok": True, "result": {"groups": 3}}, {"ok": False, "status": -108, "error": "no job"},
               {"ok": False, "status": 0, "error": "no"}, {"ok": "maybe"}, {"ok": True, "result": 1.5}]
    hello = struct.pack("<8Iq", 2, 0x100, 69632, 8192, 1, 4, 1, 4, 60 * 10**9)
    hello += b"job".ljust(64, b"\0") + b"dp_shard=2,tp=2".ljust(256, b"\0") + b"secret".ljust(80, b"\0")
    yield from (b"\x01" + cbor(body) for body in commands)
    yield from (b"\x02" + cbor(body) for body in answers)
    yield from (b"\x06" + cbor(body) for body in commands + answers)
    yield b"\x03" + hello
    yield b"\x04\x01" + struct.pack("<iIiI", -108, 5, -1, 0) + b"a job"
    yield from (b"\x05" + bytes([first]) + bytes(range(1, 60)) for first in (0, 1))
    yield b"\x00" + struct.pack("<IHHII", 0x4D535452, 2, 20, 16, 1)


def sessions():
    """What two well-behaved ranks do, in the words of session.cpp, for the fuzzer to spoil."""
    def message(rank, kind, *rest):
        return bytes([rank, 11, kind, *rest])

    def start(rank, lane, plan=0):
        return bytes([rank, 7, 0, lane, plan, 1, 1, 1, 1, 0])

    def freed(rank, handle=0):
        return message(rank, 4, 0, handle)

    def destroyed(rank, handle=0):
        return message(rank, 4, 1, handle)

    def start_at(rank, lane, source, target=None):
        def offset(number):
            return b"\x01" + (number // 8).to_bytes(8, "little")
        rest = b"\x01" if target is None else b"\x00" + offset(target)
        return bytes([rank, 7, 5, lane, 0, 1, 1, 1, 1, 1]) + offset(source) + rest

    alloc = [message(rank, 0, 0) for rank in (0, 1)]
    kernel = [message(rank, 1, 0, 0, 4, 4) for rank in (0, 1)]
    turns = bytes([0, 5, 15])
    fresh, used = b"\x01", b"\x00"
    yield fresh + alloc[0] + kernel[0] + start(0, 0) + turns + freed(0) + destroyed(0) + freed(0)
    yield used + alloc[0] + kernel[0] + freed(0) + destroyed(0) + freed(0)
    for op in range(11):
        extra = [0] if op in (0, 2, 7) else []  # a reduction
        extra += [1] if op in (3, 5, 6, 7, 8, 9) else []  # a peer
        plans = b"".join(message(rank, 2, 1, 1, op, 0, *extra, 0, 0, 0, 1, 16) for rank in (0, 1))
        yield used + alloc[0] + alloc[1] + plans + start(0, 3) + start(1, 3) + turns + turns
        yield fresh + alloc[0] + alloc[1] + plans + start(0, 3) + turns + bytes([1, 1])
        yield used + alloc[0] + alloc[1] + plans + start_at(0, 3, 512) + start_at(1, 3, 8128) + turns + turns
        alone = message(0, 2, 1, 1, op, 0, *extra, 2, 0, 0, 1, 16)
        yield used + alloc[0] + alone + start_at(0, 3, 512, 1024) + turns + start_at(0, 3, 8184) + turns
    for lengths in ((0, 0, 0), (1, 0, 1), (2, 0, 1), (17, 0, 1), (1, 40, 1), (1, 0, 79)):
        yield used + alloc[0] + message(0, 9, 0, 0, 4, 4, *lengths) + kernel[0] + start(0, 0) + turns
    for kind in range(3):
        yield fresh + message(0, 5, kind, 0, 0, 1, 0, 0, 0, 1) + message(1, 5, kind, 0, 1, 1, 1, 0, 3, 0)
    yield used + alloc[0] + message(0, 6, 0) + kernel[0] + start(0, 2) + turns + message(0, 6, 1)


# XXH3 of the two lines that the roster of peers.cpp has.
CONFIGURATION = "55bd210e7fe8704cc7aed0e5674a4358"


def pieces(stream):
    """In the words of peers.cpp: each piece behind its length, less one."""
    cut = [stream[at:at + 97] for at in range(0, len(stream), 97)]
    return b"".join(bytes([len(piece) - 1]) + piece for piece in cut)


def peers():
    """Frames of a node that greets, and of one that should not be let in."""
    def frame(body):
        return len(cbor(body)).to_bytes(4, "big") + cbor(body)
    greeting = {"protocol": 9, "version": "1", "cluster": "lab-a", "node": "node02", "jobs": [],
                "configuration": CONFIGURATION, "lines": ["port 7733", "job train: 4 ranks"]}
    greetings = [greeting, greeting | {"node": "node04"}, greeting | {"cluster": "lab-b"},
                 greeting | {"protocol": 10}, greeting | {"lines": ["port 7734"], "configuration": ""}, {}]
    for proved, wanted in ((0, 0), (2, 2), (3, 0), (2, 3)):
        for body in greetings:
            stream = frame({"greeting": body}) + frame({"welcome": True})
            yield bytes([proved, wanted, 0]) + pieces(stream)
    yield bytes([0, 0, 0]) + pieces(frame({"text": "x" * 100}) + b"\x7f\xff\xff\xff")
    yield bytes([0, 0, 1]) + pieces(b"\x00\x00\x80\x00" + b"\xa0")
    gathers = {"job": "train", "of": "7", "world": 4, "mesh": "", "round": 1, "change": 1,
               "heard": 1, "ranks": [1, 3]}
    gatherings = [gathers, gathers | {"world": 8}, gathers | {"ranks": [0, 1]}, gathers | {"ranks": []},
                  gathers | {"heard": 0}, gathers | {"asks": True},
                  gathers | {"ranks": [1, 1, 3, 1]}, gathers | {"ranks": [1, 2**63]},
                  gathers | {"of": "key." + "5a" * 16}, gathers | {"of": "4294967296"},
                  gathers | {"failed": {"ok": False, "status": -3, "error": "no place"}}, {}]
    yield from (bytes([0, 0, 1]) + pieces(frame({"gathering": body})) for body in gatherings)


STATE_FIELDS = {"epoch": 5, "instance": 2, "started_ns": 1, "upgrade_ns": 0}


def checkpoints():
    """Metadata of checkpoints, headers of safetensors files, and indices of several."""
    sums = ["00" * 16]

    def box(offset, length, at, count=1):
        return {"offset": offset, "length": length, "file": 0, "at": at, "sums": sums * count}

    def record(tensors, size=480):
        return {"format": "muster-checkpoint", "version": 1, "step": 7, "chunk_bytes": 1048576,
                "files": [{"name": "rank-0.bin", "bytes": size}], "tensors": tensors}
    state = {"name": "", "dtype": "u8", "shape": [5], "boxes": [box([0], [5], 475)]}
    head = {"name": "head", "dtype": "f32", "shape": [10, 12],
            "boxes": [box([0, 0], [4, 12], 0), box([4, 0], [6, 7], 192), box([4, 7], [6, 5], 360)]}
    large = {"name": "large", "dtype": "bf16", "shape": [3, 1048576],
             "boxes": [box([0, 0], [3, 1048576], 0, 6)]}
    empty = {"name": "x", "dtype": "i64", "shape": [0, 3], "boxes": []}
    scalar = {"name": "s", "dtype": "f64", "shape": [], "boxes": [box([], [], 8)]}
    drawn = bytes(range(3, 19)) + b"\x40"
    for tensors, size in (([], 0), ([state, head], 485), ([empty], 0), ([scalar], 16), ([large], 6291456)):
        yield b"\x00" + drawn + json.dumps(record(tensors, size), separators=(",", ":")).encode()
    noted = record([], 0) | {"notes": {"format": "pt", "größe\n": "x"}}
    yield b"\x00" + drawn + json.dumps(noted, separators=(",", ":")).encode()
    # Drawn ones: files and their bytes, tensors with dims, shape, dtype, and boxes: offset, length, file, at,
    # sums.
    vector = bytes([1, 1, 3, 1, 1, 0, 1, 3, 1, 0, 8, 1, 1])
    matrix = bytes([2, 1, 2, 1, 3, 2, 1, 0, 1, 0, 1, 2, 1, 1, 1, 0, 20, 1,
                    1, 0, 1, 1, 1, 2, 1, 2, 1, 1, 40, 1, 1])
    yield b"\x03" + drawn + bytes([1, 70, 1]) + vector
    yield b"\x03" + drawn + bytes([2, 70, 79, 2]) + vector + matrix
    yield b"\x01" + drawn + b'{"checksum":"' + b"0" * 32 + b'",\n"metadata":{}}\n'
    tensors = {"__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
               "y": {"dtype": "F8_E4M3", "shape": [2, 3], "data_offsets": [8, 14]}}
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = {"metadata": {"total_size": 16}, "weight_map": parts}
    astray = {"weight_map": {"a": "../model.safetensors"}}
    numbered = {"__metadata__": {"epoch": 7}}
    fitting = {"__metadata__": {"a": "b"}, "x": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]}}
    for text in ({}, tensors, index, astray, numbered, fitting):
        yield b"\x02" + drawn + json.dumps(text).encode()


def saved_job(**more):
    limits = {"deadline_ns": 10 ** 9, "workers": 0, "idle_spin_ns": 0, "arena_bytes_max": 1 << 20,
              "segment_bytes": 65536, "buffers_max": 8, "plans_max": 8, "groups_made_max": 4,
              "starts_per_lane_max": 64, "reports_directory": "", "owner_uid": 0, "epoch": 7}
    return {"spec": job() | limits, "gid": 0, "engine_pid": 4711, "owner": 1, "ending": "",
            "tokens": [{"rank": 1, "attachments": 2, "text": "secret"}]} | more


def nodes():
    """Jobs that are taken over, in the words of takeover.cpp: who comes, who leaves, and who asks."""
    def node(claims, state=b"\x00\x01\x00"):
        kept = b"\x00\x00\x01"  # channel, pidfd, counters
        jobs = b"".join(bytes([1, claim, 1, 0, *ranks]) + kept for claim, ranks in claims)
        return b"\x06\x00\x01\x07" + bytes([len(claims)]) + jobs + b"\x00\x00" + state
    start, torn, turns, settled = b"\x00", b"\x01\x01\x40" + bytes(7), b"\x03\x03", b"\x0b\x00\x0f"

    def claim(rank, token=9, of=0):
        return bytes([4, of, rank, token]) + turns

    def hears(of=0, how=b""):
        return bytes([11, of]) + how + b"\x0f"
    owner, token = [(0, (1, 8))], [(1, (2, 14))]  # of the tokens, the second was used
    yield node(owner) + settled + hears() + claim(1) + hears() + hears(0, b"\x00") + start + claim(1)
    yield node(owner) + hears() + claim(1) + start + hears() + hears() + bytes([8, 0, 1]) + claim(1) + hears()
    yield node(token) + hears() + claim(0, 0) + claim(1, 1) + start + hears() + hears() + claim(0, 0)
    yield node(token) + hears() + claim(1, 1) + hears(0, b"\x00") + claim(0, 1) + hears(0, b"\x00")
    yield (node(token) + hears() + claim(0, 0) + hears(0, b"\x00") + bytes([8, 0, 0]) + start + hears() +
           claim(0, 0) + hears(0, b"\x00"))
    yield node(token) + hears() + bytes([6, 0, 0, 0, 1, 0]) + turns + b"\x07" + claim(1, 2) + start + hears()
    yield node(owner + token) + torn + start + hears() + hears(1) + bytes([10, 0, 3]) + turns + start
    yield node(owner, b"\x02\x05\x00\x00") + hears() + bytes([6, 0, 15]) + turns + hears() + start
    yield node(token) + bytes([9, 0, 7, 4, 2]) + bytes([0, 32] + [0] * 6) + b"x" + turns + turns + start


def states():
    bodies = [STATE_FIELDS | {"jobs": []}, STATE_FIELDS | {"jobs": [saved_job()]},
              STATE_FIELDS | {"jobs": [saved_job(ending="it has left", tokens=[])], "more": {"than": [1]}},
              STATE_FIELDS | {"jobs": [saved_job(), saved_job(spec=job(name="other"))]}, {}]
    for body in bodies:
        text = json.dumps(body).encode()
        for head in (b"\x01\x01\x05\x00", b"\x03\x01\x05\x00", b"\x03\x03\x05\x00"):
            yield b"\x01" + head + text
    count = (3).to_bytes(8, "little")
    for names in (b"a:b:c", b"state:channel-1:pidfd-1:owner-2", b"::", b""):
        yield b"\x05\x01\x01" + count + b"\x01\x01" + names
    yield b"\x05\x00\x01" + b"\xfa" + bytes(8) + b"\x01\x07" + bytes(64)
    chance = random.Random(4711)
    for mode in (3, 6):
        yield from (bytes([mode]) + chance.randbytes(size) for size in (60, 200, 400, 800))
    yield from nodes()


def seeds():
    yield from (("hostlist", b"\xff" + text.encode()) for text in HOSTLISTS)
    files = [path.read_bytes() for path in sorted((ROOT / "configs").glob("*.yaml"))]
    yield from (("config", kind + text) for text in files for kind in (b"\x00", b"\x01"))
    yield from (("config", b"\x00" + text.encode()) for text in SETTINGS)
    yield from (("handshake", text) for text in handshakes())
    yield from (("peers", text) for text in peers())
    yield from (("session", text) for text in sessions())
    yield from (("checkpoint", text) for text in checkpoints())
    yield from (("state", text) for text in states())


def main(arguments):
    for number, (name, text) in enumerate(seeds()):
        folder = Path(arguments[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{number:03}").write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
