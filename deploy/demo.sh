#!/usr/bin/env bash
# Trains the small language model on a mesh of 2 x 2 x 2 ranks through a private daemon.
# Writes demo/index.html (loss, lanes, overlap) and demo/trace.perfetto.json (open it at ui.perfetto.dev).
#
#   deploy/demo.sh [STEPS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

steps=${1:-300}
bin=build/release/bin
for program in muster train_lm; do
  [ -x "$bin/$program" ] || {
    printf 'demo: %s/%s is not built; run make demo\n' "$bin" "$program" >&2
    exit 1
  }
done
mkdir -p demo
rm -f demo/trace.perfetto.json demo/index.html
"$bin/muster" run --private -n 8 --mesh dp_replicate=2,dp_shard=2,tp=2 -- \
  "$bin/train_lm" --steps "$steps" --seed 7 --trace demo/trace.perfetto.json --html demo/index.html
for output in demo/trace.perfetto.json demo/index.html; do
  [ -s "$output" ] || {
    printf 'demo: %s was not written\n' "$output" >&2
    exit 1
  }
done
printf 'demo: open demo/index.html in a browser and demo/trace.perfetto.json at https://ui.perfetto.dev\n'
