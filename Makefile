# Two commands are all a user needs: `make run` and `make test`. Both set up what they need first
# and skip the set-up when nothing changed. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIPELINE_VENV := .venv-pipeline
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Empty: what `vela standalone` takes by itself.
DATA_DIR ?=
RUN_ARGS ?=
BENCH_ARGS ?=
COMPAT_ARGS ?=
# How many seeds, the first one, and how many processes share them.
SEEDS ?= 100
FROM ?= 0
PROCESSES ?= 1
# How many processes share the tests: one more than a machine of two cores has, because tests that
# wait for servers and for time to pass leave a third of two cores idle.
WORKERS ?= 3
SHARED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Of crash, damage and strangers; empty: the one that their programs take.
SEED ?=
SEEDED = $(if $(SEED),--seed $(SEED))
CRASH_OUTPUT ?= docs/performance
# The names of --cluster.
CLUSTERS ?= apache-bookies-3-2-2 apache-bookies-3-3-2 pulsar-broker-3-2-2 vela-3-2-2
FAULTS_ARGS ?=
LOCK := build/lock/bin/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url \
  --no-emit-trusted-host --no-emit-find-links --allow-unsafe --strip-extras

# pytest keeps the bytecode of tests and of its plugins, as Python does that of modules. Without it,
# each process of a run translates them again, in half of the CPU time that collecting takes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run setup setup-dev setup-pipeline compile wheel test test-pipeline test-pipeline-all test-slow test-compiled lint check nightly test-many-examples sanitize compat compat-all compat-scenarios compat-clusters compat-servers compat-waits compat-smoke setup-compat compat-cluster compat-migration compat-spark bench bench-cluster bench-failover bench-fanout bench-flood bench-followers bench-growth bench-isolation bench-limits bench-peers bench-secured bench-spark token-expiry strangers crash damage simulate cluster-faults lock proto clean

help:
	@echo 'make run      set up and start vela standalone (RUN_ARGS="--broker-port 6650 ...")'
	@echo 'make test     set up and run the tests, in three processes (WORKERS=3)'
	@echo 'make setup-dev  also what the tests need, among it the stock Python client'
	@echo 'make test-slow  the tests that "make test" leaves to the night; test-many-examples: those of hypothesis with 2,000 examples'
	@echo 'make test-compiled  the tests of the rooms with hot modules, on the compiled modules'
	@echo 'make setup-pipeline  $(PIPELINE_VENV) with Spark, for "vela pipeline" (Java 17 to run it)'
	@echo 'make test-pipeline   the tests that need Spark (Java 17; Maven for Delta Lake); test-pipeline-all: the slow ones, too'
	@echo 'make setup    the set-up alone: $(VENV) with the locked dependencies'
	@echo 'make compile  translate the hot modules to C: less CPU per message (C compiler, some minutes)'
	@echo 'make wheel    dist/*.whl with the hot modules compiled; "pip install ." installs them as sources'
	@echo 'make check    before a push: lint, types, and the tests of what differs from main (BASE=<commit>)'
	@echo 'make nightly  what is long and rarely fails, with fresh seeds: several hours (NIGHT=<date> repeats one)'
	@echo 'make sanitize  the tests of the C extension, built with AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make lint     ruff and mypy'
	@echo 'make compat   the same scenarios on real Pulsar and on Vela (Java 17, Maven; without Go its client is left out)'
	@echo 'make compat-scenarios  the part of it that needs the pair of servers; compat-servers: what starts single servers of its own; compat-clusters: the rest; compat-waits: what waits for two minutes; setup-compat: fetches and builds for both'
	@echo 'make compat-smoke  a few of them on Vela and Pulsar 5.0.1, two minutes (COMPAT_ARGS="--oracle both" for make compat: all, on both releases)'
	@echo 'make compat-all  all of it: also the long tests of tools and of compacted policies, and compat-migration (over an hour)'
	@echo 'make compat-cluster  these scenarios on clusters, mixed ones too (Java 17, Maven; CLUSTERS="NAME ...")'
	@echo 'make compat-migration  from Pulsar to Vela and back, mixed clusters: the long forms, half an hour (Java 17, Maven)'
	@echo 'make compat-spark  the same jobs of the stock Spark connector on both (Java 17, Maven)'
	@echo 'make bench    benchmark against real Pulsar, half an hour (Java 17, Maven; BENCH_ARGS="--quick")'
	@echo 'make bench-secured  what TLS and tokens cost, on real Pulsar and on Vela, 15 minutes (Java 17, Maven; "--quick")'
	@echo 'make bench-limits  how exactly publish rates are held, on real Pulsar and on Vela, 3 minutes (Java 17)'
	@echo 'make bench-peers  Vela beside NATS, Kafka and real Pulsar, 20 minutes (Java 17, Maven, Go; "--quick")'
	@echo 'make bench-cluster  replicated clusters, real, mixed and of Vela, 20 minutes (Java 17, Maven; "--quick")'
	@echo 'make bench-failover  CPU per message with 1, 2 and 4 brokers; 20,000 topics, one of two brokers killed'
	@echo 'make bench-fanout  100,000 consumers on one topic, and real Pulsar beside (Java 17, Maven)'
	@echo 'make bench-followers  the same on four brokers of a cluster, checked; what followers cost the owner'
	@echo 'make bench-flood  a tenant beside floods of another one, and real Pulsar beside, 20 minutes (Java 17, Maven; "--quick")'
	@echo 'make bench-growth  cost against topics, message size, backlog, consumers and subscriptions, and real Pulsar beside, an hour (Java 17, Maven; "--quick")'
	@echo 'make bench-isolation  a small producer beside cold readers, large messages, a flood and scrapes, and real Pulsar beside, 25 minutes (Java 17; "--quick")'
	@echo 'make bench-spark  Spark reading topics of Vela and of real Pulsar (Java 17, Maven; "--quick")'
	@echo 'make token-expiry  stock clients over 1,000 ends of a token each (Java 17, Maven, Go)'
	@echo 'make strangers  ten minutes of strangers at the ports of a broker with TLS and authentication'
	@echo 'make crash    kill -9 at 100 random instants under load, three times: subscriptions, a broadcast, policies'
	@echo 'make damage   one flipped bit at 300 random places of every kind of file'
	@echo 'make simulate  a cluster under faults on simulated time, disks and network (SEEDS=100 FROM=0 PROCESSES=1 RESULTS=<file>)'
	@echo 'make cluster-faults  a cluster of processes on real ZooKeeper: 100 instants of thirteen kinds of faults, two hours (Java 17, Maven)'
	@echo 'make lock     write the lock files from pyproject.toml; make proto: generate the protobuf modules; make clean: remove what was set up and built'

