package plans

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/object/metadata"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/write/validity"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/projections/objects"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/wording"
)

// A failure is one reason why a policy refuses a write.
type failure struct {
	// path is the path of a field as findings have it, at the path in the object. Both are empty for rules of admission.
	path, at string
	// rule is the ID of a check of admission, or of a validation of the kind; empty for the schema.
	rule, source string
	// message is the reason in words.
	message string
	fault   field.ErrorType
	// admission is set for rules of admission.
	admission bool
}

// way is one of the ways in which an object is tried.
type way int

const (
	recreated     way = iota // created as it is shown now, then its status written
	labelled                 // updated in nothing but a label
	statusWritten            // its status written as it is
	ways
)

// bench tries objects of one kind under one policy. It is safe for concurrent use.
type bench struct {
	policy  *policy.Policy
	version *policy.Version
	kind    objects.Kind
	stored  func([]byte) ([]byte, error)
	places  map[string]string // rule of the kind by the suffix of its messages
	spaces  *namespaces
	reading *readable // nil if rules do not read stored objects
}

// newBench returns a bench of a kind of a policy, whose outside authorizers are not asked.
func newBench(p *policy.Policy, k *policy.Kind, spaces *namespaces) *bench {
	b := &bench{policy: p, version: k.Storage(), kind: commit.KindOf(k), stored: versions.Stored(k), places: map[string]string{}, spaces: spaces}
	for i := range b.version.Rules {
		r := &b.version.Rules[i]
		b.places[wording.At(r.Source.String())] = policy.RuleID(k.Kind, r)
	}
	return b
}

// namespaces decodes the namespaces of a source, each once.
type namespaces struct {
	source Source
	mu     sync.Mutex
	known  map[string]*policy.Object
}

