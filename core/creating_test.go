package core_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"stele.dev/stele/core/object/metadata"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// Kinds for which Kubernetes allows it are created by an update of what is not there.
func TestCreateOnUpdate(t *testing.T) {
	p := newPlane(t)
	const core = "/api/v1/namespaces/default"
	a := p.must(t, 201, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"},"spec":{"holderIdentity":"me"}}`)
	if a.field("metadata", "uid") == nil || a.field("metadata", "creationTimestamp") == nil || a.field("spec", "holderIdentity") != "me" {
		t.Errorf("created: %s", a)
	}
	if b := p.must(t, 200, "PUT", leasesPath+"/a", strings.Replace(string(a.body), `"me"`, `"you"`, 1)); b.field("metadata", "uid") != a.field("metadata", "uid") {
		t.Errorf("updated: %s", b)
	}
	p.must(t, 422, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"}}`) // a lease is never updated unconditionally
	p.must(t, 201, "PUT", core+"/events/a", `{"metadata":{"name":"a","namespace":"default"},"involvedObject":{"namespace":"default"}}`)

	if b := p.must(t, 409, "PUT", leasesPath+"/b", `{"metadata":{"name":"b","uid":"u"}}`); !strings.Contains(fmt.Sprint(b.field("message")), "Precondition failed: UID in precondition: u, UID in object meta: ") {
		t.Errorf("with a uid: %s", b)
	}
	p.must(t, 422, "PUT", leasesPath+"/b", `{"metadata":{"name":"b"},"spec":{"leaseDurationSeconds":0}}`)
	p.must(t, 404, "PUT", "/apis/coordination.k8s.io/v1/namespaces/none/leases/b", `{"metadata":{"name":"b"}}`)
	if b := p.must(t, 201, "PUT", leasesPath+"/b?dryRun=All", `{"metadata":{"name":"b"}}`); b.field("metadata", "uid") == nil {
		t.Errorf("dry run: %s", b)
	}
	p.must(t, 404, "GET", leasesPath+"/b", "")
	p.must(t, 404, "PATCH", leasesPath+"/b", `{}`, "Content-Type", mergePatch)

	for _, path := range []string{core + "/configmaps/b", core + "/secrets/b", core + "/serviceaccounts/b", "/api/v1/namespaces/b"} {
		p.must(t, 404, "PUT", path, `{"metadata":{"name":"b"}}`)
	}
	p.must(t, 404, "PUT", widgetsPath+"/b", widget("b", 1))
}

// Who creates by an update has to be allowed to create.
func TestCreateOnUpdateIsAuthorized(t *testing.T) {
	p := newPlane(t)
	text := strings.Replace(bundle, "bindings: readers:", `clusterRoles: holders: rules: r: {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["update"]}
			bindings: holders: {clusterRole: "holders", subjects: [{user: "reader"}], namespaces: ["default"]}
			clusterRoles: founders: rules: r: {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["create"]}
			bindings: founders: {clusterRole: "founders", subjects: [{user: "reader"}], namespaces: ["default"], when: "object.metadata.name == 'mine'"}
			bindings: readers:`, 1)
	p.must(t, 201, "POST", policiesPath, policyBody(t, text, nil))
	reader := []string{"Authorization", "Bearer reader-token"}
	a := p.must(t, 403, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"}}`, reader...)
	if !strings.Contains(fmt.Sprint(a.field("message")), `cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default"`) {
		t.Errorf("refused with %s", a)
	}
	p.must(t, 201, "PUT", leasesPath+"/mine", `{"metadata":{"name":"mine"}}`, reader...)
	decision := func() string {
		d := p.must(t, 200, "GET", fmt.Sprintf("%s/%d", changesPath, p.committer.Tip().Revision()), "").field("decision").(map[string]any)
		return fmt.Sprint(d["rule"], " ", d["createRule"], " ", d["createSource"])
	}
	if got, want := decision(), "t/bindings/holders t/bindings/founders "+line(text, "bindings: founders:"); got != want {
		t.Errorf("the log says %s, want %s", got, want)
	}
	lease := p.must(t, 201, "POST", leasesPath, `{"metadata":{"name":"a"}}`)
	p.must(t, 200, "PUT", leasesPath+"/a", strings.Replace(string(lease.body), `"spec":{}`, `"spec":{"holderIdentity":"me"}`, 1), reader...)
	if got, want := decision(), "t/bindings/holders <nil> <nil>"; got != want {
		t.Errorf("of an update the log says %s, want %s", got, want)
	}
}

// Many who create the same by an update: one does, and the rest update what is there.
func TestCreateOnUpdateAtOnce(t *testing.T) {
	p := newPlane(t)
	codes := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a := p.do("PUT", "/api/v1/namespaces/default/events/a", fmt.Sprintf(`{"metadata":{"name":"a","namespace":"default"},"involvedObject":{"namespace":"default"},"count":%d}`, i+1))
			mu.Lock()
			defer mu.Unlock()
			codes[a.code]++
		})
	}
	all.Wait()
	if codes[201] != 1 || codes[200] != 19 {
		t.Errorf("answers %v", codes)
	}
}

