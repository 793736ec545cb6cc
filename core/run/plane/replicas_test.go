package plane_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/core/run/controllers"
	"stele.dev/stele/core/run/plane"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// shop is a bundle without kinds.
const shop = `
package shop

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "shop"
	teams: data: {contact: "#data", groups: [], namespaces: ["default"]}
}
`

var replicasGVR = schema.GroupVersionResource{Group: replicas.Group, Version: replicas.Version, Resource: replicas.Plural}

// several are planes on one log in memory, in a bubble of synctest.
type several struct {
	t     *testing.T
	store *memlog.Store
	// keys is the file with the key that all of them sign with.
	keys string
}

// start starts a plane on the log. The first one puts a policy in force.
func (s *several) start(c plane.Config) *planetest.Plane {
	s.t.Helper()
	p, err := s.open(planetest.Options{Config: c})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// open is start, for more options and errors.
func (s *several) open(o planetest.Options) (*planetest.Plane, error) {
	s.t.Helper()
	if o.Replicas.Every == 0 {
		o.Replicas.Every = replicas.DefaultEvery
	}
	first := s.store == nil
	if first {
		s.store = new(memlog.Store)
	}
	if s.keys == "" {
		s.keys = filepath.Join(s.t.TempDir(), "sa.key")
		if _, err := planetest.WriteKeys(s.keys); err != nil {
			return nil, err
		}
	}
	if o.KeyFile == "" {
		o.KeyFile = s.keys
	}
	if o.Backend == nil {
		o.Backend = s.store.Open(nil)
	}
	p, err := planetest.Open(s.t.Context(), o)
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(p.Stop)
	if first {
		p.Bootstrap(s.t, shop)
	}
	return p, nil
}

func client(t *testing.T, p *planetest.Plane) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(p.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// list returns what `kubectl get replicas` shows of a plane: the IDs, each with what it is.
func list(t *testing.T, p *planetest.Plane) (lines []string) {
	t.Helper()
	c, err := dynamic.NewForConfig(p.Client("admin", "system:masters"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.Resource(replicasGVR).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range found.Items {
		live, _, _ := unstructured.NestedBool(x.Object, "status", "live")
		leader, _, _ := unstructured.NestedBool(x.Object, "status", "leader")
		lines = append(lines, fmt.Sprintf("%s live=%v leader=%v", x.GetName(), live, leader))
	}
	slices.Sort(lines)
	return lines
}

func line(p *planetest.Plane, live, leader bool) string {
	return fmt.Sprintf("%s live=%v leader=%v", p.Replicas.ID(), live, leader)
}

func expect(t *testing.T, p *planetest.Plane, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := list(t, p); !slices.Equal(got, want) {
		t.Fatalf("replicas are\n%q, want\n%q", got, want)
	}
}

// leaseNames returns the names of the leases in kube-system.
func leaseNames(t *testing.T, p *planetest.Plane) (names []string) {
	t.Helper()
	found, err := client(t, p).CoordinationV1().Leases(replicas.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range found.Items {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	return names
}

// defaultAccount reports whether a new namespace gets its service account within a time, which only the controllers make.
func defaultAccount(t *testing.T, p *planetest.Plane, namespace string) bool {
	t.Helper()
	c := client(t, p)
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second)
	_, err := c.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
	return err == nil
}

func TestReplicasKnowEachOtherAndOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		config := plane.Config{Controllers: controllers.All}
		a := s.start(config)
		time.Sleep(15 * time.Second)
		b := s.start(config)
		time.Sleep(15 * time.Second)
		for _, p := range []*planetest.Plane{a, b} {
			expect(t, p, line(a, true, true), line(b, true, false))
		}
		if !a.Replicas.Leading() || b.Replicas.Leading() || !b.Replicas.Follows() || a.Replicas.Follows() {
			t.Fatal("both or none lead")
		}
		if !defaultAccount(t, b, "one") {
			t.Fatal("the leader's controllers do not run")
		}
		// A replica that stops deletes its lease, and another one leads soon, although no lease has expired.
		a.Stop()
		time.Sleep(12 * time.Second)
		expect(t, b, line(b, true, true))
		if got, want := leaseNames(t, b), []string{b.Replicas.ID(), replicas.LeaderLease}; !slices.Equal(got, want) {
			t.Fatalf("leases %q, want %q", got, want)
		}
		if !defaultAccount(t, b, "two") {
			t.Fatal("the new leader's controllers do not run")
		}
	})
}

func TestALeaderThatIsCutOffStopsBeforeAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		var cut cutOff
		config := plane.Config{Controllers: controllers.All}
		store := new(memlog.Store)
		a, err := s.open(planetest.Options{Config: config, Backend: store.Open(cut.schedule)})
		if err != nil {
			t.Fatal(err)
		}
		s.store = store
		time.Sleep(15 * time.Second)
		b := s.start(config)
		time.Sleep(15 * time.Second)
		cut.Store(true)
		for began := time.Now(); a.Replicas.Leading(); time.Sleep(100 * time.Millisecond) {
			if b.Replicas.Leading() {
				t.Fatal("two lead")
			}
			if time.Since(began) > time.Minute {
				t.Fatal("a replica that is cut off leads on")
			}
		}
		time.Sleep(time.Minute)
		expect(t, b, line(a, false, false), line(b, true, true))
		if !defaultAccount(t, b, "one") {
			t.Fatal("the new leader's controllers do not run")
		}
		// It comes back, and follows.
		cut.Store(false)
		time.Sleep(time.Minute)
		for _, p := range []*planetest.Plane{a, b} {
			expect(t, p, line(a, true, false), line(b, true, true))
		}
		// It is killed: its lease is shown for a while, then the leader deletes it.
		cut.Store(true)
		time.Sleep(time.Minute)
		expect(t, b, line(a, false, false), line(b, true, true))
		time.Sleep(10 * time.Minute)
		expect(t, b, line(b, true, true))
		cut.Store(false)
	})
}

