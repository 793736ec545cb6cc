package objects

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is one object at one revision. It is immutable.
type Object struct {
	Namespace string // "" if cluster-scoped
	Name      string
	UID       string
	// Revision of the last write. Of a deleted object, the revision of the deletion.
	Revision uint64
	// JSON is the whole object as clients get it, with metadata.resourceVersion.
	JSON []byte

	// JSON[at:at+n] is the resourceVersion, see splice.
	at, n int
	// Strings here and above are parts of JSON unless they had to be unescaped.
	labels []string // key, value, key, value ..., ascending
	fields []string // values of the kind's selectable fields, in their order
	kind   *Kind
	// written is the object as its event has it, if clients see another representation; see Kind.Render.
	written *Object
	// secret is set if the event marks the object's content as secret.
	secret bool
}

// Kind is what the projection must know of a resource.
type Kind struct {
	schema.GroupResource
	// Fields are the selectable fields besides metadata.name and metadata.namespace, as selectors write
	// them: "spec.color".
	Fields []string
	// Paths are the gjson paths of fields whose values are not where their names say.
	Paths map[string]string
	// Render returns the representation that clients see, given the payload of an event; the payload
	// itself if they are the same. It is nil if objects do not have to be rendered again, see
	// [Tx.SetKinds]. It MUST be a pure function.
	Render func(payload []byte) []byte
	// Sorted is set if lists are in another order than by namespace and name; see [Kind.Derive].
	Sorted bool
	paths  []string // gjson paths of Fields
}

func newKind(k Kind) *Kind {
	k.Render = nil // it would keep a policy in memory as long as there are objects of the kind
	k.paths = make([]string, len(k.Fields))
	for i, f := range k.Fields {
		var ok bool
		if k.paths[i], ok = k.Paths[f]; !ok {
			k.paths[i] = path(f)
		}
	}
	return &k
}

// path returns a field as a gjson path, with gjson's special characters escaped.
func path(field string) string {
	parts := strings.Split(field, ".")
	for i, p := range parts {
		parts[i] = gjson.Escape(p)
	}
	return strings.Join(parts, ".")
}

// newObject makes an object from an event's payload.
func newObject(kind *Kind, payload []byte, revision uint64) (*Object, error) {
	metadata := gjson.Get(view(payload), "metadata")
	if !metadata.IsObject() || metadata.Index == 0 {
		return nil, fmt.Errorf("payload has no metadata")
	}
	if strings.TrimSpace(metadata.Raw[1:len(metadata.Raw)-1]) == "" {
		return nil, fmt.Errorf("payload has empty metadata") // the resourceVersion is inserted before a first member
	}
	o := &Object{Revision: revision, kind: kind}
	o.splice(payload, metadata.Index+1)
	// The metadata starts where it did, and is longer by the resourceVersion.
	o.readMetadata(gjson.Parse(view(o.JSON[metadata.Index : metadata.Index+len(metadata.Raw)+o.n])))
	o.fields = kind.values(o.JSON)
	return o, nil
}

// readMetadata sets the fields that are in the metadata, which is a part of JSON.
func (o *Object) readMetadata(metadata gjson.Result) {
	metadata.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "name":
			o.Name = value.Str
		case "namespace":
			o.Namespace = value.Str
		case "uid":
			o.UID = value.Str
		case "labels":
			o.labels = stringMap(value)
		}
		return true
	})
}

// Parse makes an object that is in no state, of a kind without selectable fields, for selections and
// answers. The payload is its JSON without resourceVersion; Parse does not change it.
func Parse(r schema.GroupResource, payload []byte, revision uint64) (*Object, error) {
	return newObject(&Kind{GroupResource: r}, payload, revision)
}

// values returns the values of the selectable fields.
func (k *Kind) values(json []byte) []string {
	if len(k.paths) == 0 {
		return nil
	}
	values := make([]string, len(k.paths))
	for i, path := range k.paths {
		values[i] = gjson.Get(view(json), path).String()
	}
	return values
}

// equals reports whether objects of both kinds have the same selectable fields.
func (k *Kind) equals(other *Kind) bool {
	return slices.Equal(k.Fields, other.Fields) && slices.Equal(k.paths, other.paths)
}

// withKind returns the object with the selectable fields of a kind.
func (o *Object) withKind(kind *Kind) *Object {
	if o.kind.equals(kind) {
		return o
	}
	c := *o
	c.kind, c.fields = kind, kind.values(o.JSON)
	return &c
}

