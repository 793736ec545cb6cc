package program

import (
	"context"
	"slices"
	"strings"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// anObject is all that upstream's functions need to know of an embedded object.
var anObject = &structural.Structural{Extensions: structural.Extensions{XEmbeddedResource: true}}

// embedded holds the apiVersion, kind and metadata of an object in an object against the
// rules for them.
func (v *inspection) embedded(c *check, x map[string]any) {
	found := objectmeta.Validate(context.Background(), fieldPath(v.path), x, anObject, false)
	slices.SortStableFunc(found, func(a, b *field.Error) int { return strings.Compare(a.Field+a.Detail, b.Field+b.Detail) })
	for _, e := range found {
		e.Detail = strings.TrimSpace(at(e.Detail, c.node.Source))
		v.report(e)
	}
}

// embedded gives the metadata of an object in an object the form that Kubernetes gives it:
// without what it does not know. What it cannot read is for Validate to refuse.
func (p *preparation) embedded(x map[string]any) {
	if _, has := x["metadata"]; !has {
		return
	}
	before := x["metadata"]
	err, unknown := objectmeta.CoerceWithOptions(nil, x, anObject, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return
	}
	for _, name := range unknown {
		p.drop(name)
	}
	p.changed = p.changed || !sameAs(nil, before, x["metadata"])
}