run: setup
	@exec $(BIN)/vela standalone $(if $(DATA_DIR),--data-dir "$(DATA_DIR)") $(RUN_ARGS)

setup: $(VENV)/.setup-done

setup-dev: $(VENV)/.setup-dev-done

$(VENV)/bin/python:
	@echo 'setting up $(VENV), once. This takes about a minute'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.setup-done: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo 'installing what requirements.lock names into $(VENV)'
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from native.compile_hot_modules import compile_to_bytecode as run; run()'
	@touch $@

$(VENV)/.setup-dev-done: requirements-dev.lock $(VENV)/.setup-done
	@echo 'installing what the tests need into $(VENV), once. This takes about a minute'
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

setup-pipeline: $(PIPELINE_VENV)/.setup-done

$(PIPELINE_VENV)/bin/python:
	@echo 'setting up $(PIPELINE_VENV), once. This takes some minutes'
	@$(PYTHON) -m venv $(PIPELINE_VENV)

$(PIPELINE_VENV)/.setup-done: requirements-pipeline.lock pyproject.toml | $(PIPELINE_VENV)/bin/python
	@echo 'installing Spark and what the jobs need into $(PIPELINE_VENV)'
	@$(PIPELINE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes -r requirements-pipeline.lock
	@$(PIPELINE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

compile: setup-dev
	$(BIN)/python -m native.compile_hot_modules

# What an earlier build left in build/lib would be packed, too.
wheel: compile
	rm -rf build/lib build/bdist.*
	VELA_WHEEL=compiled $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

test: setup-dev
	$(BIN)/python -m pytest $(SHARED) -m 'not slow'

test-slow: setup-dev
	$(BIN)/python -m pytest $(SHARED) -m slow

# The rooms that have hot modules.
test-compiled: compile
	VELA_COMPILED=1 $(BIN)/python -m pytest $(SHARED) -m 'not slow' native protocol runtime bookie ledgers broker

test-pipeline: setup-pipeline
	$(PIPELINE_VENV)/bin/python -m pytest -W default -m 'not slow' tests/pipeline

test-pipeline-all: setup-pipeline
	$(PIPELINE_VENV)/bin/python -m pytest -W default tests/pipeline

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint
	$(BIN)/python -m pytest $(SHARED) $$($(BIN)/python -m tests.changed $(BASE))

# Another date has other seeds.
NIGHT ?= $(shell date +%Y%m%d)

nightly: setup-dev setup-pipeline
	NIGHT=$(NIGHT) $(BIN)/python .ci/lanes.py nightly

test-many-examples: setup-dev
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile many --hypothesis-seed $(NIGHT)

# Python keeps memory to its end, which is no leak of the extension.
sanitize: setup-dev
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc VELA_SANITIZED=1 VELA_COMPILED=0 \
	  $(BIN)/python -m pytest native $(SANITIZE_ARGS)

COMPAT := compat_tests bench --ignore compat_tests/spark
# Of what needs neither the pair of servers nor a cluster.
COMPAT_SERVERS := bench $(patsubst %,compat_tests/test_%.py,authorization bookie_wire oracle_absence \
  policy_commands several_processes tls)

setup-compat: setup-dev
	$(BIN)/python -m compat_tests.prepare

compat: setup-compat
	$(MAKE) --no-print-directory -j 2 --output-sync=target compat-scenarios compat-clusters compat-servers compat-waits

compat-scenarios: setup-dev
	$(BIN)/python -m pytest $(COMPAT) -m 'not slow and scenarios and not waits' --record $(COMPAT_ARGS)

compat-waits: setup-dev
	$(BIN)/python -m pytest compat_tests/test_expiry.py --record $(COMPAT_ARGS)

compat-clusters: setup-dev
	$(BIN)/python -m pytest compat_tests --ignore compat_tests/spark $(COMPAT_SERVERS:%=--ignore %) \
	  -m 'not slow and not scenarios' --record $(COMPAT_ARGS)

compat-servers: setup-dev
	$(BIN)/python -m pytest $(COMPAT_SERVERS) -m 'not slow and not scenarios' --record $(COMPAT_ARGS)

compat-smoke: setup-dev
	$(BIN)/python -m pytest compat_tests --ignore compat_tests/spark -m smoke --oracle 5.0.1 $(COMPAT_ARGS)

compat-all: setup-dev
	$(BIN)/python -m pytest $(COMPAT) --record $(COMPAT_ARGS)

compat-migration: setup-dev
	$(BIN)/python -m pytest compat_tests/test_migration.py compat_tests/test_mixed_cluster.py -m slow

compat-cluster: setup-dev
	status=0; for each in $(CLUSTERS); do \
	  $(BIN)/python -m pytest compat_tests --ignore compat_tests/spark --cluster $$each || status=1; \
	done; exit $$status

compat-spark: setup-dev
	$(BIN)/python -m pytest compat_tests/spark --record $(COMPAT_ARGS)

bench: compile
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-cluster: compile
	$(BIN)/python -m bench.cluster $(BENCH_ARGS)

bench-failover: compile
	status=0; $(BIN)/python -m bench.several_brokers || status=1; \
	$(BIN)/python -m bench.failover --topics 20000 --brokers 2 || status=1; exit $$status

bench-fanout: compile
	$(BIN)/python -m bench.fanout $(BENCH_ARGS)

bench-flood: compile
	$(BIN)/python -m bench.flood $(BENCH_ARGS)

bench-followers: compile
	$(BIN)/python -m bench.followers $(BENCH_ARGS)

bench-growth: compile
	$(BIN)/python -m bench.growth $(BENCH_ARGS)

bench-isolation: compile
	$(BIN)/python -m bench.isolation $(BENCH_ARGS)

bench-limits: compile
	$(BIN)/python -m bench.limits $(BENCH_ARGS)

bench-peers: compile
	$(BIN)/python -m bench.peers $(BENCH_ARGS)

bench-secured: compile
	$(BIN)/python -m bench.secured $(BENCH_ARGS)

bench-spark: compile setup-pipeline
	$(BIN)/python -m bench.spark $(BENCH_ARGS)

token-expiry: setup-dev
	$(BIN)/python -m compat_tests.token_expiry

strangers: setup-dev
	$(BIN)/python -m tests.bad_input.guarded_fuzz $(SEEDED)

crash: setup-dev
	$(BIN)/python -m tests.crash.kill9 --rounds 100 --output $(CRASH_OUTPUT)/kill9.json $(SEEDED)
	$(BIN)/python -m tests.crash.broadcast_kill9 --rounds 100 --output $(CRASH_OUTPUT)/broadcast-kill9.json $(SEEDED)
	$(BIN)/python -m tests.crash.policies_kill9 --rounds 100 --output $(CRASH_OUTPUT)/policies-kill9.json $(SEEDED)

damage: setup-dev
	$(BIN)/python -m tests.damage.flips --places 300 $(SEEDED)

simulate: setup-dev
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM) --processes $(PROCESSES) --keep-going \
	  $(if $(RESULTS),--results $(RESULTS))

cluster-faults: setup-dev
	$(BIN)/python -m tests.cluster_faults --rounds 100 --output docs/performance/cluster-faults.json $(FAULTS_ARGS)

lock:
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet pip-tools
	$(LOCK) --extra build --output-file requirements.lock pyproject.toml
	$(LOCK) --extra build --extra dev --output-file requirements-dev.lock pyproject.toml
	$(LOCK) --extra build --extra pipeline --extra pipeline-tests \
	  --output-file requirements-pipeline.lock pyproject.toml
	$(LOCK) --output-file compat_tests/spark/requirements.lock compat_tests/spark/requirements.in
	$(LOCK) --output-file compat_tests/oracle/pulsar5/java.lock compat_tests/oracle/pulsar5/java.in

proto: setup-dev
	$(BIN)/python -m protocol.generate

clean:
	rm -rf $(VENV) $(PIPELINE_VENV) build .oracle .pytest_cache .mypy_cache .ruff_cache .hypothesis
