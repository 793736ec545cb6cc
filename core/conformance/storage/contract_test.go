package storage_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// suites are upstream's suites that pass.
var suites = map[string]func(context.Context, *testing.T, *adapter){
	"RunTestCreate": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestCreate(ctx, t, a, a.checkStored)
	},
	"RunTestCreateWithKeyExist": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestCreateWithKeyExist(ctx, t, a)
	},
	"RunTestGet": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestGet(ctx, t, a) },
	"RunTestUnconditionalDelete": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestUnconditionalDelete(ctx, t, a)
	},
	"RunTestConditionalDelete": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestConditionalDelete(ctx, t, a)
	},
	"RunTestDeleteWithSuggestion": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDeleteWithSuggestion(ctx, t, a)
	},
	"RunTestDeleteWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDeleteWithSuggestionAndConflict(ctx, t, a)
	},
	"RunTestDeleteWithConflict": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDeleteWithConflict(ctx, t, a)
	},
	"RunTestDeleteWithSuggestionOfDeletedObject": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDeleteWithSuggestionOfDeletedObject(ctx, t, a)
	},
	"RunTestValidateDeletionWithSuggestion": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestValidateDeletionWithSuggestion(ctx, t, a)
	},
	"RunTestValidateDeletionWithOnlySuggestionValid": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestValidateDeletionWithOnlySuggestionValid(ctx, t, a)
	},
	"RunTestList": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestList(ctx, t, a, a.compact, false, storagetesting.NewKubernetesRecorder(nil))
	},
	"RunTestConsistentList": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestConsistentList(ctx, t, a, a.increase, false, true, false)
	},
	"RunTestGetListNonRecursive": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, a.increase, a)
	},
	"RunTestGetListRecursivePrefix": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGetListRecursivePrefix(ctx, t, a)
	},
	"RunTestListContinuation": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListContinuation(ctx, t, a, uncounted)
	},
	"RunTestListPaginationRareObject": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, a, uncounted)
	},
	"RunTestListContinuationWithFilter": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, a, uncounted)
	},
	"RunTestListInconsistentContinuation": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, a, a.compact)
	},
	"RunTestGuaranteedUpdate": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, &transformed{adapter: a}, a.checkStored)
	},
	"RunTestGuaranteedUpdateWithConflict": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGuaranteedUpdateWithConflict(ctx, t, a)
	},
	"RunTestGuaranteedUpdateWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict(ctx, t, a)
	},
	"RunTestStats": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestStats(ctx, t, a, codec, identity.NewEncryptCheckTransformer(), false)
	},
	"RunTestListPaging": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestListPaging(ctx, t, a) },
	"RunTestNamespaceScopedList": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestNamespaceScopedList(ctx, t, a)
	},
	"RunTestKeySchema": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestKeySchema(ctx, t, a) },
	"RunTestWatch":     func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestWatch(ctx, t, a) },
	"RunTestWatchFromZero": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchFromZero(ctx, t, a, a.compact)
	},
	"RunTestDeleteTriggerWatch": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDeleteTriggerWatch(ctx, t, a)
	},
	"RunTestWatchFromNonZero": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestWatchFromNonZero(ctx, t, a) },
	"RunTestDelayedWatchDelivery": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestDelayedWatchDelivery(ctx, t, a)
	},
	"RunTestWatchContextCancel": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchContextCancel(ctx, t, a)
	},
	"RunTestWatcherTimeout": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunTestWatcherTimeout(ctx, t, a) },
	"RunTestWatchDeleteEventObjectHaveLatestRV": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, a)
	},
	"RunOptionalTestProgressNotify": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunOptionalTestProgressNotify(ctx, t, a, a.increase)
	},
	"RunTestClusterScopedWatch": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestClusterScopedWatch(ctx, t, a)
	},
	"RunTestNamespaceScopedWatch": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestNamespaceScopedWatch(ctx, t, a)
	},
	"RunTestWatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, a, true)
	},
	"RunTestOptionalWatchBookmarksWithCorrectResourceVersion": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, a)
	},
	"RunSendInitialEventsBackwardCompatibility": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunSendInitialEventsBackwardCompatibility(ctx, t, a)
	},
	"RunWatchSemantics": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunWatchSemantics(ctx, t, a) },
	"RunWatchSemanticInitialEventsExtended": func(ctx context.Context, t *testing.T, a *adapter) {
		storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, a)
	},
	"RunWatchListMatchSingle": func(ctx context.Context, t *testing.T, a *adapter) { storagetesting.RunWatchListMatchSingle(ctx, t, a) },
}

