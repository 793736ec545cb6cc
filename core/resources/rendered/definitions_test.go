package rendered_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/run/plane/planetest"
)

func TestTheKindOfADefinitionIsServed(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, planetest.Gadgets)
	gadget := func(spec string) string {
		return `{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": ` + spec + `}`
	}
	if a := p.Must(t, 422, "POST", planetest.GadgetsPath, gadget(`{"size": 11}`)); !strings.Contains(a.String(), "spec.size in body should be less than or equal to 10 (gadgets.yaml:37)") {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 422, "POST", planetest.GadgetsPath, gadget(`{"size": 7}`)); !strings.Contains(a.String(), "large ones must be fast (gadgets.yaml:41)") {
		t.Errorf("%s", a)
	}
	a := p.Must(t, 201, "POST", planetest.GadgetsPath, gadget(`{"size": 1, "limits": {"cpu": 1, "memory": "1Gi", "none": null}, "odd": 1}`))
	want := map[string]any{"size": 1.0, "mode": "slow", "limits": map[string]any{"cpu": 1.0, "memory": "1Gi"}}
	if diff := cmp.Diff(want, a.Field("spec")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A null counts as absent where there must be none; but not if it is applied.
func TestNullsThatAreApplied(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, planetest.Gadgets)
	gadget := `{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": `
	apply := func(code int, spec string) string {
		t.Helper()
		return p.Must(t, code, "PATCH", planetest.GadgetsPath+"/a?fieldManager=m", gadget+spec+"}", "Content-Type", "application/apply-patch+yaml").String()
	}
	const refused = `spec.limits.none: Invalid value: \"null\"`
	if a := apply(422, `{"size": 1, "limits": {"none": null}}`); !strings.Contains(a, refused) {
		t.Errorf("of what is new: %s", a)
	}
	apply(201, `{"size": 1, "limits": {"none": 1}}`)
	if a := apply(422, `{"size": 1, "limits": {"none": null}}`); !strings.Contains(a, refused) {
		t.Errorf("of what is there: %s", a)
	}
	if a := apply(200, `{"size": 1, "mode": null}`); !strings.Contains(a, `"mode":"slow"`) {
		t.Errorf("where there is a default: %s", a)
	}
}

func TestADefinitionIsShownAsItWasWritten(t *testing.T) {
	p := planetest.NewPlane(t)
	activated := p.PushGadgets(t, planetest.Gadgets)
	got := planetest.Into[apiextensionsv1.CustomResourceDefinition](t, p.Must(t, 200, "GET", planetest.DefinitionsPath+"/gadgets.example.com", ""))
	if got.ResourceVersion != fmt.Sprint(activated) || got.Labels["app"] != "gadgets" || got.Annotations["controller-gen.kubebuilder.io/version"] != "v0.14.0" || got.Annotations["stele.dev/source"] != "gadgets.yaml:7" {
		t.Errorf("metadata %v", got.ObjectMeta)
	}
	schema := got.Spec.Versions[0].Schema.OpenAPIV3Schema
	if size := schema.Properties["spec"].Properties["size"]; *size.Maximum != 10 || schema.Description != "Gadget is a thing." || len(schema.Properties["spec"].XValidations) != 1 {
		t.Errorf("schema %v", schema)
	}
	if got.Spec.Conversion == nil || got.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		t.Errorf("conversion %v", got.Spec.Conversion)
	}
}

func TestKindsAreShownAsDefinitions(t *testing.T) {
	p := planetest.NewPlane(t)
	list := planetest.Into[apiextensionsv1.CustomResourceDefinitionList](t, p.Must(t, 200, "GET", planetest.DefinitionsPath, ""))
	var names []string
	for _, d := range list.Items {
		names = append(names, d.Name)
		for _, c := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
			if !slices.ContainsFunc(d.Status.Conditions, func(x apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return x.Type == c && x.Status == apiextensionsv1.ConditionTrue
			}) {
				t.Errorf("%s is not %s", d.Name, c)
			}
		}
		if diff := cmp.Diff(d.Spec.Names, d.Status.AcceptedNames); diff != "" || !slices.Equal(d.Status.StoredVersions, []string{"v1"}) {
			t.Errorf("%s: status %v", d.Name, d.Status)
		}
	}
	if diff := cmp.Diff([]string{"plains.example.com", "widgets.example.com"}, names); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	widgets := list.Items[1]
	if size := widgets.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["size"]; size.Type != "integer" || *size.Maximum != 1000 {
		t.Errorf("size %v", size)
	}
	if v := widgets.Spec.Versions[0]; v.Subresources == nil || v.Subresources.Status == nil || len(v.AdditionalPrinterColumns) != 1 || len(v.SelectableFields) != 1 {
		t.Errorf("version %v", v)
	}
	p.Must(t, 404, "GET", planetest.DefinitionsPath+"/namespaces", "")
}

func TestDefinitionsAreChangedInThePolicy(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, planetest.Gadgets)
	p.Must(t, 404, "DELETE", planetest.DefinitionsPath+"/odds.example.com", "")
	p.Must(t, 404, "PUT", planetest.DefinitionsPath+"/odds.example.com", `{"metadata":{"name":"odds.example.com"}}`)
	p.Must(t, 404, "PATCH", planetest.DefinitionsPath+"/odds.example.com", "{}", "Content-Type", "application/merge-patch+json")
	for _, tc := range []struct{ method, name, body, want string }{
		{"PUT", "/gadgets.example.com", `{}`, "kinds are defined by the policy: change gadgets.yaml:7 and push it"},
		{"DELETE", "/widgets.example.com", "", "kinds are defined by the policy: change " + planetest.Line("@extern(embed)\n"+planetest.Bundle, `kinds: "widgets`) + " and push it"},
		{"POST", "", `{"metadata":{"name":"odds.example.com"}}`, "kinds are defined by the policy, not through the API: add it to kinds or crds of a team in the bundle (bundle.cue), and push that"},
	} {
		if a := p.Must(t, 403, tc.method, planetest.DefinitionsPath+tc.name, tc.body); !strings.Contains(a.String(), tc.want) {
			t.Errorf("%s %s: %s, want %s", tc.method, tc.name, a, tc.want)
		}
	}
}

// Controllers wait with upstream's client until their kinds are established.
func TestClientsFollowDefinitions(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	for _, mediaType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		client, err := apiextensions.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token", ContentConfig: rest.ContentConfig{ContentType: mediaType}})
		if err != nil {
			t.Fatal(err)
		}
		list, err := client.ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{LabelSelector: labels.Everything().String()})
		if err != nil || len(list.Items) < 2 || list.Items[0].Spec.Group != "example.com" {
			t.Fatalf("%s: %v, %v", mediaType, list, err)
		}
		const name = "gadgets.example.com"
		w, err := client.ApiextensionsV1().CustomResourceDefinitions().Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion, FieldSelector: "metadata.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		p.PushGadgets(t, planetest.Gadgets)
		select {
		case e := <-w.ResultChan():
			if d, ok := e.Object.(*apiextensionsv1.CustomResourceDefinition); !ok || e.Type != "ADDED" || d.Name != name || d.Status.AcceptedNames.Kind != "Gadget" {
				t.Errorf("%s: %v", mediaType, e)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: nothing came", mediaType)
		}
		w.Stop()
		p.Push(t, planetest.PolicyBody(t, planetest.Bundle, nil))
	}
}
