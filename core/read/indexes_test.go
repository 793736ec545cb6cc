package read_test

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
	"stele.dev/stele/core/run/plane/planetest"
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
				selectableFields: [".spec.color"]`).Replace(planetest.Bundle)

// fillIndexed creates so many widgets that lists use indexes. One in a hundred belongs to ann@example.com.
func fillIndexed(t testing.TB, p *planetest.Replica) {
	t.Helper()
	for i := range 700 {
		owner := "bob"
		if i%100 == 7 {
			owner = "ann"
		}
		p.Must(t, 201, "POST", planetest.WidgetsPath, fmt.Sprintf(`{"metadata":{"name":"w%03d","labels":{"owner":%q}},"spec":{"size":%d,"owner":"%s@example.com"}}`, i, owner, i+1, owner))
	}
}

var anns = []string{"w007", "w107", "w207", "w307", "w407", "w507", "w607"}

// Any field of index selects, in every version, in lists, pages, watches, deletes of collections, and at past revisions.
func TestFieldsOfIndexSelect(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 400, "GET", planetest.WidgetsPath+"?fieldSelector=spec.owner%3Dann@example.com", "")
	p.Push(t, planetest.PolicyBody(t, indexed, nil))
	fillIndexed(t, p)
	const owner = "fieldSelector=spec.owner%3Dann@example.com"
	for path, want := range map[string][]string{
		planetest.WidgetsPath + "?" + owner:                                                          anns,
		"/apis/example.com/v1/widgets?" + owner:                                                      anns,
		"/apis/example.com/v1beta1/widgets?" + owner:                                                 anns,
		planetest.WidgetsPath + "?labelSelector=owner%3Dann":                                         anns,
		planetest.WidgetsPath + "?labelSelector=owner+in+(ann,eve)&" + owner:                         anns,
		planetest.WidgetsPath + "?" + owner + ",spec.size%3D108":                                     {"w107"},
		planetest.WidgetsPath + "?" + owner + ",spec.size!%3D108&limit=2":                            {"w007", "w207"},
		planetest.WidgetsPath + "?fieldSelector=spec.size%3D3":                                       {"w002"},
		planetest.WidgetsPath + "?fieldSelector=spec.size%3D0":                                       nil,
		"/apis/example.com/v1/namespaces/none/widgets?" + owner:                                      nil,
		"/apis/example.com/v1beta1/widgets?fieldSelector=spec.size%3D3,metadata.namespace%3Ddefault": {"w002"},
	} {
		for range 3 { // without, while it is made, and with an index
			if diff := cmp.Diff(want, p.Must(t, 200, "GET", path, "").Names()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
	p.Must(t, 400, "GET", "/apis/example.com/v1beta1/widgets?fieldSelector=spec.color%3Dblue", "") // of v1 alone
	p.Must(t, 400, "GET", planetest.WidgetsPath+"?fieldSelector=spec.limits%3D1", "")

	var got []string
	for query := planetest.WidgetsPath + "?" + owner + "&limit=3"; ; {
		page := p.Must(t, 200, "GET", query, "")
		got = append(got, page.Names()...)
		next, _ := page.Field("metadata", "continue").(string)
		if next == "" {
			break
		}
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/"+got[len(got)-1], "") // pages are of one state
		query = planetest.WidgetsPath + "?" + owner + "&limit=3&continue=" + next
	}
	if diff := cmp.Diff(anns, got); diff != "" {
		t.Errorf("in pages (-want +got):\n%s", diff)
	}
	before := p.Committer.Tip().Revision()
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"metadata":{"name":"w999"},"spec":{"size":1,"owner":"ann@example.com"}}`)
	left := []string{"w007", "w107", "w307", "w407", "w607"}
	if diff := cmp.Diff(left, p.Must(t, 200, "GET", planetest.BelowAt(before, planetest.WidgetsPath)+"?"+owner, "").Names()); diff != "" {
		t.Errorf("of the past (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(left, p.Must(t, 200, "GET", fmt.Sprintf("%s?%s&resourceVersionMatch=Exact&resourceVersion=%d", planetest.WidgetsPath, owner, before), "").Names()); diff != "" {
		t.Errorf("of an exact revision (-want +got):\n%s", diff)
	}
	p.Must(t, 200, "DELETE", planetest.WidgetsPath+"?"+owner, "")
	if left := p.Must(t, 200, "GET", planetest.WidgetsPath, "").Names(); len(left) != 693 || slices.Contains(left, "w999") {
		t.Errorf("after a delete of the collection %d widgets are left", len(left))
	}

	p.Push(t, planetest.PolicyBody(t, planetest.Bundle, nil))
	p.Must(t, 400, "GET", planetest.WidgetsPath+"?"+owner, "")
	p.Must(t, 200, "GET", planetest.BelowAt(before, planetest.WidgetsPath)+"?"+owner, "")
}

// Clients find the selectable fields in OpenAPI and in the CustomResourceDefinition.
func TestFieldsOfIndexAreDescribed(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, indexed, nil))
	crd := p.Must(t, 200, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
	for _, v := range crd.Field("spec", "versions").([]any) {
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
		a := p.Must(t, 200, "GET", "/openapi/v3/apis/example.com/"+version, "")
		if diff := cmp.Diff(any(want), a.Field("components", "schemas", "com.example."+version+".Widget", "x-kubernetes-selectable-fields")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

// An informer with a field selector has the selected objects, and loses those that change.
func TestInformersSelectByIndex(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Push(t, planetest.PolicyBody(t, indexed, nil))
	fillIndexed(t, s.Replica)
	ctx, cancel := context.WithCancel(t.Context())
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(s.Dynamic(), 0, metav1.NamespaceAll, func(o *metav1.ListOptions) { o.FieldSelector = "spec.owner=ann@example.com" })
	informer := factory.ForResource(planetest.WidgetsGVR).Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("not synced")
	}
	agree := func() {
		t.Helper()
		want := s.Listed("/apis/example.com/v1/widgets?fieldSelector=spec.owner%3Dann@example.com")
		planetest.WaitFor(t, func() bool { return cmp.Equal(want, planetest.Contents(t, informer.GetStore())) })
	}
	agree()
	s.Must(t, http.StatusOK, "PATCH", planetest.WidgetsPath+"/w107", `{"spec":{"owner":"bob@example.com"}}`, "Content-Type", "application/merge-patch+json")
	s.Must(t, http.StatusOK, "PATCH", planetest.WidgetsPath+"/w108", `{"spec":{"owner":"ann@example.com"}}`, "Content-Type", "application/merge-patch+json")
	agree()
}
