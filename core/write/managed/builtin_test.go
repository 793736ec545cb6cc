package managed_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/write/managed"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// load compiles a bundle.
func load(t testing.TB, bundle string) *policy.Policy {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(bundle)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diagnostics := compile.Bundle(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	form, _ := compiled.Form.Encode()
	p, err := policy.New(form)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const empty = "package test\nimport \"stele.dev/policy\"\nbundle: policy.#Bundle & {cluster: \"test\"}\n"

// What is merged by its parts, and by which, and what is replaced, is in built-in kinds what
// it is upstream.
func TestBuiltInKindsMergeAsUpstream(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	converter := applyconfigurations.NewTypeConverter(scheme)
	checked := 0
	for _, k := range load(t, empty).Kinds() {
		if !k.Builtin {
			continue
		}
		for _, v := range k.Versions {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(v.GroupVersionKind())
			theirs, err := converter.ObjectToTyped(u)
			if err != nil {
				t.Fatal(err)
			}
			ours := managed.Of(v, "").Type()
			c := comparison{ours: ours.Schema, theirs: theirs.Schema(), seen: map[string]bool{}}
			c.compare(v.Kind.Kind.Kind, ours.TypeRef, theirs.TypeRef())
			for _, d := range c.found {
				t.Error(d)
			}
			checked++
		}
	}
	if checked < 6 {
		t.Errorf("%d kinds were checked", checked)
	}
}

// New objects of built-in kinds say of themselves what they say upstream, where they are held
// against Go structs.
func TestNewBuiltInObjectsAreManagedAsUpstream(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := load(t, empty)
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"a"}},"spec":{}}`,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"},"spec":{"finalizers":["x"]}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["f/b","f/a"],"ownerReferences":[{"apiVersion":"v1","kind":"K","name":"n","uid":"u"}]},"data":{"b":"1","a":"2"},"immutable":true}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","generateName":"g-"}}`,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"type":"Opaque","data":{"k":"eA=="}}`,
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"},"secrets":[{"name":"x"},{"name":"b","kind":"Secret"}],"imagePullSecrets":[{"name":"y"}]}`,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a"},"involvedObject":{"kind":"Pod","name":"p"},"reason":"R","message":"m","source":{"component":"c"},"firstTimestamp":"2020-01-01T00:00:00Z","lastTimestamp":"2020-01-01T00:00:00Z","count":1,"type":"Normal","reportingComponent":"","reportingInstance":""}`,
		`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a"},"involvedObject":{},"source":{},"eventTime":"2020-01-01T00:00:00.000000Z","action":"A","reportingComponent":"c","reportingInstance":"i","related":{"name":"n"},"series":{"count":2,"lastObservedTime":"2020-01-01T00:00:00.000000Z"}}`,
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"a"},"spec":{"holderIdentity":"h","leaseDurationSeconds":15,"renewTime":"2020-01-01T00:00:00.000000Z"}}`,
	} {
		theirs, _, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		gvk := theirs.GetObjectKind().GroupVersionKind()
		fields, err := managedfields.NewDefaultFieldManager(applyconfigurations.NewTypeConverter(scheme), same{}, same{}, scheme, gvk, gvk.GroupVersion(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		live, err := scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		live.GetObjectKind().SetGroupVersionKind(gvk)
		if theirs, err = fields.Update(live, theirs, "m"); err != nil {
			t.Fatal(err)
		}
		meta, content, err := metadata.DecodeStored([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		v := p.Version(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"})
		if err := managed.Of(v, "").Update(nil, &policy.Object{Meta: meta, Content: content}, "m", time.Now()); err != nil {
			t.Fatal(err)
		}
		want, got := "", ""
		for _, e := range theirs.(metav1.Object).GetManagedFields() {
			want += e.FieldsV1.GetRawString()
		}
		for _, e := range meta.ManagedFields {
			got += e.FieldsV1.GetRawString()
		}
		if got != want {
			t.Errorf("%s\nis managed as\n%s\nupstream as\n%s", text, got, want)
		}
	}
}

// same converts objects of one version, to itself.
type same struct{ runtime.ObjectConvertor }

func (same) ConvertToVersion(o runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return o, nil
}

func (same) Default(runtime.Object) {}

type comparison struct {
	ours, theirs *smd.Schema
	seen         map[string]bool
	found        []string
}

func (c *comparison) add(path, format string, args ...any) {
	c.found = append(c.found, path+": "+fmt.Sprintf(format, args...))
}

func (c *comparison) compare(path string, ours, theirs smd.TypeRef) {
	if strings.HasSuffix(path, ".metadata") { // one and the same
		return
	}
	if ours.NamedType != nil && theirs.NamedType != nil {
		key := *ours.NamedType + "=" + *theirs.NamedType
		if c.seen[key] {
			return
		}
		c.seen[key] = true
	}
	a, ok := c.ours.Resolve(ours)
	b, found := c.theirs.Resolve(theirs)
	if !ok || !found {
		c.add(path, "resolved %v, theirs %v", ok, found)
		return
	}
	if (a.Map == nil) != (b.Map == nil) || (a.List == nil) != (b.List == nil) || (a.Scalar == nil) != (b.Scalar == nil) {
		c.add(path, "is %s, theirs %s", kindOf(a), kindOf(b))
		return
	}
	switch {
	case a.Scalar != nil && *a.Scalar != *b.Scalar:
		c.add(path, "is %s, theirs %s", *a.Scalar, *b.Scalar)
	case a.List != nil:
		if a.List.ElementRelationship != b.List.ElementRelationship || !slices.Equal(a.List.Keys, b.List.Keys) {
			c.add(path, "is a list %q %q, theirs %q %q", a.List.ElementRelationship, a.List.Keys, b.List.ElementRelationship, b.List.Keys)
		}
		if a.List.ElementRelationship != smd.Atomic {
			c.compare(path+"[]", a.List.ElementType, b.List.ElementType)
		}
	case a.Map != nil:
		if relationship(a.Map) != relationship(b.Map) {
			c.add(path, "is a map %q, theirs %q", a.Map.ElementRelationship, b.Map.ElementRelationship)
		}
		names := map[string]bool{}
		for _, f := range append(slices.Clone(a.Map.Fields), b.Map.Fields...) {
			names[f.Name] = true
		}
		for name := range names {
			x, ok := a.Map.FindField(name)
			y, found := b.Map.FindField(name)
			if ok != found {
				c.add(path+"."+name, "declared %v, theirs %v", ok, found)
				continue
			}
			c.compare(path+"."+name, x.Type, y.Type)
		}
		if x, y := a.Map.ElementType, b.Map.ElementType; (x == smd.TypeRef{}) != (y == smd.TypeRef{}) {
			c.add(path, "takes other fields: %v, theirs %v", x != smd.TypeRef{}, y != smd.TypeRef{})
		} else if (x != smd.TypeRef{}) {
			c.compare(path+".*", x, y)
		}
	}
}

func relationship(m *smd.Map) smd.ElementRelationship {
	if m.ElementRelationship == "" {
		return smd.Separable
	}
	return m.ElementRelationship
}

func kindOf(a smd.Atom) string {
	return fmt.Sprintf("map %v, list %v, scalar %v", a.Map != nil, a.List != nil, a.Scalar != nil)
}
