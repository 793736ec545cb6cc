package edit_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// Whoever deletes decides what becomes of the dependents, each time anew: the finalizers are
// those of k8s.io/apiserver's generic registry. "" is an object that is gone.
func TestPropagation(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  string // finalizers
		options []string
		after   string // of the object, behind each delete
		code    int    // of the last
	}{
		{"nothing said", ``, []string{`{}`}, "", 200},
		{"in the background", ``, []string{`{"propagationPolicy":"Background"}`}, "", 200},
		{"in the foreground", ``, []string{`{"propagationPolicy":"Foreground"}`}, "[foregroundDeletion]", 200},
		{"orphaned", ``, []string{`{"propagationPolicy":"Orphan"}`}, "[orphan]", 200},
		{"orphaned, as it was said", ``, []string{`{"orphanDependents":true}`}, "[orphan]", 200},
		{"not orphaned, as it was said", ``, []string{`{"orphanDependents":false}`}, "", 200},
		{"behind others", `"example.com/x"`, []string{`{"propagationPolicy":"Foreground"}`}, "[example.com/x foregroundDeletion]", 200},
		{"not orphaned, with another finalizer", `"example.com/x"`, []string{`{"orphanDependents":false}`}, "[example.com/x]", 202},
		{"nothing said, and it was before", `"foregroundDeletion"`, []string{`{}`}, "[foregroundDeletion]", 200},
		{"another one than before", `"foregroundDeletion"`, []string{`{"propagationPolicy":"Orphan"}`}, "[orphan]", 200},
		{"none, and it was before", `"orphan"`, []string{`{"propagationPolicy":"Background"}`}, "", 200},
		{"a second thought", ``, []string{`{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Orphan"}`}, "[orphan]", 200},
		{"a second thought, and it is gone", ``, []string{`{"propagationPolicy":"Foreground"}`, `{"propagationPolicy":"Background"}`}, "", 200},
		{"a second delete that says nothing", `"example.com/x"`, []string{`{"propagationPolicy":"Orphan"}`, `{}`}, "[example.com/x orphan]", 200},
		{"the order stays", `"orphan","example.com/x"`, []string{`{"propagationPolicy":"Orphan"}`}, "[orphan example.com/x]", 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := planetest.NewPlane(t)
			p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","finalizers":[`+tc.before+`]},"spec":{"size":1}}`)
			var a planetest.Answer
			for _, options := range tc.options {
				a = p.Do("DELETE", planetest.WidgetsPath+"/a", options)
			}
			if a.Code != tc.code {
				t.Errorf("answered with %s, want %d", a, tc.code)
			}
			o := p.Do("GET", planetest.WidgetsPath+"/a", "")
			if tc.after == "" {
				if a.Field("kind") != "Status" || a.Field("details", "uid") == nil || o.Code != 404 {
					t.Errorf("answered with %s; then it is %s", a, o)
				}
				return
			}
			if string(o.Body) != string(a.Body) || o.Finalizers() != tc.after || o.Field("metadata", "deletionTimestamp") == nil || o.Field("metadata", "deletionGracePeriodSeconds") != 0.0 || o.Field("metadata", "generation") != 2.0 {
				t.Errorf("answered with %s; then it is %s; want the finalizers %s", a, o, tc.after)
			}
		})
	}
}

// Options can be in the query as well; dry runs leave everything as it is.
func TestPropagationInTheQuery(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	before := p.Committer.Tip().Revision()
	if a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a?propagationPolicy=Foreground&dryRun=All", ""); a.Finalizers() != "[foregroundDeletion]" || a.Field("metadata", "deletionTimestamp") == nil {
		t.Errorf("dry run: %s", a)
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
	if a := p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a?propagationPolicy=Orphan&gracePeriodSeconds=-7", ""); a.Finalizers() != "[orphan]" {
		t.Errorf("orphaned: %s", a)
	}
	// The last finalizer that an update takes ends it.
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"finalizers":[]}}`, "Content-Type", planetest.MergePatch); a.Field("kind") != "Widget" || a.Finalizers() != "[]" {
		t.Errorf("the last finalizer: %s", a)
	}
	p.Must(t, 404, "GET", planetest.WidgetsPath+"/a", "")
}

// Events have no dependents, so nothing is waited for; metadata of built-in kinds has no
// generation to count.
func TestPropagationOfBuiltinKinds(t *testing.T) {
	p := planetest.NewPlane(t)
	const core = "/api/v1/namespaces/default"
	p.Must(t, 201, "POST", core+"/events", `{"metadata":{"name":"a","namespace":"default"},"involvedObject":{"namespace":"default"}}`)
	p.Must(t, 200, "DELETE", core+"/events/a", `{"propagationPolicy":"Foreground"}`)
	p.Must(t, 404, "GET", core+"/events/a", "")
	p.Must(t, 201, "POST", core+"/configmaps", `{"metadata":{"name":"a"}}`)
	if a := p.Must(t, 200, "DELETE", core+"/configmaps/a", `{"propagationPolicy":"Foreground"}`); a.Finalizers() != "[foregroundDeletion]" || a.Field("metadata", "generation") != nil {
		t.Errorf("a ConfigMap: %s", a)
	}
}

// While something is being deleted it can be changed, but gets no more finalizers, and what
// is to have its name has to wait.
func TestWhatIsBeingDeleted(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"a","finalizers":["example.com/x","example.com/y"]},"spec":{"size":1}}`)
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/a", "")
	if a := p.Must(t, 409, "POST", planetest.WidgetsPath, planetest.Widget("a", 1)); a.Field("reason") != "AlreadyExists" || a.Field("message") != `object is being deleted: widgets.example.com "a" already exists` {
		t.Errorf("a create: %s", a)
	}
	if a := p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"finalizers":["example.com/x","example.com/z"]}}`, "Content-Type", planetest.MergePatch); !strings.Contains(fmt.Sprint(a.Field("message")), "no new finalizers can be added if the object is being deleted") {
		t.Errorf("another finalizer: %s", a)
	}
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"metadata":{"finalizers":["example.com/y"]},"spec":{"size":2}}`, "Content-Type", planetest.MergePatch); a.Field("metadata", "generation") != 3.0 {
		t.Errorf("a change: %s", a)
	}
	p.Must(t, 409, "DELETE", planetest.WidgetsPath+"/a", `{"preconditions":{"resourceVersion":"1"}}`)
}

// Only what cannot be read may be deleted by force, and everything can be read.
func TestUnsafeDeletes(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	const unsafe = `{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`
	if a := p.Must(t, 409, "DELETE", planetest.WidgetsPath+"/a", unsafe); !strings.Contains(fmt.Sprint(a.Field("message")), "cannot be read") {
		t.Errorf("by the administrator: %s", a)
	}
	p.Must(t, 404, "DELETE", planetest.WidgetsPath+"/none", unsafe)
	role := strings.Replace(planetest.Bundle, `resources: ["widgets"], verbs: ["*"]}`, `resources: ["widgets"], verbs: ["get", "delete"]}`, 1)
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, role, nil))
	if a := p.Must(t, 403, "DELETE", planetest.WidgetsPath+"/a", unsafe, "Authorization", "Bearer editor-token"); !strings.Contains(fmt.Sprint(a.Field("message")), `not permitted to do "unsafe-delete-ignore-read-errors"`) {
		t.Errorf("by somebody: %s", a)
	}
	p.Must(t, 422, "DELETE", planetest.WidgetsPath+"/a", `{"ignoreStoreReadErrorWithClusterBreakingPotential":true,"propagationPolicy":"Orphan"}`)
	p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "")
}
