package core_test

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

func TestEveryVersionServesEveryObject(t *testing.T) {
	p := planetest.NewVersioned(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client := planetest.DynamicClient(t, server.URL, nil)
	at := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"}
	}
	ctx := t.Context()
	for i, version := range []string{"v1", "v1beta1"} {
		other := []string{"v1beta1", "v1"}[i]
		mine, others := client.Resource(at(version)).Namespace("default"), client.Resource(at(other)).Namespace("default")
		check := func(what, version string, o *unstructured.Unstructured, err error) *unstructured.Unstructured {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if o.GetAPIVersion() != "example.com/"+version {
				t.Errorf("%s in %s: %v", what, version, o)
			}
			return o
		}
		o, err := mine.Create(ctx, planetest.UnstructuredWidget(version, "w", 1), metav1.CreateOptions{})
		created := check("create", version, o, err)
		o, err = others.Get(ctx, "w", metav1.GetOptions{})
		got := check("get", other, o, err)
		if got.SetAPIVersion(created.GetAPIVersion()); !cmp.Equal(created, got) {
			t.Error(cmp.Diff(created, got))
		}
		_ = unstructured.SetNestedField(created.Object, int64(2), "spec", "size")
		o, err = mine.Update(ctx, created, metav1.UpdateOptions{})
		check("update", version, o, err)
		o, err = others.Patch(ctx, "w", types.JSONPatchType, fmt.Appendf(nil, `[{"op":"test","path":"/apiVersion","value":"example.com/%s"},{"op":"replace","path":"/spec/size","value":3}]`, other), metav1.PatchOptions{})
		check("patch", other, o, err)
		o, err = mine.Patch(ctx, "w", types.MergePatchType, []byte(`{"spec":{"size":4}}`), metav1.PatchOptions{DryRun: []string{"All"}})
		check("dry run", version, o, err)
		_ = unstructured.SetNestedField(o.Object, true, "status", "ready")
		o, err = mine.UpdateStatus(ctx, o, metav1.UpdateOptions{})
		check("status", version, o, err)
		if size, _, _ := unstructured.NestedInt64(o.Object, "spec", "size"); size != 3 {
			t.Errorf("%v", o)
		}
		list, err := others.List(ctx, metav1.ListOptions{FieldSelector: "spec.color=blue"})
		if err != nil || len(list.Items) != 1 || list.GetAPIVersion() != "example.com/"+other {
			t.Fatalf("%v %v", list, err)
		}
		check("list", other, &list.Items[0], nil)
		before := p.Committer.Tip().Revision()
		o, err = others.Update(ctx, &list.Items[0], metav1.UpdateOptions{})
		if check("no change", other, o, err); p.Committer.Tip().Revision() != before {
			t.Errorf("a write in %s that changes nothing is in the log", other)
		}
		if err := others.Delete(ctx, "w", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

var fieldsOwner = regexp.MustCompile(`"operation":"Update","apiVersion":"[^"]*"|- apiVersion: .*\n *fieldsType: FieldsV1`)

// Whichever version a client asks for: every form of answer is in it.
func TestAnswersAreInTheVersionThatIsAskedFor(t *testing.T) {
	p := planetest.NewVersioned(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	for path, version := range map[string]string{planetest.WidgetsPath: "example.com/v1", planetest.BetaPath: "example.com/v1beta1"} {
		other := map[string]string{"example.com/v1": "example.com/v1beta1", "example.com/v1beta1": "example.com/v1"}[version]
		for _, accept := range []string{"application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"} {
			for _, name := range []string{"", "/w"} {
				a := p.Must(t, 200, "GET", path+name+"?includeObject=Object", "", "Accept", accept)
				// Who managed fields did so in the version that they wrote.
				if text := fieldsOwner.ReplaceAllString(string(a.Body), ""); !strings.Contains(text, version) || strings.Contains(text, other+`"`) || strings.Contains(text, other+"\n") {
					t.Errorf("%s%s as %s: %s", path, name, accept, text)
				}
				if length := a.Header.Get("Content-Length"); length != fmt.Sprint(len(a.Body)) {
					t.Errorf("%s%s as %s: %s bytes announced, %d sent", path, name, accept, length, len(a.Body))
				}
			}
		}
		if a := p.Must(t, 400, "POST", path, strings.Replace(planetest.Widget("x", 1), `"example.com/v1"`, `"`+other+`"`, 1)); !strings.Contains(string(a.Body), "does not match the expected API version ("+version+")") {
			t.Errorf("a body in another version: %s", a)
		}
	}
	p.Must(t, 404, "GET", strings.Replace(planetest.WidgetsPath, "v1", "v1alpha1", 1), "")
}

func TestADeprecatedVersionWarns(t *testing.T) {
	p := planetest.NewVersioned(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	want := `299 - "example.com/v1beta1 Widget is deprecated: use v1"`
	for _, name := range []string{"", "/w"} {
		if got := p.Must(t, 200, "GET", planetest.BetaPath+name, "").Header.Get("Warning"); got != want {
			t.Errorf("GET %s: %q", name, got)
		}
		if got := p.Must(t, 200, "GET", planetest.WidgetsPath+name, "").Header.Get("Warning"); got != "" {
			t.Errorf("GET %s of the other version: %q", name, got)
		}
	}
	if got := p.Must(t, 200, "PATCH", planetest.BetaPath+"/w", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json").Header.Get("Warning"); got != want {
		t.Errorf("PATCH: %q", got)
	}
}

func TestWatchesOfAllVersionsSeeTheSame(t *testing.T) {
	p := planetest.NewVersioned(t)
	from := p.Committer.Tip().Revision()
	watches := map[string]*planetest.Watching{}
	for version, path := range map[string]string{"example.com/v1": planetest.WidgetsPath, "example.com/v1beta1": planetest.BetaPath} {
		watches[version] = p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, from))
	}
	p.Must(t, 201, "POST", planetest.BetaPath, strings.Replace(planetest.Widget("a", 1), "/v1", "/v1beta1", 1))
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "DELETE", planetest.BetaPath+"/a", "")
	for version, w := range watches {
		for i, kind := range []string{"ADDED", "MODIFIED", "DELETED"} {
			e := w.Next(t)
			if want := fmt.Sprintf("%s a@%d", kind, from+1+uint64(i)); e.String() != want || e.Object["apiVersion"] != version {
				t.Errorf("%s: %v, want %s", version, e.Object, want)
			}
		}
	}
}

// Another version is stored from one policy to the next; then the one before can go.
func TestAnotherVersionIsStored(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Both)
	before := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	stored := func(p *planetest.Replica) string {
		return string(p.Committer.Tip().Objects.Get(planetest.WidgetsResource, "default", "w").JSON)
	}
	for _, step := range []struct{ bundle, version string }{
		{planetest.Both, "v1beta1"}, {planetest.Versioned("v1", "v1beta1"), "v1"}, {planetest.Bundle, "v1"},
	} {
		if step.bundle != planetest.Both {
			p.Activate(t, step.bundle)
		}
		if !strings.HasPrefix(stored(p), `{"apiVersion":"example.com/`+step.version+`",`) {
			t.Errorf("stored is %s, want %s", stored(p), step.version)
		}
		if got := p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", ""); string(got.Body) != string(before.Body) {
			t.Errorf("it was %s\nand is %s", before, got)
		}
		if again := planetest.StartReplica(t, store.Open(nil), 0); stored(again) != stored(p) {
			t.Errorf("after a restart\n%s\nbefore\n%s", stored(again), stored(p))
		}
	}
	p.Must(t, 404, "GET", planetest.BetaPath+"/w", "")
	revision := p.Committer.Tip().Revision()
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w", string(before.Body))
	if p.Committer.Tip().Revision() != revision {
		t.Error("a write of what was read is in the log")
	}
}

