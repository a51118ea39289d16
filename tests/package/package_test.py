#!/usr/bin/env python3
"""The installed tree works for a stranger: `package_test.py CMAKE BUILD CONSUMER CC EXAMPLES_TEST`.

Method: install the build into an empty folder, move the folder, and build and run the consumer against it,
        once through find_package and once through pkg-config. The moved tree finds itself. The installed
        examples are copied, built by their Makefile, and print under the installed `muster run` what their
        page shows; the language model trains. Each link of an installed page leads to a file.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

# Program -> what CMake calls its folder, and what is below that.
PROGRAMS = {"muster": ("BINDIR", ""), "musterd": ("SBINDIR", ""), "muster-engine": ("LIBEXECDIR", "muster")}
SHARED = (("DATADIR", "muster/schema/musterd.schema.json"), ("DATADIR", "muster/schema/cluster.schema.json"),
          ("DATADIR", "bash-completion/completions/muster"),
          ("DATADIR", "bash-completion/completions/musterd"),
          ("DATADIR", "zsh/site-functions/_muster"), ("DATADIR", "fish/vendor_completions.d/muster.fish"),
          ("MANDIR", "man1/muster.1"), ("MANDIR", "man8/musterd.8"), ("MANDIR", "man5/musterd.yaml.5"),
          ("DOCDIR", "examples/musterd.yaml"), ("DOCDIR", "examples/cluster.one-node.yaml"),
          ("DOCDIR", "examples/cluster.two-nodes.yaml"), ("DOCDIR", "README.md"), ("DOCDIR", "cluster.md"),
          ("DOCDIR", "concepts.md"), ("DOCDIR", "launchers.md"), ("DOCDIR", "mpi-and-nccl.md"),
          ("DOCDIR", "examples/train_lm/model.cpp"), ("DOCDIR", "examples/winds/model.cpp"))
EXAMPLES = ("all_reduce", "overlap", "recover", "kernels", "mlp", "heat")
DEFAULTS = {"DATADIR": "share", "MANDIR": "share/man",  # empty in the cache: made from others
            "DOCDIR": "share/doc/muster"}
FORBIDDEN_NEEDS = ("cuda", "nccl", "ucp", "fabric", "yaml", "dnnl", "openblas", "ssl", "systemd")


def run(*command, **options):
    print("+", *command, flush=True)
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nended with {done.returncode}")
    return done.stdout


def without_build_settings():
    dropped = ("LD_LIBRARY_PATH", "CMAKE_PREFIX_PATH", "MAKEFLAGS")
    return {name: value for name, value in os.environ.items() if name not in dropped}


def soname_of(prefix):
    """What programs load: the ABI is frozen within a minor version, which is therefore part of the name."""
    header = (prefix / "include" / "muster" / "muster.h").read_text()
    major, minor = (re.search(rf"#define MUSTER_VERSION_{part} (\d+)", header).group(1)
                    for part in ("MAJOR", "MINOR"))
    return f"libmuster.so.{major}.{minor}"


def check_library(library, soname):
    dynamic = run("readelf", "-d", library)
    if f"Library soname: [{soname}]" not in dynamic:
        sys.exit(f"{library} is not {soname}:\n{dynamic}")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    wrong = [name for name in needed if any(word in name for word in FORBIDDEN_NEEDS)]
    if wrong:
        sys.exit(f"{library} is linked into training processes and must not need {' '.join(wrong)}")
    if re.search(r"\(R(UN)?PATH\)", dynamic):
        sys.exit(f"{library} carries a path of the build machine:\n{dynamic}")


def install_folders(build):
    """What the build's configuration says, by the last part of CMAKE_INSTALL_…"""
    cache = (build / "CMakeCache.txt").read_text()
    said = dict(re.findall(r"^CMAKE_INSTALL_(\w+):PATH=(.+)$", cache, re.MULTILINE))
    return {**DEFAULTS, **said}


def check_programs(build, prefix, folders):
    """Each program that the build has is installed, starts from there, and finds the others."""
    built = {name: prefix / folders[folder] / below / name for name, (folder, below) in PROGRAMS.items()
             if (build / "bin" / name).exists()}
    for name, place in built.items():
        if not os.access(place, os.X_OK):
            sys.exit(f"{name} was built and not installed at {place}")
        run(place, "--help", env=without_build_settings())
    if len(built) == len(PROGRAMS):
        run(built["muster"], "run", "--private", "-n", "1", "--", "true", env=without_build_settings())
    for folder, name in SHARED:
        if not (prefix / folders[folder] / name).is_file():
            sys.exit(f"{name} was not installed below {folders[folder]}")


