#!/usr/bin/env python3
"""The reference of the C API is whole: `reference_test.py MAP OUTPUT`.

Goal:   each public function, exported or inline in a header, has an entry with a text, and the search of the
        pages leads to it without a network.
Method: make the reference. Take the functions from the library's map and from the headers. Look each up as
        the script of the pages does, in the file for its first letter, and go to the place that it names.
        Then plant a function in a copy of the headers. Without a comment it is missed. With one that names a
        function which is not there, Doxygen refuses it.
Skipped where Doxygen is not installed, but not in the continuous integration (CI in the environment).
"""

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
HEADERS = "api/include/muster"
FUNCTION = r"(?:MUSTER_API|static inline)\b[^;({]*?\b(muster_\w+)\s*\("
PLANTED = "MUSTER_API muster_status_t muster_planted(muster_session* session);\n"


def declared(headers):
    """The functions that headers declare, those in comments apart."""
    return [name for header in headers.glob("*.h")
            for name in re.findall(FUNCTION, re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL))]


def make(root, output):
    """Makes the pages of a tree. Gives what Doxygen says if it fails; a warning is an error."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    done = subprocess.run(["doxygen", "deploy/reference/Doxyfile"], cwd=root, check=False, text=True,
                          env={**os.environ, "OUTPUT": str(output)}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if done.returncode == 0 else f"{done.stdout}doxygen ended with {done.returncode}"


def entries_of(page):
    """Anchor -> (name, text) of the functions of a page."""
    entries = {}
    for part in page.split('<a id="')[1:]:
        title = re.search(r'<h2 class="memtitle">.*</span>(\w+)\(\)</h2>', part)
        _, found, text = part.partition('<div class="memdoc">')
        if title and found:
            plain = html.unescape(re.sub(r"<[^>]*>", "", text.partition("</div>")[0]))
            entries[part[:part.index('"')]] = (title[1], plain.strip())
    return entries


def search(pages, word):
    """The places that the search of the pages gives for a word: (file, anchor)."""
    known = (pages / "search/searchdata.js").read_text()
    letters = re.search(r'indexSectionsWithContent =\s*{\s*0: "([^"]+)"', known)
    listed = pages / f"search/all_{letters[1].index(word[0]):x}.js"
    return re.findall(rf"\['{word}',\['\.\./([\w.]+)#(\w+)'", listed.read_text())


def faults_of(pages, functions):
    entries = {page.name: entries_of(page.read_text()) for page in pages.glob("*_8h.html")}
    for function in functions:
        places = search(pages, function)
        texts = [entries.get(page, {}).get(anchor) for page, anchor in places]
        if not places:
            yield f"the search does not find {function}"
        elif not all(texts):
            yield f"the search leads to no entry for {function}: {places}"
        elif any(name != function or not text for name, text in texts):
            yield f"{function} has no text, or is found as another: {texts}"


def loads_of(pages):
    """Scripts, styles and images of the pages."""
    loaded = r'<(?:script|link|img)\b[^>]*?(?:src|href)="([^"]+)"'
    return {found for page in pages.glob("*.html") for found in re.findall(loaded, page.read_text())}


def planted_faults(comment):
    """Makes the reference of headers with one more function. Gives what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(ROOT / HEADERS, root / HEADERS)
        shutil.copytree(ROOT / "deploy/reference", root / "deploy/reference")
        with (root / HEADERS / "units.h").open("a") as header:
            header.write(f"\n{comment}{PLANTED}")
        fault = make(root, root / "out")
        return [fault] if fault else list(faults_of(root / "out/html", ["muster_planted"]))


def main(arguments):
    if shutil.which("doxygen") is None:
        print("no doxygen is installed (deploy/setup.sh reference)")
        return 1 if os.environ.get("CI") else SKIPPED
    exported = re.findall(r"^\s+(muster_\w+);", Path(arguments[1]).read_text(), re.MULTILINE)
    functions = sorted({*exported, *declared(ROOT / HEADERS)})
    output = Path(arguments[2])
    pages = output / "html"
    fault = make(ROOT, output)
    if fault:
        print(fault)
        return 1
    faults = list(faults_of(pages, functions))
    faults += [f"pages load {loaded}, which is not among them" for loaded in sorted(loads_of(pages))
               if not (pages / loaded).is_file()]
    for comment, fault in (("", "muster_planted has no text"), ("/* As muster_gone. */\n", "muster_gone")):
        found = planted_faults(comment)
        if not found or fault not in found[0]:
            faults.append(f"a function with the comment '{comment}' passes, or not for '{fault}': {found}")
    print(*faults, f"reference: {len(functions)} functions, {len(exported)} of them exported, "
          f"{len(faults)} faults", sep="\n")
    return 1 if faults or not exported else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
