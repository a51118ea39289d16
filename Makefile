# One command each; every one does its own set-up. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup build reference demo demo-cluster demo-domain test prove prove-sanitized fuzz
.PHONY: fuzz-wire bench lint
.PHONY: format clean

export CCACHE_BASEDIR := $(CURDIR)
STEP := @deploy/step.sh

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install the packages that build, demo and test need (Debian 12; root or sudo)
	$(STEP) "packages" deploy/setup.sh

build: setup ## Build the programs and the library, optimised, in build/release
	$(STEP) "configure" cmake --preset release
	$(STEP) "build" cmake --build --preset release

reference: ## Pages of the C API, with a search that needs no network, in build/reference/html
	$(STEP) "packages" deploy/setup.sh reference
	@mkdir -p build/reference
	$(STEP) "reference" env OUTPUT=build/reference doxygen deploy/reference/Doxyfile

demo: setup ## Train a small language model on 8 ranks; writes demo/index.html and a Perfetto trace
	$(STEP) "configure" cmake --preset release
	$(STEP) "build" cmake --build --preset release --target muster-cli musterd muster-engine train_lm
	$(STEP) "train" deploy/demo.sh

demo-cluster: setup ## The same over two and four nodes: network namespaces, with a daemon in each
	$(STEP) "configure" cmake --preset release
	$(STEP) "build" cmake --build --preset release --target muster-cli musterd muster-engine train_lm \
	  muster_network_ucx muster_network_ofi
	$(STEP) "train" deploy/demo_cluster.py

demo-domain: setup ## Learn the winds of a field that is cut over ranks: demo/domain.html; FIELD=months.npy
	$(STEP) "configure" cmake --preset release
	$(STEP) "build" cmake --build --preset release --target muster-cli musterd muster-engine winds
	$(STEP) "train" env FIELD="$(FIELD)" deploy/demo_domain.sh

test: ## Every test: release, sanitizers, races; ends with "N passed, N failed"; LEAN=1 keeps no build
	$(STEP) "packages" deploy/setup.sh clang reference
	@python3 deploy/test.py $(if $(LEAN),--lean)

prove: setup ## Promises at full size and mutants, but fuzzing and bench; on a quiet machine, three hours
	$(STEP) "packages" deploy/setup.sh clang containers
	$(STEP) "configure" cmake --preset release
	$(STEP) "build" cmake --build --preset release --target all tests_all
	$(STEP) "prove" python3 deploy/prove.py --record build/release/prove.txt
	$(STEP) "mutants" python3 tests/mutants/mutants.py

prove-sanitized: ## Those that are promised under sanitizers too, under ASan and TSan; HOURS
	$(STEP) "packages" deploy/setup.sh clang
	@for preset in debug tsan; do \
	  deploy/step.sh "prove under $$preset" \
	    python3 deploy/prove.py --preset $$preset --build --record build/$$preset/prove.txt; \
	done

FUZZ_SECONDS ?= 20

fuzz: ## Fuzz every target for FUZZ_SECONDS, then see each find its planted bug; needs clang
	$(STEP) "packages" deploy/setup.sh clang
	$(STEP) "fuzz" python3 tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)
	$(STEP) "find planted bugs" python3 tests/fuzz/planted_test.py

fuzz-wire: ## Ten million inputs of what other nodes send: MINUTES; needs clang
	$(STEP) "packages" deploy/setup.sh clang
	$(STEP) "fuzz" python3 tests/fuzz/fuzz.py --wire --executions 10000000 --seconds 7200

bench: ## Measure against the peers in one run, 65 minutes or 105 with torch; results in build/release/bench
	$(STEP) "packages" deploy/setup.sh bench
	$(STEP) "measure" deploy/bench.sh

lint: ## clang-tidy over the whole tree: an hour and a half of one core
	$(STEP) "packages" deploy/setup.sh lint
	$(STEP) "lint" python3 deploy/lint.py

format: ## Format every C++ and CUDA file in place
	@deploy/setup.sh format
	@git ls-files -co --exclude-standard -- '*.hpp' '*.cpp' '*.h' '*.c' '*.cu' '*.cuh' ':!api/include' | \
	  xargs -r clang-format-14 -i

clean: ## Remove everything that was built
	@rm -rf build demo