def check_links(folder):
    """Pages lead to what is installed, or elsewhere on the net."""
    links = 0
    for page in sorted(folder.rglob("*.md")):
        for link in re.findall(r"\]\(([^)]*)\)", page.read_text()):
            links += 1
            if not re.match(r"[a-z]+:|#", link) and not (page.parent / link.partition("#")[0]).exists():
                sys.exit(f"{page} links to {link}, which is not there")
    if links < 20:
        sys.exit(f"the pages in {folder} have {links} links; their text was lost")


def check_examples(examples_test, installed, programs, work, environment):
    """As their page says: copy the folder, `make`, and run each."""
    shutil.copytree(installed, work)
    run("make", "-C", work, "CFLAGS=-O2 -Wall -Wextra -Wpedantic -Werror", env=environment)
    print(run(sys.executable, examples_test, work / "README.md", programs, work, work, *EXAMPLES,
              env=environment), end="")
    run("make", "-C", work, "-j", str(os.cpu_count()), "CXXFLAGS=-O0", "train_lm/train_lm", "winds/winds",
        env=environment)
    page = work / "page.html"
    trained = run(programs / "muster", "run", "--private", "-n", "2", "--mesh", "dp_shard=2", "--",
                  work / "train_lm" / "train_lm", "--steps", "2", "--layers", "1", "--width", "16",
                  "--context", "8", "--batch", "2", "--html", page, env=environment)
    if "step 2/2" not in trained or not page.read_text().rstrip().endswith("</html>"):
        sys.exit(f"the language model did not train or wrote no page:\n{trained}")
    trained = run(programs / "muster", "run", "--private", "-n", "2", "--mesh", "domain=2", "--",
                  work / "winds" / "winds", "--steps", "2", "--width", "4", "--html", page, env=environment)
    if "upper u" not in trained or not page.read_text().rstrip().endswith("</html>"):
        sys.exit(f"winds did not train or wrote no page:\n{trained}")


def main(arguments):
    cmake, build, consumer, compiler = arguments[1], Path(arguments[2]), Path(arguments[3]), arguments[4]
    work = build / "package"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    run(cmake, "--install", build, "--prefix", work / "first")
    prefix = (work / "first").rename(work / "moved")
    for header in ("muster.h", "collectives.h", "kernels.h", "field_kernels.h", "halo.h", "layouts.h",
                   "tensor_parallel.h", "units.h", "checkpoint.h"):
        if not (prefix / "include" / "muster" / header).is_file():
            sys.exit(f"{header} was not installed")
    soname = soname_of(prefix)
    libraries = list(prefix.glob(f"lib*/**/{soname}"))
    if len(libraries) != 1:
        sys.exit(f"expected one {soname} under {prefix}, found {libraries}")
    folder = libraries[0].parent
    check_library(libraries[0], soname)
    folders = install_folders(build)
    check_programs(build, prefix, folders)
    check_links(prefix / folders["DOCDIR"])

    environment = {**without_build_settings(), "CC": compiler, "CMAKE_PREFIX_PATH": str(prefix)}
    run(cmake, "-S", consumer, "-B", work / "cmake", "-G", "Ninja", env=environment)
    run(cmake, "--build", work / "cmake", env=environment)
    by_cmake = run(work / "cmake" / "consumer", env=environment)

    shutil.copytree(consumer, work / "make")
    environment["PKG_CONFIG_PATH"] = str(folder / "pkgconfig")
    run("make", "-C", work / "make", env=environment)
    environment["LD_LIBRARY_PATH"] = str(folder)
    by_make = run(work / "make" / "consumer", env=environment)
    if (by_cmake, by_make) != ("MUSTER_OK\n", "MUSTER_OK\n"):
        sys.exit(f"the consumers said {by_cmake!r} and {by_make!r}")
    check_examples(arguments[5], prefix / folders["DOCDIR"] / "examples", prefix / folders["BINDIR"],
                   work / "examples", environment)
    print("package: installed, moved, found by CMake and by pkg-config; consumers and examples built and run")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