func TestAnExclusiveLogHasOneReplicaAndNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		p := s.start(plane.Config{Controllers: controllers.All, Replicas: plane.Replicas{Alone: true}})
		time.Sleep(time.Minute)
		expect(t, p, line(p, true, true))
		if names := leaseNames(t, p); len(names) > 0 {
			t.Fatalf("leases %q", names)
		}
		if !defaultAccount(t, p, "one") {
			t.Fatal("the controllers do not run")
		}
	})
}

// What replicas read about each other is what replicas have written: nobody else writes it, whatever the policy allows.
func TestOnlyReplicasWriteWhatReplicasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t}
		p := s.start(plane.Config{})
		time.Sleep(15 * time.Second)
		const leases, maps = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", "/api/v1/namespaces/kube-system/configmaps"
		lease := func(name, label string) string {
			return `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"` + name + `","labels":{"` + replicas.IdentityLabel + `":"` + label + `"},
				"annotations":{"replicas.stele.dev/address":"foreign.example:443","replicas.stele.dev/applied":"1"}}}`
		}
		label := `{"metadata":{"labels":{"` + replicas.IdentityLabel + `":"stele"}}}`
		merge := []string{"Content-Type", "application/merge-patch+json"}
		own := "/" + p.Replicas.ID()
		admin, named := []string(nil), []string{"Impersonate-User", replicas.User, "Impersonate-Group", "system:masters"}
		for _, tc := range []struct {
			what, method, path, body string
			header                   []string
			code                     int
		}{
			{"a Lease of a replica that does not exist", "POST", leases, lease("new", "stele"), admin, 403},
			{"the same as a dry run", "POST", leases + "?dryRun=All", lease("new", "stele"), admin, 403},
			{"the same by apply", "PATCH", leases + "/new?fieldManager=x", lease("new", "stele"), []string{"Content-Type", "application/apply-patch+yaml"}, 403},
			{"the same under the name of replicas", "POST", leases, lease("new", "stele"), named, 403},
			{"the Lease of a replica", "PATCH", leases + own, `{"metadata":{"annotations":{"replicas.stele.dev/address":"foreign.example:443"}}}`, merge, 403},
			{"its label", "PATCH", leases + own, `{"metadata":{"labels":null}}`, merge, 403},
			{"the Lease of the leader", "PATCH", leases + "/" + replicas.LeaderLease, `{"spec":{"holderIdentity":"x"}}`, merge, 403},
			{"the keys of the log", "PATCH", maps + "/" + replicas.KeysMap, `{"data":{"authority":"x"}}`, merge, 403},
			{"a Lease of another program", "POST", leases, lease("another", "kube-apiserver"), admin, 201},
			{"the label on a Lease of another program", "PATCH", leases + "/another", label, merge, 403},
			{"a Lease with the label in another namespace", "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease("new", "stele"), admin, 201},
			{"a delete", "DELETE", leases + own, "", admin, 200},
		} {
			w := httptest.NewRecorder()
			p.Pipeline.ServeHTTP(w, planetest.Request(tc.method, tc.path, tc.body, tc.header...))
			if w.Code != tc.code || tc.code == 403 && !strings.Contains(w.Body.String(), "only the replicas of this log write") {
				t.Errorf("%s: %d, want %d\n%s", tc.what, w.Code, tc.code, w.Body)
			}
		}
		time.Sleep(15 * time.Second)
		expect(t, p, line(p, true, true)) // it has written its Lease again
	})
}

// cutOff is the switch of a connection to the log.
type cutOff struct{ atomic.Bool }

func (c *cutOff) schedule(memlog.Op) memlog.Fault {
	if c.Load() {
		return memlog.Fault{Refuse: eventlog.ErrUnavailable}
	}
	return memlog.Fault{}
}

// Both find a log without a policy, and compile theirs. The first one is in force before the second has compiled.
func TestOfReplicasThatStartAtOnceOnePutsItsPolicyInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &several{t: t, store: new(memlog.Store)}
		first := s.start(plane.Config{})
		var want uint64
		second := s.start(plane.Config{Policy: &bundles.Source{}, Compile: func(context.Context, *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			first.Bootstrap(t, shop)
			want = first.Committer.Tip().PolicyRevision()
			return planetest.Compile(t, planetest.Bundle), nil, nil
		}})
		if got := second.Committer.Tip().PolicyRevision(); got != want {
			t.Errorf("the policy of revision %d is in force, want that of %d, which was there first", got, want)
		}
	})
}
