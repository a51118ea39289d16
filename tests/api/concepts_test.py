#!/usr/bin/env python3
"""The code of a page is a program that runs: `concepts_test.py PAGE MUSTER COMPILER HEADERS LIBRARY`.

Goal:   each block of C on the page is compiled and run, in the order of the page.
Method: the first block is what stands above main(), the others are its body. Lines keep the numbers that
        they have on the page, so messages name them. The program runs on RANKS ranks. Then the page gets
        wrong blocks. The first assertion, or the last one, is turned round: that has to fail in the run. A
        call in the last block is misspelt: that has to fail in the compiler. Each names the line of the page.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS = 4
BLOCKS_MIN = 12  # what stands above main(), ten concepts, the end
FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")


def blocks_of(page):
    """(line, text) of each block of C; the line is that of its first one, counted from 1."""
    return [(page.count("\n", 0, found.start(1)) + 1, found.group(1))
            for found in re.finditer(r"^```c\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]


def program_of(page, name):
    above, *body = (f'#line {line} "{name}"\n{text}' for line, text in blocks_of(page))
    return f'{above}\nint main(void) {{\n{"".join(body)}return 0;\n}}\n'


def run(folder, *command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    return subprocess.run([str(part) for part in command], cwd=folder, env=environment, timeout=120,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)


def fault_of(page, name, muster, compiler, headers, library):
    """What the compiler or the run of the page's program says if it fails; else None."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "concepts")
        source = program.with_suffix(".c")
        source.write_text(program_of(page, name))
        done = run(folder, compiler, *FLAGS, f"-I{headers}", source, library,
                   f"-Wl,-rpath,{library.parent}", "-o", program)
        if done.returncode == 0:
            done = run(folder, muster, "run", "--private", "-n", RANKS, "--", program)
        return None if done.returncode == 0 else f"{done.stdout}ended with {done.returncode}"


def wrong_pages(page):
    """(line, page) of pages with one wrong line each."""
    first, *_, last = re.finditer(r"^assert\((.*)\);", page, re.MULTILINE)
    call = list(re.finditer("muster_close", page))[-1]
    for found, at, text in ((first, first.span(1), f"!({first.group(1)})"),
                            (last, last.span(1), f"!({last.group(1)})"), (call, call.span(), "muster_shut")):
        yield page.count("\n", 0, found.start()) + 1, page[:at[0]] + text + page[at[1]:]


def main(arguments):
    path = Path(arguments[1])
    muster, headers, library = (Path(argument).resolve() for argument in arguments[2:3] + arguments[4:6])
    tools = (muster, arguments[3], headers, library)
    page = path.read_text()
    blocks = len(blocks_of(page))
    faults = [] if blocks >= BLOCKS_MIN else [f"{blocks} blocks of C are fewer than {BLOCKS_MIN}"]
    fault = fault_of(page, path.name, *tools)
    if fault is not None:
        faults.append(fault)
    for line, wrong in wrong_pages(page):
        fault = fault_of(wrong, path.name, *tools)
        if fault is None or f"{path.name}:{line}:" not in fault:
            faults.append(f"a wrong line {line} passes, or nothing says that it is line {line}: {fault}")
    print(*faults, f"concepts: {blocks} blocks of {path}, {len(faults)} faults", sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
