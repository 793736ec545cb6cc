package plans

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/canonical"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/policy"
)

// exported has the objects of a file, sorted by namespace and name.
type exported struct {
	byKind map[schema.GroupKind][]*Object
	// versions are the versions in which the file has objects of a kind, each with its first object.
	versions map[schema.GroupKind]map[string]*Object
}

// maxExported limits the size of an object in a file.
const maxExported = 64 << 20

// ReadObjects reads stored objects from a file, such as kubectl get -o json writes it: objects and lists of objects, as
// JSON or as YAML documents. An error names what cannot be read. A file without any document is an error, a list
// without objects is not.
func ReadObjects(r io.Reader) (Source, error) {
	s := &exported{map[schema.GroupKind][]*Object{}, map[schema.GroupKind]map[string]*Object{}}
	d := utilyaml.NewYAMLOrJSONDecoder(bufio.NewReaderSize(r, 1<<16), 1<<16)
	documents := 0
	for n := 1; ; n++ {
		var raw json.RawMessage
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && len(raw) > 0 && string(raw) != "null" { // YAML may have empty documents
			documents++
			err = s.add(raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
	if documents == 0 {
		return nil, errors.New("it is empty: want an object or a list of objects")
	}
	for kind, list := range s.byKind {
		slices.SortStableFunc(list, byName)
		for i := 1; i < len(list); i++ {
			if byName(list[i-1], list[i]) == 0 {
				return nil, fmt.Errorf("%s %s is there twice", kind, nameOf(list[i]))
			}
		}
	}
	return s, nil
}

func byName(a, b *Object) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func nameOf(o *Object) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// add adds an object, or the items of a list.
func (s *exported) add(raw []byte) error {
	var list struct {
		Items *[]json.RawMessage `json:"items"`
		// Metadata tells a list from an object that has items.
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if !bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("{")) {
		return errors.New("want an object or a list of objects")
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return err
	}
	if list.Items == nil || list.Metadata.Name != "" {
		return s.addObject(raw)
	}
	for i, item := range *list.Items {
		if err := s.add(item); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	return nil
}

// addObject adds an object in the form in which objects are stored.
func (s *exported) addObject(raw []byte) error {
	if len(raw) > maxExported {
		return fmt.Errorf("it has %d bytes, limit is %d", len(raw), maxExported)
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
		return err
	}
	apiVersion, _ := content["apiVersion"].(string)
	kindName, _ := content["kind"].(string)
	if apiVersion == "" || kindName == "" {
		return errors.New("it has no apiVersion or no kind")
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return err
	}
	meta, _, err := metadata.Decode(content)
	if err != nil {
		return err
	}
	if meta.Name == "" {
		return fmt.Errorf("a %s has no metadata.name", kindName)
	}
	meta.ManagedFields = nil // no rule depends on them
	text, err := canonical.Object(apiVersion, kindName, meta, content)
	if err != nil {
		return err
	}
	o := &Object{Namespace: meta.Namespace, Name: meta.Name, JSON: text}
	kind := schema.GroupKind{Group: gv.Group, Kind: kindName}
	s.byKind[kind] = append(s.byKind[kind], o)
	if s.versions[kind] == nil {
		s.versions[kind] = map[string]*Object{}
	}
	if s.versions[kind][gv.Version] == nil {
		s.versions[kind][gv.Version] = o
	}
	return nil
}

// fits returns an error if objects of the file cannot be those that are stored under a policy, and otherwise notes
// about objects that are of no kind of it.
func (s *exported) fits(p *policy.Policy) (notes []string, err error) {
	kinds := map[schema.GroupKind]*policy.Kind{}
	for _, k := range p.Kinds() {
		kinds[schema.GroupKind{Group: k.Group, Kind: k.Kind.Kind}] = k
	}
	for _, kind := range slices.SortedFunc(maps.Keys(s.byKind), func(a, b schema.GroupKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind))
	}) {
		k := kinds[kind]
		if k == nil {
			notes = append(notes, fmt.Sprintf("The objects in the file have %d of %s, which the older policy does not have: they were not tried.", len(s.byKind[kind]), kind))
			continue
		}
		if err := s.fitsKind(k, kind); err != nil {
			return nil, err
		}
	}
	return notes, nil
}

// fitsKind returns an error if an object of a kind has a version from which the stored one does not follow, or if it
// has a namespace and must not, or has none.
func (s *exported) fitsKind(k *policy.Kind, kind schema.GroupKind) error {
	storage := k.Storage()
	for _, version := range slices.Sorted(maps.Keys(s.versions[kind])) {
		if storage.From(version) {
			return fmt.Errorf("%s %s has version %s, and is stored in version %s; get the objects in that version: kubectl get %s.%s.%s", k.Resource(), nameOf(s.versions[kind][version]), version, storage.Name, k.Plural, storage.Name, k.Group)
		}
	}
	for _, o := range s.byKind[kind] {
		switch {
		case k.Namespaced && o.Namespace == "":
			return fmt.Errorf("%s %s has no metadata.namespace", k.Resource(), o.Name)
		case !k.Namespaced && o.Namespace != "":
			return fmt.Errorf("%s %s has a metadata.namespace, and the kind is for the whole cluster", k.Resource(), nameOf(o))
		}
	}
	return nil
}

func (s *exported) objectsOf(k *policy.Kind) []*Object {
	return s.byKind[schema.GroupKind{Group: k.Group, Kind: k.Kind.Kind}]
}

func (s *exported) Shown() *policy.Policy                    { return nil }
func (s *exported) Has(k *policy.Kind) bool                  { return len(s.objectsOf(k)) > 0 }
func (s *exported) Len(k *policy.Kind) int                   { return len(s.objectsOf(k)) }
func (s *exported) Objects(k *policy.Kind) iter.Seq[*Object] { return slices.Values(s.objectsOf(k)) }
func (s *exported) Namespace(name string) *Object {
	list := s.byKind[schema.GroupKind{Kind: "Namespace"}]
	i, found := slices.BinarySearchFunc(list, name, func(o *Object, name string) int { return cmp.Compare(o.Name, name) })
	if !found {
		return nil
	}
	return list[i]
}
