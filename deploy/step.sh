#!/usr/bin/env bash
# Runs a command as a step of a make target: says which step begins, and how long it took.
#
#   deploy/step.sh NAME COMMAND [ARGUMENT...]
set -u
name=$1
shift
printf -- '-- %s\n' "$name"
start=$SECONDS
"$@"
code=$?
if [ "$code" -eq 0 ]; then
  printf -- '-- %s: done in %d s\n' "$name" $((SECONDS - start))
else
  printf -- '-- %s: failed after %d s\n' "$name" $((SECONDS - start)) >&2
fi
exit "$code"
