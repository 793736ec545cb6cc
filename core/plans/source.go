package plans

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/policy"
	"stele.dev/stele/projections/objects"
)

// Object is a stored object.
type Object struct {
	Namespace, Name string
	// Revision is the revision of the last write; 0 if it is not known.
	Revision uint64
	// JSON is the object as clients get it, Written as its last write stored it.
	JSON, Written []byte
}

// Source has stored objects. It is safe for concurrent use.
type Source interface {
	// Shown is the policy that the JSON of objects follows; nil for the older policy of each plan.
	Shown() *policy.Policy
	// Len returns the number of objects of a kind.
	Len(*policy.Kind) int
	// Objects returns the objects of a kind, sorted by namespace and name.
	Objects(*policy.Kind) iter.Seq[*Object]
	// Namespace returns a namespace; nil if it is not there.
	Namespace(name string) *Object
	// MayName reports whether the plan may name the objects of a resource in a namespace; "" is all namespaces.
	MayName(r schema.GroupResource, namespace string) bool
}

// tipSource has the objects of a control plane at a revision.
type tipSource struct {
	*commit.Tip
	mayName func(r schema.GroupResource, namespace string) bool
}

func (s tipSource) Shown() *policy.Policy  { return s.Policy }
func (s tipSource) Len(k *policy.Kind) int { return s.Tip.Objects.Len(k.GroupResource()) }
func (s tipSource) Namespace(n string) *Object {
	return objectOf(s.Tip.Objects.Get(commit.Namespaces, "", n))
}

func (s tipSource) MayName(r schema.GroupResource, namespace string) bool {
	return s.mayName(r, namespace)
}

func (s tipSource) Objects(k *policy.Kind) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		for o := range s.Tip.Objects.List(k.GroupResource(), &objects.Selection{}, "", "") {
			if !yield(objectOf(o)) {
				return
			}
		}
	}
}

func objectOf(o *objects.Object) *Object {
	if o == nil {
		return nil
	}
	return &Object{Namespace: o.Namespace, Name: o.Name, Revision: o.Revision, JSON: o.JSON, Written: o.Kept()}
}

// exported has the objects of a file.
type exported struct {
	byKind map[schema.GroupKind][]*Object
}

// maxExported limits the size of an object in a file.
const maxExported = 64 << 20

// ReadObjects reads stored objects from a file, such as kubectl get -o json writes it: objects and lists of objects, as
// JSON or as YAML documents. An error names the document that cannot be read.
func ReadObjects(r io.Reader) (Source, error) {
	s := &exported{map[schema.GroupKind][]*Object{}}
	d := utilyaml.NewYAMLOrJSONDecoder(bufio.NewReaderSize(r, 1<<16), 1<<16)
	for n := 1; ; n++ {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("objects: document %d: %w", n, err)
		}
	}
	for kind, list := range s.byKind {
		slices.SortStableFunc(list, byName)
		for i := 1; i < len(list); i++ {
			if byName(list[i-1], list[i]) == 0 {
				return nil, fmt.Errorf("objects: %s %s/%s is there twice", kind, list[i].Namespace, list[i].Name)
			}
		}
	}
	return s, nil
}

func byName(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// add adds an object, or the items of a list.
func (s *exported) add(raw []byte) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if len(raw) > maxExported && !gjson.GetBytes(raw, "items").Exists() {
		return fmt.Errorf("it has %d bytes, limit is %d", len(raw), maxExported)
	}
	var o struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	if o.Items != nil && o.Metadata.Name == "" {
		for i, item := range o.Items {
			if err := s.add(item); err != nil {
				return fmt.Errorf("item %d: %w", i, err)
			}
		}
		return nil
	}
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	switch {
	case err != nil:
		return err
	case o.APIVersion == "" || o.Kind == "":
		return errors.New("it has no apiVersion or no kind")
	case o.Metadata.Name == "":
		return fmt.Errorf("a %s has no metadata.name", o.Kind)
	}
	kind := schema.GroupKind{Group: gv.Group, Kind: o.Kind}
	s.byKind[kind] = append(s.byKind[kind], &Object{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, JSON: raw})
	return nil
}

func (s *exported) of(k *policy.Kind) []*Object {
	return s.byKind[schema.GroupKind{Group: k.Group, Kind: k.Kind.Kind}]
}

func (s *exported) Shown() *policy.Policy                     { return nil }
func (s *exported) Len(k *policy.Kind) int                    { return len(s.of(k)) }
func (s *exported) Objects(k *policy.Kind) iter.Seq[*Object]  { return slices.Values(s.of(k)) }
func (s *exported) MayName(schema.GroupResource, string) bool { return true }
func (s *exported) Namespace(name string) *Object {
	for _, o := range s.byKind[schema.GroupKind{Kind: "Namespace"}] {
		if o.Name == name {
			return o
		}
	}
	return nil
}
