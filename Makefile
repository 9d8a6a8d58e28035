# Each target is one line; what it does is in hack/ and in the flatline binary.
.DEFAULT_GOAL := help
PROFILE ?= default
KEEP ?= never
COUNT ?= 6

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: experiment
experiment: setup ## Run one experiment: make experiment NAME=csr-denied PROFILE=fast [SET=component.flag=value]
	@bin/flatline run "$(NAME)" --profile "$(PROFILE)" $(foreach s,$(SET),--set "$(s)") --keep "$(KEEP)" $(if $(HOLD),--hold) $(if $(CLUSTER),--cluster "$(CLUSTER)")

.PHONY: tune
tune: setup ## Run an experiment under several values of flags and compare: make tune NAME=kubelet-stopped PROFILE=fast SET='kube-controller-manager.node-monitor-grace-period=8s,12s,16s' COUNT=6 [DRY_RUN=1] [EACH=1] [SHARD=1/2]
	@bin/flatline tune "$(NAME)" --profile "$(PROFILE)" $(foreach s,$(SET),--set "$(s)") --count "$(COUNT)" $(if $(DRY_RUN),--dry-run) $(if $(EACH),--each) $(if $(SHARD),--shard "$(SHARD)") $(if $(ALLOW_FLAPPING),--allow-flapping)

.PHONY: knobs
knobs: setup ## Which flag governs detection: change one at a time, and hold what each does against the model (half an hour)
	@hack/knobs "$(COUNT)"

.PHONY: compare
compare: setup-binary ## Compare recorded runs: make compare A=DIR B=DIR, or COL=component.flag RUN="DIR ..." [O=markdown] [GATE=1]
	@bin/flatline compare $(if $(COL),--col "$(COL)") $(if $(GATE),--exit-code) $(if $(O),-o "$(O)") $(if $(A)$(B),"$(A)" "$(B)",$(RUN))

.PHONY: bench
bench: ## How long it takes to draw a report, to read a long timeline, and to compare 1,000 runs
	@go test -run '^$$' -bench . -benchmem . ./internal/... ./pkg/...

.PHONY: plan
plan: setup-binary ## Say what an experiment would do and expect, without Docker: make plan NAME=csr-denied
	@bin/flatline plan "$(NAME)" --profile "$(PROFILE)" $(foreach s,$(SET),--set "$(s)")

.PHONY: test
test: setup ## Run every check and test, the smoke suite on a real cluster included
	@hack/test

.PHONY: suite
suite: setup ## Run experiments as Ginkgo specs: make suite LABEL='tier:smoke' [GINKGO_FOCUS=...] [GINKGO_ARGS=...]
	@hack/suite "$(LABEL)"

.PHONY: fuzz
fuzz: ## Fuzz everything that parses, two minutes each: make fuzz [FUZZTIME=2m]
	@hack/fuzz "$(or $(FUZZTIME),2m)"

.PHONY: judge
judge: setup-binary ## Judge recorded runs by today's rules: make judge RUN=_artifacts/csr-denied/latest
	@bin/flatline judge $(RUN)

.PHONY: report
report: setup-binary ## Draw recorded runs, one or several over one another: make report RUN="_artifacts/csr-denied/latest ..."
	@bin/flatline report $(RUN)

.PHONY: claims
claims: setup-binary ## Hold the statements of the reference document against the runs on record
	@bin/flatline claims docs/evidence

.PHONY: kill-test
kill-test: setup ## Kill the runner on real clusters, N times in each phase, and heal: make kill-test N=3 [NAME=node-paused]
	@hack/kill-test "$(N)" $(NAME)

.PHONY: tune-test
tune-test: setup ## Kill a sweep on a real cluster, continue it, and make it as two shards: a quarter of an hour
	@hack/tune-test

.PHONY: heal
heal: setup-binary ## Put right what a run left behind: make heal RUN=_artifacts/csr-denied/latest
	@bin/flatline heal "$(RUN)"

.PHONY: clean
clean: setup-binary ## Delete every cluster that flatline made
	@bin/flatline clean

.PHONY: list
list: setup-binary ## List the experiments
	@bin/flatline list

.PHONY: setup
setup: ## Make all that is needed: Docker engine, binary, node image
	@hack/setup

.PHONY: setup-binary
setup-binary:
	@CGO_ENABLED=0 go build -trimpath -o bin/flatline .

.PHONY: unsetup
unsetup: ## Take back what the set-up changed on this machine
	@hack/unsetup

.PHONY: node-image
node-image: ## Build the node image, if the recipe's image is not there
	@hack/nodeimage/build
