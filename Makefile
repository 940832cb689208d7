# `make help` lists the verbs. Every verb that needs the environment makes it first.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
IMAGE ?= tfrecord-training:dev
RUN_AS ?= 1000:1000
BUILD = docker build --quiet --build-arg RUN_AS=$(RUN_AS) --build-arg CODE_VERSION=$${CODE_VERSION:-$$(git describe --always --dirty=+ --abbrev=12)} \
	--build-arg VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
ARGS ?=
# The tests start hundreds of Pythons, each of which would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE
UV := $(VENV)/lock/bin/uv

.DEFAULT_GOAL := help
.PHONY: help setup run check test test-ci test-all test-clusters test-cloud-ci test-slow test-beam test-docker test-kubernetes test-kubernetes-ci run-cloud test-cloud prove-cloud prove-gpu prove-kubeflow chaos lint format compile image image-gpu bench lock clean clean-all

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS="$$(printf '\t')" read -r verb what; do printf '  make %-12s %s\n' "$$verb" "$$what"; done

# The stamp's prerequisites are all that decides what is installed, so a second `make setup` only compares times.
setup: $(VENV)/.installed  ## make .venv from the lock of exact versions

$(VENV)/.installed: requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "error: Python %d.%d; 3.11 to 3.13 is needed (make setup PYTHON=python3.11)" % v)'
	@echo "installing the locked packages into $(VENV) (about two minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: setup  ## run the whole pipeline here on the digits dataset (ARGS='--dataset ...' for another)
	@PIPELINE_OWNER_PID=$$PPID exec $(PY) pipelines/run.py $(ARGS)

check: lint  ## lint and the fast tests, in about a minute
	@$(PY) -m pytest -q -n auto --dist worksteal -m "not cluster and not pipeline and not docker and not beam and not slow and not long and not smoke and not cloud and not kubernetes" \
		--ignore tests/cloud --ignore tests/docker --ignore tests/kubernetes tests

test: check  ## lint, fast and longer tests, and one each of: real cluster, pipeline run here, run on the fake Vertex AI
	@$(PY) -m pytest -q -n 2 --dist worksteal -m "(long or smoke) and not slow and not cloud" tests
	@$(PY) -m tests.cloud -- $(PY) -m pytest -q -m "smoke and cloud" tests/cloud

test-ci: test-clusters test-beam test-docker test-cloud-ci test-kubernetes-ci  ## what CI runs after `make test`: test-clusters, test-beam, test-docker, test-cloud-ci, test-kubernetes-ci

test-all: test test-ci test-cloud test-kubernetes test-slow  ## all tests but those that need Google's cloud or a GPU

test-clusters: setup  ## real clusters and pipeline runs on this machine
	@$(PY) -m pytest -q -n 2 --dist loadfile -m "(cluster or pipeline) and not smoke and not slow and not kubernetes" tests

test-cloud-ci: setup  ## the most important tests on the fake Vertex AI
	@$(MAKE) --no-print-directory test-cloud ARGS='-m "cloud_ci and not smoke"'

test-slow: setup $(VENV)-beam/.installed  ## the longer tests, and many examples of each property
	@$(PY) -m pytest -q -m slow tests
	@$(PY) -m pytest -q -n auto --dist loadfile --hypothesis-profile many -m "hypothesis and not slow" tests

$(VENV)-beam/.installed: requirements-beam.lock pyproject.toml
	@echo "installing Apache Beam into $(VENV)-beam (about a minute)"
	@$(PYTHON) -m venv $(VENV)-beam
	@$(VENV)-beam/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-beam.lock
	@$(VENV)-beam/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

test-beam: setup $(VENV)-beam/.installed  ## conversions on Apache Beam, in an environment of its own, .venv-beam
	@$(PY) -m pytest -q -n 2 -m "beam and not slow" tests/convert

test-docker: setup  ## the pipeline in containers; says so when there is no engine
	@IMAGE=$(IMAGE) sh tests/docker/run.sh $(PY)

test-kubernetes: setup  ## jobs on a Kubernetes control plane here, which it builds once; says so when there is no Go
	@sh tests/kubernetes/run.sh $(PY) -m pytest -q -m kubernetes $(ARGS) tests/kubernetes tests/contracts

test-kubernetes-ci: setup  ## the shipped clusters on that control plane, if test-kubernetes has built it
	@ONLY_BUILT=1 $(MAKE) --no-print-directory test-kubernetes ARGS='-k shipped'

