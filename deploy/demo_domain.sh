#!/usr/bin/env bash
# Trains the winds of a field on 4 x 2 ranks through a private daemon. Four ranks cut its latitudes; a step
# has two samples. Writes demo/domain.html (maps, losses, lanes) and demo/domain.trace.json, for
# ui.perfetto.dev.
#
#   [FIELD=months.npy] deploy/demo_domain.sh [STEPS]
#
# FIELD: months of u, v and z on three levels, as winds --help says. Without it, vortices.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

steps=${1:-300}
bin=build/release/bin
for program in muster winds; do
  [ -x "$bin/$program" ] || {
    printf 'demo-domain: %s/%s is not built; run make demo-domain\n' "$bin" "$program" >&2
    exit 1
  }
done
mkdir -p demo
rm -f demo/domain.html demo/domain.trace.json
"$bin/muster" run --private -n 8 --mesh domain=4,dp_replicate=2 -- \
  "$bin/winds" ${FIELD:+--field "$FIELD"} --steps "$steps" --seed 7 \
  --trace demo/domain.trace.json --html demo/domain.html
printf 'demo-domain: open demo/domain.html in a browser, and the trace beside it at https://ui.perfetto.dev\n'
