package rendered_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// allowing is the bundle of these tests, which lets clients bring definitions of some groups.
const allowing = planetest.Bundle + `
bundle: dynamic: {customresourcedefinitions: "Allow", groups: ["*.example.org", "example.com"]}
`

func newAllowing(t *testing.T) *planetest.Replica {
	t.Helper()
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, allowing)
	return p
}

// gauge is a definition. names are further names, versions those of the kind; "" for one.
func gauge(group, names, versions string) string {
	if versions == "" {
		versions = version("v1", `"served": true, "storage": true`, `"size": {"type": "integer", "minimum": 0, "default": 3}, "unit": {"type": "string"}`)
	}
	return fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gauges.%s"},
		"spec": {"group": %q, "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"%s}, "versions": [%s]}}`, group, group, names, versions)
}

func version(name, flags, fields string) string {
	return fmt.Sprintf(`{"name": %q, %s, "subresources": {"status": {}}, "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
		"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": {%s}}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}`, name, flags, fields)
}

const (
	gaugesPath = "/apis/lab.example.org/v1/namespaces/default/gauges"
	gaugePath  = planetest.DefinitionsPath + "/gauges.lab.example.org"
)

func gaugeNamed(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "lab.example.org/v1", "kind": "Gauge", "metadata": {"name": %q}, "spec": {%s}}`, name, spec)
}

// conditions returns the conditions of a definition, each as "Type=Status Reason".
func conditions(a planetest.Answer) (list []string) {
	all, _ := a.Field("status", "conditions").([]any)
	for _, c := range all {
		c := c.(map[string]any)
		list = append(list, fmt.Sprintf("%s=%s %s", c["type"], c["status"], c["reason"]))
	}
	return list
}

func TestADefinitionThatTheAPIBringsIsInForceAtOnce(t *testing.T) {
	p := newAllowing(t)
	a := p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", `, "shortNames": ["ga"]`, ""))
	if diff := cmp.Diff([]string{"NamesAccepted=True NoConflicts", "Established=True InitialNamesAccepted"}, conditions(a)); diff != "" {
		t.Errorf("its conditions (-want +got):\n%s\n%s", diff, a)
	}
	if got := fmt.Sprintf("%v %v %v", a.Field("status", "storedVersions"), a.Field("metadata", "generation"), a.Field("status", "acceptedNames", "listKind")); got != "[v1] 1 GaugeList" {
		t.Errorf("it has %s", got)
	}
	if diff := cmp.Diff(a.Object(), p.Must(t, 200, "GET", gaugePath, "").Object()); diff != "" {
		t.Errorf("(-answered +shown):\n%s", diff)
	}
	one := p.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", ""))
	if got := fmt.Sprint(one.Field("spec", "size")); got != "3" {
		t.Errorf("its default is %s", got)
	}
	p.Must(t, 422, "POST", gaugesPath, gaugeNamed("two", `"size": -1`))
	p.Must(t, 200, "PATCH", gaugesPath+"/one/status", `{"status": {"ready": true}}`, merge...)
	if text := p.Must(t, 200, "GET", "/apis/lab.example.org/v1", "").String(); !strings.Contains(text, `"shortNames":["ga"]`) {
		t.Errorf("discovery has %s", text)
	}
	if text := p.Must(t, 200, "GET", "/openapi/v3/apis/lab.example.org/v1", "").String(); !strings.Contains(text, "org.example.lab.v1.Gauge") {
		t.Errorf("OpenAPI has %.200s", text)
	}
	names := p.Must(t, 200, "GET", planetest.DefinitionsPath, "").Names()
	if !strings.Contains(fmt.Sprint(names), "gauges.lab.example.org") || !strings.Contains(fmt.Sprint(names), "widgets.example.com") {
		t.Errorf("there are %v", names)
	}
}

