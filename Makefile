# Each target is one line; what it does is in hack/ and in the flatline binary.
.DEFAULT_GOAL := help

# Set on the command line of make, and nowhere else: what a shell happens to export
# under such a common name is not meant for a cluster.
ARGUMENTS := NAME PROFILE SET KEEP HOLD CLUSTER COUNT DRY_RUN EACH SHARD ALLOW_FLAPPING COL GATE O A B RUN LABEL FUZZTIME N PHASES REUSE ENGINE_RESTART ALL
$(foreach v,$(ARGUMENTS),$(if $(findstring environment,$(origin $v)),$(eval override $v :=)))

# q is one word for the shell, whatever is in it.
q = '$(subst ','\'',$1)'
sets = $(foreach s,$(SET),--set $(call q,$s))
profile = $(if $(PROFILE),--profile $(call q,$(PROFILE)))
runs = $(foreach r,$(RUN),$(call q,$r))

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: experiment
experiment: setup ## Run one experiment: make experiment NAME=csr-denied PROFILE=fast [SET=component.flag=value]
	@bin/flatline run $(call q,$(NAME)) $(profile) $(sets) --keep $(call q,$(or $(KEEP),never)) $(if $(HOLD),--hold) $(if $(CLUSTER),--cluster $(call q,$(CLUSTER)))

.PHONY: tune
tune: setup ## Run an experiment under several values of flags and compare: make tune NAME=kubelet-stopped PROFILE=fast SET='kube-controller-manager.node-monitor-grace-period=8s,12s,16s' COUNT=6 [DRY_RUN=1] [EACH=1] [SHARD=1/2]
	@bin/flatline tune $(call q,$(NAME)) $(profile) $(sets) --count $(call q,$(or $(COUNT),6)) $(if $(DRY_RUN),--dry-run) $(if $(EACH),--each) $(if $(SHARD),--shard $(call q,$(SHARD))) $(if $(ALLOW_FLAPPING),--allow-flapping)

.PHONY: knobs
knobs: setup ## Which flag governs detection: change one at a time, and hold what each does against the model (half an hour)
	@hack/knobs $(call q,$(or $(COUNT),6))

.PHONY: compare
compare: setup-binary ## Compare recorded runs: make compare A=DIR B=DIR, or COL=component.flag RUN="DIR ..." [O=markdown] [GATE=1]
	@bin/flatline compare $(if $(COL),--col $(call q,$(COL))) $(if $(GATE),--exit-code) $(if $(O),-o $(call q,$(O))) $(if $(A)$(B),$(call q,$(A)) $(call q,$(B)),$(runs))

.PHONY: bench
bench: ## How long it takes to draw a report, to read a long timeline, and to compare 1,000 runs
	@go test -run '^$$' -bench . -benchmem . ./internal/... ./pkg/...

.PHONY: plan
plan: setup-binary ## Say what an experiment would do and expect, without Docker: make plan NAME=csr-denied [O=yaml]
	@bin/flatline plan $(call q,$(NAME)) $(profile) $(sets) $(if $(O),-o $(call q,$(O)))

.PHONY: test
test: setup ## Run every check and test, the smoke suite on a real cluster included
	@hack/test

.PHONY: suite
suite: setup ## Run experiments as Ginkgo specs: make suite LABEL='tier:smoke' [GINKGO_FOCUS=...] [GINKGO_ARGS=...]
	@hack/suite $(call q,$(LABEL))

.PHONY: fuzz
fuzz: ## Fuzz everything that parses, two minutes each: make fuzz [FUZZTIME=2m]
	@hack/fuzz $(call q,$(or $(FUZZTIME),2m))

.PHONY: judge
judge: setup-binary ## Judge recorded runs by today's rules: make judge RUN=_artifacts/csr-denied/latest
	@bin/flatline judge $(runs)

.PHONY: report
report: setup-binary ## Draw recorded runs, one or several over one another: make report RUN="_artifacts/csr-denied/latest ..."
	@bin/flatline report $(runs)

.PHONY: claims
claims: setup-binary ## Hold the statements of the reference document against the runs on record
	@bin/flatline claims docs/evidence

.PHONY: kill-test
kill-test: setup ## Kill the runner on real clusters, N times in each phase of each experiment, and heal: make kill-test N=1 [NAME=node-paused] [PHASES='hold nodes'] [REUSE=1] [ENGINE_RESTART=1]
	@hack/kill-test $(call q,$(N)) $(if $(NAME),$(call q,$(NAME)))

.PHONY: tune-test
tune-test: setup ## Kill a sweep on a real cluster, continue it, and make it as two shards: a quarter of an hour
	@hack/tune-test

.PHONY: heal
heal: any-binary ## Put right what a run left behind, or all runs: make heal [RUN=_artifacts/csr-denied/latest]
	@bin/flatline heal $(if $(RUN),$(call q,$(RUN)))

.PHONY: clean
clean: any-binary ## Delete every cluster that this user made and nobody is at work on: make clean [ALL=1]
	@bin/flatline clean $(if $(ALL),--all)

.PHONY: doctor
doctor: any-binary ## Say what of this machine and its engine is fit for runs, and what runs have left
	@bin/flatline doctor

.PHONY: list
list: setup-binary ## List the experiments
	@bin/flatline list

.PHONY: setup
setup: ## Make all that is needed: Docker engine, binary, node image
	@hack/setup

.PHONY: setup-binary
setup-binary:
	@hack/binary

.PHONY: any-binary
any-binary:
	@hack/binary --any

.PHONY: unsetup
unsetup: ## Take back what the set-up changed on this machine
	@hack/unsetup

.PHONY: node-image
node-image: ## Build the node image, if the recipe's image is not there
	@hack/nodeimage/build
