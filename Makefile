# `make` alone lists the targets. Everything beside Go, Python with pip and make
# is fetched by test/tools/setup into ~/.cache/isthmus (or $ISTHMUS_CACHE).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

setup   := test/tools/setup
version ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
ldflags := -X main.version=$(version)

# Extra arguments of demo, bench and test, e.g. `make demo ARGS=--once`.
ARGS ?=
# Time given to each fuzz target.
FUZZTIME ?= 10s
# Configurations that each test of test/oracle tries.
ROUNDS ?= 1000
# Tests that start processes and build networks share two cores with the race
# detector on small machines: the limit is generous, and only a hang meets it.
TIMEOUT ?= 30m
PKG ?= ./...

# The servers that tests start, fetched or built, once per machine: the API server and istiod take about ten minutes
# each on two cores, Consul six.
servers = ISTHMUS_ENVOY="$$($(setup) envoy)"; ISTHMUS_ETCD="$$($(setup) etcd)"; ISTHMUS_KUBE_APISERVER="$$($(setup) kube-apiserver)"; \
	ISTHMUS_CONSUL="$$($(setup) consul)"; ISTHMUS_ISTIOD="$$($(setup) istiod)"; ISTHMUS_NACOS="$$($(setup) nacos)"; \
	ISTHMUS_VERDICTS="$$($(setup) verdicts)"; export ISTHMUS_ENVOY ISTHMUS_ETCD ISTHMUS_KUBE_APISERVER ISTHMUS_CONSUL ISTHMUS_ISTIOD ISTHMUS_NACOS ISTHMUS_VERDICTS

.NOTPARALLEL:
.PHONY: help build check test soak oracle demo bench bench-registries fuzz cover clean modules lint-fmt lint-vet lint-static lint-imports

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

build: modules ## build bin/isthmus
	@$(setup) waiting "building bin/isthmus" go build -ldflags '$(ldflags)' -o bin/isthmus ./cmd/isthmus

check: modules lint-fmt lint-vet lint-static lint-imports ## formatting, vet, staticcheck, import rule

# -count=1: Go's cache of results does not see that the hub that tests build and start has changed.
test: check ## check, then every test with the race detector, real Envoys and API servers included
	@$(setup) cc
	@$(setup) net
	@$(servers); \
	race=$$([[ $$(go env CGO_ENABLED) == 1 ]] && echo -race || true); \
	$(setup) waiting "running the tests of published snapshots with checksums (-tags isthmus_assert)" \
		go test -tags isthmus_assert -timeout $(TIMEOUT) ./pushcontext ./aggregate ./test/script; \
	$(setup) waiting "running all tests (go test $$race $(PKG)); the first run compiles every dependency" \
		env PATH="$$PATH:/usr/sbin:/sbin" go test $$race -count=1 -timeout $(TIMEOUT) $(ARGS) $(PKG)

# Variables may be given, as in `make soak ISTHMUS_SOAK_SEED=7`: see test/soak/main_test.go.
soak: modules ## what test/soak does, for long: 1000 rotations, 20 clusters in 150 rounds; about half an hour
	@$(servers); export ISTHMUS_SOAK_ROTATIONS="$${ISTHMUS_SOAK_ROTATIONS:-1000}" ISTHMUS_SOAK_ROUNDS="$${ISTHMUS_SOAK_ROUNDS:-150}"; \
	env PATH="$$PATH:/usr/sbin:/sbin" go test -count=1 -timeout 3h -v $(ARGS) ./test/soak

oracle: modules ## what test/oracle does, for long: ROUNDS (1000) configurations for each of its tests, ARGS="-seed N" for those of a run
	@ISTHMUS_ENVOY="$$($(setup) envoy)" go test -count=1 -timeout 3h -v ./test/oracle -rounds $(ROUNDS) $(ARGS)

demo: build ## a hub, backends and real Envoys for two clusters, with traffic; ARGS=--once ends by itself
	@$(setup) waiting "building bin/demo" go build -o bin/demo ./test/demo
	@ISTHMUS_ENVOY="$$($(setup) envoy)" ISTHMUS_CONSUL="$$($(setup) have consul)" ISTHMUS_NACOS="$$($(setup) have nacos)" ISTHMUS_BIN=bin/isthmus exec bin/demo $(ARGS)

bench: modules ## measure the budgets on synthetic members and proxies; ARGS are passed on
	@$(setup) waiting "building bin/bench" go build -o bin/bench ./test/bench
	@exec bin/bench $(ARGS)

bench-registries: modules ## measure how changes in a real Consul and Nacos reach proxies; ARGS are passed on
	@export ISTHMUS_CONSUL="$$($(setup) consul)" ISTHMUS_NACOS="$$($(setup) nacos)"; go run ./test/bench/registries $(ARGS)

fuzz: modules ## run each fuzz target for FUZZTIME (10s)
	@{ grep -rl --include='*_test.go' -E '^func Fuzz[A-Z0-9_]' . || true; } | xargs -r -n1 dirname | sort -u | while read -r dir; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$dir"/*_test.go | cut -c6- | while read -r target; do \
			echo "fuzz $$dir $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" </dev/null; \
		done; \
	done

cover: modules ## test coverage of all packages: a total, and cover.html
	@$(servers); go test -timeout $(TIMEOUT) -coverpkg=./... -coverprofile=cover.out $(PKG)
	@go tool cover -html=cover.out -o cover.html
	@go tool cover -func=cover.out | tail -1

clean: ## remove what was built here; the shared cache stays
	@rm -rf bin cover.out cover.html

modules:
	@$(setup) modules

lint-fmt:
	@echo "check: gofmt"
	@files=$$(gofmt -l .); [[ -z $$files ]] || { echo "not formatted; run gofmt -w on:"; echo "$$files"; exit 1; } >&2

lint-vet:
	@$(setup) waiting "check: go vet" go vet ./...
	@$(setup) waiting "check: go vet -tags isthmus_assert" go vet -tags isthmus_assert ./pushcontext

lint-static:
	@bin="$$($(setup) staticcheck)"; $(setup) waiting "check: staticcheck" "$$bin" ./...

lint-imports:
	@$(setup) waiting "check: import rule" go test ./test/imports
