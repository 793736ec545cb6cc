# Long searches, for machines with time. `go test ./...` runs the short ones.
FUZZTIME ?= 10m
ROUNDS ?= 500
STREAMS ?= 500

.PHONY: test fuzz fuzz-schemas conformance

test:
	go test ./...

# Every fuzz test for FUZZTIME, one after the other.
fuzz: fuzz-schemas
	@set -e; for package in $$(go list ./...); do \
	  for fuzz in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$(go list -f '{{.Dir}}' $$package)/*_test.go 2>/dev/null | sed 's/func //'); do \
	    echo "== $$package $$fuzz"; go test -run '^$$' -fuzz "^$$fuzz\$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

# ROUNDS times forty schemas that nobody has tried, each compared with CUE. On some of them CUE
# recurses without end, which is no finding.
fuzz-schemas:
	@set -e; go test -c -o /tmp/stele-schemas.test ./schemas/fromcue; cd schemas/fromcue; seed=$$(date +%s); for round in $$(seq $(ROUNDS)); do \
	  echo "schemas from $$seed"; \
	  /tmp/stele-schemas.test -test.run TestClosuresAgreeWithCUE -differential.from $$seed -differential.rounds 40 > /tmp/stele-schemas.log 2>&1 \
	    || grep -q 'stack overflow' /tmp/stele-schemas.log || { cat /tmp/stele-schemas.log; exit 1; }; \
	  seed=$$((seed + 40)); \
	done

# STREAMS of requests that nobody has tried, sent to stele and to upstream's server: docs/CONFORMANCE.md.
conformance:
	@seed=$$(date +%s); echo "streams from $$seed"; \
	  go test ./core/conformance -run TestTheSameAnswers -timeout 0 -conformance.from $$seed -conformance.seeds $(STREAMS)
