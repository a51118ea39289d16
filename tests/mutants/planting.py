"""Mutants: bugs that a user would notice, each a change of one place in the product.

No bug is in the tree. plant() writes a copy of the tree in which each place has a switch: the program does
what the tree says, unless MUSTER_MUTANT names the mutant.
"""

import re
import subprocess
from dataclasses import dataclass

HEADER = "tests/mutants/mutant.hpp"
OPEN, CLOSE = "«", "»"


@dataclass
class Mutant:
    name: str
    file: str
    place: str  # stands in the file once; what changes is all of it, or what «stands between these»
    wrong: str  # in its stead: an expression for an expression, statements for what ends with ; or }
    seen: str  # what a user would notice
    tests: list  # those that ought to see it: [NAME=value …] program [gtest filter]

    @property
    def context(self):
        return self.place.replace(OPEN, "").replace(CLOSE, "")

    @property
    def right(self):
        match = re.search(f"{OPEN}(.*){CLOSE}", self.place, re.DOTALL)
        return match[1] if match else self.place

    def begin_in(self, text):
        """Where the text that changes begins; None if the place does not stand there once."""
        if text.count(self.context) != 1:
            return None
        return text.index(self.context) + max(self.place.find(OPEN), 0)

    def switched(self):
        on = f'MUSTER_MUTANT("{self.name}")'
        if self.right.rstrip()[-1:] in (";", "}"):
            return f"{{ if ({on}) {{ {self.wrong} }} else {{ {self.right} }} }}"
        return f"({on} ? ({self.wrong}) : ({self.right}))"


def misfits(root, mutants):
    """What is wrong with the list itself, a line each."""
    lines, places, names = [], [], set()
    for mutant in mutants:
        path = root / mutant.file
        text = path.read_text() if path.is_file() else ""
        begin = mutant.begin_in(text)
        if mutant.name in names:
            lines.append(f"{mutant.name}: another mutant has that name")
        names.add(mutant.name)
        if not mutant.tests:
            lines.append(f"{mutant.name}: no test is named")
        if begin is None:
            count = text.count(mutant.context)
            lines.append(f"{mutant.name}: {mutant.file} has its place {count} times, not once; write the "
                         "mutant anew for what stands there now")
            continue
        end = begin + len(mutant.right)
        lines += [f"{mutant.name}: its place overlaps that of {other}" for other, file, a, b in places
                  if file == mutant.file and a < end and begin < b]
        places.append((mutant.name, mutant.file, begin, end))
    return lines


def planted(text, mutants):
    """The text of a source with the switches of its mutants."""
    for mutant in sorted(mutants, key=lambda each: each.begin_in(text), reverse=True):
        begin = mutant.begin_in(text)
        text = text[:begin] + mutant.switched() + text[begin + len(mutant.right):]
    return f'#include "{HEADER}"\n#line 1\n{text}'


def files_of(root):
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
                             cwd=root, capture_output=True, check=True).stdout.decode()
    return [name for name in listing.split("\0") if name and (root / name).is_file()]


def plant(root, copy, mutants):
    """Leaves equal files alone, so that a build does too."""
    of_file = {}
    for mutant in mutants:
        of_file.setdefault(mutant.file, []).append(mutant)
    names = set(files_of(root))
    for name in names:
        data = (root / name).read_bytes()
        if name in of_file:
            data = planted(data.decode(), of_file[name]).encode()
        path = copy / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod((root / name).stat().st_mode & 0o777)
