# make setup      .venv with the package and its development tools (once)
# make test       the test suite, without the tests that need a GPU
# make test-gpu   the tests that need a GPU
# make goldens    compare the frozen figures; make reseal NAME=... REASON='...' freezes one anew
# make gate       lint, types, tests and goldens: all that needs no accelerator
# make gate-gpu   GPU tests, GPU goldens and notebooks in full, as one table and a results file; PART=k one part of at most 9 minutes
# make golden-gpu the bands of the GPU goldens, over five seeds; TASK=... for one
# make demo       check, train, val and predict on the pictures that ship; TASK=detect, segment, pose or obb
# make docs       the site, in build/site
# make lint       ruff and mypy

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
PYTEST_ARGS ?=
TASK ?= detect
DEMO_ARGS ?=
PART ?=
GATE_ARGS ?=

.PHONY: setup test test-gpu demo docs lint goldens reseal gate gate-gpu golden-gpu

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "expected Python 3.11 or later, got $$($(PYTHON) -V); name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# One thread a process: threads of several small jobs that wait for each other cost many times what they save.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 -m "not gpu" $(PYTEST_ARGS)

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -q -m gpu $(PYTEST_ARGS)

goldens: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python goldens/make.py

reseal: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python goldens/make.py $(NAME) --reseal "$(REASON)"

gate: lint goldens test

gate-gpu: $(STAMP)
	$(BIN)/python goldens/gate.py $(if $(PART),--part $(PART)) $(GATE_ARGS)

golden-gpu: $(STAMP)
	$(BIN)/python goldens/bands.py $(if $(filter command line,$(origin TASK)),--task $(TASK))

demo: $(STAMP)
	$(BIN)/python demo/run.py --task $(TASK) $(DEMO_ARGS)

docs: $(STAMP)
	$(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
