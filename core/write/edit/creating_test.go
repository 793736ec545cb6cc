package edit_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/run/plane/planetest"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

// Kinds for which Kubernetes allows it are created by an update of what is not there.
func TestCreateOnUpdate(t *testing.T) {
	p := planetest.NewPlane(t)
	const core = "/api/v1/namespaces/default"
	a := p.Must(t, 201, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"},"spec":{"holderIdentity":"me"}}`)
	if a.Field("metadata", "uid") == nil || a.Field("metadata", "creationTimestamp") == nil || a.Field("spec", "holderIdentity") != "me" {
		t.Errorf("created: %s", a)
	}
	if b := p.Must(t, 200, "PUT", leasesPath+"/a", strings.Replace(string(a.Body), `"me"`, `"you"`, 1)); b.Field("metadata", "uid") != a.Field("metadata", "uid") {
		t.Errorf("updated: %s", b)
	}
	p.Must(t, 422, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"}}`) // a lease is never updated unconditionally
	p.Must(t, 201, "PUT", core+"/events/a", `{"metadata":{"name":"a","namespace":"default"},"involvedObject":{"namespace":"default"}}`)

	if b := p.Must(t, 409, "PUT", leasesPath+"/b", `{"metadata":{"name":"b","uid":"u"}}`); !strings.Contains(fmt.Sprint(b.Field("message")), "Precondition failed: UID in precondition: u, UID in object meta: ") {
		t.Errorf("with a uid: %s", b)
	}
	p.Must(t, 422, "PUT", leasesPath+"/b", `{"metadata":{"name":"b"},"spec":{"leaseDurationSeconds":0}}`)
	p.Must(t, 404, "PUT", "/apis/coordination.k8s.io/v1/namespaces/none/leases/b", `{"metadata":{"name":"b"}}`)
	if b := p.Must(t, 201, "PUT", leasesPath+"/b?dryRun=All", `{"metadata":{"name":"b"}}`); b.Field("metadata", "uid") == nil {
		t.Errorf("dry run: %s", b)
	}
	p.Must(t, 404, "GET", leasesPath+"/b", "")
	p.Must(t, 404, "PATCH", leasesPath+"/b", `{}`, "Content-Type", planetest.MergePatch)

	for _, path := range []string{core + "/configmaps/b", core + "/secrets/b", core + "/serviceaccounts/b", "/api/v1/namespaces/b"} {
		p.Must(t, 404, "PUT", path, `{"metadata":{"name":"b"}}`)
	}
	p.Must(t, 404, "PUT", planetest.WidgetsPath+"/b", planetest.Widget("b", 1))
}

// Who creates by an update has to be allowed to create.
func TestCreateOnUpdateIsAuthorized(t *testing.T) {
	p := planetest.NewPlane(t)
	text := strings.Replace(planetest.Bundle, "bindings: readers:", `clusterRoles: holders: rules: r: {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["update"]}
			bindings: holders: {clusterRole: "holders", subjects: [{user: "reader"}], namespaces: ["default"]}
			clusterRoles: founders: rules: r: {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["create"]}
			bindings: founders: {clusterRole: "founders", subjects: [{user: "reader"}], namespaces: ["default"], when: "object.metadata.name == 'mine'"}
			bindings: readers:`, 1)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, text, nil))
	reader := []string{"Authorization", "Bearer reader-token"}
	a := p.Must(t, 403, "PUT", leasesPath+"/a", `{"metadata":{"name":"a"}}`, reader...)
	if !strings.Contains(fmt.Sprint(a.Field("message")), `cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default"`) {
		t.Errorf("refused with %s", a)
	}
	p.Must(t, 201, "PUT", leasesPath+"/mine", `{"metadata":{"name":"mine"}}`, reader...)
	decision := func() string {
		d := p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, p.Committer.Tip().Revision()), "").Field("decision").(map[string]any)
		return fmt.Sprint(d["rule"], " ", d["createRule"], " ", d["createSource"])
	}
	if got, want := decision(), "t/bindings/holders t/bindings/founders "+planetest.Line(text, "bindings: founders:"); got != want {
		t.Errorf("the log says %s, want %s", got, want)
	}
	lease := p.Must(t, 201, "POST", leasesPath, `{"metadata":{"name":"a"}}`)
	p.Must(t, 200, "PUT", leasesPath+"/a", strings.Replace(string(lease.Body), `"spec":{}`, `"spec":{"holderIdentity":"me"}`, 1), reader...)
	if got, want := decision(), "t/bindings/holders <nil> <nil>"; got != want {
		t.Errorf("of an update the log says %s, want %s", got, want)
	}
}

// Many who create the same by an update: one does, and the rest update what is there.
func TestCreateOnUpdateAtOnce(t *testing.T) {
	p := planetest.NewPlane(t)
	codes := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			a := p.Do("PUT", "/api/v1/namespaces/default/events/a", fmt.Sprintf(`{"metadata":{"name":"a","namespace":"default"},"involvedObject":{"namespace":"default"},"count":%d}`, i+1))
			mu.Lock()
			defer mu.Unlock()
			codes[a.Code]++
		})
	}
	all.Wait()
	if codes[201] != 1 || codes[200] != 19 {
		t.Errorf("answers %v", codes)
	}
}

