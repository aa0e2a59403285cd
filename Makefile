# Two targets do everything on a fresh machine: `make demo` and `make test`.
# Needed: Python 3.10 or later with venv, a C++17 compiler, make. Both can be interrupted and rerun.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test lint types docs wheel clean

demo: $(STAMP)
	$(BIN)/srhpm-plugin native build
	$(BIN)/srhpm-plugin demo

test: $(STAMP)
	$(BIN)/python tests/run.py $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) types

# mypy does not follow the build's folder mapping, so it gets a tree of links with the import names.
# Once for each system: what only one of them runs is checked nowhere else.
types: $(STAMP)
	rm -rf build/typed
	mkdir -p build/typed/srhpm_plugin
	ln -s $(CURDIR)/srhpm_plugin/* build/typed/srhpm_plugin/
	ln -s $(CURDIR)/backends $(CURDIR)/integrations build/typed/srhpm_plugin/
	for system in linux darwin win32; do \
	  MYPYPATH=build/typed $(BIN)/mypy --platform $$system -p srhpm_plugin || exit 1; \
	done

docs: $(STAMP)
	$(BIN)/python docs/generate_cli.py

# The server, built for all processors of this kind, as a platform wheel: dist/srhpm_native-*.whl.
# That build is then the one in use, until `make demo` or `srhpm-plugin native build` is run.
wheel: $(STAMP)
	$(BIN)/srhpm-plugin native build --portable
	$(BIN)/srhpm-plugin native wheel

$(STAMP): pyproject.toml
	@echo "making $(VENV) and installing Python packages into it (about a minute)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable ".[dev,demo]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
