"""Rules about words: names that the house no longer uses, and how a comment begins.

The words stand in old_words.txt, each with the one that took its place.
"""

import re
from functools import lru_cache
from pathlib import PurePosixPath

from tree_rules import PRODUCT, declarations_of, functions_of

LIST = "tests/tidy/old_words.txt"
_BEGINNING = re.compile(r"(?:^|[.:!?] )(Of|Who|Whoever|Whose|Whom|What)\b")


@lru_cache(maxsize=2)
def old_words(text):
    """Old word -> (the word for it, names that keep it), of the list's lines `OLD: NEW [but NAME, NAME]`."""
    words = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z_]+): ([^()]+?)(?: \(but ([\w, ]+)\))?", line)
        if not match:
            raise SystemExit(f"{LIST}:{number}: '{line}' is no `OLD: NEW` or `OLD: NEW (but NAME, NAME)`")
        words[match[1]] = match[2], frozenset(re.findall(r"\w+", match[3] or ""))
    return words


def as_snake(name):
    """EngineTies, engine_ties, kEngineTies: engine_ties."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("k")).lower().strip("_~")


def _names_of(source):
    """(kind, name, line) of the file, and of the types and functions that it declares or defines."""
    yield "file", PurePosixPath(source.path).stem, 1
    for scope in source.scopes:
        if scope.kind == "class" and scope.name:
            yield "type", scope.name, scope.head_line
            yield from (("function", name, scope.head_line) for name in functions_of(scope))
        elif scope.kind == "function" and re.fullmatch(r"~?\w+", scope.name) and scope.name != "lambda":
            yield "function", scope.name, scope.head_line
    yield from (("name", name, line) for name, line in declarations_of(source))


def old_word(source, tree):
    """A type, file or function is not called by a word that the house has given up."""
    if not (PRODUCT.match(source.path) and source.is_cpp):
        return
    words = old_words(tree.files.get(LIST, ""))
    told = set()
    for kind, name, line in _names_of(source):
        snake = as_snake(name)
        for old, (new, but) in words.items():
            if (name, old) in told or name in but or snake in but:
                continue
            if re.search(rf"(?:^|_){old}(?:_|$)", snake):
                told.add((name, old))
                yield line, f"the {kind} {name} has the word '{old}': here that is '{new}'"


def _comment_blocks(source):
    """(first line, text) of each comment; the lines of one that goes on over several belong to it."""
    code = source.code.split("\n")
    held = None
    for number in sorted(source.comments):
        text = re.sub(r"^\s*(?://+|/\*+|\*+/?)\s?|\s*\*/$", "", source.comments[number].strip())
        alone = not code[number - 1].strip()
        if held and alone and number == held[1] + 1 and text:
            held = held[0], number, held[2], held[3] + [text]
            continue
        if held:
            yield held[0], held[3]
        held = (number, number, alone, [text]) if text else None
    if held:
        yield held[0], held[3]


def comment_beginning(source, tree):
    """A comment names its subject first: no sentence of it begins with Of, Who, Whoever, Whose or What."""
    if not source.is_cpp:
        return
    for first, lines in _comment_blocks(source):
        at, starts = 0, []
        for offset, line in enumerate(lines):
            starts.append((at, first + offset))
            at += len(line) + 1
        text = " ".join(lines)
        for match in _BEGINNING.finditer(text):
            if text.rstrip().endswith("?") or re.match(r"[^.]*\?", text[match.start(1):]):
                continue
            line = [number for begin, number in starts if begin <= match.start(1)][-1]
            yield line, f"a comment that begins with '{match[1]}': say first what does it, or what it is"
