# Everything that people and CI run. `make demo` and `make test` set up what they need by themselves.
SHELL := /bin/bash
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name) 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test check format unit integration e2e bench-scaling bench-safety bench-rollouts bench-runtime bench-reload bench-operator soak generate locks sbom manifests docs clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Create the virtual environment and fetch Envoy, Prometheus, kubectl, helm and Chromium

$(STAMP): pyproject.toml
	@if ! test -x $(BIN)/pip; then \
	  "$(PYTHON)" -m venv $(VENV) 2>/dev/null \
	  || { rm -rf $(VENV); apt-get update -q && apt-get install -q -y python3-venv && "$(PYTHON)" -m venv $(VENV); }; \
	fi
	@echo "Setting up, once: about 3 GB below $(CURDIR), a few minutes, most of them for torch without a sign of life."
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m e2e.sandbox.binaries
	$(BIN)/python -m e2e.browser
	@touch $(STAMP)

demo: setup ## Roll out a real model in a sandbox on this machine (KEEP=1 leaves it running)
	@$(BIN)/python -m e2e.demo $(if $(KEEP),--keep) $(DEMO_ARGS)

test: check ## Everything: static checks, unit, integration and end-to-end tests
	@# Unit tests compute and integration tests wait: one after the other they leave half of a small machine idle.
	@$(MAKE) --no-print-directory --jobs=2 unit integration
	@$(MAKE) --no-print-directory e2e
	@$(BIN)/coverage combine --quiet 2>/dev/null; $(BIN)/coverage report --sort=cover | tail -n 25

check: setup ## Static checks: ruff, mypy, import-linter, hadolint, known vulnerabilities
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy operator/slipway runtime_image/slipway_runtime charts/deploy e2e tests
	$(BIN)/lint-imports
	$(BIN)/hadolint operator/Dockerfile runtime_image/Dockerfile
	$(BIN)/python -m e2e.supply.audit

unit: setup ## Unit, property and recorded-wire tests
	$(BIN)/coverage run -m pytest -m 'not integration and not e2e' -q

integration: setup ## The operator against the sandbox (or KUBECONFIG, KUBEBUILDER_ASSETS)
	$(BIN)/coverage run -m pytest -m integration -q

e2e: setup ## The demo, with assertions
	$(BIN)/coverage run -m pytest -m e2e -q

bench-scaling: setup ## Compare scaling with models of HPA, KEDA and KPA at equal cost (a simulation, 4 minutes)
	$(BIN)/python -m e2e.bench.scaling $(BENCH_ARGS)

bench-safety: setup ## Measure how long bad candidates get traffic, in a sandbox (8 minutes)
	$(BIN)/python -m e2e.bench.time_to_safety $(BENCH_ARGS)

bench-rollouts: setup ## Count failed requests under whatever happens during a rollout (a sandbox, 9 minutes)
	@$(BIN)/python -m e2e.bench.rollout_matrix $(BENCH_ARGS)

bench-runtime: setup ## Compare the runtime with other servers, each in an environment of its own (25 minutes)
	$(BIN)/python -m e2e.bench.runtime $(BENCH_ARGS)

bench-reload: setup ## Reload a model under load, again and again, and drain: failures, latency, memory (2 minutes)
	@$(BIN)/python -m e2e.bench.runtime_reload $(BENCH_ARGS)

bench-operator: setup ## Create and roll out 1,000 ModelDeployments beside a bare client (hollow pods, 15 minutes)
	@$(BIN)/python -m e2e.bench.operator_load $(BENCH_ARGS)

soak: setup ## Random edits and faults under load, with invariants checked all the time (a sandbox, 30 minutes)
	@$(BIN)/python -m e2e.soak $(SOAK_ARGS)

generate: setup ## Write the generated files: CRD, API reference, runbook, metrics
	$(BIN)/python -m slipway.cli.pages
	$(BIN)/python -m tests.rights.page

locks: setup ## Write the locks (exact versions with hashes) and the page of licences anew
	$(BIN)/python -m tests.chart.pins
	$(BIN)/python -m e2e.supply.locks
	$(BIN)/python -m e2e.supply.licences

sbom: setup ## Write bills of materials (CycloneDX) of the images into build/
	$(BIN)/python -m e2e.supply.sbom

manifests: setup ## Write charts/deploy/manifests/slipway.yaml, the chart as plain manifests (VALUES=file sets values)
	$(BIN)/python -m charts.deploy.render $(VALUES)

docs: setup ## Build the documentation as a site into build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

format: setup ## Format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

clean: ## Remove what was made here
	rm -rf $(VENV) .cache .slipway build *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