func TestDefinitionsOfTheBundleStayItsOwn(t *testing.T) {
	p := newAllowing(t)
	p.Must(t, 409, "POST", planetest.DefinitionsPath, strings.ReplaceAll(strings.ReplaceAll(gauge("example.com", "", ""), "gauges", "widgets"), "Gauge", "Widget"))
	for name, c := range map[string]struct{ body, want string }{
		"another group":       {gauge("else.example", "", ""), `does not allow definitions of the group \"else.example\"`},
		"the server's groups": {gauge("rbac.authorization.k8s.io", "", ""), "does not allow definitions of the group"},
	} {
		if a := p.Must(t, 403, "POST", planetest.DefinitionsPath, c.body); !strings.Contains(a.String(), c.want) {
			t.Errorf("%s: %s", name, a)
		}
	}
	// Names that the bundle has are not accepted, and the position of its line is said.
	a := p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("example.com", `, "singular": "widget"`, ""))
	if diff := cmp.Diff([]string{"NamesAccepted=False SingularConflict", "Established=False NotAccepted"}, conditions(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !strings.Contains(a.String(), "is already in use (by the policy at ") {
		t.Errorf("its condition says %s", a)
	}
	p.Must(t, 404, "GET", "/apis/example.com/v1/gauges", "")
}

// A text may have a name twice. What counts is the last one, which is stored.
func TestADefinitionWithTwoNamesIsThatOfTheSecond(t *testing.T) {
	p := newAllowing(t)
	twice := func(body, first string) string {
		return strings.Replace(body, `"metadata": {`, `"metadata": {"name": "`+first+`", `, 1)
	}
	const allowed = "gauges.lab.example.org"
	if a := p.Must(t, 403, "POST", planetest.DefinitionsPath, twice(gauge("else.example", "", ""), allowed)); !strings.Contains(a.String(), `does not allow definitions of the group \"else.example\"`) || !strings.Contains(a.String(), ".cue:") {
		t.Errorf("another group: %s", a)
	}
	widgets := strings.NewReplacer("gauges", "widgets", "Gauge", "Widget").Replace(gauge("example.com", "", ""))
	p.Must(t, 409, "POST", planetest.DefinitionsPath, twice(widgets, allowed))
	p.Must(t, 201, "POST", planetest.DefinitionsPath, twice(gauge("lab.example.org", "", ""), "meters.lab.example.org"))
}

func TestBadDefinitionsAreRefusedAsUpstream(t *testing.T) {
	p := newAllowing(t)
	rule := func(text string) string {
		return version("v1", `"served": true, "storage": true`, `"list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": "`+text+`"}]}`)
	}
	for name, c := range map[string]struct {
		versions, want string
	}{
		"no type":         {version("v1", `"served": true, "storage": true`, `"size": {"minimum": 0}`), "must not be empty for specified object fields"},
		"over the budget": {rule("self.all(x, self.all(y, self.all(z, x == y)))"), "estimated rule cost exceeds budget"},
		"no CEL":          {rule("self.nothing"), "compilation failed"},
		"two storages":    {version("v1", `"served": true, "storage": true`, "") + "," + version("v2", `"served": true, "storage": true`, ""), "must have exactly one version marked as storage version"},
	} {
		if a := p.Must(t, 422, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", c.versions)); !strings.Contains(a.String(), c.want) {
			t.Errorf("%s: %s", name, a)
		}
	}
	if a := p.Must(t, 400, "POST", planetest.DefinitionsPath+"?fieldValidation=Strict", strings.Replace(gauge("lab.example.org", "", ""), `"scope"`, `"scoop": 1, "scope"`, 1)); !strings.Contains(a.String(), `unknown field \"spec.scoop\"`) {
		t.Errorf("an unknown field: %s", a)
	}
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	if a := p.Must(t, 422, "PATCH", gaugePath, `{"spec": {"scope": "Cluster"}}`, merge...); !strings.Contains(a.String(), "spec.scope") {
		t.Errorf("another scope: %s", a)
	}
	v2 := version("v2", `"served": true, "storage": true`, "")
	if a := p.Must(t, 422, "PATCH", gaugePath, `{"spec": {"versions": [`+v2+`]}}`, merge...); !strings.Contains(a.String(), "status.storedVersions") {
		t.Errorf("a dropped stored version: %s", a)
	}
}

func TestAChangedDefinitionIsInForceAtItsRevision(t *testing.T) {
	p := newAllowing(t)
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", `"size": 9, "unit": "m"`))
	before := p.Committer.Tip().Revision()
	both := version("v1", `"served": true, "storage": false`, `"size": {"type": "integer", "maximum": 10}, "unit": {"type": "string"}`) + "," +
		version("v2", `"served": true, "storage": true`, `"size": {"type": "integer"}, "unit": {"type": "string"}, "more": {"type": "string", "default": "x"}`)
	a := p.Must(t, 200, "PATCH", gaugePath, `{"spec": {"versions": [`+both+`]}}`, merge...)
	if got := fmt.Sprint(a.Field("status", "storedVersions"), a.Field("metadata", "generation")); got != "[v1 v2] 2" {
		t.Errorf("it has %s", got)
	}
	p.Must(t, 422, "POST", gaugesPath, gaugeNamed("two", `"size": 11`))
	v2 := p.Must(t, 200, "GET", "/apis/lab.example.org/v2/namespaces/default/gauges/one", "")
	if got := fmt.Sprintf("%v %v", v2.Field("spec", "more"), v2.Field("apiVersion")); got != "x lab.example.org/v2" {
		t.Errorf("in the new version it has %s", got)
	}
	// The past is as it was.
	p.Must(t, 404, "GET", fmt.Sprintf("/at/%d/apis/lab.example.org/v2", before), "")
	was := p.Must(t, 200, "GET", fmt.Sprintf("/at/%d%s/one", before, gaugesPath), "")
	if got := fmt.Sprintf("%v %v", was.Field("spec", "size"), was.Field("spec", "more")); got != "9 <nil>" {
		t.Errorf("it had %s", got)
	}
	if got := fmt.Sprint(p.Must(t, 200, "GET", fmt.Sprintf("/at/%d%s", before, gaugePath), "").Field("metadata", "generation")); got != "1" {
		t.Errorf("the definition had the generation %s", got)
	}
}

// Typed clients send Protocol Buffers.
func TestTypedClientsBringDefinitions(t *testing.T) {
	p := newAllowing(t)
	server := httptest.NewServer(p)
	defer server.Close()
	for i, mediaType := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/cbor"} {
		client := planetest.Must[*clientset.Clientset](t)(clientset.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: mediaType, AcceptContentTypes: "application/json"}}))
		of := &apiextensionsv1.CustomResourceDefinition{}
		if err := json.Unmarshal([]byte(gauge(fmt.Sprintf("g%d.example.org", i), "", "")), of); err != nil {
			t.Fatal(err)
		}
		made, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), of, metav1.CreateOptions{FieldValidation: "Strict"})
		if err != nil {
			t.Errorf("%s: %v", mediaType, err)
			continue
		}
		made.Labels = map[string]string{"a": "b"}
		if made, err = client.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), made, metav1.UpdateOptions{}); err != nil || made.Generation != 1 {
			t.Errorf("%s: an update of labels: %v, generation %d", mediaType, err, made.Generation)
		}
	}
}

