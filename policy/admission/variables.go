package admission

import (
	"context"
	"maps"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/cel/library"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/schemas/celtype"
)

// variables are the CEL variables of an admission rule.
type variables struct {
	ctx    context.Context
	p      *policy.Policy
	v      *policy.Version // of the request
	as     *policy.Version // in which expressions see objects
	a      *Attributes
	r      *rule
	params any // as a CEL value
	budget expr.Budget
	read   []string       // what the rule read of stored objects, if somebody wants to know
	known  map[string]any // variables evaluated so far

	mutating *Mutating // the object as mutations have changed it; nil for a validation
}

// see sets the version in which expressions see objects.
func (v *variables) see(as *policy.Version) {
	if v.as != as {
		v.as = as
		v.a.object, v.a.old, v.a.request = nil, nil, nil
	}
}

// seen returns an object of the request as a CEL value.
func (v *variables) seen(o *policy.Object) any {
	if o != nil && v.differs() {
		content, err := v.v.Converted(o.Content, v.as)
		if err != nil {
			return types.WrapErr(err)
		}
		o = &policy.Object{Meta: o.Meta, Content: content}
	}
	return v.as.Seen(v.a.Request.Subresource).Value(o)
}

// differs reports whether objects of the request are converted to be seen.
func (v *variables) differs() bool {
	return v.as != v.v && v.v.Differs(v.as) && v.a.Request.Subresource != "scale"
}

// seenWhole returns an object of the request that is one map as a CEL value.
func (v *variables) seenWhole(root map[string]any) any {
	if v.differs() {
		var err error
		if root, err = converted(root, func(content map[string]any) (map[string]any, error) { return v.v.Converted(content, v.as) }); err != nil {
			return types.WrapErr(err)
		}
	}
	if v.as != v.v {
		root = maps.Clone(root)
		root["apiVersion"], root["kind"] = v.as.Seen(v.a.Request.Subresource).GroupVersionKind().ToAPIVersionAndKind()
	}
	return v.as.Seen(v.a.Request.Subresource).WholeValue(root)
}

// begin prepares the variables for a rule, which sees objects in the version as.
func (v *variables) begin(r *rule, as *policy.Version) {
	v.r, v.params, v.budget, v.read = r, r.params, expr.NewBudget(), nil
	v.see(as)
	if r.options && !v.a.options {
		v.a.options, v.a.request = true, nil
	}
	clear(v.known)
}

func (v *variables) Parent() interpreter.Activation { return nil }

func (v *variables) ResolveName(name string) (any, bool) {
	once := func(at *any, make func() any) (any, bool) {
		if *at == nil {
			*at = make()
		}
		return *at, true
	}
	switch name {
	case expr.VarObject:
		return once(&v.a.object, func() any {
			if m := v.mutating; m != nil && m.doc != nil {
				return v.seenWhole(m.doc.Root())
			}
			return v.seen(v.a.Object)
		})
	case expr.VarOldObject:
		return once(&v.a.old, func() any { return v.seen(v.a.Old) })
	case expr.VarRequest:
		return once(&v.a.request, func() any { return expr.AdmissionType.Value(v.a.fields(v.v, v.as)) })
	case expr.VarNamespace:
		return once(&v.a.namespace, func() any { return namespaceValue(v.p, v.a.inNamespace()) })
	case expr.VarParams:
		return v.params, true
	case "authorizer":
		return library.NewAuthorizerVal(v.a.Request.UserInfo(), v.p.AuthorizerWithin(v.ctx)), true
	case "authorizer.requestResource":
		return library.NewResourceAuthorizerVal(v.a.Request.UserInfo(), v.p.AuthorizerWithin(v.ctx), requestResource{v.a.Request}), true
	}
	if of := v.r.stored[name]; of != nil {
		return stored.All(&storedObjects{v, of}), true
	}
	program := v.r.variables[name]
	if program == nil {
		return nil, false
	}
	value, ok := v.known[name]
	if !ok {
		result, err := program.Eval(v.ctx, v, &v.budget)
		if value = result; err != nil {
			value = types.WrapErr(err)
		}
		if v.known == nil {
			v.known = map[string]any{}
		}
		v.known[name] = value
	}
	return value, true
}

// fields returns the CEL variable "request". as is the version in which the rule sees the object;
// v is the version that the client requested.
func (a *Attributes) fields(v, as *policy.Version) map[string]any {
	fields := a.Request.Fields()
	kind := func(v *policy.Version) map[string]any {
		v = v.Seen(a.Request.Subresource)
		return map[string]any{"group": v.Kind.Group, "version": v.Name, "kind": v.Kind.Kind.Kind}
	}
	fields["operation"], fields["dryRun"] = string(a.Operation), a.DryRun
	fields["kind"], fields["requestKind"] = kind(as), kind(v)
	fields["requestResource"], fields["requestSubResource"] = fields["resource"], a.Request.Subresource
	if as != v {
		fields["resource"] = map[string]any{"group": as.Kind.Group, "version": as.Name, "resource": as.Kind.Plural}
	}
	if name := a.name(); name != "" {
		fields["name"] = name
	}
	if a.options && a.Options != nil {
		if options := a.Options(); options != nil {
			fields["options"] = options
		}
	}
	return fields
}

// name returns the name of the object; "" if it has none yet.
func (a *Attributes) name() string {
	if a.Object != nil && a.Object.Meta.Name != "" {
		return a.Object.Meta.Name
	}
	return a.Request.Name
}

func namespaceValue(p *policy.Policy, o *policy.Object) any {
	if o == nil || p.Namespaces() == nil {
		return celtype.Dynamic.Value(nil)
	}
	return p.Namespaces().Value(o)
}

// requestResource adapts a request to the interface of Kubernetes' CEL library.
type requestResource struct{ *policy.Request }

func (r requestResource) GetName() string { return r.Name }

func (r requestResource) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}

func (r requestResource) GetNamespace() string { return r.Namespace }

func (r requestResource) GetSubresource() string { return r.Subresource }
