#!/usr/bin/env bash
# Builds the benchmarks optimised and runs them one after the other, alone, each beside its peers in one run.
# Each prints a table, writes its rows into build/release/bench/NAME.json and draws pictures of them into
# build/release/bench/plots.
#
#   deploy/bench.sh [NAME...]      all, or those named
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --preset release
cmake --build --preset release --target all benches
shopt -s nullglob
programs=(build/release/bench/*)
[ "$#" -eq 0 ] || programs=("${@/#/build/release/bench/}")
ran=0
for program in "${programs[@]}"; do
  case "$program" in *.json) continue ;; esac
  if [ -d "$program" ]; then
    continue
  fi
  [ -x "$program" ] || {
    printf 'bench: no benchmark %s\n' "$(basename "$program")" >&2
    exit 1
  }
  printf '== %s\n' "$(basename "$program")"
  "$program" --json "$program.json" --plots build/release/bench/plots
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || {
  printf 'bench: this tree has no benchmark\n' >&2
  exit 1
}
