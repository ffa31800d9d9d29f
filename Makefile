# Everything a developer or a build machine runs. Only Go, git, make and a C compiler (for the race
# detector) have to be there: tools and Kubernetes itself are built from Go modules and cached.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory --no-builtin-rules
.NOTPARALLEL:

# Tools are pinned in modules of their own; `go tool` builds each once and caches it.
TOOL     := go tool -modfile=$(CURDIR)/test/tools/go.mod
BUF      := go tool -modfile=$(CURDIR)/test/tools/buf/go.mod buf
GOLANGCI := go tool -modfile=$(CURDIR)/test/tools/golangci/go.mod golangci-lint
OPA      := $(TOOL) opa
SCRATCH  := $(CURDIR)/.tmp

# What a caller may set: make test-unit TESTFLAGS='-race -run TestOP01', make simulate SEED=17.
TESTFLAGS ?=
SEEDS     ?= 200
SEED      ?=
KEEP      ?=
BENCH     ?= .
# Least part of the Rego lines, in per cent, that the policy tests must reach.
POLICY_COVERAGE ?= 95

POLICY_TREES := policies $(sort $(dir $(wildcard bundles/*/.manifest)))

say = @printf '\n== %s\n' '$(1)'

##@ Start here

.PHONY: help
help: ## Show these targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: controlplane ## A rolling update, a lost node, a changed policy and an ACM outage on a real etcd (KEEP=1: leave it running)
	$(call say,running the demo on a local Kubernetes with three real etcd members)
	@go run ./test/e2e/cmd/demo $(if $(KEEP),--keep)

.PHONY: build
build: ## Build the operator and the ACM into bin/
	$(call say,building bin/operator and bin/acm)
	@CGO_ENABLED=0 go build -trimpath -o bin/operator ./operator
	@CGO_ENABLED=0 go build -trimpath -o bin/acm ./acm

##@ Test

.PHONY: test
test: test-unit test-policy test-controllers test-e2e ## All tests: unit, property, policy, controllers and config on a real API server, end to end

.PHONY: test-unit
test-unit: ## Unit and property tests, and the simulated world: no API server
	$(call say,unit and property tests)
	@go test -timeout 15m $(TESTFLAGS) $$(.ci/packages unit)
	$(call say,the decision under the race detector)
	@go test -race -timeout 10m ./acm/internal/judge ./acm/internal/decision ./acm/internal/facts ./acm/internal/decisionlog ./operator/internal/session

.PHONY: test-policy
test-policy: ## The Rego tests of the library and of every bundle, with coverage
	$(call say,policy tests: $(POLICY_TREES))
	@mkdir -p $(SCRATCH)
	@$(OPA) test $(POLICY_TREES) --fail-on-empty
	@$(OPA) test $(POLICY_TREES) --coverage --threshold $(POLICY_COVERAGE) > $(SCRATCH)/policy-coverage.json || \
		{ echo 'policy coverage is below $(POLICY_COVERAGE) %: see $(SCRATCH)/policy-coverage.json'; exit 1; }
	@$(OPA) eval --format raw --input $(SCRATCH)/policy-coverage.json 'sprintf("policy coverage: %.1f %% of the lines", [input.coverage])'

.PHONY: test-controllers
test-controllers: controlplane ## Controllers, collectors, node agent, CRD rules and manifests on the real API server
	$(call say,tests on the real API server (two packages at a time: each starts a control plane))
	@go test -p 2 -timeout 20m $(TESTFLAGS) $$(.ci/packages apiserver)

.PHONY: test-config
test-config: controlplane ## Only the manifests: kustomize, CRD rules, and what the granted roles allow
	$(call say,manifests on the real API server)
	@go test -timeout 10m $(TESTFLAGS) ./test/install/...

.PHONY: test-e2e
test-e2e: controlplane ## The demo's scenarios as tests: real Kubernetes, real etcd, operator and ACM under their own accounts
	$(call say,end-to-end tests)
	@go test -p 1 -count=1 -timeout 20m $(TESTFLAGS) $$(.ci/packages e2e)

.PHONY: simulate
simulate: ## Random faults, stale reads and answers against the whole chain in memory (SEEDS=1000, or SEED=17 for one)
	$(call say,simulated world: $(if $(SEED),seed $(SEED),$(SEEDS) seeds))
	@ASSENT_SEEDS='$(SEEDS)' ASSENT_SEED='$(SEED)' go test -count=1 -timeout 60m $(TESTFLAGS) ./test/simulation/...

.PHONY: bench-evaluation
bench-evaluation: ## How long one policy evaluation takes at 10, 1,000 and 10,000 pods (BENCH=regexp)
	$(call say,benchmarks of the evaluation)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem ./acm/internal/engine/...

.PHONY: bench-facts
bench-facts: ## What a changed fact costs
	$(call say,benchmarks of the fact store)
	@go test -run '^$$' -bench '$(BENCH)' -benchmem ./acm/internal/facts/...

##@ Check

.PHONY: verify
verify: generate lint policy-check clean-tree ## What a change must pass: generated files current, lint, strict policy check, clean tree

.PHONY: generate
generate: generate-proto generate-api ## Write all generated files: protocol, deep copies, CRDs, roles

.PHONY: generate-proto
generate-proto: ## Lint the protocol and write its Go code
	$(call say,generating the protocol)
	@cd proto && $(BUF) lint && $(BUF) generate

.PHONY: generate-api
generate-api: ## Write deep copies, CRDs and the two roles from the Go types and markers
	$(call say,generating deep copies plus CRDs plus roles)
	@$(TOOL) controller-gen object paths=./operator/api/...
	@$(TOOL) controller-gen crd paths=./operator/api/... output:crd:dir=config/crd/bases
	@$(TOOL) controller-gen rbac:roleName=assent-operator paths=./operator/... output:rbac:dir=config/rbac/operator
	@$(TOOL) controller-gen rbac:roleName=assent-acm paths=./acm/... output:rbac:dir=config/rbac/acm

.PHONY: lint
lint: ## Lint the Go code: import rules, clocks and randomness, errors, documentation
	$(call say,linting Go (the first run builds the linter and takes minutes))
	@$(GOLANGCI) run

.PHONY: policy-check
policy-check: ## Check all Rego strictly against the schemas and the allowed built-ins, its format, and that each bundle builds alone
	$(call say,checking policies)
	@version() { go list "$$@" -m -f '{{.Version}}' github.com/open-policy-agent/opa; }; \
		ours=$$(version); tool=$$(version -modfile=test/tools/go.mod); \
		[[ "$$ours" == "$$tool" ]] || { echo "the ACM decides with OPA $$ours, but test/tools pins $$tool: make them one"; exit 1; }
	@$(OPA) check --strict --schema policies/schema --capabilities policies/capabilities/v1.json $(POLICY_TREES)
	@$(OPA) fmt --diff --fail $(POLICY_TREES)
	@mkdir -p $(SCRATCH)
	@for bundle in $(filter-out policies,$(POLICY_TREES)); do $(OPA) build -b $$bundle --ignore '*_test.rego' -o $(SCRATCH)/bundle.tar.gz; done

.PHONY: clean-tree
clean-tree: ## Fail if anything differs from the last commit
	$(call say,looking for uncommitted or generated changes)
	@changes=$$(git status --porcelain); if [[ -n "$$changes" ]]; then \
		echo 'the tree differs from the last commit; commit these files, or generate them anew and commit:'; \
		echo "$$changes"; git --no-pager diff --stat; exit 1; fi

.PHONY: format
format: ## Format Go, Rego and the protocol in place
	$(call say,formatting)
	@$(GOLANGCI) fmt
	@$(OPA) fmt --write $(POLICY_TREES)
	@cd proto && $(BUF) format --write

##@ Surroundings

.PHONY: controlplane
controlplane: ## Build etcd, Kubernetes and kwok once (8 to 18 minutes on two cores) and cache them outside the tree
	$(call say,control plane programs (built once and then cached))
	@go run ./test/controlplane/cmd/controlplane build

.PHONY: clean
clean: ## Remove what builds and tests left in the tree (the caches outside it stay)
	rm -rf bin .tmp .demo
