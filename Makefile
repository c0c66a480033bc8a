# Every command of the project; `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
STAMP := $(VENV)/.installed
SOURCES := operator worker_image tests
# Worker processes of the test suite, and further arguments for pytest: make test ARGS='-k queue'
JOBS ?= 2
ARGS ?=
# Rounds of chaos, and the seed of the first: make chaos ROUNDS=200
ROUNDS ?=
SEED ?=
# Histories of the simulation: make simulate SEEDS=20000
SEEDS ?=
# What builds the images, and what their names begin with: make images BUILDER=podman REGISTRY=registry.example/team/
BUILDER ?= docker
REGISTRY ?=
VERSION = $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Create .venv with the locked packages and this project in it

$(STAMP): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "setup: Python 3.11 or newer is needed; name another with: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "setup: the venv module is missing; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@[ -x $(PY) ] && $(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

.PHONY: lock
lock: setup ## Resolve the packages anew and write all locks (needs uv)
	@command -v uv >/dev/null || { echo "lock: uv is missing; install it with: pipx install uv" >&2; exit 1; }
	$(COMPILE) --extra dev pyproject.toml --upgrade --output-file $(VENV)/resolved.lock
	@{ echo "# Every package that development and the tests need, pinned with hashes. Made by: make lock"; \
	  cat $(VENV)/resolved.lock; } > requirements-dev.lock
	@$(MAKE) lock-images

.PHONY: lock-images
lock-images: ## Write the locks of the images anew, with the versions of requirements-dev.lock (needs uv)
	@command -v uv >/dev/null || { echo "lock-images: uv is missing; install it with: pipx install uv" >&2; exit 1; }
	@pinned="$$(mktemp)" && found="$$(mktemp)" && trap 'rm -f "$$pinned" "$$found"' EXIT \
	  && sed -n 's/^\([a-z][^ ]*==[^ ;]*\).*/\1/p' requirements-dev.lock > "$$pinned" \
	  && for image in "operator:the image of the operator:--extra operator pyproject.toml" \
	      "worker:the image of a worker:pyproject.toml" "build:the building of the wheel:tests/images/build.in"; do \
	    IFS=: read -r name what from <<< "$$image" \
	      && $(COMPILE) $$from --constraint "$$pinned" --output-file "$$found" >/dev/null \
	      && { echo "# What $$what takes, pinned with hashes. Made by: make lock-images"; cat "$$found"; } \
	        > "requirements-$$name.lock"; \
	  done

.PHONY: images
images: ## Build the images of operator and worker: BUILDER=podman, REGISTRY=registry.example/team/
	@for image in operator worker; do \
	  folder=operator; [ $$image = operator ] || folder=worker_image; \
	  $(BUILDER) build --file $$folder/Dockerfile --tag "$(REGISTRY)agentrun-$$image:$(VERSION)" \
	    --build-arg VERSION="$(VERSION)" --build-arg REVISION="$$(git rev-parse HEAD 2>/dev/null || echo unknown)" .; \
	done

.PHONY: demo
demo: setup ## Run the stock transfer example on this machine, without a cluster
	@PATH="$(CURDIR)/$(BIN):$$PATH" examples/stock-transfer/demo.sh

.PHONY: test
test: setup ## Run all tests; ARGS='-k queue' picks, JOBS=4 widens
	@$(PY) -m pytest -n $(JOBS) --inline-snapshot=disable -m "not (apiserver or cluster or kills or chart)" $(ARGS)

.PHONY: test-kills
test-kills: setup ## Kill and stop real processes at named instants; tables of what came of it in test-reports/kills
	@$(PY) -m pytest -n $(JOBS) --inline-snapshot=disable tests/kills $(ARGS)

.PHONY: test-cluster
test-cluster: setup ## Run the tests on a real API server: KUBECONFIG's, else one of our own (built once per machine)
	@assets="$$(tests/cluster/prepare)" && KUBEBUILDER_ASSETS="$$assets" \
	  $(PY) -m pytest -n $(JOBS) --inline-snapshot=disable tests/cluster $(ARGS)

.PHONY: test-chart
test-chart: setup ## Render the Helm charts and install them on an API server of our own (helm fetched once per machine)
	@helm="$$(tests/chart/prepare)" && assets="$$(KUBECONFIG= tests/cluster/prepare)" \
	  && HELM="$$helm" KUBEBUILDER_ASSETS="$$assets" KUBECONFIG= \
	  $(PY) -m pytest -n $(JOBS) --inline-snapshot=disable tests/chart $(ARGS)

.PHONY: test-node
test-node: setup ## Install the chart on real pods and break them: KUBECONFIG's cluster, else a node of our own (root)
	@helm="$$(tests/chart/prepare)" && code=0 && { HELM="$$helm" tests/node/run \
	  $(PY) -m pytest --inline-snapshot=disable tests/node $(ARGS) || code=$$?; } && { [ $$code = 77 ] || exit $$code; }

.PHONY: kind-up
kind-up: ## Start a kind cluster with the tests' images built by Docker and loaded
	@tests/node/kind-up

.PHONY: kind-test
kind-test: setup ## Run the tests of make test-node on the cluster of make kind-up
	@KUBECONFIG="$(CURDIR)/.kube/kind" $(MAKE) test-node ARGS='$(ARGS)'

.PHONY: kind-down
kind-down: ## Delete the cluster of make kind-up
	@kind delete cluster --name agentrun
	@rm -f .kube/kind

.PHONY: dev-cluster
dev-cluster: setup ## Keep an API server with the definitions and a ledger of your own until Ctrl-C; prints what to export
	@assets="$$(KUBECONFIG= tests/cluster/prepare)" && KUBEBUILDER_ASSETS="$$assets" PYTHONPATH=tests $(PY) -m own_cluster

.PHONY: dev-ledger
dev-ledger: setup ## Keep a ledger server of your own until Ctrl-C; prints what to export
	@PYTHONPATH=tests $(PY) -m own_cluster --ledger-only

.PHONY: chaos
chaos: setup ## Strike real processes down while runs are at work: ROUNDS=200 JOBS=2; SEED=4711 again; ARGS=--help
	@assets="$$(KUBECONFIG= tests/cluster/prepare)" && KUBEBUILDER_ASSETS="$$assets" PYTHONPATH=tests \
	  $(PY) -m chaos $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SEED),--seed $(SEED)) $(if $(filter command line,$(origin JOBS)),--jobs $(JOBS)) $(ARGS)

