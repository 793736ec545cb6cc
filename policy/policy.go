package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"stele.dev/stele/policy/conversion"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/quotas"
	"stele.dev/stele/policy/reach"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/brought"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/celtype"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
)

// Policy is a loaded form, ready to be enforced. It never changes and is safe for concurrent use.
type Policy struct {
	form   *Form
	digest [sha256.Size]byte
	name   string // digest in hexadecimal
	kinds  []*Kind
	byGVR  map[schema.GroupVersionResource]*Version
	views  []*Kind
	// byResource has all kinds, including those without a served version, and those of views.
	byResource map[schema.GroupResource]*Kind
	access     *access
	// more is what the layer grants besides; nil if it grants nothing.
	more  *access
	chain []link
	// namespaces is the version that rules see as namespaceObject.
	namespaces *Version
	retentions *reach.Retentions
	*kept
	quotas *quotas.Rules
	// base is the policy of the bundle alone, layer what came through the API; both are nil if this is it.
	base  *Policy
	layer *Layer
}

// Kind is a kind with the programs of its versions.
type Kind struct {
	*schemas.Kind
	Versions []*Version

	// Face says how the kind shows the objects of another kind, Of; nil if the kind has its own
	// objects.
	Face *builtin.Face
	Of   *Kind

	// Equivalent are the other kinds that share the same objects.
	Equivalent []*Kind

	// View is the view whose rows the kind describes, and Reads the version of a kind that it reads; nil for kinds with objects
	// of their own.
	View  *View
	Reads *Version

	// Object is the revision of the CustomResourceDefinition of the API that defines the kind; 0 if the bundle defines it, or if it is built in.
	// Terminating is set if that is being deleted, so that no objects are created any more.
	Object      uint64
	Terminating bool

	// Brought is set if the objects of the kind are rules that clients bring.
	Brought *brought.Kind

	window *reach.Window
	quotas *quotas.Rules // of the kind of quotas only

	// forms numbers the versions by form: versions with the same form have the same number. It is
	// nil if all versions have one form.
	forms map[string]int
	// ways convert objects between versions with different forms, by the names of both.
	ways map[[2]string]*conversion.Way
}

// Stored returns the kind that stores the objects: Of, or the kind itself.
func (k *Kind) Stored() *Kind {
	if k.Of != nil {
		return k.Of
	}
	return k
}

// Version is one version of a kind, served or not.
type Version struct {
	*schemas.Version
	Kind    *Kind
	Program *program.Program

	object func() *celtype.Type // the CEL type of objects; made at the first use by a rule
	rules  []*schemaRule

	rewording rewording

	mergeOnce sync.Once
	merge     typed.ParseableType
	kept
}

// New makes a policy of an encoded form. It does not try the form's probes: what enforces a policy loads it by package
// probes. The options apply to the programs of all kinds.
func New(encoded []byte, options ...program.Option) (*Policy, error) {
	form, err := DecodeForm(encoded)
	if err != nil {
		return nil, err
	}
	p, err := Of(form, options...)
	if err != nil {
		return nil, err
	}
	p.digest = sha256.Sum256(encoded)
	p.name = hex.EncodeToString(p.digest[:])
	return p, nil
}

// Of makes a policy of a form. It has no digest.
func Of(form *Form, options ...program.Option) (*Policy, error) {
	var err error
	p := &Policy{form: form, kept: new(kept), byGVR: map[schema.GroupVersionResource]*Version{}, byResource: map[schema.GroupResource]*Kind{}}
	for i := range form.Kinds {
		k, err := NewKind(&form.Kinds[i], options...)
		if err != nil {
			return nil, err
		}
		for _, v := range k.Versions {
			if k.Group == "" && k.Plural == "namespaces" {
				p.namespaces = v
			}
			if v.Served {
				p.byGVR[v.GroupVersionResource()] = v
			}
		}
		p.kinds = append(p.kinds, k)
	}
	if err := p.joinFaces(); err != nil {
		return nil, err
	}
	if err := p.openWindows(); err != nil {
		return nil, err
	}
	if err := p.openViews(options); err != nil {
		return nil, err
	}
	if err := p.readRetentions(); err != nil {
		return nil, err
	}
	if err := p.readQuotas(); err != nil {
		return nil, err
	}
	if p.access, err = newAccess(form); err != nil {
		return nil, err
	}
	p.chain = newChain(form, func(string) Authorizer { return nil })
	return p, nil
}

