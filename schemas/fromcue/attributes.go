package fromcue

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
)

// formatNames are the values of @k8s(format=...): the formats of CustomResourceDefinitions, and
// quantity.
var formatNames = sets.New("bsonobjectid", "byte", "cidr", "creditcard", "date", "date-time", "duration", "email", "hexcolor", "hostname",
	"ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac", "password", "quantity", "rgbcolor", "ssn", "uri",
	"uuid", "uuid3", "uuid4", "uuid5")

// attributes applies the attributes of a field, @k8s(...) and @stele(...), to its node. They only narrow
// what CUE admits.
func (c *Compiler) attributes(n *schemas.Node, v cue.Value, at *place) {
	before := len(c.diags)
	seen := map[string]bool{}
	for _, a := range append(v.Attributes(cue.ValueAttr), at.attributes...) {
		name := a.Name()
		if written := name + " " + a.Contents(); name != "k8s" && name != "stele" || seen[written] {
			continue
		} else {
			seen[written] = true
		}
		if a.NumArgs() == 0 {
			c.refuse(at, nil, fmt.Sprintf("the attribute @%s()", name), "")
		}
		for i := range a.NumArgs() {
			key, value := a.Arg(i)
			c.attribute(n, name, key, value, at)
		}
	}
	if n.List == nil || len(c.diags) > before || at.unclear() {
		return
	}
	for _, e := range schemas.CheckList(nil, n.List) {
		message := e.Detail
		if e.Type == field.ErrorTypeDuplicate {
			message = fmt.Sprintf("the key %v twice", e.BadValue)
		}
		c.refuse(at, nil, fmt.Sprintf("the type of a list, %q: %s", n.List.Type, message), "")
	}
}

func (c *Compiler) attribute(n *schemas.Node, name, key, value string, at *place) {
	written := fmt.Sprintf("the attribute @%s(%s)", name, key)
	if value != "" {
		written = fmt.Sprintf("the attribute @%s(%s=%s)", name, key, value)
	}
	refuse := func(why, hint string) { c.refuse(at, nil, written+why, hint) }
	of := func(kinds schemas.Kinds, what string) bool {
		if n.Kinds&^schemas.NullKind == 0 || n.Kinds&^schemas.NullKind&^kinds != 0 && !at.unclear() {
			refuse(" on a field that is not "+what, "")
			return false
		}
		return true
	}
	switch {
	case name == "stele" && key == "sensitive" && value == "":
		n.Sensitive = true
	case name == "stele" && key == "message" && value != "":
		if n.Kinds&^schemas.ScalarKinds&^schemas.NullKind != 0 && n.Kinds != schemas.AnyKind { // CUE may have to choose the alternative, so the message belongs on a field inside it
			refuse(" on a field that is not a scalar", "")
		} else {
			n.Message = value
		}
	case name == "stele":
		refuse("", "known are sensitive and message=\"...\"")
	case key == "immutable" && value == "":
		source := at.source
		n.Immutable = &source
	case key == "format":
		if !formatNames.Has(value) {
			refuse(", which nothing would enforce", "the formats are "+strings.Join(sets.List(formatNames), ", "))
		} else if of(schemas.StringKind|schemas.IntegerKind, "a string") {
			n.Format = value
		}
	case key == "listType":
		if !slices.Contains([]string{schemas.ListAtomic, schemas.ListSet, schemas.ListMap}, value) {
			refuse("", "a list is atomic, a set or a map")
		} else if of(schemas.ListKind, "a list") {
			if n.List == nil {
				n.List = &schemas.List{}
			}
			n.List.Type = value
		}
	case key == "listMapKeys":
		if of(schemas.ListKind, "a list") {
			c.listMapKeys(n, value)
		}
	case key == "mapType":
		switch {
		case value != schemas.MapAtomic && value != schemas.MapGranular:
			refuse("", "a map is atomic or granular")
		case of(schemas.StructKind, "a struct"):
			if n.Struct == nil {
				n.Struct = &schemas.Struct{Open: true}
			}
			n.Struct.Type = value
		}
	case key == "intOrString" && value == "":
		if n.Kinds&^schemas.NullKind != schemas.IntegerKind|schemas.StringKind {
			refuse(" on a field that is not int | string", "")
		}
	case key == "nullable" && value == "":
		if !n.Kinds.Has(schemas.NullKind) {
			refuse(" on a field that admits no null", "write null | ...")
		}
	case key == "embeddedResource" && value == "":
		n.Embedded = of(schemas.StructKind, "a struct")
	case key == "preserveUnknownFields" && value == "":
		if of(schemas.StructKind, "a struct") {
			c.preserved = append(c.preserved, preserved{n, at})
		}
	default:
		refuse("", "known are listType, listMapKeys, mapType, format, immutable, intOrString, nullable, embeddedResource and preserveUnknownFields")
	}
}

// A preserved is a struct marked to preserve unknown fields. It must be open.
type preserved struct {
	n  *schemas.Node
	at *place
}

func (c *Compiler) checkPreserved() {
	for _, p := range c.preserved {
		if s := p.n.Struct; s != nil && !s.Open {
			c.refuse(p.at, nil, "the attribute @k8s(preserveUnknownFields) on a struct that admits none", "write ... in the struct")
		}
	}
}

func (c *Compiler) listMapKeys(n *schemas.Node, value string) {
	if n.List == nil {
		n.List = &schemas.List{}
	}
	for key := range strings.SplitSeq(value, ",") {
		n.List.MapKeys = append(n.List.MapKeys, strings.TrimSpace(key))
	}
}