.PHONY: bench
bench: setup ## Measure ledger, engine and local runs without Kubernetes: ARGS="--only chain", ARGS=--help
	@PYTHONPATH=tests $(PY) -m bench $(ARGS)

.PHONY: simulate
simulate: setup ## Live hostile histories on virtual time: SEEDS=20000; SEED=4711 tells one; ARGS=--help
	@PYTHONPATH=tests $(PY) -m simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: bench-cluster
bench-cluster: setup ## Measure the operator on a control plane of its own: ARGS="--only chain", ARGS=--help
	@assets="$$(KUBECONFIG= tests/cluster/prepare)" && KUBEBUILDER_ASSETS="$$assets" PYTHONPATH=tests \
	  $(PY) -m bench_cluster $(ARGS)

.PHONY: unit
unit: setup ## Run the tests that need seconds and no API server
	@$(PY) -m pytest -n $(JOBS) --inline-snapshot=disable -m "not (slow or apiserver or cluster or chart)" $(ARGS)

.PHONY: coverage
coverage: setup ## Run all tests and show which lines they missed
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n $(JOBS) --inline-snapshot=disable -m "not (apiserver or cluster or kills or chart)" $(ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

.PHONY: verify
verify: setup ## Run every check: generate, format, lint, types, imports, unit tests, clean tree
	@.ci/verify generate format lint types imports unit

.PHONY: generate
generate: setup ## Write the schemas in crds/ and in the chart anew from the models
	@$(PY) -m agentrun.crdgen
	@$(PY) -m agentrun.docgen

.PHONY: check-generated
check-generated: setup ## Fail if a generated file is not what its source says
	@$(PY) -m agentrun.crdgen --check
	@$(PY) -m agentrun.docgen --check

.PHONY: format
format: setup ## Format the Python files and order their imports
	@$(BIN)/ruff check --quiet --select I --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: lint
lint: setup ## Lint the Python files
	@$(BIN)/ruff check --quiet .

.PHONY: types
types: setup ## Check the types
	@$(BIN)/mypy

.PHONY: imports
imports: setup ## Check which package imports which
	@$(BIN)/lint-imports --no-logo

.PHONY: clean
clean: ## Remove everything that these commands made, .venv included
	rm -rf $(VENV) build dist .coverage .coverage.* htmlcov test-reports
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find operator worker_image tests examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