// NewKind makes a kind with its programs, which belongs to no policy yet.
func NewKind(of *schemas.Kind, options ...program.Option) (*Kind, error) {
	k := &Kind{Kind: of}
	if _, ok := k.Version(k.StorageVersion); !ok {
		return nil, fmt.Errorf("policy: %s has no version %q to store", k.Resource(), k.StorageVersion)
	}
	for j := range k.Kind.Versions {
		v := &Version{Version: &k.Kind.Versions[j], Kind: k}
		var err error
		if v.Program, err = program.New(v.Schema, options...); err != nil {
			return nil, fmt.Errorf("policy: %s %s: %w", k.Resource(), v.Name, err)
		}
		v.object = sync.OnceValue(func() *celtype.Type { return expr.ResourceType(v.Kind.Kind, v.Version) })
		if v.rules, err = newSchemaRules(k.Kind, v.Version); err != nil {
			return nil, fmt.Errorf("policy: %s %s: %w", k.Resource(), v.Name, err)
		}
		k.Versions = append(k.Versions, v)
	}
	return k, k.compareForms()
}

// Convert returns an object's content as that of an equivalent kind. The result shares the fields'
// values.
func (k *Kind) Convert(content map[string]any, to *Kind) map[string]any {
	if k.Face != nil {
		content = k.Face.Store(content)
	}
	if to.Face != nil {
		content = to.Face.Show(content)
	}
	return content
}

// joinFaces links kinds that share the same objects.
func (p *Policy) joinFaces() error {
	for _, k := range p.kinds {
		if !k.Builtin || builtin.FaceOf(k.Resource()) == nil {
			continue
		}
		k.Face = builtin.FaceOf(k.Resource())
		i := slices.IndexFunc(p.kinds, func(other *Kind) bool { return other.Builtin && other.Resource() == k.Face.Of })
		if i < 0 {
			return fmt.Errorf("policy: %s shows objects of %s, which the form does not have", k.Resource(), k.Face.Of)
		}
		k.Of = p.kinds[i]
		k.Equivalent, k.Of.Equivalent = append(k.Equivalent, k.Of), append(k.Of.Equivalent, k)
	}
	return nil
}

// Form returns the form that the policy was loaded from. The caller must not change it.
func (p *Policy) Form() *Form { return p.form }

// Digest returns the form's digest, which identifies the policy.
func (p *Policy) Digest() [sha256.Size]byte { return p.digest }

// Namespaces returns the version in which rules see namespaces; nil if the policy has none.
func (p *Policy) Namespaces() *Version { return p.namespaces }

// DigestString returns the digest in hexadecimal.
func (p *Policy) DigestString() string { return p.name }

// Kinds returns the kinds, built-in ones first, sorted by group and name. The caller must not change
// them.
func (p *Policy) Kinds() []*Kind { return p.kinds }

// Version returns a served version of a resource, or nil.
func (p *Policy) Version(r schema.GroupVersionResource) *Version { return p.byGVR[r] }

// GroupResource returns the kind's group and resource.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// Storage returns the version in which objects are stored.
func (k *Kind) Storage() *Version {
	i := slices.IndexFunc(k.Versions, func(v *Version) bool { return v.Name == k.StorageVersion })
	return k.Versions[i]
}

// SelectableFields returns the paths of the selectable fields of all versions in stored objects, without a dot in front.
func (k *Kind) SelectableFields() []string {
	var fields []string
	seen := map[string]bool{}
	for _, v := range k.Versions {
		for _, f := range v.Version.SelectableFields {
			if f = v.StoredField(strings.TrimPrefix(f, ".")); !seen[f] {
				seen[f] = true
				fields = append(fields, f)
			}
		}
	}
	return fields
}

// GroupVersionResource returns the version's group, version and resource.
func (v *Version) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v.Kind.Group, Version: v.Name, Resource: v.Kind.Plural}
}

// MergeType returns the type of the version's objects for server-side apply. It is made at the first
// call.
func (v *Version) MergeType() typed.ParseableType {
	v.mergeOnce.Do(func() { v.merge = openapi.MergeType(v.Program.Node()) })
	return v.merge
}

// kept has the results of functions passed to Keep.
type kept struct{ results sync.Map }

// Keep calls derive at the first call with a key, and returns its result from then on. The result
// lives as long as the policy or the version. Each caller uses its own type of key.
func (k *kept) Keep(key any, derive func() any) any {
	once, ok := k.results.Load(key)
	if !ok {
		once, _ = k.results.LoadOrStore(key, sync.OnceValue(derive))
	}
	return once.(func() any)()
}

// GroupVersionKind returns the version's group, version and kind.
func (v *Version) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: v.Kind.Group, Version: v.Name, Kind: v.Kind.Kind.Kind}
}
