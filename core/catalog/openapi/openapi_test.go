package openapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	v2conversion "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubectl/pkg/util/openapi"
	own "stele.dev/stele/core/catalog/openapi"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
	forms "stele.dev/stele/schemas/openapi"
)

var update = flag.Bool("update", false, "rewrite golden files")

const bundle = `
package test
import "stele.dev/policy"

#Widget: {
	// What is wanted.
	spec!: {
		// How large it is.
		size!:  int & >0 & <=1000
		color:  *"blue" | "red" | "green"
		ports?: [...{name!: string, port!: int & >0}]
		limits?: [string]: int
		free?: {...}
		maybe?: null | {a!: string}
	}
	status?: ready?: bool
}
#Gear: spec?: teeth?: int
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["*"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com"
			names: {kind: "Widget", plural: "widgets"}
			storageVersion: "v1"
			versions: v1: {
				#schema: #Widget
				subresources: status: {}
			}
		}
		kinds: "gears.other.example.com": {
			group: "other.example.com"
			names: {kind: "Gear", plural: "gears"}
			scope: "Cluster"
			storageVersion: "v1"
			versions: v1: #schema: #Gear
		}
	}
}
`

var compiled = struct {
	sync.Mutex
	of map[string]*policy.Policy
}{of: map[string]*policy.Policy{}}

func compileBundle(t testing.TB, text string) *policy.Policy {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	if p := compiled.of[text]; p != nil {
		return p
	}
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(text)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	return load(t, source, text)
}

func load(t testing.TB, source *bundles.Source, name string) *policy.Policy {
	t.Helper()
	c, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := c.Form.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	compiled.of[name] = p
	return p
}

func service(t testing.TB, text string, before *own.Service) *own.Service {
	var besides []own.Resource
	for _, k := range rendered.RBAC {
		besides = append(besides, own.Resource{Version: k.Version})
	}
	return own.New(compileBundle(t, text), "v0.0.0-test", before, besides...)
}

func get(t testing.TB, s *own.Service, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func body(t testing.TB, r *http.Response) []byte {
	t.Helper()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s", r.Status)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// index returns the URL of each document.
func index(t testing.TB, s *own.Service) map[string]string {
	t.Helper()
	var found struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(body(t, get(t, s, "/openapi/v3")), &found); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for path, of := range found.Paths {
		urls[path] = of.ServerRelativeURL
	}
	return urls
}

func golden(t *testing.T, name string, text []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, text, "", " "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("-want +got (run with -update to accept):\n%s", cmp.Diff(string(want), got.String()))
	}
}

func TestDocumentOfAGroupVersionIsGolden(t *testing.T) {
	golden(t, "v3.json", body(t, get(t, service(t, bundle, nil), "/openapi/v3/apis/example.com/v1")))
}

func TestDocumentOfVersion2IsGolden(t *testing.T) {
	var all struct {
		Definitions, Paths map[string]json.RawMessage
	}
	if err := json.Unmarshal(body(t, get(t, service(t, bundle, nil), "/openapi/v2")), &all); err != nil {
		t.Fatal(err)
	}
	for _, of := range []map[string]json.RawMessage{all.Definitions, all.Paths} {
		for name := range of {
			if !strings.Contains(name, "example") {
				delete(of, name)
			}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "v2.json", text)
}

// policies returns the policies of the tests: their own kinds, the built-in kinds, and those of the examples.
func policies(t *testing.T) map[string]*policy.Policy {
	t.Helper()
	all := map[string]*policy.Policy{"test": compileBundle(t, bundle)}
	examples := os.DirFS("../../../examples")
	for name, pkg := range map[string]string{"quickstart": ".", "platform": "clusters/prod-eu"} {
		module, err := fs.Sub(examples, name)
		if err != nil {
			t.Fatal(err)
		}
		source, err := bundles.ReadFS(module, pkg)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = load(t, source, name)
	}
	return all
}

func internal(t *testing.T, s *spec.Schema) *apiextensions.JSONSchemaProps {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &external); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &props, nil); err != nil {
		t.Fatal(err)
	}
	return &props
}

