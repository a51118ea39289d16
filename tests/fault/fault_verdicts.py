"""What Muster owes its ranks when something fails, and whether it has kept it. Pure functions of what the
ranks have written down (enduring_rank.cpp). Times are seconds of the monotonic clock.

Each judgement has a letter:
  a  no result is wrong
  b  who worked with what was lost hears of it in time, with the right error and name, and nothing hangs
  c  the survivors' node-local operations go on without an error
  d  a job that has nothing to do with the fault goes on without an error
  e  after the fault all operations work again, in the same job, and survivors keep their sessions
  f  what is slow, lossy or stopped for less than a deadline costs no operation
  g  a daemon that is killed or replaced alone costs no operation
  h  no call is refused and no rank's process ends for another reason
"""

import re
from dataclasses import dataclass, field

LETTERS = "abcdefgh"
LOCAL_S, REMOTE_S = 1.0, 3.0  # until the ranks of the same and of other nodes have heard of a loss
REMOTE_P99_S = 2.2
FEW = 100  # moments, of which the 99th percentile is only the last
RECOVERY_S = 20.0
STILL_S = 0.3  # in which node-local operations must have moved
PEER_LOST, TIMEOUT, DAEMON_LOST = -203, -202, -303
LATER_CODES = (PEER_LOST, TIMEOUT)  # of operations that were begun while what is lost was still away


