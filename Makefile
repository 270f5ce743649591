# Everything a newcomer needs: `make demo`, `make test`. `make help` lists the rest.
# Each target installs the extras it needs, and no more, into .venv; a stamp file remembers that it did.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
WORKERS ?= 3
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Extras by purpose. `make demo` pulls neither torch nor pyspark.
EXTRAS_demo := cli,report,service
EXTRAS_test := test
EXTRAS_docs := docs
EXTRAS_bench := bench
EXTRAS_paper := cli,report,data,neural

# What tests need from the system, as program or library=package of Debian, which keeps the programs of PostgreSQL out
# of PATH.
PROGRAMS := chromium=chromium java=openjdk-17-jre-headless initdb=postgresql soffice=libreoffice-calc node=nodejs npm=npm \
	libpangoft2-1.0.so.0=libpangoft2-1.0-0 debootstrap=debootstrap nginx=nginx-light openssl=openssl \
	systemd-analyze=systemd

# What checks pages for barriers; it comes from npm, where there is one.
AXE := axe-core@4.14.0

# Test processes with one BLAS thread each beat one process with many. Three keep two cores busy: many tests wait for
# processes, disks and browsers.
SINGLE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMEXPR_NUM_THREADS=1
PYTEST = $(SINGLE_THREAD) $(PY) -m pytest -n $(WORKERS) --dist worksteal

# A continuous-integration machine has no excuse for a skipped test.
ifeq ($(CI),true)
export FAIRPREMIUM_NO_SKIPS ?= 1
endif
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo system test simulations lint types format bench study paper docs reference gallery clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.installed-demo  ## three parties on this machine; writes demo/premiums.csv and demo/report.html
	$(VENV)/bin/fairpremium demo

system:  ## what tests need from the system: installed as root where apt-get is, named elsewhere
	@missing=; \
	for program in $(PROGRAMS); do \
		command -v "$${program%%=*}" >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/$${program%%=*}" >/dev/null \
			|| compgen -G "/usr/lib/*/$${program%%=*}" >/dev/null || missing="$$missing $${program#*=}"; \
	done; \
	[ -z "$$missing" ] && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing$$missing"; \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $$missing >/dev/null \
			|| echo "!! Could not install$$missing. Tests that need it will be skipped, and listed at the end."; \
	else \
		echo "!! Missing:$$missing. Tests that need it will be skipped, and listed at the end."; \
		echo "!! On Debian and Ubuntu: sudo apt-get install$$missing"; \
	fi

test: $(VENV)/.installed-test system $(VENV)/.installed-$(AXE)  ## all tests, doctests and the code examples of the documentation
	$(PYTEST)

simulations: $(VENV)/.installed-test  ## the statistical simulations at full size (slow)
	FAIRPREMIUM_SIMULATIONS=full $(PYTEST) -m simulation

lint: $(VENV)/.installed-lint  ## ruff: rules and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

format: $(VENV)/.installed-lint  ## rewrite the sources in the format that lint checks
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

types: $(VENV)/.installed-test  ## mypy
	$(PY) -m mypy

bench: $(VENV)/.installed-bench  ## run benchmarks/*.py but for the soak; they write benchmarks/results/
	@mkdir -p benchmarks/results; found=; \
	for script in benchmarks/[a-z]*.py; do \
		[ -e "$$script" ] && [ "$$script" != benchmarks/soak.py ] || continue; found=yes; \
		echo "== $$script"; $(PY) "$$script" || exit 1; \
	done; \
	[ -n "$$found" ] || { echo "There is no benchmark in benchmarks/ yet."; exit 1; }

study: $(VENV)/.installed-bench  ## 24 simulated hours of a service with kills, upgrades and backups (half an hour); writes benchmarks/results/
	$(SINGLE_THREAD) $(PY) benchmarks/soak.py

paper: export FAIRPREMIUM_DATA ?= $(wildcard ../shared/data)
paper: $(VENV)/.installed-paper  ## the paper's experiments at full size (under half an hour on two cores); writes docs/reproduction/
	$(SINGLE_THREAD) $(VENV)/bin/fairpremium reproduce --full --out docs/reproduction --jobs 2

docs: $(VENV)/.installed-docs $(VENV)/.installed-lint  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "Open site/index.html."

reference: $(VENV)/.installed-test  ## write the page of the HTTP API from the service
	$(PY) docs/reference/build_http_api.py

gallery: $(VENV)/.installed-docs  ## run the scripts of docs/gallery; writes their pages and pictures
	$(SINGLE_THREAD) $(PY) docs/gallery/build.py

clean:  ## remove .venv, caches and everything that the other targets write
	rm -rf $(VENV) site demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed-lint: constraints.txt | $(VENV)/.created
	$(PY) -m pip install --quiet -c constraints.txt ruff
	@touch $@

$(VENV)/.installed-$(AXE): | $(VENV)/.created system
	@if npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix $(VENV) $(AXE); then touch $@; \
	else echo "!! Could not install $(AXE) with npm. The test that needs it will be skipped, and listed at the end."; fi

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/.created
	$(PY) -m pip install --quiet -c constraints.txt -e ".[$(EXTRAS_$*)]"
	@touch $@

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "fairpremium needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name a newer one: make PYTHON=python3.12"; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot create virtual environments. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	"$(PYTHON)" -m venv $(VENV)
	@touch $@
