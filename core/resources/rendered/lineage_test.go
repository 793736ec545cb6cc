package rendered_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/keep/checkpoints"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/checkpoint"
)

// gizmos is a kind that is added to a bundle without moving its other lines.
const gizmos = `
bundle: teams: t: kinds: "gizmos.example.com": {
	group: "example.com"
	names: {kind: "Gizmo", plural: "gizmos"}
	storageVersion: "v1"
	versions: v1: #schema: {spec?: {a?: int}}
}
`

// lineages is a control plane whose log has a clock of its own, and whose data directory outlasts a restart.
type lineages struct {
	*planetest.Replica
	t     *testing.T
	store memlog.Store
	dir   string
	now   atomic.Int64
}

func newLineages(t *testing.T) *lineages {
	l := &lineages{t: t, dir: t.TempDir()}
	l.now.Store(time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC).Unix())
	l.start(l.dir)
	l.Bootstrap(t, planetest.Bundle)
	return l
}

func (l *lineages) start(dir string) {
	l.Replica = planetest.StartIn(l.t, l.store.Open(nil), planetest.Options{Dir: dir, Clock: func() time.Time { return time.Unix(l.now.Load(), 0).UTC() },
		Config: plane.Config{Checkpoints: checkpoints.Options{Every: 1000 * time.Hour}}})
}

// push activates a bundle an hour later, and returns its revision and the time as objects have it.
func (l *lineages) push(bundle string) (revision, at string) {
	l.t.Helper()
	now := l.now.Add(3600)
	l.Activate(l.t, bundle)
	return fmt.Sprint(l.Committer.Tip().PolicyRevision()), time.Unix(now, 0).UTC().Format(time.RFC3339)
}

// is returns creation time, revision and generation of an object.
func (l *lineages) is(path string) string {
	l.t.Helper()
	a := l.Must(l.t, 200, "GET", path, "")
	return fmt.Sprint(a.Field("metadata", "creationTimestamp"), " ", a.Field("metadata", "resourceVersion"), " ", a.Field("metadata", "generation"))
}

func (l *lineages) want(path, created, revision string, generation any) {
	l.t.Helper()
	if got, want := l.is(path), fmt.Sprint(created, " ", revision, " ", generation); got != want {
		l.t.Errorf("%s: %s, want %s", path, got, want)
	}
}

// lists returns all rendered objects below a prefix of paths.
func (l *lineages) lists(prefix string) map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, k := range rendered.Kinds() {
		path := fmt.Sprintf("%s/apis/%s/%s/%s", prefix, k.Version.Kind.Group, k.Name, k.Version.Kind.Plural)
		for _, o := range l.Must(l.t, 200, "GET", path, "").Field("items").([]any) {
			m := o.(map[string]any)["metadata"].(map[string]any)
			all[fmt.Sprint(k.Version.Kind.Plural, " ", m["namespace"], "/", m["name"])] = fmt.Sprint(o)
		}
	}
	return all
}

const (
	widgetsDefinition = planetest.DefinitionsPath + "/widgets.example.com"
	helperRole        = planetest.RolesPath + "/editors-helper"
)

func TestAnObjectIsAsOldAsItsRule(t *testing.T) {
	l := newLineages(t)
	first, firstAt := l.push(planetest.Bundle + gizmos) // bootstrap was before
	began := l.is(widgetsDefinition)
	if strings.Contains(began, firstAt) || strings.Contains(began, " "+first+" ") {
		t.Fatalf("what was there before the push is of the push: %s", began)
	}
	since, bootstrapped, _ := strings.Cut(strings.TrimSuffix(began, " 1"), " ")
	l.want(planetest.DefinitionsPath+"/gizmos.example.com", firstAt, first, 1)
	l.want(helperRole, since, bootstrapped, nil)

	other := strings.Replace(planetest.Bundle, `a?: int`, `a?: string`, 1) // of plains
	other = strings.Replace(other, `resourceNames: ["eddie"]`, `resourceNames: ["edna"]`, 1)
	second, _ := l.push(other + gizmos)
	l.want(planetest.DefinitionsPath+"/plains.example.com", since, second, 2)
	l.want(helperRole, since, second, nil)
	l.want(widgetsDefinition, since, bootstrapped, 1)
	l.want(planetest.DefinitionsPath+"/gizmos.example.com", firstAt, first, 1)

	l.push(strings.ReplaceAll(other, `"editors-helper"`, `"another"`))
	l.Must(t, 404, "GET", helperRole, "")
	l.Must(t, 404, "GET", planetest.DefinitionsPath+"/gizmos.example.com", "")
	back, backAt := l.push(planetest.Bundle + gizmos)
	l.want(helperRole, backAt, back, nil)
	l.want(planetest.DefinitionsPath+"/gizmos.example.com", backAt, back, 1)
	l.want(planetest.DefinitionsPath+"/plains.example.com", since, back, 3)
	l.want(widgetsDefinition, since, bootstrapped, 1)
}