// A generated name that is taken is drawn again, whoever took it and when.
func TestGeneratedNamesThatAreTaken(t *testing.T) {
	p := planetest.NewPlane(t)
	utilrand.Seed(7)
	first, second := metadata.GenerateName("g-"), metadata.GenerateName("g-")
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(first, 1))
	utilrand.Seed(7)
	if a := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`); a.Field("metadata", "name") != second {
		t.Errorf("named %v, want %s", a.Field("metadata", "name"), second)
	}
	// All that are drawn are taken.
	utilrand.Seed(8)
	for range 9 {
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget(metadata.GenerateName("h-"), 1))
	}
	utilrand.Seed(8)
	a := p.Must(t, 409, "POST", planetest.WidgetsPath, `{"metadata":{"generateName":"h-"},"spec":{"size":1}}`)
	if a.Field("reason") != "AlreadyExists" || !strings.Contains(fmt.Sprint(a.Field("message")), "already exists, the server was not able to generate a unique name for the object") || a.Field("details", "retryAfterSeconds") != 1.0 {
		t.Errorf("refused with %s", a)
	}
	// A base that is too long is cut.
	if a := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"generateName":"`+strings.Repeat("x", 70)+`"},"spec":{"size":1}}`); len(a.Field("metadata", "name").(string)) != 63 {
		t.Errorf("named %v", a.Field("metadata", "name"))
	}
	if a := p.Must(t, 422, "POST", planetest.WidgetsPath, planetest.Widget(strings.Repeat("x", 254), 1)); !strings.Contains(fmt.Sprint(a.Field("message")), "must be no more than 253 characters") {
		t.Errorf("refused with %s", a)
	}
}

// Who takes the name while a create is on its way to the log leaves another one for it.
func TestGeneratedNamesAtOnce(t *testing.T) {
	p := planetest.NewPlane(t)
	const each = 50
	var all sync.WaitGroup
	for range each {
		all.Go(func() {
			utilrand.Seed(9) // so that names meet
			if a := p.Do("POST", planetest.WidgetsPath, `{"metadata":{"generateName":"g-"},"spec":{"size":1}}`); a.Code != 201 && !strings.Contains(fmt.Sprint(a.Field("message")), "unique name") {
				t.Errorf("answered with %s", a)
			}
		})
	}
	all.Wait()
}

// Patches that do not say of which version they are never fail for one another.
func TestPatchesAtOnce(t *testing.T) {
	p := planetest.NewPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	const writers, each = 12, 15
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				patch := fmt.Sprintf(`{"spec":{"limits":{"w%d-%d":1}}}`, w, i)
				if w%2 == 0 {
					patch = fmt.Sprintf(`[{"op":"add","path":"/spec/limits/w%d-%d","value":1}]`, w, i)
				}
				a := p.Patch("a", []string{"json", "merge"}[w%2], patch)
				if a.Code == 422 && i == 0 && w%2 == 0 { // there are no limits yet to add to
					a = p.Patch("a", "merge", fmt.Sprintf(`{"spec":{"limits":{"w%d-%d":1}}}`, w, i))
				}
				if a.Code != 200 {
					t.Errorf("patch: %s", a)
				}
			}
		})
	}
	all.Wait()
	a := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "")
	if n := len(a.Field("spec", "limits").(map[string]any)); n != writers*each || a.Field("metadata", "generation") != float64(1+writers*each) {
		t.Errorf("%d patches are in it, of %d; generation %v", n, writers*each, a.Field("metadata", "generation"))
	}
	// One that does is refused at once.
	old := created.Field("metadata", "resourceVersion").(string)
	p.Must(t, 409, "PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"resourceVersion":"`+old+`"}}`, "Content-Type", planetest.MergePatch)
}

// Whoever is quick doesn't keep those from writing who take longer to decide.
func TestASlowPatchIsNotOvertakenForEver(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	slow := "[" + strings.Repeat(`{"op":"test","path":"/spec/color","value":"red"},`, 9000) + `{"op":"add","path":"/metadata/labels","value":{"slow":"true"}}]`
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"color":"red"}}`, "Content-Type", planetest.MergePatch)
	var over atomic.Bool
	var quick sync.WaitGroup
	for range 2 {
		quick.Go(func() {
			for i := 0; !over.Load(); i++ {
				if a := p.Patch("a", "merge", fmt.Sprintf(`{"spec":{"size":%d}}`, 1+i%3)); a.Code != 200 {
					t.Errorf("quick: %s", a)
					return
				}
			}
		})
	}
	a := p.Patch("a", "json", slow)
	over.Store(true)
	quick.Wait()
	if a.Code != 200 {
		t.Errorf("slow: %s", a)
	}
}

// An owner that is named twice is one, and who names it is warned.
func TestDuplicateOwners(t *testing.T) {
	p := planetest.NewPlane(t)
	const owner, other = `{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"1"}`, `{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"1"}`
	for _, tc := range []struct{ method, path, owners, when string }{
		{"POST", "", owner + "," + other + "," + owner, ""},
		{"PATCH", "/a", owner + "," + owner + "," + owner + "," + other, " after mutating admission happens"},
	} {
		a := p.Do(tc.method, planetest.WidgetsPath+tc.path, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","ownerReferences":[`+tc.owners+`]},"spec":{"size":1}}`, "Content-Type", map[string]string{"POST": "application/json", "PATCH": planetest.MergePatch}[tc.method])
		if owners, _ := a.Field("metadata", "ownerReferences").([]any); len(owners) != 2 {
			t.Errorf("%s: %s", tc.method, a)
		}
		if w := a.Header.Get("Warning"); !strings.Contains(w, ".metadata.ownerReferences contains duplicate entries"+tc.when+"; API server dedups") {
			t.Errorf("%s: warning %q", tc.method, w)
		}
	}
}

// A resourceVersion that is no number counts as none in what is new.
func TestAResourceVersionThatIsNone(t *testing.T) {
	p := planetest.NewPlane(t)
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, strings.Replace(planetest.Widget("a", 1), `"name":"a"`, `"name":"a","resourceVersion":"abc"`, 1))
	if v := a.Field("metadata", "resourceVersion"); v == "abc" || v == nil {
		t.Errorf("it has the resourceVersion %v", v)
	}
}
