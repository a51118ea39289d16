#!/bin/sh
# Verifies a Promela model exhaustively.
#   verify.sh MODEL holds|fails [-DNAME…]
# `holds`: passes if the whole state space was searched and no error found. `fails`: passes if an error was
# found, which is what a planted bug must give.
set -eu
model=$(realpath "$1")
expected=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
# SAFETY: invalid end states (deadlock) and assertions. Every state is stored, its parts once each (COLLAPSE).
# Not optimised: that takes a minute more than it saves. A deep search says MODEL_OPTIMISE=-O2.
cc "${MODEL_OPTIMISE:--O0}" -w -DSAFETY -DCOLLAPSE -DMEMLIM="${MODEL_MEMORY_MB:-768}" -o pan pan.c
timeout "${MODEL_SECONDS:-240}" ./pan -m200000 >pan.log 2>&1 || { cat pan.log; exit 1; }
cat pan.log
incomplete='search not completed\|max search depth too small\|memlim bound'
if [ "$expected" = holds ] && grep -qi "$incomplete" pan.log; then
  echo "the search was not exhaustive"
  exit 1
fi
case $expected in
  holds) grep -q 'errors: 0' pan.log ;;
  fails) grep -q 'errors: [1-9]' pan.log ;;
  *) echo "expected is holds or fails, not $expected"; exit 2 ;;
esac
