#!/usr/bin/env bash
# Installs the Debian 12 packages that Muster needs; says nothing and needs no rights when all are there.
#
#   deploy/setup.sh            what build, demo and test need
#   deploy/setup.sh bench      and the peers that the benchmarks are measured against
#   deploy/setup.sh torch      and PyTorch from PyPI, in build/torch; where it cannot be had, a line says so
#   deploy/setup.sh physicsnemo  the same, and PhysicsNeMo there
#   deploy/setup.sh clang      and clang with its sanitizers and its fuzzer, for `make test` and `make fuzz`
#   deploy/setup.sh reference  and what makes pages of the C API, for `make reference` and `make test`
#   deploy/setup.sh containers and podman, for the tests that need it (`make prove`)
#   deploy/setup.sh lint       and the linter
#   deploy/setup.sh format     and the formatter
#   deploy/setup.sh --list     prints the packages, one a line, and installs nothing
#
# MUSTER_SETUP=skip leaves the machine alone: for systems that bring the dependencies in another way.
set -euo pipefail

packages=(
  build-essential cmake ninja-build ccache pkg-config git python3
  libfmt-dev libexpected-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libasio-dev
  libsystemd-dev libssl-dev libxxhash-dev
  libucx-dev libfabric-dev
  libdnnl-dev ocl-icd-opencl-dev libhwy-dev # the package of oneDNN asks for OpenCL's files
  libgtest-dev libgmock-dev relacy-dev spin valgrind
  iproute2 procps
)
bench_packages=(openmpi-bin libopenmpi-dev mpich libmpich-dev libgloo-dev ucx-utils libfabric-bin)
torch_packages=(python3-venv)
clang_packages=(clang-14 lld-14 llvm-14 libclang-rt-14-dev libomp-14-dev)
reference_packages=(doxygen)
container_packages=(podman crun)
lint_packages=(clang-tidy-14)
format_packages=(clang-format-14)

die() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

list_only=no
with_torch=no
with_physicsnemo=no
for argument in "$@"; do
  case "$argument" in
    bench) packages+=("${bench_packages[@]}") ;;
    torch)
      packages+=("${torch_packages[@]}")
      with_torch=yes
      ;;
    physicsnemo)
      packages+=("${torch_packages[@]}")
      with_torch=yes
      with_physicsnemo=yes
      ;;
    clang) packages+=("${clang_packages[@]}") ;;
    reference) packages+=("${reference_packages[@]}") ;;
    containers) packages+=("${container_packages[@]}") ;;
    lint) packages+=("${lint_packages[@]}") ;;
    format) packages+=("${format_packages[@]}") ;;
    --list) list_only=yes ;;
    *)
      die "'$argument' is not known;" \
        "say nothing, clang, reference, bench, torch, physicsnemo, containers, lint, format or --list"
      ;;
  esac
done
if [ "$list_only" = yes ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
[ "${MUSTER_SETUP:-}" != skip ] || exit 0

# No failure where it cannot be had: benchmarks do without it, and say so.
install_torch() {
  local folder
  folder=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/torch
  local modules=(torch numpy) imports='import numpy, torch'
  if [ "$with_physicsnemo" = yes ]; then
    modules=(torch==2.15.0 numpy nvidia-physicsnemo==2.2.2)
    imports+=', physicsnemo'
  fi
  if [ "$with_torch" = no ] || "$folder/bin/python3" -c "$imports" 2>/dev/null; then
    return
  fi
  printf 'setup: fetching %s into build/torch\n' "${modules[*]}"
  python3 -m venv "$folder" && "$folder/bin/python3" -m pip install --quiet "${modules[@]}" ||
    printf 'setup: no %s (the words of pip are above); benchmarks do without it\n' "${modules[*]}" >&2
}

system=unknown
version=
if [ -r /etc/os-release ]; then
  system=$(. /etc/os-release && printf '%s' "${ID:-unknown}")
  version=$(. /etc/os-release && printf '%s' "${VERSION_ID:-}")
fi
if [ "$system" != debian ] || ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  die "this is '$system $version', and packages are installed on Debian 12 only." \
    "Install the equivalents of 'deploy/setup.sh --list' yourself, then set MUSTER_SETUP=skip."
fi
[ "$version" = 12 ] ||
  printf 'setup: made for Debian 12, this is Debian %s; going on\n' "${version:-testing}" >&2

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
  install_torch
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null ||
    die "needs root to install: ${missing[*]}" "Run deploy/setup.sh as root, or install sudo."
  as_root=(sudo)
  [ -t 0 ] || as_root=(sudo -n) # nobody there to type a password
  "${as_root[@]}" true || die "sudo refused; run deploy/setup.sh as root to install: ${missing[*]}"
fi

apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

printf 'setup: installing %s\n' "${missing[*]}"
# Package lists that are absent or old show as a failed installation; only then are they fetched.
if ! apt install --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
  printf 'setup: fetching package lists\n'
  apt -o APT::Update::Error-Mode=any update >/dev/null ||
    die "apt-get update failed (its words are above)." \
      "Check the network, the proxy (http_proxy, Acquire::http::Proxy) and /etc/apt/sources.list*; run again."
  apt install --no-install-recommends "${missing[@]}" >/dev/null ||
    die "apt-get install failed (its words are above) for: ${missing[*]}" \
      "A package that cannot be located needs Debian 12's 'main' in /etc/apt/sources.list*."
fi
install_torch
printf 'setup: done\n'