// A rule whose line moves is no change: its object names the line at which it stood when its content changed last.
func TestARuleThatMovesIsNoChange(t *testing.T) {
	l := newLineages(t)
	source := func(path string) string {
		return fmt.Sprint(l.Must(t, 200, "GET", path, "").Field("metadata", "annotations", "stele.dev/source"))
	}
	before := l.lists("")
	moved := strings.Replace(planetest.Bundle, "bundle: policy.#Bundle", "\n\nbundle: policy.#Bundle", 1)
	for range 2 {
		l.push(moved)
		if diff := cmp.Diff(before, l.lists("")); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
		moved = strings.Replace(moved, "bundle: policy.#Bundle", "\n\nbundle: policy.#Bundle", 1)
	}
	l.push(planetest.Bundle) // back
	if diff := cmp.Diff(before, l.lists("")); diff != "" {
		t.Fatalf("(-before +after):\n%s", diff)
	}

	changed := strings.Replace(moved, `resourceNames: ["eddie"]`, `resourceNames: ["edna"]`, 1)
	revision, _ := l.push(changed)
	if got, want := source(helperRole), planetest.Line(changed, `clusterRoles: "editors-helper"`); got != want {
		t.Errorf("after a change it names %s, want %s", got, want)
	}
	if got, want := source(widgetsDefinition), planetest.Line(planetest.Bundle, `kinds: "widgets.example.com"`); got != want {
		t.Errorf("without a change it names %s, want %s", got, want)
	}
	if !strings.Contains(l.is(helperRole), " "+revision+" ") {
		t.Errorf("the changed role is of another revision: %s", l.is(helperRole))
	}
}

func TestABindingIsAsOldAsItIsInANamespace(t *testing.T) {
	l := newLineages(t)
	l.Namespace(t, "team-a")
	inDefault, inTeam := planetest.InDefault+"/t:editors", planetest.RbacPath+"/namespaces/team-a/rolebindings/t:editors"
	began := l.is(inDefault)
	wider := strings.Replace(planetest.Bundle, `namespaces: ["default"]`, `namespaces: ["default", "team-*"]`, 1)
	first, firstAt := l.push(wider)
	l.push(wider + gizmos)
	l.want(inTeam, firstAt, first, nil)
	if got := l.is(inDefault); got != began {
		t.Errorf("in the namespace where it was: %s, before %s", got, began)
	}
	l.push(planetest.Bundle)
	l.Must(t, 404, "GET", inTeam, "")
	again, againAt := l.push(wider)
	l.want(inTeam, againAt, again, nil)
	if got := l.is(inDefault); got != began {
		t.Errorf("in the namespace where it was all the time: %s, before %s", got, began)
	}
	younger := l.Namespace(t, "team-b")
	if got := l.Must(t, 200, "GET", planetest.RbacPath+"/namespaces/team-b/rolebindings/t:editors", "").Field("metadata", "resourceVersion"); got != fmt.Sprint(younger) {
		t.Errorf("in a new namespace: %v, want %d", got, younger)
	}
}