// Every kind has a schema that a CustomResourceDefinition could have.
func TestSchemasOfAllKindsAreStructural(t *testing.T) {
	seen := 0
	for name, p := range policies(t) {
		for _, k := range p.Kinds() {
			for _, v := range k.Versions {
				seen++
				props := internal(t, forms.Of(v.Schema))
				ss, err := structural.NewStructural(props)
				if err != nil {
					t.Fatal(err)
				}
				if errs := structural.ValidateStructural(field.NewPath("schema"), ss); len(errs) > 0 {
					t.Errorf("%s: %s: %v", name, v.GroupVersionKind(), errs.ToAggregate())
				}
				crd := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{
					Group: "example.org", Scope: apiextensions.ClusterScoped,
					Names:                 apiextensions.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
					Versions:              []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
					Validation:            &apiextensions.CustomResourceValidation{OpenAPIV3Schema: props},
					Conversion:            &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
					PreserveUnknownFields: new(bool),
				}, Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}}}
				crd.Name = "things.example.org"
				if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), crd); len(errs) > 0 {
					for _, e := range errs {
						t.Errorf("%s: %s: %s: %s", name, v.GroupVersionKind(), e.Field, e.Detail)
					}
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d kinds were looked at", seen)
	}
}

// OpenAPI v2 describes a kind as Kubernetes would.
func TestVersion2OfAllKindsIsKubernetes(t *testing.T) {
	var strip func(s *structural.Structural)
	strip = func(s *structural.Structural) {
		s.Default.Object = nil
		for name, property := range s.Properties {
			strip(&property)
			s.Properties[name] = property
		}
		if s.Items != nil {
			strip(s.Items)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
			strip(s.AdditionalProperties.Structural)
		}
	}
	for name, p := range policies(t) {
		var all struct{ Definitions map[string]*spec.Schema }
		if err := json.Unmarshal(body(t, get(t, own.New(p, "v0", nil), "/openapi/v2")), &all); err != nil {
			t.Fatal(err)
		}
		byKind := map[string]*spec.Schema{}
		for _, d := range all.Definitions {
			if gvk, ok := d.Extensions["x-kubernetes-group-version-kind"]; ok {
				byKind[fmt.Sprint(gvk)] = d
			}
		}
		for _, k := range p.Kinds() {
			for _, v := range k.Versions {
				gvk := v.GroupVersionKind()
				ours := byKind[fmt.Sprint([]any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})]
				if ours == nil {
					t.Errorf("%s: there is no definition of %s", name, gvk)
					continue
				}
				ss, err := structural.NewStructural(internal(t, forms.Of(v.Schema)))
				if err != nil {
					t.Fatal(err)
				}
				if ss.XPreserveUnknownFields {
					continue
				}
				strip(ss)
				theirs := v2conversion.ToStructuralOpenAPIV2(ss).ToKubeOpenAPI()
				ours.Extensions = nil
				delete(ours.Properties, "apiVersion")
				delete(ours.Properties, "kind")
				delete(ours.Properties, "metadata")
				if v.Kind.Builtin { // its parts have names, and Kubernetes' descriptions
					ours, theirs = whole(ours, all.Definitions), whole(theirs, nil)
				}
				if got, want := asJSON(t, ours), asJSON(t, theirs); got != want {
					t.Errorf("%s: %s: -want +got:\n%s", name, gvk, cmp.Diff(want, got))
				}
			}
		}
	}
}

// whole returns a schema with its references resolved, and without descriptions.
func whole(s *spec.Schema, definitions map[string]*spec.Schema) *spec.Schema {
	if name, ok := strings.CutPrefix(s.Ref.String(), "#/definitions/"); ok {
		return whole(definitions[name], definitions)
	}
	copied := *s
	copied.Description, copied.Properties = "", nil
	for name, property := range s.Properties {
		copied.SetProperty(name, *whole(&property, definitions))
	}
	if s.Items != nil {
		copied.Items = &spec.SchemaOrArray{Schema: whole(s.Items.Schema, definitions)}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		copied.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: whole(s.AdditionalProperties.Schema, definitions)}
	}
	return &copied
}