// A generated name that is taken is drawn again, whoever took it and when.
func TestGeneratedNamesThatAreTaken(t *testing.T) {
	p := newPlane(t)
	utilrand.Seed(7)
	first, second := metadata.GenerateName("g-"), metadata.GenerateName("g-")
	p.must(t, 201, "POST", widgetsPath, widget(first, 1))
	utilrand.Seed(7)
	if a := p.must(t, 201, "POST", widgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`); a.field("metadata", "name") != second {
		t.Errorf("named %v, want %s", a.field("metadata", "name"), second)
	}
	// All that are drawn are taken.
	utilrand.Seed(8)
	for range 9 {
		p.must(t, 201, "POST", widgetsPath, widget(metadata.GenerateName("h-"), 1))
	}
	utilrand.Seed(8)
	a := p.must(t, 409, "POST", widgetsPath, `{"metadata":{"generateName":"h-"},"spec":{"size":1}}`)
	if a.field("reason") != "AlreadyExists" || !strings.Contains(fmt.Sprint(a.field("message")), "already exists, the server was not able to generate a unique name for the object") || a.field("details", "retryAfterSeconds") != 1.0 {
		t.Errorf("refused with %s", a)
	}
	// A base that is too long is cut.
	if a := p.must(t, 201, "POST", widgetsPath, `{"metadata":{"generateName":"`+strings.Repeat("x", 70)+`"},"spec":{"size":1}}`); len(a.field("metadata", "name").(string)) != 63 {
		t.Errorf("named %v", a.field("metadata", "name"))
	}
	if a := p.must(t, 422, "POST", widgetsPath, widget(strings.Repeat("x", 254), 1)); !strings.Contains(fmt.Sprint(a.field("message")), "must be no more than 253 characters") {
		t.Errorf("refused with %s", a)
	}
}

// Who takes the name while a create is on its way to the log leaves another one for it.
func TestGeneratedNamesAtOnce(t *testing.T) {
	p := newPlane(t)
	const each = 50
	var all sync.WaitGroup
	for range each {
		all.Go(func() {
			utilrand.Seed(9) // so that names meet
			if a := p.do("POST", widgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`); a.code != 201 && !strings.Contains(fmt.Sprint(a.field("message")), "unique name") {
				t.Errorf("answered with %s", a)
			}
		})
	}
	all.Wait()
}

// Patches that do not say of which version they are never fail for one another.
func TestPatchesAtOnce(t *testing.T) {
	p := newPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	const writers, each = 12, 15
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				patch := fmt.Sprintf(`{"spec":{"limits":{"w%d-%d":1}}}`, w, i)
				if w%2 == 0 {
					patch = fmt.Sprintf(`[{"op":"add","path":"/spec/limits/w%d-%d","value":1}]`, w, i)
				}
				a := p.patch("a", []string{"json", "merge"}[w%2], patch)
				if a.code == 422 && i == 0 && w%2 == 0 { // there are no limits yet to add to
					a = p.patch("a", "merge", fmt.Sprintf(`{"spec":{"limits":{"w%d-%d":1}}}`, w, i))
				}
				if a.code != 200 {
					t.Errorf("patch: %s", a)
				}
			}
		})
	}
	all.Wait()
	a := p.must(t, 200, "GET", widgetsPath+"/a", "")
	if n := len(a.field("spec", "limits").(map[string]any)); n != writers*each || a.field("metadata", "generation") != float64(1+writers*each) {
		t.Errorf("%d patches are in it, of %d; generation %v", n, writers*each, a.field("metadata", "generation"))
	}
	// One that does is refused at once.
	old := created.field("metadata", "resourceVersion").(string)
	p.must(t, 409, "PATCH", widgetsPath+"/a", `{"metadata":{"resourceVersion":"`+old+`"}}`, "Content-Type", mergePatch)
}

// Whoever is quick doesn't keep those from writing who take longer to decide.
func TestASlowPatchIsNotOvertakenForEver(t *testing.T) {
	p := newPlane(t)
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	slow := "[" + strings.Repeat(`{"op":"test","path":"/spec/color","value":"red"},`, 9000) + `{"op":"add","path":"/metadata/labels","value":{"slow":"true"}}]`
	p.must(t, 200, "PATCH", widgetsPath+"/a", `{"spec":{"color":"red"}}`, "Content-Type", mergePatch)
	var over atomic.Bool
	var quick sync.WaitGroup
	for range 2 {
		quick.Go(func() {
			for i := 0; !over.Load(); i++ {
				if a := p.patch("a", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+i%3)); a.code != 200 {
					t.Errorf("quick: %s", a)
					return
				}
			}
		})
	}
	a := p.patch("a", "json", slow)
	over.Store(true)
	quick.Wait()
	if a.code != 200 {
		t.Errorf("slow: %s", a)
	}
}

// An owner that is named twice is one, and who names it is warned.
func TestDuplicateOwners(t *testing.T) {
	p := newPlane(t)
	const owner, other = `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1"}`, `{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"1"}`
	for _, tc := range []struct{ method, path, owners, when string }{
		{"POST", "", owner + "," + other + "," + owner, ""},
		{"PATCH", "/a", owner + "," + owner + "," + owner + "," + other, " after mutating admission happens"},
	} {
		a := p.do(tc.method, widgetsPath+tc.path, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","ownerReferences":[`+tc.owners+`]},"spec":{"size":1}}`, "Content-Type", map[string]string{"POST": "application/json", "PATCH": mergePatch}[tc.method])
		if owners, _ := a.field("metadata", "ownerReferences").([]any); len(owners) != 2 {
			t.Errorf("%s: %s", tc.method, a)
		}
		if w := a.header.Get("Warning"); !strings.Contains(w, ".metadata.ownerReferences contains duplicate entries"+tc.when+"; API server dedups") {
			t.Errorf("%s: warning %q", tc.method, w)
		}
	}
}

// A resourceVersion that is no number counts as none in what is new.
func TestAResourceVersionThatIsNone(t *testing.T) {
	p := newPlane(t)
	a := p.must(t, 201, "POST", widgetsPath, strings.Replace(widget("a", 1), `"name":"a"`, `"name":"a","resourceVersion":"abc"`, 1))
	if v := a.field("metadata", "resourceVersion"); v == "abc" || v == nil {
		t.Errorf("it has the resourceVersion %v", v)
	}
}