func TestSchemasThatNestTooDeeplyAreRefused(t *testing.T) {
	p := newAllowing(t)
	const levels = 3000
	for _, name := range []string{"a", "default", "example", "enum"} { // a property may have the name of a keyword
		deep := version("v1", `"served": true, "storage": true`, `"a": `+strings.Repeat(`{"type": "object", "properties": {"`+name+`": `, levels)+"{}"+strings.Repeat("}}", levels))
		if a := p.Must(t, 422, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", deep)); !strings.Contains(a.String(), "nest too deeply") {
			t.Errorf("with properties that are named %s it says %.300s", name, a)
		}
	}
	schema := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	for range 1000 {
		schema = &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"a": *schema}}
	}
	of := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}}}}
	raw, err := of.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := &k8sruntime.Unknown{TypeMeta: k8sruntime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, Raw: raw}
	body, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Must(t, 400, "POST", planetest.DefinitionsPath, "k8s\x00"+string(body), "Content-Type", "application/vnd.kubernetes.protobuf"); !strings.Contains(a.String(), "messages nest more than") {
		t.Errorf("it says %.300s", a)
	}
}

// Who may write the status of a definition cannot make it the definition of another kind.
func TestTheStatusOfADefinitionGivesItNoOtherPlural(t *testing.T) {
	p := newAllowing(t)
	meters := strings.NewReplacer("gauges", "meters", "Gauge", "Meter").Replace(gauge("lab.example.org", `, "shortNames": ["SHORT"]`, ""))
	p.Must(t, 201, "POST", planetest.DefinitionsPath, strings.Replace(meters, "SHORT", "gauges", 1))
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	a := p.Must(t, 200, "PATCH", gaugePath+"/status", `{"status": {"acceptedNames": {"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"}, "conditions": [
		{"type": "NamesAccepted", "status": "True", "reason": "x", "message": "x", "lastTransitionTime": "2020-01-01T00:00:00Z"},
		{"type": "Established", "status": "True", "reason": "x", "message": "x", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}}`, merge...)
	if diff := cmp.Diff([]string{"NamesAccepted=False PluralConflict", "Established=False NotAccepted"}, conditions(a)); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, a)
	}
	p.Must(t, 404, "GET", "/apis/lab.example.org/v1/namespaces/default/others", "")
}