// The same objects are seen live and at the revision later, by a replica that reads the whole log, and after starts from checkpoints.
func TestLineagesAreTheSameEverywhere(t *testing.T) {
	l := newLineages(t)
	seen, newest := map[uint64]map[string]string{}, uint64(0)
	for _, bundle := range []string{planetest.Bundle, planetest.Bundle + gizmos, strings.Replace(planetest.Bundle, `a?: int`, `a?: string`, 1), "\n" + planetest.Bundle, planetest.Bundle + gizmos, broader} {
		if bundle != planetest.Bundle || len(seen) > 0 {
			l.push(bundle)
		}
		l.Namespace(t, fmt.Sprint("team-", len(seen)))
		newest = l.Committer.Tip().Revision()
		seen[newest] = l.lists("")
	}
	check := func(who string) {
		t.Helper()
		for revision, want := range seen {
			if diff := cmp.Diff(want, l.lists(fmt.Sprint("/at/", revision))); diff != "" {
				t.Errorf("%s, at %d (-live +at):\n%s", who, revision, diff)
			}
		}
		// A replica may still be reading the log. A list waits until it has read all of it.
		if diff := cmp.Diff(seen[newest], l.lists("")); diff != "" {
			t.Errorf("%s, now (-before +now):\n%s", who, diff)
		}
	}
	check("the server itself")
	folder, err := checkpoint.Open(filepath.Join(l.dir, "checkpoints"), nil, nil)
	if err == nil {
		tip := l.Committer.Tip()
		_, err = folder.Write(t.Context(), tip.Revision(), 0, tip.Save)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	l.start(l.dir)
	if l.Committer.Restored().Revision == 0 {
		t.Fatal("the start did not use the checkpoint")
	}
	check("after a start from a checkpoint")
	earlier, dir := *l.Committer.Tip(), t.TempDir()
	in, active := *earlier.Policies, *earlier.Policies.Active
	earlier.Policies, in.Active, active.Rendered = &in, &active, nil
	if folder, err = checkpoint.Open(filepath.Join(dir, "checkpoints"), nil, nil); err == nil {
		_, err = folder.Write(t.Context(), earlier.Revision(), 0, earlier.Save)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.start(dir)
	if l.Committer.Restored().Revision == 0 {
		t.Fatal("the start did not use the checkpoint of an earlier version")
	}
	check("after a start from a checkpoint of a version that did not keep lineages")
	l.start(t.TempDir())
	if l.Committer.Restored().Revision != 0 {
		t.Fatal("a new replica has a checkpoint")
	}
	check("a replica that has read the whole log")
}

func TestInformersHearOnlyWhatAPushChanges(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token"})
	if err != nil {
		t.Fatal(err)
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	heard := make(chan string, 1000)
	for _, k := range rendered.Kinds() {
		tell := func(what string, object any) {
			heard <- fmt.Sprint(what, " ", k.Version.Kind.Plural, " ", object.(metav1.Object).GetName())
		}
		informer := factory.ForResource(schema.GroupVersionResource{Group: k.Version.Kind.Group, Version: k.Name, Resource: k.Version.Kind.Plural}).Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				if !initial {
					tell("added", o)
				}
			},
			UpdateFunc: func(_, o any) { tell("updated", o) },
			DeleteFunc: func(o any) { tell("deleted", o) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.WaitForCacheSync(stop)

	hears := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			select {
			case x := <-heard:
				got = append(got, x)
			case <-time.After(10 * time.Second):
				t.Fatalf("heard only %q, want %q", got, want)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +heard):\n%s", diff)
		}
	}
	p.Activate(t, planetest.Bundle+gizmos)
	hears("added customresourcedefinitions gizmos.example.com")
	p.Activate(t, planetest.Bundle+gizmos+`
bundle: teams: t: rbac: clusterRoles: last: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get"]}
bundle: teams: t: rbac: bindings: last: {clusterRole: "last", subjects: [{user: "u"}], namespaces: ["*"]}
bundle: teams: t: rbac: bindings: "last-here": {clusterRole: "last", subjects: [{user: "u"}], namespaces: ["default"]}
`)
	hears("added clusterrolebindings t:last", "added clusterroles last", "added rolebindings t:last-here")
	p.Activate(t, "// A comment moves all lines.\n"+planetest.Bundle)
	hears("deleted clusterrolebindings t:last", "deleted clusterroles last", "deleted customresourcedefinitions gizmos.example.com", "deleted rolebindings t:last-here")
}