func (n *namespaces) get(name string) *policy.Object {
	if name == "" {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	o, known := n.known[name]
	if known {
		return o
	}
	if stored := n.source.Namespace(name); stored != nil {
		if meta, content, err := metadata.DecodeStored(stored.JSON); err == nil {
			o = &policy.Object{Meta: meta, Content: content}
		}
	}
	n.known[name] = o
	return o
}

// decode decodes an object without its managedFields, which no rule depends on.
func decode(text []byte) (*policy.Object, error) {
	rest, _ := metadata.Split(text)
	meta, content, err := metadata.DecodeStored(rest)
	if err != nil {
		return nil, err
	}
	meta.ResourceVersion, meta.ManagedFields = "", nil
	return &policy.Object{Meta: meta, Content: content}, nil
}

func copyOf(content map[string]any) map[string]any { return runtime.DeepCopyJSON(content) }

// try returns why a policy refuses to write an object in a way. o is the object as the policy shows it; for a new one,
// as clients have it.
func (b *bench) try(ctx context.Context, o *policy.Object, w way) ([]failure, error) {
	switch w {
	case recreated:
		next := &policy.Object{Meta: o.Meta.DeepCopy(), Content: runtime.DeepCopyJSON(o.Content)}
		next.Meta.DeletionTimestamp, next.Meta.DeletionGracePeriodSeconds = nil, nil
		if !b.version.Status {
			return b.write(ctx, next, nil, "")
		}
		delete(next.Content, "status")
		refused, err := b.write(ctx, next, nil, "")
		if err != nil || o.Content["status"] == nil {
			return refused, err
		}
		more, err := b.restoreStatus(ctx, next, o)
		return append(refused, more...), err
	case labelled:
		next := &policy.Object{Meta: o.Meta.DeepCopy(), Content: maps.Clone(o.Content)}
		metav1.SetMetaDataLabel(next.Meta, "stele.dev/plan", "tried")
		return b.write(ctx, next, o, "")
	}
	return b.write(ctx, &policy.Object{Meta: o.Meta.DeepCopy(), Content: maps.Clone(o.Content)}, o, "status")
}

// restoreStatus returns why a policy refuses to write the status of an object that was created without one. Unlike in a write of the
// status as it is, each part of it is new.
func (b *bench) restoreStatus(ctx context.Context, created, o *policy.Object) ([]failure, error) {
	old := &policy.Object{Meta: created.Meta, Content: copyOf(o.Content)}
	if _, _, err := validity.Prepare(b.version, old.Content, nil, false); err != nil {
		return nil, fmt.Errorf("%s/%s: %w", o.Meta.Namespace, o.Meta.Name, err)
	}
	next := &policy.Object{Meta: created.Meta.DeepCopy(), Content: maps.Clone(old.Content)}
	delete(old.Content, "status")
	return b.write(ctx, next, old, "status")
}

// write returns why a policy refuses a write: the reasons of the stages mutation, schema and validation.
func (b *bench) write(ctx context.Context, next, old *policy.Object, subresource string) ([]failure, error) {
	var before map[string]any
	operation := policy.Create
	if old != nil {
		before, operation = old.Content, policy.Update
	}
	if old == nil { // what is updated is the prepared object itself
		if _, _, err := validity.Prepare(b.version, next.Content, before, false); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", next.Meta.Namespace, next.Meta.Name, err)
		}
	}
	next, refused, err := b.mutate(ctx, next, old, subresource, operation)
	if err != nil || refused != nil {
		if refused != nil {
			return []failure{*refused}, nil
		}
		return nil, err
	}
	w := validity.Write{Version: b.version, Subresource: subresource, Object: next, Old: old}
	errs, err := w.Check(ctx)
	if err != nil {
		return []failure{{message: err.Error(), fault: field.ErrorTypeTypeInvalid}}, nil
	}
	if program.Retryable(errs) {
		return nil, fmt.Errorf("%s/%s: %w", next.Meta.Namespace, next.Meta.Name, errs.ToAggregate())
	}
	var found []failure
	for _, e := range errs {
		if e.Detail != validity.Unchecked {
			found = append(found, b.failure(e))
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return b.admit(ctx, next, old, subresource, operation)
}

// failure returns an error of the schema, or of a validation of the kind.
func (b *bench) failure(e *field.Error) failure {
	f := failure{at: e.Field, path: generalize(e.Field), message: e.ErrorBody(), fault: e.Type, source: strings.Trim(program.Place(e), " ()")}
	f.rule = b.places[program.Place(e)]
	return f
}

// administrator is the user as whom stored objects are tried.
var administrator = policy.Request{User: "system:admin", Groups: []string{policy.MastersGroup, "system:authenticated"}, IsResource: true}

// admit returns the rules of admission that refuse a write.
func (b *bench) admit(ctx context.Context, next, old *policy.Object, subresource string, operation policy.Operation) ([]failure, error) {
	if !admission.MustOf(b.policy).Validates(b.version, subresource, operation) {
		return nil, nil
	}
	a, err := b.attributes(ctx, next, old, subresource, operation)
	if err != nil {
		return nil, err
	}
	return refusals(admission.MustOf(b.policy).Validate(ctx, b.version, a)), nil
}

// attributes returns the write of a trial as rules of admission see it.
func (b *bench) attributes(ctx context.Context, next, old *policy.Object, subresource string, operation policy.Operation) (*admission.Attributes, error) {
	r := administrator
	r.Verb, r.Subresource = strings.ToLower(string(operation)), subresource
	r.Group, r.Version, r.Resource = b.version.Kind.Group, b.version.Name, b.version.Kind.Plural
	r.Namespace, r.Name = next.Meta.Namespace, next.Meta.Name
	a := &admission.Attributes{Request: &r, Operation: operation, Object: next, Old: old, Namespace: func() *policy.Object { return b.spaces.get(next.Meta.Namespace) }}
	if b.reading == nil {
		return a, nil
	}
	var err error
	a.Stored, err = b.reading.stored(ctx, commit.Key{GroupResource: b.version.Kind.Stored().GroupResource(), Namespace: r.Namespace, Name: r.Name}, old == nil)
	return a, err
}

func refusals(findings []admission.Finding) (found []failure) {
	for i := range findings {
		if f := &findings[i]; f.Denies() {
			found = append(found, failure{rule: f.Rule, source: f.Source, message: f.Message, admission: true})
		}
	}
	return found
}

var indexed = regexp.MustCompile(`\[[^\]]*\]`)

// generalize returns the path of an error as findings have it: spec.ports[3].name is spec.ports[].name, and
// spec.labels[a] is spec.labels[*].
func generalize(path string) string {
	return indexed.ReplaceAllStringFunc(path, func(key string) string {
		if strings.Trim(key[1:len(key)-1], "0123456789") == "" {
			return "[]"
		}
		return "[*]"
	})
}