// rendered returns the object with the representation that render returns. It renders what was written, not
// the former representation: so a default that the policy no longer has disappears, and a field that a
// mistaken schema pruned comes back.
func (o *Object) rendered(kind *Kind, render func([]byte) []byte) *Object {
	written := o
	if o.written != nil {
		written = o.written
	}
	payload := written.Payload()
	shown := render(payload)
	if o.HasPayload(shown) {
		return o.withKind(kind)
	}
	if written.HasPayload(shown) {
		return written.withKind(kind)
	}
	next, err := newObject(kind, shown, o.Revision)
	if err != nil || next.key() != o.key() || next.UID != o.UID {
		panic(fmt.Sprintf("objects: %v was rendered as another object: %v", o.key(), err))
	}
	next.written, next.secret = written, o.secret
	return next
}

// versionBefore and versionAfter stand around the revision in JSON.
const versionBefore, versionAfter = `"resourceVersion":"`, `",`

// splice sets JSON to the payload with the resourceVersion inserted at a position: directly after the
// opening brace of metadata.
func (o *Object) splice(payload []byte, at int) {
	var digits [20]byte
	revision := strconv.AppendUint(digits[:0], o.Revision, 10)
	o.at, o.n = at, len(versionBefore)+len(revision)+len(versionAfter)
	json := make([]byte, 0, len(payload)+o.n)
	json = append(json, payload[:at]...)
	json = append(json, versionBefore...)
	json = append(json, revision...)
	json = append(json, versionAfter...)
	o.JSON = append(json, payload[at:]...)
}

// Payload returns JSON without the resourceVersion, as events have it.
func (o *Object) Payload() []byte {
	return append(append(make([]byte, 0, len(o.JSON)-o.n), o.JSON[:o.at]...), o.JSON[o.at+o.n:]...)
}

// Kept returns the object as it is stored, without resourceVersion, if clients see another
// representation; else nil.
func (o *Object) Kept() []byte {
	if o.written == nil {
		return nil
	}
	return o.written.Payload()
}

// Secret reports whether the event of the last write marks the object's content as secret. The policy in
// force may differ.
func (o *Object) Secret() bool { return o.secret }

// HasPayload reports whether the object's JSON without resourceVersion is payload.
func (o *Object) HasPayload(payload []byte) bool {
	return len(payload) == len(o.JSON)-o.n &&
		bytes.Equal(payload[:o.at], o.JSON[:o.at]) && bytes.Equal(payload[o.at:], o.JSON[o.at+o.n:])
}

// At returns the object with another revision. Watchers get it when the object leaves their selection.
func (o *Object) At(revision uint64) *Object {
	moved, err := newObject(o.kind, o.Payload(), revision)
	if err != nil {
		panic(fmt.Sprintf("objects: %v: %v", o.key(), err)) // it was parsed once
	}
	return moved
}

// objectLabels implements [k8s.io/apimachinery/pkg/labels.Labels] over the object's labels.
type objectLabels struct{ *Object }

func (l objectLabels) Lookup(key string) (string, bool) {
	for i := 0; i < len(l.labels); i += 2 {
		if l.labels[i] == key {
			return l.labels[i+1], true
		}
	}
	return "", false
}

func (l objectLabels) Has(key string) bool {
	_, ok := l.Lookup(key)
	return ok
}

func (l objectLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}

// objectFields implements [k8s.io/apimachinery/pkg/fields.Fields] over the fields of the object's kind, and
// of the kind as, if that is not nil.
type objectFields struct {
	*Object
	as *Kind
}

func (f objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace || f.kind.fieldIndex(field) >= 0 || f.as.fieldIndex(field) >= 0
}

func (f objectFields) Get(field string) string {
	switch field {
	case fieldName:
		return f.Name
	case fieldNamespace:
		return f.Namespace
	}
	if i := f.kind.fieldIndex(field); i >= 0 {
		return f.fields[i]
	}
	if i := f.as.fieldIndex(field); i >= 0 {
		return gjson.Get(view(f.JSON), f.as.paths[i]).String()
	}
	return ""
}

const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

func (k *Kind) fieldIndex(field string) int {
	if k == nil {
		return -1
	}
	return slices.Index(k.Fields, field)
}

// key orders objects within their resource.
type key struct{ namespace, name string }

func (o *Object) key() key { return key{o.Namespace, o.Name} }

func lessObject(a, b *Object) bool {
	if a.Namespace != b.Namespace {
		return a.Namespace < b.Namespace
	}
	return a.Name < b.Name
}

// stringMap returns the keys and values of a JSON object: key, value, key, value ...
func stringMap(m gjson.Result) []string {
	n := 0
	m.ForEach(func(_, _ gjson.Result) bool { n++; return true })
	if n == 0 {
		return nil
	}
	pairs := make([]string, 0, 2*n)
	m.ForEach(func(k, v gjson.Result) bool {
		pairs = append(pairs, k.Str, v.Str)
		return true
	})
	return pairs
}

// view returns bytes that never change as a string, without copying them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
