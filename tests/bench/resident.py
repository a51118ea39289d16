"""The memory of a process tree at its peak, as /proc tells it."""

import pathlib
import threading

PROC = pathlib.Path("/proc")


def parent_of(process):
    """The fourth word of stat, behind a name in brackets that may hold anything."""
    return int((process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])


def descendants_of(root):
    """Ids of all processes below `root`, itself not counted. What starts or ends meanwhile may be missing."""
    children = {}
    for process in PROC.iterdir():
        if process.name.isdigit():
            try:
                children.setdefault(parent_of(process), []).append(int(process.name))
            except (OSError, IndexError, ValueError):
                continue  # it has ended
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def kib_of(path, field):
    """0 if the process has ended, or has no memory of its own."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


class Peak:
    """Looks at all processes below one, from __enter__ to __exit__, and keeps the most that it has seen.

    resident_bytes: of all together, at one time; a page that several share counts once (Pss).
    sum_of_peaks_bytes: of each one's own peak (VmHWM), whenever it was; what is shared counts for each.
    """

    def __init__(self, root, every_seconds=0.02):
        self.root = root
        self.every_seconds = every_seconds
        self.resident_bytes = 0
        self.peaks = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    @property
    def sum_of_peaks_bytes(self):
        return sum(self.peaks.values())

    def watch(self):
        while not self.ended.wait(self.every_seconds):
            resident = 0
            for pid in descendants_of(self.root):
                resident += 1024 * kib_of(PROC / str(pid) / "smaps_rollup", "Pss:")
                peak = 1024 * kib_of(PROC / str(pid) / "status", "VmHWM:")
                self.peaks[pid] = max(self.peaks.get(pid, 0), peak)
            self.resident_bytes = max(self.resident_bytes, resident)
