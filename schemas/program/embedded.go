package program

import (
	"context"
	"slices"
	"strings"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// anObject is the minimal schema with which apiextensions' functions check an embedded object.
var anObject = &structural.Structural{Extensions: structural.Extensions{XEmbeddedResource: true}}

// embedded validates the apiVersion, kind and metadata of an embedded object.
func (v *inspection) embedded(c *check, x map[string]any) {
	found := objectmeta.Validate(context.Background(), fieldPath(v.path), x, anObject, false)
	slices.SortStableFunc(found, func(a, b *field.Error) int { return strings.Compare(a.Field+a.Detail, b.Field+b.Detail) })
	for _, e := range found {
		e.Detail = strings.TrimSpace(withLine(e.Detail, c.node.Source))
		v.report(e)
	}
}

// embedded prunes the metadata of an embedded object as Kubernetes does. Validate rejects metadata that
// cannot be decoded.
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
