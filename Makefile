# Verbs for people; each is a script in gpu-ci/scripts/ that CI calls too.
#   make perf PROFILE=path/to/profile.toml ARGS="-k ngram"

PROFILE ?=
ARGS ?=
RUN ?=
SCRIPTS := gpu-ci/scripts
export PROFILE

.DEFAULT_GOAL := help
.PHONY: help install install-dev perf test check report serve clean-cache

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

install: ## make .venv with the engine and draftgate, convert the model
	@$(SCRIPTS)/install $(if $(PROFILE),--profile "$(PROFILE)")

install-dev: ## the same with linters and test tools
	@$(SCRIPTS)/install --dev $(if $(PROFILE),--profile "$(PROFILE)")

perf: ## install, measure with and without speculation, judge, write a report
	@$(SCRIPTS)/perf $(ARGS)

test: ## install, run the tests (perf and drift shortened)
	@$(SCRIPTS)/test $(ARGS)

check: ## format, lint, types and import rules
	@$(SCRIPTS)/check

report: ## rebuild the newest run's report, or that of RUN=runs/...
	@$(SCRIPTS)/report $(if $(RUN),"$(RUN)")

serve: ## install, start the engine and the front before it; ARGS="--arm ngram"
	@$(SCRIPTS)/serve $(ARGS)

clean-cache: ## remove converted models; the next run makes them again
	@.venv/bin/python -c 'import shutil; from draftgate.targets import cache_root; \
	[(print("Removing", path), shutil.rmtree(path)) for name in ("targets", "weakened") \
	for path in [cache_root() / name] if path.is_dir()]'