func asJSON(t *testing.T, x any) string {
	t.Helper()
	text, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kubectl sends the patch types that the document lists.
func TestOnlyBuiltinKindsTakeStrategicMergePatches(t *testing.T) {
	s := service(t, bundle+`
bundle: teams: t: crds: "gates.x.k8s.io": {
	apiVersion: "apiextensions.k8s.io/v1"
	kind:       "CustomResourceDefinition"
	metadata: {name: "gates.x.k8s.io", annotations: "api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}
	spec: {
		group: "x.k8s.io"
		scope: "Namespaced"
		names: {kind: "Gate", plural: "gates"}
		versions: [{name: "v1", served: true, storage: true, schema: openAPIV3Schema: type: "object"}]
	}
}
`, nil)
	for path, want := range map[string]bool{"/openapi/v3/apis/x.k8s.io/v1": false, "/openapi/v3/apis/coordination.k8s.io/v1": true} {
		text := string(body(t, get(t, s, path)))
		if !strings.Contains(text, "application/merge-patch+json") {
			t.Errorf("%s names no merge patches", path)
		}
		if is := strings.Contains(text, "application/strategic-merge-patch+json"); is != want {
			t.Errorf("%s names strategic merge patches: %t, want %t", path, is, want)
		}
	}
}

func TestHashesChangeWithTheContentAlone(t *testing.T) {
	first := service(t, bundle, nil)
	before := index(t, first)
	if again := index(t, service(t, bundle, nil)); !cmp.Equal(again, before) {
		t.Errorf("made again: %s", cmp.Diff(before, again))
	}
	if again := index(t, service(t, "// A comment that moves all lines.\n"+bundle, first)); !cmp.Equal(again, before) {
		t.Errorf("with other lines: %s", cmp.Diff(before, again))
	}
	if a, b := get(t, first, "/openapi/v2").Header.Get("ETag"), get(t, service(t, bundle, nil), "/openapi/v2").Header.Get("ETag"); a != b {
		t.Errorf("version 2, made again: %s", b)
	}
	second := service(t, strings.Replace(bundle, "<=1000", "<=2000", 1), first)
	after := index(t, second)
	for path, url := range before {
		if changed := after[path] != url; changed != (path == "apis/example.com/v1") {
			t.Errorf("%s: changed = %t", path, changed)
		}
		r := get(t, first, url)
		if etag := r.Header.Get("ETag"); !strings.Contains(url, "?hash="+strings.Trim(etag, `"`)) {
			t.Errorf("%s has the ETag %s", url, etag)
		}
		if r := get(t, first, url, "If-None-Match", r.Header.Get("ETag")); r.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", url, r.Status)
		}
	}
	if r := get(t, second, before["apis/example.com/v1"]); r.StatusCode != http.StatusMovedPermanently || r.Header.Get("Location") != after["apis/example.com/v1"] {
		t.Errorf("an old hash: %s to %s", r.Status, r.Header.Get("Location"))
	}
	if a, b := get(t, first, "/openapi/v2").Header.Get("ETag"), get(t, second, "/openapi/v2").Header.Get("ETag"); a == b || a == "" {
		t.Errorf("version 2 has the ETag %s and then %s", a, b)
	}
}

// A document and its time of modification stay the same as long as its kinds do.
func TestDocumentsOfKindsThatStayAreKept(t *testing.T) {
	first := service(t, bundle, nil)
	index(t, first)
	second := service(t, strings.Replace(bundle, "<=1000", "<=2000", 1), first)
	for path, kept := range map[string]bool{"/openapi/v3/apis/other.example.com/v1": true, "/openapi/v3/api/v1": true, "/openapi/v3/apis/example.com/v1": false} {
		if same := own.SameDocument(first, second, path); same != kept {
			t.Errorf("%s: kept = %t", path, same)
		}
	}
}

// After a new policy, documents are built in the background if those of the previous policy were used.
func TestDocumentsAreMadeBeforeSomebodyAsks(t *testing.T) {
	changed := strings.Replace(bundle, "<=1000", "<=2000", 1)
	compileBundle(t, bundle)
	compileBundle(t, changed)
	synctest.Test(t, func(t *testing.T) {
		first := service(t, bundle, nil)
		idle := service(t, changed, first)
		synctest.Wait()
		if index, v2 := own.Made(idle); index || v2 {
			t.Errorf("nobody asked: index made = %t, version 2 made = %t", index, v2)
		}
		index(t, first)
		second := service(t, changed, first)
		synctest.Wait()
		if index, v2 := own.Made(second); !index || v2 {
			t.Errorf("somebody asked for the index: index made = %t, version 2 made = %t", index, v2)
		}
	})
}

