package core_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// indexed is a bundle whose kind has two versions and index: colors are selectable in both, as before, and so are owners and sizes.
var indexed = strings.NewReplacer(
	`storageVersion: "v1"
			versions: v1: {
				#schema: #Widget
				subresources: status: {}
				selectableFields: [".spec.color"]`, `storageVersion: "v1"
			index: [".spec.owner", ".spec.size", ".status.ready"]
			versions: v1beta1: #schema: #Widget
			versions: v1: {
				#schema: #Widget
				subresources: status: {}
				selectableFields: [".spec.color"]`).Replace(bundle)

// fillIndexed creates so many widgets that lists use indexes. One in a hundred belongs to ann@example.com.
func fillIndexed(t testing.TB, p *replica) {
	t.Helper()
	for i := range 700 {
		owner := "bob"
		if i%100 == 7 {
			owner = "ann"
		}
		p.must(t, 201, "POST", widgetsPath, fmt.Sprintf(`{"metadata":{"name":"w%03d","labels":{"owner":%q}},"spec":{"size":%d,"owner":"%s@example.com"}}`, i, owner, i+1, owner))
	}
}

var anns = []string{"w007", "w107", "w207", "w307", "w407", "w507", "w607"}

// Any field of index selects, in every version, in lists, pages, watches, deletes of collections, and at past revisions.
func TestFieldsOfIndexSelect(t *testing.T) {
	p := newPlane(t)
	p.must(t, 400, "GET", widgetsPath+"?fieldSelector=spec.owner%3Dann@example.com", "")
	p.push(t, policyBody(t, indexed, nil))
	fillIndexed(t, p)
	const owner = "fieldSelector=spec.owner%3Dann@example.com"
	for path, want := range map[string][]string{
		widgetsPath + "?" + owner:                                                                    anns,
		"/apis/example.com/v1/widgets?" + owner:                                                      anns,
		"/apis/example.com/v1beta1/widgets?" + owner:                                                 anns,
		widgetsPath + "?labelSelector=owner%3Dann":                                                   anns,
		widgetsPath + "?labelSelector=owner+in+(ann,eve)&" + owner:                                   anns,
		widgetsPath + "?" + owner + ",spec.size%3D108":                                               {"w107"},
		widgetsPath + "?" + owner + ",spec.size!%3D108&limit=2":                                      {"w007", "w207"},
		widgetsPath + "?fieldSelector=spec.size%3D3":                                                 {"w002"},
		widgetsPath + "?fieldSelector=spec.size%3D0":                                                 nil,
		"/apis/example.com/v1/namespaces/none/widgets?" + owner:                                      nil,
		"/apis/example.com/v1beta1/widgets?fieldSelector=spec.size%3D3,metadata.namespace%3Ddefault": {"w002"},
	} {
		for range 3 { // without, while it is made, and with an index
			if diff := cmp.Diff(want, p.must(t, 200, "GET", path, "").names()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
	p.must(t, 400, "GET", "/apis/example.com/v1beta1/widgets?fieldSelector=spec.color%3Dblue", "") // of v1 alone
	p.must(t, 400, "GET", widgetsPath+"?fieldSelector=spec.limits%3D1", "")

	var got []string
	for query := widgetsPath + "?" + owner + "&limit=3"; ; {
		page := p.must(t, 200, "GET", query, "")
		got = append(got, page.names()...)
		next, _ := page.field("metadata", "continue").(string)
		if next == "" {
			break
		}
		p.must(t, 200, "DELETE", widgetsPath+"/"+got[len(got)-1], "") // pages are of one state
		query = widgetsPath + "?" + owner + "&limit=3&continue=" + next
	}
	if diff := cmp.Diff(anns, got); diff != "" {
		t.Errorf("in pages (-want +got):\n%s", diff)
	}
	before := p.committer.Tip().Revision()
	p.must(t, 201, "POST", widgetsPath, `{"metadata":{"name":"w999"},"spec":{"size":1,"owner":"ann@example.com"}}`)
	left := []string{"w007", "w107", "w307", "w407", "w607"}
	if diff := cmp.Diff(left, p.must(t, 200, "GET", belowAt(before, widgetsPath)+"?"+owner, "").names()); diff != "" {
		t.Errorf("of the past (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(left, p.must(t, 200, "GET", fmt.Sprintf("%s?%s&resourceVersionMatch=Exact&resourceVersion=%d", widgetsPath, owner, before), "").names()); diff != "" {
		t.Errorf("of an exact revision (-want +got):\n%s", diff)
	}
	p.must(t, 200, "DELETE", widgetsPath+"?"+owner, "")
	if left := p.must(t, 200, "GET", widgetsPath, "").names(); len(left) != 693 || slices.Contains(left, "w999") {
		t.Errorf("after a delete of the collection %d widgets are left", len(left))
	}

	p.push(t, policyBody(t, bundle, nil))
	p.must(t, 400, "GET", widgetsPath+"?"+owner, "")
	p.must(t, 200, "GET", belowAt(before, widgetsPath)+"?"+owner, "")
}

// Clients find the selectable fields in OpenAPI and in the CustomResourceDefinition.
func TestFieldsOfIndexAreDescribed(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, indexed, nil))
	crd := p.must(t, 200, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
	for _, v := range crd.field("spec", "versions").([]any) {
		v := v.(map[string]any)
		want := []any{}
		for _, path := range map[string][]string{"v1": {".spec.color", ".spec.owner", ".spec.size", ".status.ready"}, "v1beta1": {".spec.owner", ".spec.size", ".status.ready"}}[v["name"].(string)] {
			want = append(want, map[string]any{"jsonPath": path})
		}
		if diff := cmp.Diff(want, v["selectableFields"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v["name"], diff)
		}
	}
	for version, want := range map[string][]any{
		"v1":      {map[string]any{"fieldPath": "spec.color"}, map[string]any{"fieldPath": "spec.owner"}, map[string]any{"fieldPath": "spec.size"}, map[string]any{"fieldPath": "status.ready"}},
		"v1beta1": {map[string]any{"fieldPath": "spec.owner"}, map[string]any{"fieldPath": "spec.size"}, map[string]any{"fieldPath": "status.ready"}},
	} {
		a := p.must(t, 200, "GET", "/openapi/v3/apis/example.com/"+version, "")
		if diff := cmp.Diff(any(want), a.field("components", "schemas", "com.example."+version+".Widget", "x-kubernetes-selectable-fields")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// An informer with a field selector has the selected objects, and loses those that change.
func TestInformersSelectByIndex(t *testing.T) {
	s := newSite(t, 0)
	s.push(t, policyBody(t, indexed, nil))
	fillIndexed(t, s.replica)
	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.dynamic(), 0, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.FieldSelector = "spec.owner=ann@example.com" })
	informer := factory.ForResource(widgetsGVR).Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	agree := func() {
		t.Helper()
		want := s.listed("/apis/example.com/v1/widgets?fieldSelector=spec.owner%3Dann@example.com")
		waitFor(t, func() bool { return cmp.Equal(want, contents(t, informer.GetStore())) })
	}
	agree()
	s.must(t, http.StatusOK, "PATCH", widgetsPath+"/w107", `{"spec":{"owner":"bob@example.com"}}`, "Content-Type", "application/merge-patch+json")
	s.must(t, http.StatusOK, "PATCH", widgetsPath+"/w108", `{"spec":{"owner":"ann@example.com"}}`, "Content-Type", "application/merge-patch+json")
	agree()
}
