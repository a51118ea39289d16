#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets that need a hint: `seeds.py CORPUS` fills CORPUS/NAME.

The inputs of the other targets are found by the fuzzer from nothing; corpus/ keeps those that add coverage.
"""

import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOSTLISTS = ["localhost", "node[01-03,20],login1", "n[9-11]", "n[1,01]", "r[1-2]n[1-2].lab", "a[1-2",
             "a[5-2]", "a[01-100]", "a[1-5,3]", "a1,b,a[0-3]", "a,,b", "[1-2]", "n[0-70000]",
             "a[1][1][1][1][1]", "x" * 254, "x" * 200 + "[1-3]" + "y" * 60]
SETTINGS = ["node:\n  workers: 4\n  socket_mode: \"0660\"\nlog: {level: info}\n",
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
    hello = struct.pack("<8I", 2, 0x100, 69632, 8192, 1, 4, 1, 4)
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
    for kind in range(3):
        yield fresh + message(0, 5, kind, 0, 0, 1, 0, 0, 0, 1) + message(1, 5, kind, 0, 1, 1, 1, 0, 3, 0)
    yield used + alloc[0] + message(0, 6, 0) + kernel[0] + start(0, 2) + turns + message(0, 6, 1)


def seeds():
    yield from (("hostlist", b"\xff" + text.encode()) for text in HOSTLISTS)
    files = [path.read_bytes() for path in sorted((ROOT / "configs").glob("*.yaml"))]
    yield from (("config", kind + text) for text in files for kind in (b"\x00", b"\x01"))
    yield from (("config", b"\x00" + text.encode()) for text in SETTINGS)
    yield from (("handshake", text) for text in handshakes())
    yield from (("session", text) for text in sessions())


def main(arguments):
    for number, (name, text) in enumerate(seeds()):
        folder = Path(arguments[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{number:03}").write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