@dataclass
class Job:
    name: str
    nodes: list
    per_node: int

    def size(self):
        return len(self.nodes) * self.per_node

    def node_of(self, rank):
        return self.nodes[rank // self.per_node]

    def ranks_on(self, nodes):
        return {rank for rank in range(self.size()) if self.node_of(rank) in nodes}


@dataclass
class Told:
    """How a rank must hear of a fault."""
    seconds: float
    nodes: set = field(default_factory=set)  # one of these, or of the ranks, is named; none: no matter which
    ranks: set = field(default_factory=set)
    codes: tuple = (PEER_LOST,)


@dataclass
class Part:
    """What a fault is to a job, by rank."""
    told: dict = field(default_factory=dict)
    gone: set = field(default_factory=set)  # their processes are killed
    bereft: set = field(default_factory=set)  # their engine is; they hear of it as of their session's end
    may_leave: set = field(default_factory=set)  # their session may end: they are on the side given up
    sides: list = field(default_factory=list)  # on one of them all ranks keep their sessions
    local_may_fail: set = field(default_factory=set)


@dataclass
class Seen:
    """What a rank has written from its last line before the fault on."""
    number: int
    records: list
    well: float = None  # all its operations had worked again by then; None: not within RECOVERY_S
    crashed: str = ""

    def of(self, what):
        return [record for record in self.records if record["what"] == what]


def seconds_of(record, key="at"):
    return record[key] / 1e9


def is_local(record):
    return record["op"].startswith("local")


def short(text):
    return text if len(text) <= 200 else text[:200] + "…"


def names(text, told):
    """Whether a text names one of those who are lost."""
    if not told.nodes and not told.ranks:
        return True
    if any(re.search(rf"\b{node}\b", text) for node in told.nodes):
        return True
    found = set()
    for listed in re.findall(r"\branks? (\d[\d, -]*)", text):
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", listed):
            found |= set(range(int(first), int(last or first) + 1))
    return bool(found & told.ranks)


def first_error(seen, part):
    """The first by which a rank has heard of a fault: from an operation with other nodes, or, if a rank of
    its own node is lost, from any. Who has heard of a loss is not told of it again by later operations."""
    local = seen.number in part.local_may_fail
    return next((record for record in seen.of("error") if local or not is_local(record)), None)


def always(seen):
    for record in seen.of("wrong"):
        yield "a", f"{record['op']}: {record['text']}"
    for record in seen.of("refused"):
        yield "h", f"{record['op']}: {record['name']}: {short(record['text'])}"
    if seen.crashed:
        yield "h", seen.crashed


def undisturbed(letter, seen):
    """Of a rank that must not notice."""
    for record in seen.of("error"):
        yield letter, f"{record['op']} failed: {record['name']}: {short(record['text'])}"
    for record in seen.of("ended"):
        yield letter, f"its session ended: {record['name']}: {short(record['text'])}"


def unmoved(letter, seen):
    """Of a rank to which nothing happens."""
    yield from always(seen)
    yield from undisturbed(letter, seen)


def hearing(seen, part, at, ended, slack):
    """(b), of one rank. `ended`: when its session did, where it may."""
    told = part.told[seen.number]
    first, seconds = first_error(seen, part), told.seconds * slack
    if first is None:
        if ended is None:
            yield "b", f"no error within {seconds:.1f} s"
        elif ended - at > seconds:
            yield "b", f"heard of it after {ended - at:.2f} s, by its session's end"
        return
    if seconds_of(first) - at > seconds:
        yield "b", f"heard of it after {seconds_of(first) - at:.2f} s, by {first['op']}"
    if first["code"] not in told.codes:
        yield "b", f"{first['op']} failed with {first['name']}: {short(first['text'])}"
    elif not names(first["text"], told):
        yield "b", (f"{first['op']} names none of {', '.join(sorted(told.nodes))}: {short(first['text'])}")
    if first["code"] == PEER_LOST and told.ranks and first["culprit"] not in told.ranks | {-1}:
        yield "b", f"{first['op']} has culprit {first['culprit']}, not one of {sorted(told.ranks)}"
    for record in seen.of("error"):
        old = not is_local(record) and record["begun"] < first["at"]
        if old and record is not first and seconds_of(record) - at > seconds:
            yield "b", f"{record['op']}, begun before, failed only after {seconds_of(record) - at:.2f} s"
        if not is_local(record) and record is not first and record["code"] not in LATER_CODES + told.codes:
            yield "b", f"{record['op']} failed with {record['name']} later: {short(record['text'])}"
    for record in seen.of("progress"):
        hanging = [op for op, begun in record["waiting"].items()
                   if not op.startswith("local") and begun < first["at"]]
        if hanging and seconds_of(record) - at > seconds:
            yield "b", f"{', '.join(hanging)} hangs, {seconds_of(record) - at:.2f} s after"
            return


def local_work(seen, part, at, healed):
    """(c), of one rank."""
    for record in seen.of("error"):
        if is_local(record):
            yield "c", f"{record['op']} failed: {record['name']}: {short(record['text'])}"
    first = first_error(seen, part)
    begin = at if first is None else seconds_of(first)
    meanwhile = [record for record in seen.of("progress") if begin <= seconds_of(record) <= healed]
    if meanwhile and seconds_of(meanwhile[-1]) - seconds_of(meanwhile[0]) >= STILL_S:
        if meanwhile[0]["life"] == meanwhile[-1]["life"]:
            if meanwhile[-1]["counts"]["local"] <= meanwhile[0]["counts"]["local"]:
                yield "c", "its node-local operations stand still"


def recovery(seen, healed):
    """(e), of one rank."""
    if seen.well is None:
        last = seen.of("progress")[-1:]
        waiting = ", ".join(last[0]["waiting"]) if last else ""
        yield "e", f"does not work again after {RECOVERY_S:.0f} s; waits in: {waiting or 'nothing'}"
        return
    for record in seen.of("error"):
        if seconds_of(record) > max(seen.well, healed) and seconds_of(record, "begun") > healed:
            yield "e", f"{record['op']} failed when all was well: {record['name']}: {short(record['text'])}"


def of_rank(part, seen, at, healed, slack):
    number = seen.number
    ended = next((seconds_of(record) for record in seen.of("ended")), None)
    if number in part.bereft:
        first = next(iter(seen.of("ended")), None)
        if first is None:
            yield "b", "its engine is gone, and its session goes on"
        else:
            if ended - at > LOCAL_S * slack:
                yield "b", f"heard of its engine's end after {ended - at:.2f} s"
            if first["code"] != DAEMON_LOST:
                yield "b", f"heard of its engine's end as {first['name']}: {short(first['text'])}"
    elif ended is not None and number not in part.may_leave | part.gone:
        record = seen.of("ended")[0]
        yield "e", f"a survivor's session ended: {record['name']}: {short(record['text'])}"
    if number in part.told:
        yield from hearing(seen, part, at, ended, slack)
    if number not in part.gone | part.bereft | part.local_may_fail:
        yield from local_work(seen, part, at, healed)


def judge(part, ranks, at, healed, quiet, slack=1):
    """(letter, rank or None, text) of everything that is not as it must be in one job. part: None if the job
    must not notice, which is then judgement `quiet`. `slack`: so many times what is promised counts as in
    time."""
    for seen in ranks:
        if part is None:
            found = list(unmoved(quiet, seen))
            if seen.well is None:
                found.append((quiet, f"does not work after {RECOVERY_S:.0f} s"))
        else:
            found = [*always(seen), *of_rank(part, seen, at, healed, slack), *recovery(seen, healed)]
        for letter, text in found:
            yield letter, seen.number, text
    if part and part.sides:
        left = {seen.number for seen in ranks if seen.of("ended")}
        if all(left & side for side in part.sides):
            yield "e", None, "no side has kept the sessions of all its ranks"


def detection_seconds(part, ranks, at, within):
    """How soon each rank did that had to hear of the fault within so many seconds."""
    for seen in ranks:
        told = part.told.get(seen.number) if part else None
        first = first_error(seen, part) if told and told.seconds == within else None
        if first:
            yield seconds_of(first) - at


def judge_detection(by_kind):
    """(letter, text) of losses of other nodes that were heard of too late, by the seconds of each kind."""
    together = [seconds for values in by_kind.values() for seconds in values]
    for kind, values in [*by_kind.items(), ("all kinds together", together)]:
        if len(values) >= FEW and percentile(values, 99) >= REMOTE_P99_S:
            yield "b", f"{kind}: heard of after p99 {percentile(values, 99):.2f} s, not {REMOTE_P99_S} s"


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