func TestAVersionWithAnotherFormIsNotStored(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1))
	renamed := strings.NewReplacer(`storageVersion: "v1"`, `storageVersion: "v2"`, "versions: v1:", "versions: v2:")
	changed := renamed.Replace(planetest.Graded)
	if a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, changed, nil)); !strings.Contains(string(a.Body), "of widgets.example.com exist") {
		t.Errorf("%s", a)
	}
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, renamed.Replace(planetest.Bundle), nil))
	if a := p.Must(t, 200, "GET", strings.Replace(planetest.WidgetsPath, "v1", "v2", 1)+"/w", ""); a.Field("apiVersion") != "example.com/v2" {
		t.Errorf("%s", a)
	}
}

// The log says which version is stored, and which one was asked for.
func TestTheLogNamesBothVersions(t *testing.T) {
	p := planetest.NewVersioned(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("w", 1), "Audit-ID", "one")
	change := p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, p.Committer.Tip().Revision()), "")
	if stored, asked := change.Field("object", "version"), change.Field("request", "version"); stored != "v1beta1" || asked != "v1" {
		t.Errorf("stored in %v, asked for in %v", stored, asked)
	}
	if e := p.Must(t, 200, "GET", planetest.ExplanationsPath+"/one", ""); e.Field("spec", "version") != "v1" {
		t.Errorf("%s", e)
	}
}