func TestDocumentsComeAsClientsAsk(t *testing.T) {
	s := service(t, bundle, nil)
	for _, test := range []struct {
		path, accept, encoding string
		code                   int
		contentType            string
	}{
		{"/openapi/v3", "", "", 200, "application/json"},
		{"/openapi/v3/", "application/json", "gzip", 200, "application/json"},
		{"/openapi/v3", "text/plain", "", 406, ""},
		{"/openapi/v3/apis/example.com/v1", "", "", 200, "application/json"},
		{"/openapi/v3/apis/example.com/v1", "application/json", "br, gzip;q=0.5", 200, "application/json"},
		{"/openapi/v3/apis/example.com/v1", "application/json", "gzip;q=0", 200, "application/json"},
		{"/openapi/v3/apis/example.com/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "", 200, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"/openapi/v3/apis/example.com/v1", "application/yaml", "", 406, ""},
		{"/openapi/v3/apis/example.com/v2", "", "", 404, ""},
		{"/openapi/v2", "", "gzip", 200, "application/json"},
		{"/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "", 200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
	} {
		r := get(t, s, test.path, "Accept", test.accept, "Accept-Encoding", test.encoding)
		if r.StatusCode != test.code || test.code == 200 && r.Header.Get("Content-Type") != test.contentType {
			t.Errorf("%v: %s, %s", test, r.Status, r.Header.Get("Content-Type"))
			continue
		}
		if test.code != 200 {
			continue
		}
		text := body(t, r)
		if compressed := r.Header.Get("Content-Encoding") == "gzip"; compressed != (strings.Contains(test.encoding, "gzip") && !strings.Contains(test.encoding, "q=0") || strings.Contains(test.encoding, "0.5")) {
			t.Errorf("%v: compressed = %t", test, compressed)
		} else if compressed {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		if isJSON := json.Valid(text); isJSON != (test.contentType == "application/json") {
			t.Errorf("%v: %.100s", test, text)
		}
	}
}

// Kubernetes' own clients can read all documents.
func TestClientsReadTheDocuments(t *testing.T) {
	server := httptest.NewServer(service(t, bundle, nil))
	defer server.Close()
	client := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: server.URL})

	doc, err := client.OpenAPISchema()
	if err != nil {
		t.Fatal(err)
	}
	resources, err := openapi.NewOpenAPIData(doc)
	if err != nil {
		t.Fatal(err)
	}
	if resources.LookupResource(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}) == nil {
		t.Error("version 2 has no Widget")
	}
	root := openapi3.NewRoot(client.OpenAPIV3())
	gvs, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	for _, gv := range gvs {
		v3, err := root.GVSpec(gv)
		if err != nil {
			t.Fatal(err)
		}
		if len(v3.Components.Schemas) == 0 {
			t.Errorf("%s has no schemas", gv)
		}
	}
	if len(gvs) < 4 {
		t.Errorf("only %v are described", gvs)
	}
}

// large returns a policy with many kinds of forty fields, each in its own group, as operators have them.
func large(t testing.TB, kinds int) []byte {
	t.Helper()
	base := compileBundle(t, bundle)
	form := *base.Form()
	form.Probes = nil
	form.Kinds = append([]schemas.Kind{}, form.Kinds...)
	for i := range kinds {
		name := fmt.Sprintf("kind%d", i)
		spec := &schemas.Struct{}
		for j := range 40 {
			n := &schemas.Node{Kinds: schemas.StringKind, Doc: fmt.Sprintf("Field %d says how %s is to be, in a sentence of usual length, or two.", j, name),
				Source: schemas.Position{File: "kinds/" + name + ".cue", Line: j}}
			switch j % 4 {
			case 0:
				n.Scalars = []schemas.Scalar{{Kinds: schemas.StringKind, Patterns: []schemas.Pattern{{Regexp: fmt.Sprintf("^[a-z]{1,%d}$", j+1)}}}}
			case 1:
				n.Kinds = schemas.IntegerKind
			case 2:
				n = &schemas.Node{Kinds: schemas.ListKind, Doc: n.Doc, List: &schemas.List{Items: n}}
			}
			spec.Fields = append(spec.Fields, schemas.Field{Name: fmt.Sprintf("field%d", j), Presence: schemas.Optional, Schema: n})
		}
		root := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
			{Name: "spec", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StructKind, Struct: spec}}}}}
		form.Kinds = append(form.Kinds, schemas.Kind{Group: name + ".example.com", Kind: "Kind" + name[4:], ListKind: "Kind" + name[4:] + "List", Plural: name + "s", Singular: name,
			Namespaced: true, StorageVersion: "v1", Versions: []schemas.Version{{Name: "v1", Served: true, Schema: root, Status: true}}})
	}
	encoded, _ := form.Encode()
	return encoded
}

