# Everything runs in a virtual environment, made here when it is missing: a clean clone needs Python 3.11 or newer and a
# package index. `make help` lists the targets.

VENV   ?= .venv
BIN    := $(VENV)/bin
# Made last, so an interrupted installation starts over; older than pyproject.toml means that the dependencies may have changed.
STAMP  := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
PYTHON ?=
PYTEST_ARGS ?=
# Tests start hundreds of processes, which would compile every module anew without bytecode.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n 2
BENCH  ?= quick
comma  := ,

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint bench counts conformance fuzz wheels docs pictures clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | while IFS='|' read -r n t; do printf '%-13s%s\n' "$$n" "$$t"; done

demo: $(STAMP)  ## price options; optimise, differentiate, run and draw a transformer block
	@$(BIN)/python examples/demo.py

test: $(STAMP)  ## the tests, the long suites sampled
	$(PYTEST) $(PYTEST_ARGS)

conformance: $(STAMP)  ## all tests, the long suites whole
	$(PYTEST) -m 'conformance or not conformance' $(PYTEST_ARGS)

FUZZED = $(wildcard examples/*.mlir examples/*.dx ../shared/corpus/jax/*.stablehlo)

fuzz: $(STAMP)  ## an hour of random programs and mutants, held against the reference; SECONDS=60 for less
	$(BIN)/deepx-graph fuzz --seconds $(or $(SECONDS),3600) -o out/fuzz $(FUZZED)

lint: $(STAMP)  ## style, types, and which module may import which
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --strict examples/typed/user.py
	$(BIN)/lint-imports

wheels: $(STAMP)  ## install the wheel and the example plugin in clean environments of the Pythons in DEEPX_GRAPH_PYTHONS (a:b)
	$(BIN)/pytest -m conformance tests/architecture/test_architecture.py -k 'wheel or archive'

bench: $(STAMP)  ## our engines beside numpy and numexpr; BENCH=full: all sizes, and the peers of DEEPX_GRAPH_PEERS
	$(BIN)/python -m bench $(if $(filter full,$(BENCH)),--hugepages --threads 1$(comma)2 --table docs/performance.md,--quick)
	$(if $(DEEPX_GRAPH_PEERS),$(BIN)/python -m bench.race $(if $(filter full,$(BENCH)),,--every 15 --rounds 3))

counts: $(STAMP)  ## write bench/engines/counts.md and bench/race/counts.md: kernels, bytes, allocations, steps of Python
	$(BIN)/python -m bench.engines.counts
	$(BIN)/python -m bench.race counts

docs: $(DOCS_STAMP)  ## write docs/ops.md and docs/json.md from the declarations, draw the map of packages, build the site in out/site
	$(BIN)/deepx-graph ops --markdown -o docs/ops.md
	$(BIN)/deepx-graph schema --markdown > docs/json.md
	$(BIN)/python docs/package_map.py docs/images/packages.svg
	$(BIN)/python -m sphinx -q -E -W -b html -c docs -d out/doctrees . out/site
	@echo 'open out/site/index.html'

pictures: $(STAMP)  ## draw the pictures of README.md and docs/viz.md
	$(BIN)/python examples/pictures.py docs/images
	$(BIN)/python examples/recording.py docs/images/recording.svg

clean:  ## remove what was made, except the virtual environment
	rm -rf build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The first Python that is new enough; a broken or moved environment is made again.
$(STAMP): pyproject.toml
	@set -e; \
	if ! $(BIN)/python -c 'import pip' >/dev/null 2>&1; then \
	  found=; \
	  for p in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if "$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$p; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo 'Python 3.11 or newer, with its venv module, is needed; name it with make PYTHON=...' >&2; exit 1; fi; \
	  echo "making $(VENV) with $$found"; \
	  "$$found" -m venv --clear $(VENV); \
	fi
	@echo 'installing deepx_graph and its tools into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The tools that only the site needs.
$(DOCS_STAMP): $(STAMP)
	@echo 'installing the tools of the documentation into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@
