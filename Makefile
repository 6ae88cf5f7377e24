# `make help` lists the targets.

PYTHON ?= python3
ROUNDS ?= 100
LABS ?= 2
SCENARIO ?=
BIN := .venv/bin
WITH_BIN := PATH="$(CURDIR)/$(BIN):$$PATH"
# Three workers on two cores: unit tests wait for a quarter of their time.
ON_ALL_CORES = --numprocesses $$(expr $$(nproc) \* 3 / 2) --dist worksteal
# Images of containers often say otherwise; then each worker, and each Python that tests start, compiles all that it imports.
KEEP_COMPILED := PYTHONDONTWRITEBYTECODE=
REQUIREMENTS := $(wildcard requirements/*.txt)
LAB := $(PYTHON) -m tests.lab
SCENARIOS := $(patsubst extensions/molecule/%/molecule.yml,%,$(wildcard extensions/molecule/*/molecule.yml))
# Otherwise checkouts whose folders have the same name share the state of a scenario.
MOLECULE := $(WITH_BIN) MOLECULE_EPHEMERAL_DIRECTORY=$(CURDIR)/.cache/molecule
SHELL_SCRIPTS = $(shell git grep --untracked -lE '^\#!/.*sh$$' -- ':!*.py' ':!*.md')

.DEFAULT_GOAL := help
.PHONY: help setup lab lab-down demo test test-all bench unit sanity lint types docs docs-site acceptance integration molecule build changelog clean \
	test-frameworks test-hosts soak survey flags

help: ## List the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

setup: .venv/ready ## Make .venv with all tools, and link the checkout into it as a collection

.venv/ready: $(REQUIREMENTS) tests/gates/setup
	PYTHON=$(PYTHON) tests/gates/setup

lab: ## Set up the tools, build the lab of agents, provision them, load the session images
	@$(LAB) all

lab-down: ## Remove all labs of the checkout and everything that it created
	$(LAB) down

demo: lab ## Start one single-node and one multi-node session, and show them
	tests/demo/run

bench: lab ## Measure everything (15 minutes), and write docs/bench.json and its tables
	tests/bench/run

test: ## What makes a change trustworthy (15 minutes): lint, types, unit tests, docs, acceptance tests on a lab
	$(PYTHON) -m tests.gates.run test

test-all: ## Everything: `make test`, sanity, build, documentation site, all tests on the lab, molecule
	$(PYTHON) -m tests.gates.run test-all

lint: setup ## Style: ruff, shellcheck, ansible-lint with nothing skipped; no tool refuses the version of another
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck --severity=warning $(SHELL_SCRIPTS)
	$(BIN)/pip check --quiet
	$(WITH_BIN) ansible-lint -c tests/gates/ansible-lint.yml --profile production --strict --offline

types: setup ## Types: mypy
	$(WITH_BIN) tests/gates/types

unit: setup ## Unit tests
	$(KEEP_COMPILED) $(BIN)/pytest tests/unit $(ON_ALL_CORES)

docs: setup ## Every page of documentation with its examples, every reference, every role option
	$(WITH_BIN) antsibull-docs --config-file tests/gates/antsibull.cfg \
		lint-collection-docs --plugin-docs --validate-collection-refs=all .
	$(WITH_BIN) python tests/gates/plugin_docs.py
	$(WITH_BIN) python -m tests.gates.promises
	$(WITH_BIN) python tests/gates/role_options.py
	$(WITH_BIN) python -m tests.gates.pages
	$(WITH_BIN) python -m tests.gates.command_words
	$(WITH_BIN) python -m tests.gates.forge

docs-site: setup ## The documentation site: HTML in .cache/docs-site, each page and link checked
	$(WITH_BIN) python -m tests.gates.docs_site

modules: setup ## Generate the options in the documentation of the modules session and queue
	$(BIN)/python -m tests.gates.session_modules

flags: setup ## Generate the table of verbs and flags in docs/users.md
	$(BIN)/python -m tests.gates.command_words --write

survey: setup ## Generate the launch forms for AWX and Semaphore in extensions/launch
	PYTHONPATH=.venv/collections $(BIN)/python -m tests.gates.survey

changelog: setup ## Changelog fragments
	$(BIN)/antsibull-changelog lint

build: setup ## Build the collection, install it in an empty folder, import it like Galaxy
	$(WITH_BIN) tests/gates/build

sanity: setup ## ansible-test sanity, every test, no ignore entry
	$(WITH_BIN) tests/gates/sanity

acceptance: lab ## What README, docs/security.md and the playbooks promise, shown on the lab by other programs
	$(BIN)/pytest tests/acceptance

integration: lab ## All other tests on the lab, a file at a time on each of LABS labs
	@for number in $$(seq 2 $(LABS)); do $(LAB) --number $$number all || exit; done
	$(BIN)/pytest tests/integration --numprocesses $(LABS) --dist loadfile --no-loadscope-reorder

soak: lab ## Kills, races and changes under load, ROUNDS times each (outside `make test`); resumes where it was stopped
	$(BIN)/pytest tests/unit/test_gateway_limits.py --full
	FUZZ_EXAMPLES=500 $(BIN)/pytest tests/unit -m hypothesis --full $(ON_ALL_CORES)
	PYTHONPATH=.venv/collections $(BIN)/python -m tests.bench.slow_decisions
	$(BIN)/pytest tests/integration -m "soak or long" --soak $(ROUNDS) --capture=no

test-hosts: lab ## Other engines, image stores and firewalls, beside the lab (20 minutes, outside `make test`); LAB_AGENT3_ENGINE=FOLDER adds one
	$(LAB) suites bullseye trixie-sid
	$(BIN)/pytest tests/hosts

test-frameworks: lab ## PyTorch, Ray … across agents, apps in Chromium (outside `make test`: their packages are large)
	$(BIN)/python -m tests.lab distributed
	$(BIN)/pytest tests/frameworks

molecule: setup ## Molecule: SCENARIO=agent, or all scenarios, and that each fails without its role
ifneq ($(SCENARIO),)
	$(MOLECULE)/$(SCENARIO) molecule test -s $(SCENARIO)
else
	@# Two at a time, because they often wait; the longest, session, first. The output of each follows its end.
	@mkdir -p .cache/molecule
	@printf '%s\n' $(SCENARIOS) | sort -r | xargs -P 2 -I {} sh -c \
		'$(MAKE) --no-print-directory molecule SCENARIO={} > .cache/molecule/{}.log 2>&1; code=$$?; cat .cache/molecule/{}.log; exit $$code'
	$(BIN)/pytest tests/molecule --numprocesses 2 -rP
endif

clean: lab-down ## Remove everything created by make
	test ! -d .lab-large || $(PYTHON) -m tests.large
	rm -rf .venv .ansible .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache tests/output