func heap() uint64 {
	for range 2 { // finalizers
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A kind takes less than 1 MiB, with its programs and all documents.
func TestManyKindsNeedLittleMemory(t *testing.T) {
	const kinds = 500
	encoded := large(t, kinds)
	index(t, service(t, bundle, nil)) // builds what is built only once
	get(t, service(t, bundle, nil), "/openapi/v2")
	before := heap()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	programs := heap()
	s := own.New(p, "v0.0.0-test", nil)
	urls := index(t, s)
	for _, url := range urls {
		body(t, get(t, s, url, "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"))
	}
	body(t, get(t, s, "/openapi/v2"))
	documents := heap()
	each := func(from, to uint64) uint64 { return (max(to, from) - from) / kinds }
	t.Logf("a kind needs %d KiB, and its documents %d KiB", each(before, programs)>>10, each(programs, documents)>>10)
	if total := each(before, documents); total > 1<<20 {
		t.Errorf("a kind needs %d KiB", total>>10)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(p)
	runtime.KeepAlive(encoded)
}

// BenchmarkIndex measures building the index of 500 kinds, first in full, then after one kind changed.
func BenchmarkIndex(b *testing.B) {
	encoded := large(b, 500)
	p, err := policy.New(encoded)
	if err != nil {
		b.Fatal(err)
	}
	changed, err := policy.New(bytes.Replace(encoded, []byte("field7 "), []byte("field7x"), 1))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			index(b, own.New(p, "v0", nil))
		}
	})
	before := own.New(p, "v0", nil)
	index(b, before)
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			index(b, own.New(changed, "v0", before))
		}
	})
	b.Run("version2", func(b *testing.B) {
		for b.Loop() {
			body(b, get(b, own.New(p, "v0", nil), "/openapi/v2"))
		}
	})
	b.Run("version2-protobuf", func(b *testing.B) {
		for b.Loop() {
			body(b, get(b, own.New(p, "v0", nil), "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"))
		}
	})
}

// The documents list media types as kube-apiserver does: all for built-in kinds, with those of watches for lists; JSON
// and YAML for custom kinds.
func TestMediaTypes(t *testing.T) {
	const all, watches = "application/cbor application/json application/vnd.kubernetes.protobuf application/yaml", "application/cbor application/cbor-seq application/json application/json;stream=watch application/vnd.kubernetes.protobuf application/vnd.kubernetes.protobuf;stream=watch application/yaml"
	const text = "application/json application/yaml"
	s := service(t, bundle, nil)
	for path, want := range map[string]struct{ list, get, post string }{
		"/api/v1/namespaces/{namespace}/configmaps":           {watches, all, "*/*"},
		"/apis/example.com/v1/namespaces/{namespace}/widgets": {text, text, text},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":     {watches, all, "*/*"},
	} {
		document := "/openapi/v3/" + strings.Join(strings.Split(path, "/")[1:3], "/")
		if strings.HasPrefix(path, "/apis/") {
			document = "/openapi/v3/" + strings.Join(strings.Split(path, "/")[1:4], "/")
		}
		var of struct {
			Paths map[string]struct {
				Get struct {
					Responses map[string]struct{ Content map[string]any }
				}
				Post struct {
					RequestBody struct{ Content map[string]any }
				}
			}
		}
		if err := json.Unmarshal(body(t, get(t, s, document)), &of); err != nil {
			t.Fatal(err)
		}
		names := func(content map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(content)), " ") }
		if got := names(of.Paths[path].Get.Responses["200"].Content); got != want.list {
			t.Errorf("%s: lists are %s, want %s", path, got, want.list)
		}
		if got := names(of.Paths[path+"/{name}"].Get.Responses["200"].Content); got != want.get {
			t.Errorf("%s: objects are %s, want %s", path, got, want.get)
		}
		if got := names(of.Paths[path].Post.RequestBody.Content); got != want.post {
			t.Errorf("%s: takes %s, want %s", path, got, want.post)
		}
	}
}
