package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/builtin"
	"stele.dev/stele/schemas/crd"
)

// definitionOf compiles a team's CustomResourceDefinition; false if it has a mistake.
func (c *compiler) definitionOf(name string, v cue.Value) (kind schemas.Kind, ok bool) {
	if first := c.owners[name]; first != nil {
		first.others = append(first.others, v)
		return kind, false
	}
	c.owners[name] = &owner{v, nil}
	c.brokenKinds[name] = true
	if c.notEmbedded(v) || !c.Sound(v) {
		return kind, false
	}
	path := v.Path().String()
	if own, err := v.LookupPath(cue.ParsePath("metadata.name")).String(); err == nil && own != name {
		c.Add(evaluation.Position(v), path, fmt.Sprintf("the definition of %s stands under the key %s", own, name), "the key is metadata.name")
		return kind, false
	}
	data, err := v.MarshalJSON()
	if err != nil {
		c.CUE(cueerrors.Promote(err, path))
		return kind, false
	}
	find := newPlaces(v).find
	if c.mark != "" {
		if data, find, ok = c.withSchemas(v, data, find); !ok {
			c.Add(evaluation.Position(v), path, "the schemas cannot be put back", "") // so that it is compiled as a whole
			return kind, false
		}
	}
	kind, diags, warnings := crd.Translate(data, find)
	for _, list := range []schemas.Diagnostics{diags, warnings} {
		for i := range list {
			list[i].Path = strings.TrimSuffix(path+"."+list[i].Path, ".")
		}
	}
	if len(diags) == 0 {
		diags = someServed(&kind, v)
	}
	c.AddAll(diags)
	for i := range warnings {
		warnings[i].Lint = "DEFINITION_PART_UNUSED"
	}
	c.Warnings = append(c.Warnings, warnings...)
	c.brokenKinds[name] = len(diags) > 0
	return kind, len(diags) == 0
}

// withSchemas puts the schemas back that were left out of a definition: into its JSON, and into the way to its positions. Their values
// are held only while this definition is compiled.
func (c *compiler) withSchemas(v cue.Value, data []byte, find crd.Locate) ([]byte, crd.Locate, bool) {
	if !bytes.Contains(data, []byte(c.mark)) {
		return data, find, true
	}
	wholes := map[int]*places{}
	versions, err := v.LookupPath(cue.ParsePath("spec.versions")).List()
	if err != nil {
		return nil, nil, false
	}
	var file string
	var whole cue.Value
	for i := 0; versions.Next(); i++ {
		left, err := versions.Value().LookupPath(cue.MakePath(cue.Str("schema"), cue.Str("openAPIV3Schema"), cue.Str(c.mark))).String()
		if err != nil {
			continue
		}
		_, name, _ := strings.Cut(left, " ")
		if left != bundles.Outlined(name, i) || file != "" && file != name {
			return nil, nil, false
		}
		if file == "" {
			expr := c.Source.Decoded(name)
			if expr == nil {
				return nil, nil, false
			}
			file, whole = name, cuecontext.New().BuildExpr(expr)
		}
		at := whole.LookupPath(cue.MakePath(cue.Str("spec"), cue.Str("versions"), cue.Index(i), cue.Str("schema"), cue.Str("openAPIV3Schema")))
		text, err := at.MarshalJSON()
		stub, stubErr := json.Marshal(map[string]string{c.mark: left})
		if err != nil || stubErr != nil || bytes.Count(data, stub) != 1 {
			return nil, nil, false
		}
		data = bytes.Replace(data, stub, text, 1)
		wholes[i] = newPlaces(whole)
	}
	located := func(path []string) schemas.Position {
		if len(path) > 4 && path[0] == "spec" && path[1] == "versions" && path[3] == "schema" && path[4] == "openAPIV3Schema" {
			if i, err := strconv.Atoi(path[2]); err == nil && wholes[i] != nil {
				return wholes[i].find(path)
			}
		}
		return find(path)
	}
	return data, located, !bytes.Contains(data, []byte(c.mark))
}

// someServed rejects a definition without a served version.
func someServed(k *schemas.Kind, v cue.Value) (diags schemas.Diagnostics) {
	at := v.LookupPath(cue.ParsePath("spec.versions"))
	if !slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Served }) {
		diags = append(diags, schemas.Diagnostic{Pos: evaluation.Position(at), Path: at.Path().String(), Message: "no version is served", Hint: "set served: true"})
	}
	return diags
}

// notEmbedded rejects a definition with an @embed attribute in a file without @extern(embed), in
// which CUE ignores the attribute.
func (c *compiler) notEmbedded(v cue.Value) bool {
	if !v.LookupPath(cue.ParsePath("spec.versions")).Exists() && !v.LookupPath(cue.ParsePath("metadata")).Exists() {
		for _, a := range v.Attributes(cue.FieldAttr) {
			if a.Name() == "embed" {
				c.Add(evaluation.Position(v), v.Path().String(), "nothing is embedded here", "write @extern(embed) at the top of the file, before the package")
				return true
			}
		}
	}
	return false
}

// places finds the positions of the parts of a definition.
type places struct {
	value cue.Value
	at    map[string]schemas.Position
	known map[string]cue.Value
}

func newPlaces(v cue.Value) *places {
	return &places{v, map[string]schemas.Position{}, map[string]cue.Value{"": v}}
}

// find returns the position of a part, or else of the nearest enclosing part.
func (p *places) find(path []string) schemas.Position {
	key := strings.Join(path, "\x00")
	if pos, ok := p.at[key]; ok {
		return pos
	}
	pos := evaluation.Position(p.part(path))
	if pos.IsZero() && len(path) > 0 {
		pos = p.find(path[:len(path)-1])
	}
	p.at[key] = pos
	return pos
}

// part returns the value at a path.
func (p *places) part(path []string) cue.Value {
	key := strings.Join(path, "\x00")
	if v, ok := p.known[key]; ok {
		return v
	}
	in, name := p.part(path[:len(path)-1]), path[len(path)-1]
	selector := cue.Str(name)
	if i, err := strconv.Atoi(name); err == nil && in.IncompleteKind() == cue.ListKind {
		selector = cue.Index(i)
	}
	v := in.LookupPath(cue.MakePath(selector))
	p.known[key] = v
	return v
}

// strays warns of definitions in the module that are not part of the bundle.
func (c *compiler) strays() {
	for _, file := range slices.Sorted(slices.Values(c.Source.Strays)) {
		c.Warnings = append(c.Warnings, schemas.Diagnostic{Pos: schemas.Position{File: file, Line: 1, Column: 1},
			Message: "no file of the module embeds this CustomResourceDefinition, so that it has no effect", Hint: "embed it in crds of a team: @embed(file=…)", Lint: "DEFINITION_UNUSED"})
	}
}

// approved reports whether a kind belongs to a group of Kubernetes that is defined as
// CustomResourceDefinitions with an API approval. crd.Translate has checked the annotation.
func (c *compiler) approved(k *schemas.Kind) bool {
	if k.Definition.IsZero() || !strings.HasSuffix(k.Group, ".k8s.io") {
		return false
	}
	return policy.Own[k.Group] == nil && !slices.ContainsFunc(builtinKinds(), func(b schemas.Kind) bool { return b.Group == k.Group })
}

func builtinKinds() []schemas.Kind {
	kinds, err := builtin.Kinds()
	if err != nil {
		panic(fmt.Sprintf("policy: built-in kinds: %v", err)) // a test checks this
	}
	return kinds
}
