# What an engineer runs after a change, then long randomized tests, for machines with time. `go test ./...` runs short ones.
FUZZTIME ?= 10m
ROUNDS ?= 500
STREAMS ?= 500
TIMES ?= 10

# What quick and flakes compare with: where this branch left main.
BASE ?= $(shell git merge-base HEAD main 2>/dev/null || git rev-parse HEAD)

# The flags of .ci/run, so that all share what is compiled.
LEAN = GOFLAGS="$${GOFLAGS:-} -gcflags=all=-dwarf=false" GOGC=400

.PHONY: docs release manifests release-check release-push build test quick pkg allocations metrics console speed generate flakes fuzz fuzz-schemas plan-schemas importing-rights undo conformance sim leaders garbage sim-bugs fairness-search soak history-large chaos overload dead-sinks hanging-webhook upgrade

# Builds the program as it is released, into bin: without C, so that it needs no libraries of the machine and its children are confined
# (docs/OPERATING.md), and without paths of this machine. TAGS=allbuckets adds drivers of buckets.
TAGS ?=
build:
	CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -o bin/stele ./cmd/stele

# Makes a release of the commit in DIST: archives, packages, an image, SBOMs, provenance and checksums, as docs/INSTALL.md describes
# them. KEY is a private SSH key that signs the checksums. VERSION is the commit's tag vX.Y.Z, or else made of the version in the source
# and the commit's time. BUILDER and SOURCE are URIs for the provenance.
DIST ?= dist
PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64
VERSION ?=
KEY ?=
BUILDER ?=
SOURCE ?=
RELEASE = go -C .ci/release run .
release:
	$(RELEASE) build -out '$(DIST)' -platforms '$(PLATFORMS)' $(if $(VERSION),-version '$(VERSION)') $(if $(KEY),-key '$(abspath $(KEY))') \
	  $(if $(BUILDER),-builder '$(BUILDER)') $(if $(SOURCE),-source '$(SOURCE)')

# Pushes the image of the release in DIST: make release-push IMAGE=registry.example.com/stele:1.2.3
IMAGE ?=
release-push:
	$(RELEASE) push '$(DIST)' '$(IMAGE)'

# Writes charts/manifests of the chart in charts/stele. The gate checks that they agree.
manifests:
	$(RELEASE) manifests

# Makes a release twice, the second time in another folder and without what is compiled; compares the two; verifies, installs and
# starts what was built. By default only for this machine's platform. With PROGRAM=bin/stele it packs that program instead of building.
PROGRAM ?=
release-check: PLATFORMS = $(shell go env GOHOSTOS)/$(shell go env GOHOSTARCH)
release-check:
	$(RELEASE) check -platforms '$(PLATFORMS)' $(if $(PROGRAM),-program '$(PROGRAM)')

# Makes a site of the documentation in SITE, to be read as files or from any server of files. FILES is the address of the repository's
# files at one commit, such as https://git.example.com/stele/blob/v1.2.3; without it the site has pages for the files that it links to.
SITE ?= site
FILES ?=
docs:
	$(LEAN) go -C .ci/site run . -out '$(abspath $(SITE))' $(if $(FILES),-files '$(FILES)')

test:
	go test ./...

# Checks what changed since BASE: go.mod, formats and generated files; then builds, vets and tests with -short the packages that
# changed, and those that import them directly.
quick:
	$(LEAN) .ci/first
	$(LEAN) go run ./.ci/gate quick $(BASE)

# Vets and tests one package: make pkg P=core/resources/blame
pkg:
	$(LEAN) go vet ./$(P)
	$(LEAN) go test -vet=off ./$(P)

# Writes the numbers of core/testdata/allocations.txt anew, and keeps its reasons. With OF=create it profiles the operation create instead.
OF ?=
allocations:
	$(LEAN) go test -vet=off ./core -count 1 -run TestRequestsAllocateWhatTheTableSays $(if $(OF),-v -allocations.of '$(OF)',-allocations.write)

# Writes docs/console.png anew, of a control plane that it starts, in Chromium.
console:
	$(LEAN) go -C .ci/console test -vet=off -count 1 -run TestThePictureOfTheDocumentation . -picture '$(abspath docs/console.png)'