// What a client brings cannot look like what the policy defines.
func TestADefinitionOfTheAPIHasNoAnnotationsOfThePolicy(t *testing.T) {
	p := newAllowing(t)
	named := strings.Replace(gauge("lab.example.org", "", ""), `"metadata": {`, `"metadata": {"annotations": {"stele.dev/rule": "kinds/gauges.lab.example.org"}, `, 1)
	if a := p.Must(t, 422, "POST", planetest.DefinitionsPath, named); !strings.Contains(a.String(), `metadata.annotations[stele.dev/rule]: Forbidden: only objects of the policy have it`) {
		t.Errorf("a create: %s", a)
	}
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	p.Must(t, 422, "PATCH", gaugePath, `{"metadata": {"annotations": {"stele.dev/source": "bundle.cue:1"}}}`, merge...)
	p.Must(t, 200, "PATCH", gaugePath, `{"metadata": {"annotations": {"example.com/note": "x"}}}`, merge...)
}

func TestWatchesSeeDefinitionsThatTheAPIBrings(t *testing.T) {
	p := newAllowing(t)
	list := p.Must(t, 200, "GET", planetest.DefinitionsPath, "")
	w := p.Watch(t, fmt.Sprintf("%s?watch=true&resourceVersion=%d", planetest.DefinitionsPath, planetest.Revision(t, list)))
	next := func(want string) {
		t.Helper()
		if e := w.Next(t); e.Type != want {
			t.Fatalf("the watch has %s, want %s", e.Type, want)
		}
	}
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	next("ADDED")
	p.Must(t, 200, "PATCH", gaugePath, `{"metadata": {"labels": {"a": "b"}}}`, merge...)
	next("MODIFIED")
	p.Must(t, 200, "DELETE", gaugePath, "")
	next("MODIFIED")
	p.Must(t, 200, "PATCH", gaugePath, `{"metadata": {"finalizers": null}}`, merge...)
	next("DELETED")
}

func TestADefinitionGoesAfterItsObjects(t *testing.T) {
	p := newAllowing(t)
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", ""))
	a := p.Must(t, 200, "DELETE", gaugePath, "")
	if got := conditions(a); fmt.Sprint(got[len(got)-1]) != "Terminating=True InstanceDeletionPending" || fmt.Sprint(a.Field("metadata", "finalizers")) != "[customresourcecleanup.apiextensions.k8s.io]" {
		t.Errorf("it is %s", a)
	}
	if a := p.Must(t, 403, "POST", gaugesPath, gaugeNamed("two", "")); !strings.Contains(a.String(), "create not allowed while custom resource definition is terminating") {
		t.Errorf("a create says %s", a)
	}
	p.Must(t, 200, "PATCH", gaugePath, `{"metadata": {"finalizers": null}}`, merge...)
	p.Must(t, 200, "GET", gaugesPath+"/one", "") // no object is lost
	p.Must(t, 200, "DELETE", gaugesPath+"/one", "")
	p.Must(t, 200, "DELETE", gaugePath, "")
	p.Must(t, 404, "GET", gaugePath, "")
	p.Must(t, 404, "GET", gaugesPath, "")
}

