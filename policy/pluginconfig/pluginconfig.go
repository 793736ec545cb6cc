// Package pluginconfig validates the configuration of plugins against the CUE schemas that the plugins return.
package pluginconfig

import (
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/json"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
)

// configDefinition is the definition that a plugin's schema must have.
const configDefinition = "#Config"

// Check returns the mistakes in the configurations of a bundle's plugins, with their positions in
// the bundle. configSchemas has the plugins' CUE schemas by plugin name; plugins without one are
// skipped. The bundle must compile.
func Check(source *bundles.Source, configSchemas map[string]string) schemas.Diagnostics {
	c := evaluation.New(source)
	instance, _, err := bundles.Load(source)
	if err != nil {
		c.Raw(err)
		return c.Diags.Sorted()
	}
	c.Build(instance)
	var diags schemas.Diagnostics
	for name, text := range configSchemas {
		plugin := c.Root.LookupPath(cue.MakePath(cue.Str("bundle"), cue.Str("plugins"), cue.Str(name)))
		k := configCheck{where: []string{"bundle", "plugins", name, "config"}, mine: func(p token.Pos) (schemas.Position, bool) {
			at, ok := bundles.Locate(p)
			return at, ok && slices.ContainsFunc(source.Files, func(f bundles.File) bool { return f.Path == at.File })
		}}
		k.check(text, plugin.LookupPath(cue.ParsePath("config")), evaluation.Position(plugin))
		diags = append(diags, k.diags...)
	}
	return diags.Sorted()
}

// Read reads a plugin's configuration from a JSON or CUE file and checks it against the plugin's
// schema. It returns JSON.
func Read(schema, file string, text []byte) ([]byte, schemas.Diagnostics) {
	ctx := cuecontext.New()
	k := configCheck{mine: func(p token.Pos) (schemas.Position, bool) {
		return schemas.Position{File: file, Line: p.Line(), Column: p.Column()}, p.IsValid() && p.Filename() == file
	}}
	var config cue.Value
	if path.Ext(file) == ".json" {
		expression, err := json.Extract(file, text)
		if err != nil {
			k.report(err, schemas.Position{File: file})
			return nil, k.diags.Sorted()
		}
		config = ctx.BuildExpr(expression)
	} else {
		config = ctx.CompileBytes(text, cue.Filename(file))
	}
	schemaItself := config.LookupPath(cue.ParsePath(configDefinition))
	if values, err := config.Fields(); err == nil && !values.Next() && schemaItself.Exists() {
		k.add(fromcue.PositionOf(schemaItself, k.mine), nil, "it is a schema, with "+configDefinition+", and has no configuration", "give a file with values, as they would stand in the bundle")
		return nil, k.diags.Sorted()
	}
	if err := config.Validate(cue.Concrete(true)); err != nil {
		k.report(err, schemas.Position{File: file})
		return nil, k.diags.Sorted()
	}
	if k.check(schema, config, schemas.Position{File: file}); len(k.diags) > 0 {
		return nil, k.diags.Sorted()
	}
	data, err := config.MarshalJSON()
	if err != nil {
		k.report(err, schemas.Position{File: file})
	}
	return data, k.diags.Sorted()
}

// configCheck checks one configuration.
type configCheck struct {
	where []string // its path
	mine  func(token.Pos) (schemas.Position, bool)
	diags schemas.Diagnostics
}

// check checks a configuration, which may not exist, against a schema. It reports errors without a
// position of their own at otherwise.
func (k *configCheck) check(text string, config cue.Value, otherwise schemas.Position) {
	if config.Exists() {
		if at := fromcue.PositionOf(config, k.mine); !at.IsZero() {
			otherwise = at
		}
	}
	if strings.TrimSpace(text) == "" {
		if config.Exists() {
			k.add(otherwise, nil, "the plugin takes no configuration", "leave it out")
		}
		return
	}
	ctx := cuecontext.New()
	said := ctx.CompileString(text, cue.Filename("the plugin's schema"))
	definition := said.LookupPath(cue.ParsePath(configDefinition))
	switch {
	case said.Err() != nil:
		k.add(otherwise, nil, "the plugin's schema is no CUE: "+evaluation.MessageOf(cueerrors.Errors(said.Err())[0]), "this is for the plugin's author")
	case !definition.Exists():
		k.add(otherwise, nil, "the plugin's schema has no "+configDefinition, "this is for the plugin's author")
	default:
		if !config.Exists() {
			config = ctx.CompileString("{}")
		}
		k.report(definition.Unify(config).Validate(cue.Concrete(true)), otherwise)
	}
}

// report adds CUE's errors, each at its position in the configuration.
func (k *configCheck) report(err error, otherwise schemas.Position) {
	if err == nil {
		return
	}
	for _, e := range cueerrors.Errors(cueerrors.Sanitize(cueerrors.Promote(err, ""))) {
		at := otherwise
		for _, p := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			if own, ok := k.mine(p); ok {
				at = own
				break
			}
		}
		field := e.Path()
		switch {
		case len(field) > 0 && field[0] == configDefinition:
			field = field[1:]
		case len(k.where) > 0 && len(field) >= len(k.where) && field[0] == k.where[0]:
			field = field[len(k.where):]
		}
		k.add(at, field, evaluation.MessageOf(e), "")
	}
}

func (k *configCheck) add(at schemas.Position, field []string, message, hint string) {
	k.diags = append(k.diags, schemas.Diagnostic{Pos: at, Path: strings.Join(append(slices.Clone(k.where), field...), "."), Message: message, Hint: hint})
}
