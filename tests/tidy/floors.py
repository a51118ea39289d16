#!/usr/bin/env python3
"""The floors of deploy/floors.txt: who may include whom, and the table in ARCHITECTURE.md.

`floors.py ROOT --write` brings the table up to date.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

FILE = "deploy/floors.txt"
PAGE = "ARCHITECTURE.md"
BEGIN, END = "<!-- begin: made from deploy/floors.txt -->", "<!-- end -->"
LEAF = 1000  # above every floor


@dataclass(frozen=True)
class Place:
    """One entry: where it stands, and what it may use below."""

    path: str
    floor: int
    chain: int  # the line that it stands on, and its place there from the left
    position: int
    uses: tuple = ()


@dataclass
class Floors:
    places: dict = field(default_factory=dict)  # path of the entry -> Place
    rows: list = field(default_factory=list)  # [floor, what it knows, its lines]
    excepted: dict = field(default_factory=dict)  # (file, folder) -> line number in the file

    def place_of(self, path):
        """The longest entry that fits: the file, then the folders above it from below."""
        entries = [path.rsplit(".", 1)[0] + ".*", *map(str, PurePosixPath(path).parents)]
        return next((self.places[entry] for entry in entries if entry in self.places), None)

    def refusal(self, path, target):
        """None if the file `path` may include the file `target`, else the reason why not."""
        mine, theirs = self.place_of(path), self.place_of(target)
        if mine is None or theirs is None:
            return f"{path if mine is None else target} stands on no floor of {FILE}"
        if any(path == file and theirs.path == folder for file, folder in self.excepted):
            return None
        return _refusal(mine, theirs)


def _refusal(mine, theirs):
    if mine.path == theirs.path:
        return None
    if mine.chain == theirs.chain:
        below = mine.position < theirs.position
        return None if below else f"{theirs.path} does not stand below {mine.path} on their floor"
    if mine.uses:
        fits = any((theirs.path + "/").startswith(used + "/") for used in mine.uses)
        return None if fits else f"{mine.path} uses {', '.join(mine.uses)} alone"
    if theirs.floor == LEAF:
        return f"{theirs.path} is a leaf: nobody includes it"
    if theirs.floor == mine.floor:
        return f"{mine.path} must not include {theirs.path} on the same floor {mine.floor}: never across"
    if theirs.floor > mine.floor:
        return f"floor {mine.floor} must not include floor {theirs.floor}: never upwards"
    return None


def parse(text):
    floors = Floors()
    held = ""
    for number, line in enumerate(text.split("\n"), 1):
        line = held + line.split("#", 1)[0].strip()
        held = line + " " if line.endswith((",", ">")) else ""
        if not line or held:
            continue
        if match := re.fullmatch(r"(?:floor (\d+)|leaf): (.+)", line):
            floors.rows.append([int(match[1]) if match[1] else LEAF, match[2], []])
        elif match := re.fullmatch(r"except (\S+) > (\S+): \S.*", line):
            floors.excepted[match[1], match[2]] = number
        elif floors.rows and (match := re.fullmatch(r"([\w/ ,>.*]+?)(?: uses ([\w/ ,]+))?", line)):
            _add_line(floors, number, *match.groups())
        else:
            raise ValueError(f"{FILE}:{number}: '{line}' is no floor, no line of folders and no exception")
    return floors


def _add_line(floors, number, chain, uses):
    floor = floors.rows[-1][0]
    floors.rows[-1][2].append(f"{chain} uses {uses}" if uses else chain)
    below = tuple(re.findall(r"[\w/]+", uses or ""))
    for position, level in enumerate(chain.split(">")):
        for path in re.findall(r"[\w/.*]+", level):
            floors.places[path] = Place(path, floor, number, position, below)


def _as_code(word):
    return word[0] if word[0] == "uses" else f"`{word[0]}`"


def table(floors):
    """The rows of ARCHITECTURE.md between its two markers."""
    lines = ["| floor | folders, each may include those to its right | knows |", "|---|---|---|"]
    for floor, knows, chains in floors.rows:
        shown = "<br>".join(re.sub(r"[\w/.*]+", _as_code, chain) for chain in chains)
        lines.append(f"| {'leaves' if floor == LEAF else floor} | {shown} | {knows} |")
    return "\n".join(lines)


def with_table(page, floors):
    """The page with the present table between its markers; None if it has no such markers."""
    if BEGIN not in page or END not in page:
        return None
    before, rest = page.split(BEGIN, 1)
    return before + BEGIN + "\n" + table(floors) + "\n" + END + rest.split(END, 1)[1]


def main(arguments):
    if len(arguments) != 3 or arguments[2] != "--write":
        print("floors: floors.py ROOT --write")
        return 2
    root = Path(arguments[1])
    floors = parse((root / FILE).read_text())
    page = with_table((root / PAGE).read_text(), floors)
    if page is None:
        print(f"floors: {PAGE} lacks the lines {BEGIN} and {END}")
        return 1
    (root / PAGE).write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
