# Everything a developer or CI runs. Each target first installs what it needs: into .venv, or into the environment that
# VENV names.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What some tests need of the system, by command and Debian package. Without them those tests skip, and say so.
SYSTEM_COMMANDS := redis-server nginx chromium
SYSTEM_PACKAGES := redis-server nginx-light chromium

.PHONY: demo train-demo retool-demo test test-slow scale-test docker-test check format clean

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "RolloutGym needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.server: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[server]'
	touch $@

# torch first and exact: a later, looser requirement must not pull a second torch.
$(VENV)/.train: pyproject.toml | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[server,train]'
	touch $@ $(VENV)/.server

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[server,redis,docker,train,tensorboard,dev]'
	touch $@ $(VENV)/.server $(VENV)/.train

# Installed as root where apt is there; RUNLEVEL and SYSTEMD_OFFLINE keep the services from being started.
$(VENV)/.system: | $(BIN)/python
	@set -- $(SYSTEM_COMMANDS); for command; do command -v $$command >/dev/null && shift || break; done; \
	if [ $$# = 0 ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 SYSTEMD_OFFLINE=1; \
		{ apt-get update && apt-get install -y --no-install-recommends $(SYSTEM_PACKAGES); } >$@.log 2>&1 \
			|| echo "apt-get could not install $(SYSTEM_PACKAGES) ($@.log); tests that need them are skipped"; \
	else echo "not installed here: $$1, perhaps more of $(SYSTEM_PACKAGES); tests that need them are skipped"; fi
	@touch $@

# BFCL's questions and back ends, for tests. What it requires beside is not wanted: it would bring a model zoo.
$(VENV)/.bfcl: $(VENV)/.dev
	$(PIP) --no-deps bfcl-eval==2026.3.23
	touch $@

# The OpenEnv and OpenReward projects' own clients, servers and validator, for tests: an environment of their own, since
# they bring some 150 packages. The service is installed there too, for what runs it inside of OpenEnv's server.
PEERS := .venv-peers
$(PEERS)/.ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[server,openenv]' openenv==0.10.0 openreward==0.1.167
	touch $@

# Other trainers' packages, for tests: Atropos and its API server, verifiers with its OpenEnv task set, SkyRL's gym. Apart
# from the peers above, since verifiers needs another mcp than OpenEnv 0.10 does. No torch comes with them.
TRAINERS := .venv-trainers
$(TRAINERS)/.ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv $(TRAINERS)
	$(TRAINERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[atropos]' 'verifiers[openenv]==0.4.0' openenv==0.4.1 skyrl-gym==0.4.0
	touch $@

# verl's own agent loop, for tests. It pins an older torch and transformers, and would bring vLLM's world: what its agent
# loop imports is installed without that, beside the torch of .venv, which this environment looks into.
VERL := .venv-verl
$(VERL)/.ready: $(VENV)/.dev
	$(BIN)/python -m venv $(VERL)
	$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' \
		>$$(echo $(VERL)/lib/python*/site-packages)/dev.pth
	$(VERL)/bin/python -m pip install --quiet --disable-pip-version-check ray==2.48.0 hydra-core codetiming cachetools cloudpickle 'pyvers<0.2' orjson importlib_metadata
	$(VERL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps verl==0.9.1 tensordict==0.10.0
	touch $@

# Type checkers cannot see through the editable install's import hook; this link shows them the package.
.import-root/rolloutgym:
	mkdir -p .import-root && ln -sfn .. .import-root/rolloutgym

demo: $(VENV)/.server
	$(BIN)/python -m rolloutgym.cli demo

# ENVIRONMENT=toolcall and ENVIRONMENT=code are smaller ones.
ENVIRONMENT ?= sql
train-demo: $(VENV)/.train
	$(BIN)/python -m rolloutgym.cli train-demo --env $(ENVIRONMENT)

retool-demo: $(VENV)/.train
	$(BIN)/python -m rolloutgym.cli retool-demo

check: $(VENV)/.dev .import-root/rolloutgym
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python docs/settings.py

test: check $(VENV)/.system $(VENV)/.bfcl $(PEERS)/.ready
	$(BIN)/pytest -q -n 2 --dist loadfile

test-slow: $(VENV)/.dev $(VENV)/.system $(VENV)/.bfcl $(PEERS)/.ready $(TRAINERS)/.ready $(VERL)/.ready
	$(BIN)/pytest -q -m slow

# 500 episodes over four workers that are killed at random, behind nginx, with a real Redis.
scale-test: $(VENV)/.dev $(VENV)/.system
	$(BIN)/pytest -q -m "slow or not slow" tests/test_scale.py tests/test_store_redis.py tests/test_redis_connection.py tests/test_deploy.py

# Builds the image, and tests it, the launcher, compose.yaml, `openenv validate` and the sandbox in containers. Where no
# Docker engine answers, the script ENGINE may bring one up for the time; without that too, the tests say why they skip.
# BUILD_ARGS go to `docker build`.
ENGINE ?= ../shared/tools/engine.sh
docker-test: $(VENV)/.dev $(PEERS)/.ready
	@set -e; export TEST_BUILD_ARGS='$(BUILD_ARGS)'; \
	if ! docker info >/dev/null 2>&1 && [ -x $(ENGINE) ] && [ "$$(id -u)" = 0 ]; then \
		folder=$$(mktemp -d); trap "$(ENGINE) stop $$folder" EXIT; \
		eval "$$($(ENGINE) start $$folder)"; $(ENGINE) base $$folder; \
		docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null \
			|| apt-get install -y -qq --no-install-recommends docker-compose >/dev/null; \
		export DOCKER_BUILDKIT=0 TEST_BUILD_ARGS=--network=host TEST_HELPER_IMAGE=python:3.11-slim; \
	fi; \
	if docker info >/dev/null 2>&1; then docker build $$TEST_BUILD_ARGS -t rolloutgym .; fi; \
	$(BIN)/pytest -q -rs -m docker tests/test_sandbox_attacks.py tests/test_sandbox_containers.py \
		tests/test_container.py tests/test_compose.py tests/test_openenv_peer.py

clean:
	rm -rf .venv $(PEERS) $(TRAINERS) $(VERL) .import-root build *.egg-info
