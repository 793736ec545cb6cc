# Long searches, for machines with time. `go test ./...` runs the short ones.
FUZZTIME ?= 10m

.PHONY: test fuzz

test:
	go test ./...

# Every fuzz test for FUZZTIME, one after the other; differential tests from seeds that nobody has tried.
fuzz:
	go test ./schemas -run TestClosuresAgreeWithCUE -timeout 0 -differential.from $$(date +%s) -differential.rounds 20000
	@set -e; for package in $$(go list ./...); do \
	  for fuzz in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$(go list -f '{{.Dir}}' $$package)/*_test.go 2>/dev/null | sed 's/func //'); do \
	    echo "== $$package $$fuzz"; go test -run '^$$' -fuzz "^$$fuzz\$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done