// without are upstream's suites that cannot pass. docs/CONFORMANCE.md has the reasons.
var without = []string{
	"RunTestCreateWithTTL",
	"RunTestGuaranteedUpdateWithTTL",
	"RunTestGuaranteedUpdateChecksStoredData",
	"RunTestCompactRevision",
	"RunTestListResourceVersionMatch",
	"RunTestPreconditionalDeleteWithSuggestion",
	"RunTestPreconditionalDeleteWithOnlySuggestionPass",
	"RunTestTransformationFailure",
	"RunTestWatchError",
	"RunTestWatchInitializationSignal",
	"RunWatchErrorIsBlockingFurtherEvents",
	"RunTestWatchWithUnsafeDelete",
	"RunTestGetListWithErrorAggregation",
	"RunTestGetListWithoutErrorAggregation",
	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError",
	"RunTestDeleteExpectedTransformOrDecodeError",
	"RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError",
}

// uncounted replaces the count of reads of etcd. Stele lists from memory.
func uncounted(*testing.T, uint64, uint64) {}

// checkStored checks that what is in the log has no resourceVersion.
func (a *adapter) checkStored(_ context.Context, t *testing.T, k string) {
	t.Helper()
	at, _ := parse(k)
	o := a.committer.Tip().Objects.Get(pods, at.namespace, at.name)
	if o == nil {
		t.Fatalf("%s is not there", k)
	}
	stored, err := runtime.Decode(codec, o.Payload())
	if err != nil {
		t.Fatal(err)
	}
	if pod := stored.(*example.Pod); pod.ResourceVersion != "" {
		t.Errorf("%s is stored with resourceVersion %q", k, pod.ResourceVersion)
	}
}

// transformed is an adapter whose stored objects can be outdated. Stele has no transformers.
type transformed struct{ *adapter }

// UpdatePrefixTransformer asks a transformer whether what it reads is outdated.
func (a *transformed) UpdatePrefixTransformer(modify storagetesting.PrefixTransformerModifier) func() {
	next := modify(storagetesting.NewPrefixTransformer(nil, false))
	_, outdated, err := next.TransformFromStorage(context.Background(), nil, value.DefaultContext(nil))
	a.outdated.Store(outdated && err == nil)
	return func() { a.outdated.Store(false) }
}

// hurried are suites that fail if 150 ms pass before an event arrives, which a busy machine may need. They run in other
// processes, and must pass once in several attempts.
var hurried = map[string]bool{"RunWatchSemantics": true, "RunWatchSemanticInitialEventsExtended": true, "RunWatchListMatchSingle": true}

// attempt is set in the environment of such a process.
const attempt = "STORAGE_CONTRACT_ATTEMPT"

// attempts runs a suite in other processes until it passes.
func attempts(t *testing.T, name string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; ; i++ {
		c := exec.CommandContext(t.Context(), program, "-test.run=^TestContract$/^"+name+"$")
		c.Env = append(os.Environ(), attempt+"=1")
		out, err := c.CombinedOutput()
		if err == nil {
			return
		}
		if i == 5 {
			t.Fatalf("%d attempts: %v\n%s", i, err, out)
		}
	}
}

func TestContract(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(suites)) {
		t.Run(name, func(t *testing.T) {
			if hurried[name] && os.Getenv(attempt) == "" {
				attempts(t, name)
				return
			}
			suites[name](context.Background(), t, newAdapter(t))
		})
	}
}

// TestAllSuites fails if upstream has a suite that is neither run nor excluded, and if the documentation lacks one.
func TestAllSuites(t *testing.T) {
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", "k8s.io/apiserver/pkg/storage/testing").Output()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../../docs/CONFORMANCE.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for name := range suites {
		known[name] = true
	}
	for _, name := range without {
		known[name] = true
	}
	for name := range known {
		if !strings.Contains(string(docs), "`"+name+"`") {
			t.Errorf("docs/CONFORMANCE.md does not say what becomes of %s", name)
		}
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	found := 0
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Run") || strings.HasPrefix(f.Name.Name, "RunBenchmark") {
				continue
			}
			found++
			if !known[f.Name.Name] {
				t.Errorf("upstream has the suite %s: run it, or exclude it with a reason", f.Name.Name)
			}
		}
	}
	if found != len(known) {
		t.Errorf("upstream has %d suites, here are %d", found, len(known))
	}
}
