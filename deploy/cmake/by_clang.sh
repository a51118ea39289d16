#!/bin/sh
# Runs a compiler's command with Clang in its place: by_clang.sh CLANG COMPILER COMMAND…
#
# COMMAND is what CMake has made for COMPILER, perhaps behind ccache; each word COMPILER becomes CLANG.
# An old precompiled header goes first: Clang would begin the new one with it.
clang=$1 compiler=$2
shift 2
for word; do
  shift
  case $word in
    "$compiler") word=$clang ;;
    *.gch) rm -f "$word" ;;
  esac
  set -- "$@" "$word"
done
exec "$@"