// matchPolicy Equivalent: a rule for one version is about writes in the others, too.
func TestRulesSeeTheVersionThatTheyName(t *testing.T) {
	rule := func(name, versions, expression string) string {
		return fmt.Sprintf("admission: validate: %s: {match: {apiGroups: [\"example.com\"], %sresources: [\"widgets\"]}, validations: x: {expression: %q, message: \"it was \\(%q)\"}}\n", name, versions, expression, name)
	}
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Both, "\t\trbac: {", rule("one", `apiVersions: ["v1"], `,
		`object.apiVersion == "example.com/v1" && request.kind.version == "v1" && request.resource.version == "v1" && (object.spec.size > 1) == (request.requestKind.version == "v1beta1" && request.requestResource.version == "v1beta1")`)+
		rule("any", "", `object.apiVersion == "example.com/" + request.requestKind.version && object.apiVersion == "example.com/" + request.kind.version`)+"\t\trbac: {", 1))
	beta := func(name string, size int) string {
		return strings.Replace(planetest.Widget(name, size), "/v1", "/v1beta1", 1)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	p.Must(t, 201, "POST", planetest.BetaPath, beta("b", 2))
	for path, body := range map[string]string{planetest.WidgetsPath: planetest.Widget("c", 2), planetest.BetaPath: beta("c", 1)} {
		if a := p.Must(t, 422, "POST", path, body); !strings.Contains(string(a.Body), "it was one") || strings.Contains(string(a.Body), "it was any") {
			t.Errorf("%s", a)
		}
	}
}

func TestConditionsHoldInEveryVersion(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Both, `rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["*"]}`,
		`rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["create"]}`, 1)+`
bundle: teams: t: rbac: bindings: editors: when: "object.spec.size < 5"
`)
	for path, version := range map[string]string{planetest.WidgetsPath: "v1", planetest.BetaPath: "v1beta1"} {
		body := func(size int) string {
			return strings.Replace(planetest.Widget("w-"+version, size), "example.com/v1", "example.com/"+version, 1)
		}
		p.Must(t, 201, "POST", path, body(4), "Authorization", "Bearer editor-token")
		p.Must(t, 403, "POST", path, body(5), "Authorization", "Bearer editor-token")
	}
}

func TestDiscoveryPrefersTheStableVersion(t *testing.T) {
	p := planetest.NewVersioned(t)
	group := p.Must(t, 200, "GET", "/apis/example.com", "")
	var names []string
	for _, v := range group.Field("versions").([]any) {
		names = append(names, v.(map[string]any)["version"].(string))
	}
	if fmt.Sprint(names) != "[v1 v1beta1]" || group.Field("preferredVersion", "version") != "v1" {
		t.Errorf("%s", group)
	}
	p.Must(t, 404, "GET", "/apis/example.com/v1alpha1", "")
	for path, kind := range map[string]string{"v1": "com.example.v1.Widget", "v1beta1": "com.example.v1beta1.Widget"} {
		if a := p.Must(t, 200, "GET", "/openapi/v3/apis/example.com/"+path, ""); !strings.Contains(string(a.Body), `"`+kind+`"`) {
			t.Errorf("%s: %s", path, a)
		}
	}
}