func TestAPushKeepsWhatTheAPIBrought(t *testing.T) {
	p := newAllowing(t)
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", `, "shortNames": ["ga"]`, ""))
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", ""))
	p.Activate(t, allowing+"\nbundle: teams: t: rbac: bindings: more: {clusterRole: \"view\", subjects: [{group: \"x\"}], namespaces: [\"*\"]}\n")
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("two", ""))
	// A bundle that does not allow it any more leaves the kind, and its definition can only be deleted.
	p.Activate(t, planetest.Bundle)
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("three", ""))
	if a := p.Must(t, 403, "PATCH", gaugePath, `{"metadata": {"labels": {"a": "b"}}}`, merge...); !strings.Contains(a.String(), "it can only be deleted") {
		t.Errorf("a patch says %s", a)
	}
	p.Must(t, 200, "DELETE", gaugePath, "")
}

func TestAPushAdoptsADefinition(t *testing.T) {
	p := newAllowing(t)
	p.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	p.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", ""))
	const kind = `
bundle: teams: t: kinds: "gauges.lab.example.org": {group: "lab.example.org", names: {kind: "%s", plural: "%s"}, storageVersion: "v1"
	versions: v1: {#schema: {spec?: {size?: int, unit?: string}, status?: {...}}, subresources: status: {}}}
`
	p.Activate(t, allowing+fmt.Sprintf(kind, "Gauge", "gauges"))
	p.Must(t, 200, "GET", gaugesPath+"/one", "")
	if a := p.Must(t, 200, "GET", gaugePath, ""); a.Field("metadata", "annotations", "stele.dev/rule") != "kinds/gauges.lab.example.org" {
		t.Errorf("it is shown as %s", a)
	}
	p.Must(t, 409, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
}

func TestDefinitionsAreInForceAfterARestart(t *testing.T) {
	var store memlog.Store
	first := planetest.StartReplica(t, store.Open(nil), 0)
	first.Bootstrap(t, allowing)
	first.Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", ""))
	first.Must(t, 201, "POST", gaugesPath, gaugeNamed("one", `"size": 5`))
	first.Close()
	second := planetest.StartReplica(t, store.Open(nil), 0)
	if got := fmt.Sprint(second.Must(t, 200, "GET", gaugesPath+"/one", "").Field("spec", "size")); got != "5" {
		t.Errorf("it has the size %s", got)
	}
	second.Must(t, 422, "POST", gaugesPath, gaugeNamed("two", `"size": -1`))
	second.Must(t, 201, "POST", gaugesPath, gaugeNamed("two", ""))
}

// Each replica serves a kind from the revision of its definition on, whichever replica stored that.
func TestEveryReplicaServesADefinitionFromItsRevisionOn(t *testing.T) {
	var store memlog.Store
	var all []*planetest.Replica
	for range 3 {
		all = append(all, planetest.StartReplica(t, store.Open(nil), 0))
		if len(all) == 1 {
			all[0].Bootstrap(t, allowing)
		}
	}
	revision := planetest.Revision(t, all[0].Must(t, 201, "POST", planetest.DefinitionsPath, gauge("lab.example.org", "", "")))
	for i, p := range all {
		p.Must(t, 201, "POST", gaugesPath, gaugeNamed(fmt.Sprint("of", i), "")) // the write is decided on the newest state
		if got := p.Committer.Tip().PolicyRevision(); got != revision {
			t.Errorf("on replica %d the policy is as it is since revision %d, want %d", i, got, revision)
		}
	}
	all[2].Must(t, 200, "PATCH", gaugePath, `{"spec": {"versions": [`+version("v1", `"served": true, "storage": true`, `"size": {"type": "integer", "maximum": 1}`)+`]}}`, merge...)
	for i, p := range all {
		p.Must(t, 422, "POST", gaugesPath, gaugeNamed(fmt.Sprint("late", i), `"size": 2`))
		if got := len(p.Must(t, 200, "GET", gaugesPath, "").Names()); got != 3 {
			t.Errorf("replica %d has %d objects", i, got)
		}
	}
}