run-cloud: setup  ## the whole product on a Vertex AI that is this machine (ARGS='--train-steps 2000'); logs in build/cloud
	@$(PY) -m tests.cloud --work build/cloud -- $(PY) pipelines/submit.py --wait --yes --project demo-project \
		--bucket gs://demo --image us-docker.pkg.dev/demo-project/training/image@sha256:$$(printf '0%.0s' $$(seq 64)) $(ARGS)

test-cloud: setup  ## the cloud's paths, on a Vertex AI that is this machine (ARGS='-m cloud_ci' for the shortest)
	@$(PY) -m tests.cloud --work build/cloud -- $(PY) -m pytest -q -n 2 --dist worksteal -m cloud $(ARGS) tests/cloud tests/tools tests/deploy

prove-cloud: setup  ## show on the real Vertex AI what only it can, for less than a dollar (ARGS='--help')
	@$(PY) -m tools.prove_cloud $(ARGS)

prove-gpu: setup  ## show on a machine with GPUs, rented for ten minutes, what only they can (ARGS='--help')
	@$(PY) -m tools.prove_gpu $(ARGS)

$(VENV)-kubeflow/.installed:
	@echo "installing ML Metadata and an object store into $(VENV)-kubeflow"
	@$(PYTHON) -m venv $(VENV)-kubeflow
	@# No other version of them was tried.
	@$(VENV)-kubeflow/bin/python -m pip install --quiet --disable-pip-version-check ml-metadata==1.17.1 grpcio==1.85.3 'moto[server]==5.2.5'
	@touch $@

prove-kubeflow: setup $(VENV)-kubeflow/.installed  ## run the compiled spec on Kubeflow Pipelines' own programs (PROGRAMS=DIR; tools/prove_kubeflow says which)
	@SKIPPED=1 sh tests/kubernetes/run.sh $(if $(BUCKET),$(PY) -m tests.cloud --work build/cloud --) $(PY) -m tools.prove_kubeflow $(PROGRAMS)

chaos: setup  ## kill, freeze and stop replicas of real jobs at random moments (ARGS='--trials 6' for fewer)
	@$(PY) -m tools.chaos $(ARGS)

lint: setup  ## style, YAML, Cloud Build schema and directions of imports
	@$(PY) -m pip --disable-pip-version-check check >/dev/null || $(PY) -m pip check
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/ruff format --quiet --check .
	@types=$$($(VENV)/bin/mypy) || { echo "$$types"; exit 1; }
	@$(VENV)/bin/yamllint --strict .
	@$(VENV)/bin/codespell $$(git ls-files '*.py' '*.md' '*.yaml' '*.html' '*.toml')
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.cloudbuild cloudbuild.yaml deploy/builds/*.yaml
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.renovate renovate.json
	@imports=$$($(VENV)/bin/lint-imports --no-logo --no-cache) || { echo "$$imports"; exit 1; }

format: setup  ## rewrite the code in the house style
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(VENV)/bin/ruff format --quiet .

compile: setup  ## write build/training-vertex.yaml, training-kubeflow.yaml and training-local.yaml
	@$(PY) pipelines/compile.py --image $(IMAGE) --output-dir build

image:  ## build the container image that every step runs in
	@$(BUILD) --tag $(IMAGE) .

image-gpu:  ## build the same for GPUs, with -gpu behind its name
	@$(BUILD) --build-arg ACCELERATOR=gpu --tag $(IMAGE)-gpu .

bench: setup  ## speed, as ratios to peers in one run
	@$(PY) -m tools.bench

lock: setup  ## resolve the locks again for all platforms and Pythons
	@test -x $(UV) || { $(PYTHON) -m venv $(VENV)/lock && $(VENV)/lock/bin/pip install --quiet uv; }
	@$(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra cpu -o requirements.lock
	@$(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra cpu --extra tune --extra dev -c requirements.lock -o requirements-dev.lock
	@$(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra gpu -c requirements.lock -o requirements-gpu.lock
	@$(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --extra beam -o requirements-beam.lock

clean:  ## delete what can be made again: environment, compiled specs, caches of tools
	@rm -rf $(VENV) $(VENV)-beam build .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-all: clean  ## and what was made by running it: runs, registry, jobs, datasets, evaluations
	@rm -rf runs registry jobs data eval
