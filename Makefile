# Everything a developer or CI runs. Each target installs what it needs into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow check format clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.server: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet --editable '.[server]'
	touch $@

# torch first and exact: a later, looser requirement must not pull a second torch.
$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable '.[server,redis,docker,train,tensorboard,dev]'
	touch $@ $(VENV)/.server

# Type checkers cannot see through the editable install's import hook; this link shows them the package.
.import-root/rolloutgym:
	mkdir -p .import-root && ln -sfn .. .import-root/rolloutgym

demo: $(VENV)/.server
	$(BIN)/rolloutgym demo

check: $(VENV)/.dev .import-root/rolloutgym
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check
	$(BIN)/pytest -q -n 2 --dist loadfile

test-slow: $(VENV)/.dev
	$(BIN)/pytest -q -m slow

clean:
	rm -rf $(VENV) .import-root build *.egg-info
