# make demo      the main job on a bare machine: environment, install, report
# make test      environment, install, lint, types, tests
# make test-swm  the same for the [swm] extra, in an environment of its own
#
# PYTHON=python3.12 make ...   another interpreter (3.11 or newer)
# TORCH_INDEX=                 take torch from your default index (a GPU build on Linux)

PYTHON ?= python3
VENV ?= .venv
VENV_SWM ?= .venv-swm
OUT ?= out/demo
# Tried first, so that nobody downloads gigabytes of GPU libraries for a CPU demo; where it cannot
# be reached, torch comes from the default index.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check
TORCH = $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)

.PHONY: demo test test-swm lint clean help

help:
	@sed -n '1,6p' Makefile

$(VENV)/core.done: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"Dreamcheck needs Python 3.11 or newer; {sys.executable} is {v.major}.{v.minor}. Name another: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -c 'import torch' 2>/dev/null \
	  || { [ -n "$(TORCH_INDEX)" ] && $(PIP) --no-deps --retries 0 --timeout 15 --index-url $(TORCH_INDEX) $(TORCH) 2>/dev/null; } \
	  || echo "taking $(TORCH) from the default index"
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/dev.done: $(VENV)/core.done
	$(PIP) -c constraints.txt -e '.[dev,data]'
	@touch $@

demo: $(VENV)/core.done
	$(VENV)/bin/dreamcheck demo --out $(OUT)

lint: $(VENV)/dev.done
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: lint
	$(VENV)/bin/python -m pytest -m "not swm"

$(VENV_SWM)/swm.done: pyproject.toml constraints-swm.txt
	$(PYTHON) -m venv $(VENV_SWM)
	$(VENV_SWM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-swm.txt torch torchvision
	$(VENV_SWM)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-swm.txt -e '.[swm]' pytest hypothesis
	@touch $@

test-swm: $(VENV_SWM)/swm.done
	$(VENV_SWM)/bin/python -m pytest -m swm

clean:
	rm -rf $(VENV) $(VENV_SWM) out build