# Writes docs/METRICS.md anew: the metrics of a server, after requests of each sort.
metrics:
	$(LEAN) go test -vet=off ./core/run/plane -count 1 -run TestMetricsAreListed -metrics.write

# Compares the speed of the working tree with the revision BASE: builds both, runs the same requests on fresh servers in turns, and says which
# differences are larger than the noise. It says how long it takes; nothing else should run. ROUNDS is 5 or more. WRITE=1 writes
# docs/PERFORMANCE.md. APISERVER and ETCD are programs of the peer.
WRITE ?=
APISERVER ?=
ETCD ?=
speed: ROUNDS = 5
speed:
	go run ./.ci/speed -rounds $(ROUNDS) -objects $(OBJECTS) $(if $(WRITE),-write) -apiserver '$(APISERVER)' -etcd '$(ETCD)' $(BASE)

# Writes all files that are generated. It needs no tools but Go, git and sh.
generate:
	$(LEAN) go generate ./...

# Runs each test that changed since BASE 20 times, on a machine that is kept busy.
flakes:
	$(LEAN) go run ./.ci/gate flakes $(BASE)

# Runs every fuzz test for FUZZTIME, one after the other.
fuzz: fuzz-schemas
	@set -e; for package in $$(go list ./...); do \
	  for fuzz in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$(go list -f '{{.Dir}}' $$package)/*_test.go 2>/dev/null | sed 's/func //'); do \
	    echo "== $$package $$fuzz"; go test -run '^$$' -fuzz "^$$fuzz\$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

# Compares new random schemas with CUE, forty in each of ROUNDS rounds. A stack overflow of CUE itself is not a
# failure.
fuzz-schemas:
	@set -e; go test -c -o /tmp/stele-schemas.test ./schemas/fromcue; cd schemas/fromcue; seed=$$(date +%s); for round in $$(seq $(ROUNDS)); do \
	  echo "schemas from $$seed"; \
	  /tmp/stele-schemas.test -test.run TestClosuresAgreeWithCUE -differential.from $$seed -differential.rounds 40 > /tmp/stele-schemas.log 2>&1 \
	    || grep -q 'stack overflow' /tmp/stele-schemas.log || { cat /tmp/stele-schemas.log; exit 1; }; \
	  seed=$$((seed + 40)); \
	done

# Compares ROUNDS sets of random pairs of schemas, and tries whether what is found holds for generated objects.
plan-schemas:
	go test ./policy/plan/kinds -run TestFindingsHoldForObjects -kinds.rounds=$(ROUNDS) -timeout 0

# Takes back writes in a thousand times ROUNDS random histories of an object, and compares what is left with a twin.
undo:
	go test ./cmd/stele/internal/restore -run TestUndoLeavesWhatATwinHas -count 1 -timeout 0 -restore.undo $(ROUNDS)000

# Imports ROUNDS random sets of roles and bindings, and compares the rights that they grant.
importing-rights:
	go test ./policy/importing -run TestImportedRolesGrantTheSameRights -timeout 0 -importing.from $$(date +%s) -importing.rights $(ROUNDS)

# Sends STREAMS new random streams of requests to stele and to upstream's server: docs/CONFORMANCE.md.
conformance:
	@seed=$$(date +%s); echo "streams from $$seed"; \
	  go test ./core/conformance -run TestTheSameAnswers -timeout 0 -conformance.from $$seed -conformance.seeds $(STREAMS)

# Runs SEEDS simulations of replicas, from seed FROM on. A failure names its seed.
SEEDS ?= 3000
FROM ?= 1
sim:
	go test ./core/conformance/simulation -run 'TestSimulation$$' -timeout 0 -simulation-from $(FROM) -simulation-seeds $(SEEDS)

# Lets two replicas lead at once on a bucket that fails, in SEEDS random schedules from seed FROM on.
leaders:
	STELE_LEADERS_FROM=$(FROM) STELE_LEADERS_SEEDS=$(SEEDS) go test ./core/keep/bucketsync -run TestTwoLeadersShareABucket -count 1 -timeout 0

# Tries the garbage collector on GRAPHS random graphs of owners, twice.
GRAPHS ?= 500
garbage:
	go test ./core/run/controllers -run 'TestNothingIsCollected(InTheForeground)?ThatHasAnOwner' -timeout 0 -controllers.graphs $(GRAPHS)

# Compares the queues of priority levels with kube-apiserver's, and tries their random model, on SEEDS seeds from FROM on; measures a polite
# client in both: docs/OVERLOAD.md.
fairness-search:
	go test ./limits/fairqueue -run 'TestSameTurns|TestModel|TestSeatLimit|TestPoliteClient' -v -timeout 0 -fairness-from $(FROM) -fairness-seeds $(SEEDS) -fairness-upstream

# Plants bugs in the program, and searches for a seed of the simulation that finds each.
BUGS ?= .
sim-bugs:
	go test ./core/conformance/simulation -run 'TestPlantedBugs$$' -v -timeout 0 -planted-bugs '$(BUGS)' -planted-bugs-seeds $(SEEDS)

# Writes TIMES times etcd's quota of 64 MiB on the disk of the temporary folder, in small objects.
soak:
	go test ./core/run/plane -run TestManyTimesTheQuotaIsWritten -v -timeout 0 -soak.folder $${TMPDIR:-/tmp} \
	  -soak.quota $$((64 << 20)) -soak.times $(TIMES) -soak.size 2000

# Follows EVENTS events by an index of the past, and reads it: docs/PERFORMANCE.md.
EVENTS ?= 10000000
history-large:
	STELE_HISTORY_EVENTS=$(EVENTS) go test ./projections/history -run '^$$' -bench Large -benchtime 5000x -timeout 0

# Kills processes of a control plane with three replicas, and breaks its connections: docs/CONFORMANCE.md.
KILLS ?= 100
FAULTS ?= 48
PAUSE ?= 8s
SEED ?= 1
chaos:
	go test ./cmd/stele -run 'TestAnyProcessIsKilled|TestHistoriesAreLinearizable|TestOlderEventsMoveMeanwhile' -v -timeout 0 \
	  -chaos.kills $(KILLS) -chaos.faults $(FAULTS) -chaos.pause $(PAUSE) -chaos.seed $(SEED)

# Floods a server, with flow control and without, and times a polite client beside each flood: docs/OVERLOAD.md.
FLOODS ?= lists,creates,watches,users,anonymous,whocan
SECONDS ?= 20
OBJECTS ?= 10000
overload:
	go test ./cmd/stele -count 1 -run TestAFloodDoesNotDelayAPoliteClient -v -timeout 0 -fairness.full \
	  -fairness.kinds $(FLOODS) -fairness.seconds $(SECONDS) -fairness.objects $(OBJECTS)
	go test ./cmd/stele -count 1 -run 'TestMemoryDoesNotRunOut$$' -v -timeout 0 -overload.full

# Writes for DEAD seconds while the webhook of the audit log hangs and its collector refuses everything: docs/AUDIT.md.
DEAD ?= 300
dead-sinks:
	go test ./cmd/stele -count 1 -run TestDeadSinksTakeNoMemory -v -timeout 0 -sinks.seconds $(DEAD)

# Times CREATES writes beside hanging reviews of a webhook that is not about them, and as many without: docs/WEBHOOKS.md.
CREATES ?= 20000
hanging-webhook:
	go test ./core/reviewers/webhooks -count 1 -run TestLatencyBesideAHangingWebhook -v -timeout 0 -webhooks.writes $(CREATES)

# Replaces servers of the version at FROM by those of this one, one by one, while clients use them: docs/OPERATING.md.
# Versions before bb6d975 keep no log in an etcd cluster.
FROM ?= HEAD
upgrade:
	@set -e; old=$$(mktemp -d); trap 'git worktree remove --force $$old/source; rm -rf $$old' EXIT; \
	  git worktree add --quiet --detach $$old/source $(FROM); \
	  go build -C $$old/source -o $$old/stele ./cmd/stele; \
	  go test ./cmd/stele -count 1 -run TestClientsNoticeNoUpgrade -v -timeout 0 -upgrade.from $$old/stele
