#!/usr/bin/env python3
"""Prints a header with its comments as Doxygen takes them: `comments.py HEADER`.

The headers of the C API have plain comments, which Doxygen skips. Here
  - the comment at the top is the file's, and that of muster.h is the main page too;
  - a comment behind code is of what stands before it, one behind `{` of what the brace belongs to, and one
    before `}` of the last member;
  - a headline (`---- … ----`) is none's;
  - any other comment is of what comes next, and of the functions that follow it without a blank line.
Text keeps its words. What is laid out in columns keeps its columns. Names of functions and types are links,
and Doxygen refuses a link that leads nowhere.
"""

import re
import sys
from pathlib import Path

COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
SPECIAL = {"\\": "\\\\", "@": "\\@", "&": "&amp;", "<": "&lt;", ">": "&gt;", "#": "\\#", "%": "\\%"}


def lines_of(comment, column):
    """The text of a comment whose first line begins at a column, with what is indented deeper."""
    first, *rest = comment[2:-2].split("\n")
    lines = [re.sub(r"^ ?", "", first)]
    for line in rest:
        indented = len(line) - len(line.lstrip())
        starred = re.match(r"\s*\*( |$)", line)
        lines.append(line[starred.end() if starred else min(column + 3, indented):])
    return [line.rstrip() for line in lines]


def is_laid_out(paragraph):
    return re.search(r"\S {2,}\S|^ {2}", paragraph, re.MULTILINE)


def marked(text):
    text = "".join(SPECIAL.get(letter, letter) for letter in text)
    text = re.sub(r"`([^`]*)`", r"<tt>\1</tt>", text)
    return re.sub(r"\bmuster_[a-z0-9_]*[a-z0-9]\b", r'@ref \g<0> "\g<0>"', text)


def text_of(comment, column):
    text = []
    for paragraph in re.split(r"\n{2,}", "\n".join(lines_of(comment, column)).strip("\n")):
        shown = marked(paragraph)
        text.append(f"<pre>\n{shown}\n</pre>" if is_laid_out(paragraph) else shown)
    return "\n\n".join(text)


def is_plain(found, text, bodies):
    """Comments that stay as they are: headlines, those behind directives other than #define, in functions."""
    before = text[text.rfind("\n", 0, found.start()) + 1:found.start()]
    return (re.match(r"/\* -{4}", found[0]) or re.match(r"\s*#(?!\s*define)", before)
            or any(start < found.start() < end for start, end in bodies))


def documented(code, comment):
    """Code behind a comment of the functions that follow: each of these has it."""
    if not re.match(r"\n(MUSTER_API|static inline)", code):
        return comment + code
    return comment + re.sub(r"(?<=[;}]\n)(?=MUSTER_API|static inline)", lambda _: comment + "\n", code)


def converted(header):
    text = header.read_text()
    bodies = [found.span() for found in re.finditer(r"^static inline [^;]*?\{.*?^\}", text, re.M | re.S)]
    comments = [found for found in COMMENT.finditer(text) if not is_plain(found, text, bodies)]
    out = []
    for at, found in enumerate(comments):
        end = comments[at + 1].start() if at + 1 < len(comments) else len(text)
        code = text[found.end():end]
        before = text[text.rfind("\n", 0, found.start()) + 1:found.start()]
        body = text_of(found[0], len(before))
        if found.start() == 0:
            main = f"/** @mainpage\n{body}\n*/\n" if header.name == "muster.h" else ""
            out.append(f"{main}/** @file\n{body}\n*/{code}")
        elif before.rstrip().endswith("{"):
            start = len(out[-1]) - len(before)
            out[-1] = f"{out[-1][:start]}/** {body} */\n{before}"
            out.append(code)
        elif before.strip() or re.match(r"\s*\}", code):
            out.append(f"/**< {body} */{code}")
        else:
            out.append(documented(code, f"/** {body} */"))
    return "".join(out)


def main(arguments):
    sys.stdout.write(converted(Path(arguments[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
