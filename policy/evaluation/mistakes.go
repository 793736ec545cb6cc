package evaluation

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// Formats of CUE's messages.
const (
	notAllowed       = "field not allowed"
	notPresent       = "field is required but not present"
	incomplete       = "incomplete value %v"
	emptyDisjunction = "%d errors in empty disjunction:"
	listLengths      = "incompatible list lengths (%d and %d)"
	outOfBound       = "invalid value %v (out of bound %s)"
	conflicting      = "conflicting values %s and %s"
	notFound         = "reference %q not found"
	failedCall       = "error in call to %s"
	interpolation    = "invalid interpolation"
	fieldMissing     = "required field missing: %s"
)

// names matches a pattern that the definitions make of a list of names.
var names = regexp.MustCompile(`^=~"\^\(([-a-z0-9:|.\[\]]+)\)\$"$`)

func formatOf(e cueerrors.Error) string {
	format, _ := e.Msg()
	return format
}

func argument(e cueerrors.Error, i int) string {
	if _, args := e.Msg(); i < len(args) {
		return fmt.Sprint(args[i])
	}
	return ""
}

// mistake is what CUE reports at one path. CUE often reports several errors for one mistake, for
// example one for each alternative.
type mistake struct {
	path   []string
	errors []cueerrors.Error
}

func (m *mistake) String() string { return strings.Join(m.path, ".") }

func (m *mistake) parent() string {
	if len(m.path) == 0 {
		return ""
	}
	return strings.Join(m.path[:len(m.path)-1], ".")
}

// name returns the last label of the path, without quotes.
func (m *mistake) name() string {
	if len(m.path) == 0 {
		return ""
	}
	return wording.Unquoted(m.path[len(m.path)-1])
}

// hasOnlyFormats reports whether CUE's messages have no other formats than these.
func (m *mistake) hasOnlyFormats(formats ...string) bool {
	return !slices.ContainsFunc(m.errors, func(e cueerrors.Error) bool { return !slices.Contains(formats, formatOf(e)) })
}

// mistakesInside returns the mistakes inside of this one.
func (m *mistake) mistakesInside(all []*mistake) (found []*mistake) {
	for _, x := range all {
		if len(x.path) > len(m.path) && slices.Equal(x.path[:len(m.path)], m.path) {
			found = append(found, x)
		}
	}
	return found
}

// finding is a set of bits: what has been reported at a path.
type finding uint8

const (
	said    finding = 1 << iota // a mistake was reported
	badName                     // the name is not allowed
	meantBy                     // a wrong name was probably meant to be this one
	lacking                     // a field in it is missing
)

// Reported reports whether a mistake at a path was reported.
func (c *Evaluation) Reported(path string) bool { return c.found[path]&said != 0 }

// Misnamed reports whether the name at a path was rejected.
func (c *Evaluation) Misnamed(path string) bool { return c.found[path]&badName != 0 }

// Meant reports whether a rejected name was probably meant to be the name at a path.
func (c *Evaluation) Meant(path string) bool { return c.found[path]&meantBy != 0 }

// CUE reports CUE's errors: each mistake once, where the user made it.
func (c *Evaluation) CUE(err error) {
	var mistakes []*mistake
	byPath := map[string]*mistake{}
	for _, e := range cueerrors.Errors(err) {
		if follows(e) {
			continue
		}
		m := &mistake{path: e.Path()}
		if same := byPath[m.String()]; same != nil && len(m.path) > 0 {
			m = same
		} else {
			byPath[m.String()] = m
			mistakes = append(mistakes, m)
		}
		m.errors = append(m.errors, e)
	}
	// Wrong names come first: a missing field may exist under a wrong name.
	for _, m := range mistakes {
		if m.hasOnlyFormats(notAllowed) {
			either := byPath[m.parent()]
			c.wrongName(m.path, c.sourceOf(m.errors[0]), either != nil && either.hasOnlyFormats(emptyDisjunction, listLengths))
		}
	}
	for _, m := range mistakes {
		below := m.mistakesInside(mistakes)
		switch {
		case m.hasOnlyFormats(notAllowed), c.inWrongName(m.path):
		case m.hasOnlyFormats(emptyDisjunction, listLengths) && len(below) > 0:
			c.exclusive(m, below)
		default:
			c.mistake(m)
		}
	}
}

// Raw reports CUE's errors unchanged.
func (c *Evaluation) Raw(err error) {
	for _, e := range cueerrors.Errors(err) {
		c.Diags = append(c.Diags, schemas.Diagnostic{Pos: c.sourceOf(e), Message: MessageOf(e)})
	}
}

// follows reports whether an error only follows from another reported error: an expression of the
// definitions has no value because its operand has an error.
func follows(e cueerrors.Error) bool {
	positions := append([]token.Pos{e.Position()}, e.InputPositions()...)
	if _, theirs := bundles.Locate(positions[0]); theirs {
		return false
	}
	switch formatOf(e) {
	case interpolation, fieldMissing, failedCall:
		return !nothingToChoose(e)
	}
	if len(positions) > 1 {
		if _, theirs := bundles.Locate(positions[1]); theirs {
			return false
		}
	}
	return slices.ContainsFunc(e.Path(), func(label string) bool { return strings.HasPrefix(label, "_") && label != "_id" })
}

// nothingToChoose reports whether no value is allowed at all.
func nothingToChoose(e cueerrors.Error) bool {
	return formatOf(e) == failedCall && strings.Contains(e.Error(), "empty list in call to or")
}

// mistake reports the one mistake at a path.
func (c *Evaluation) mistake(m *mistake) {
	var first cueerrors.Error
	var choice *conflict
	var allowed []string
	alternatives := slices.ContainsFunc(m.errors, func(e cueerrors.Error) bool { return formatOf(e) == emptyDisjunction })
	for _, e := range m.errors {
		x := c.conflict(e)
		switch format := formatOf(e); {
		case x != nil && x.both: // the user wrote both values
			c.twoValues(m, e, x)
			return
		case x != nil && (format == conflicting || alternatives):
			choice, allowed = x, append(allowed, x.allowed)
		case format == outOfBound && names.MatchString(argument(e, 1)):
			choice = &conflict{value: argument(e, 0), at: c.sourceOf(e)}
			servers := c.Words("#ServerRoles")
			for name := range strings.SplitSeq(names.FindStringSubmatch(argument(e, 1))[1], "|") {
				if !slices.Contains(servers, name) {
					allowed = append(allowed, strconv.Quote(strings.ReplaceAll(name, "[.]", ".")))
				}
			}
		case alternatives && format == outOfBound:
			choice, allowed = &conflict{value: argument(e, 0), at: c.sourceOf(e)}, append(allowed, argument(e, 1))
		case first == nil && format != emptyDisjunction && format != listLengths && format != notAllowed:
			first = e
		}
	}
	switch {
	case choice != nil:
		c.choice(m, choice, allowed)
	case first == nil:
		c.Add(c.sourceOf(m.errors[0]), m.String(), MessageOf(m.errors[0]), "")
	case formatOf(first) == notPresent:
		c.missing(m.path, "")
	case formatOf(first) == incomplete && c.sourceAt(m.path).IsZero():
		c.unset(m, argument(first, 0))
	case formatOf(first) == notFound:
		c.Add(c.sourceOf(first), m.String(), MessageOf(first), c.toImport(first))
	case formatOf(first) == outOfBound:
		c.bounded(m, first)
	case c.shouldBeList(m, first), c.shouldBeText(m, first):
	case nothingToChoose(first):
		c.Add(c.enclosing(m.path), m.String(), "nothing can stand here yet: there is nothing to choose from", "")
	default:
		c.Add(c.sourceOf(first), m.String(), MessageOf(first), "")
	}
}

// toImport returns the hint for an undefined name: a CUE package to import, or the most similar
// name.
func (c *Evaluation) toImport(e cueerrors.Error) string {
	name := argument(e, 0)
	if meant := typeNames[name]; meant != "" && !strings.Contains(c.lineAt(e), name+".") {
		return "write " + meant
	}
	for _, pkg := range builtinPackages {
		if path.Base(pkg) == name {
			return fmt.Sprintf("write import %q", pkg)
		}
	}
	return wording.DidYouMean(name, c.inScope(e.Position().Filename()), "")
}

// lineAt returns the line of the source at which an error is.
func (c *Evaluation) lineAt(e cueerrors.Error) string {
	pos := c.sourceOf(e)
	i := slices.IndexFunc(c.Source.Files, func(f bundles.File) bool { return f.Path == pos.File })
	if i < 0 {
		return ""
	}
	return lineOf(c.Source.Files[i].Data, pos.Line)
}

// builtinPackages are CUE's packages for schemas, and the package of the format.
var builtinPackages = []string{"crypto/sha256", "encoding/base64", "encoding/hex", "encoding/json", "encoding/yaml", "html", "list", "math", "math/bits",
	"net", "path", "regexp", "strconv", "strings", "struct", "text/tabwriter", "text/template", "time", "uuid", DefinitionsPath}

// bounded reports a value that is out of bounds.
func (c *Evaluation) bounded(m *mistake, e cueerrors.Error) {
	value, bound := argument(e, 0), argument(e, 1)
	words, ok := describeBound(bound)
	switch {
	case !ok:
		c.Add(c.sourceOf(e), m.String(), MessageOf(e), "")
	case isGlob(bound):
		c.outsideNamespaces(c.sourceOf(e), m, value, []string{words})
	case value == `""`:
		c.Add(c.sourceOf(e), m.String(), "it is empty, and must be "+words, "")
	default:
		c.Add(c.sourceOf(e), m.String(), shortened(value, maxValue)+" is not "+words, "")
	}
}

// outsideNamespaces reports a pattern of namespaces that are not the team's.
func (c *Evaluation) outsideNamespaces(pos schemas.Position, m *mistake, value string, patterns []string) {
	where := ""
	if len(m.path) > 3 && m.path[1] == "teams" {
		where = wording.At(c.sourceAt(append(slices.Clone(m.path[:3]), "namespaces")).String())
	}
	c.Add(pos, m.String(), fmt.Sprintf("%s is not within %s, which the team rules over%s", value, wording.Enumerate(patterns), where), "")
}

// shouldBeList reports a single value in place of a list; false if the error is another one.
func (c *Evaluation) shouldBeList(m *mistake, e cueerrors.Error) bool {
	x := c.conflict(e)
	if x == nil || !strings.HasSuffix(MessageOf(e), " and list)") {
		return false
	}
	value := shortened(x.value, maxValue)
	c.Add(c.sourceOf(e), m.String(), fmt.Sprintf("%s is not a list", value), fmt.Sprintf("write [%s]", value))
	return true
}

// expressions are fields that hold expressions in CEL.
var expressions = []string{"expression", "messageExpression", "valueExpression", "rule", "when", "unless", "filter", "up", "down"}

// shouldBeText reports a value of CUE in place of an expression in CEL; false if the error is another one.
func (c *Evaluation) shouldBeText(m *mistake, e cueerrors.Error) bool {
	x := c.conflict(e)
	if x == nil || !slices.Contains(expressions, m.name()) || !strings.HasSuffix(MessageOf(e), " and string)") {
		return false
	}
	hint := `write it in quotes: "…", and texts in it in single quotes`
	if strings.HasPrefix(x.value, "{") {
		hint = `write the text of an expression: "Object{…}" for what is to be applied, as in "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"`
	}
	c.Add(c.sourceOf(e), m.String(), "an expression in CEL is a text, and this is "+shortened(x.value, maxValue), hint)
	return true
}

// noPlugin reports a plugin in the chain that the bundle does not declare. CUE cannot list the
// declared plugins, because the definitions use patterns for them.
func (c *Evaluation) noPlugin(at schemas.Position, path, name string) {
	var known []string
	for plugin := range c.Fields(c.Root, "bundle.plugins") {
		known = append(known, policy.PluginPrefix+plugin)
	}
	hint := wording.DidYouMean(policy.PluginPrefix+name, known, "")
	if hint == "" {
		hint = fmt.Sprintf("say which program it is: plugins: %q: sha256: …", name)
	}
	c.Add(at, path, fmt.Sprintf("there is no plugin %q in plugins", name), hint)
}

// missing reports a required field that is missing, unless it exists under a wrong name.
func (c *Evaluation) missing(at []string, hint string) {
	m := &mistake{path: at}
	if c.noTeam(at) || c.noPart(at) {
		return
	}
	c.found[m.parent()] |= lacking
	if c.found[m.String()]&(said|meantBy) == 0 {
		c.Add(c.enclosing(at), m.String(), fmt.Sprintf("%q is required", m.name()), hint)
	}
}

// noTeam reports a team that exists only because of a misspelled name; false if the missing field is
// not in such a team.
func (c *Evaluation) noTeam(at []string) bool {
	if len(at) != 4 || at[0] != "bundle" || at[1] != "teams" {
		return false
	}
	team := strings.Join(at[:3], ".")
	if c.found[team]&badName != 0 {
		return true
	}
	var known []string
	for label, t := range FieldsOf(c.Root.LookupPath(cue.ParsePath("bundle.teams"))) {
		lacks := 0
		for field, x := range FieldsOf(t) {
			if err := x.Err(); err != nil && formatOf(cueerrors.Errors(err)[0]) == notPresent && slices.Contains([]string{"contact", "groups", "namespaces"}, field.Unquoted()) {
				lacks++
			}
		}
		switch {
		case label.Unquoted() == wording.Unquoted(at[2]) && lacks < 3:
			return false
		case lacks == 0:
			known = append(known, label.Unquoted())
		}
	}
	name := wording.Unquoted(at[2])
	hint := wording.DidYouMean(name, known, "")
	hint = cmp.Or(hint, "give it contact, groups and namespaces")
	c.found[team] |= badName
	c.Add(c.enclosing(at[:3]), team, fmt.Sprintf("nothing says what the team %q is", name), hint)
	return true
}

// namedParts are the parts of a team, and of a bundle, that stand under names of the author's, with what each is.
var namedParts = map[string]string{
	"admission.validate": "rule", "admission.mutate": "rule", "rbac.bindings": "binding", "rbac.denies": "deny", "views": "view", "kinds": "kind", "crds": "definition",
	"flow.flowSchemas": "flow schema", "flow.priorityLevels": "priority level", "audit.rules": "audit rule", "plugins": "plugin",
}

// noPart reports a rule, binding or other part that exists only because an environment changes one under a misspelled name; false if
// the missing field is not in such a part. Such a part lacks what it needs, and one of almost that name does not.
func (c *Evaluation) noPart(at []string) bool {
	from := 1
	if len(at) > 3 && at[1] == "teams" {
		from = 3
	}
	for i := from + 1; i < len(at)-1 && i < from+3; i++ {
		what := namedParts[strings.Join(at[from:i], ".")]
		if what == "" {
			continue
		}
		path := at[:i+1]
		if c.found[strings.Join(path, ".")]&badName != 0 {
			return true
		}
		name := wording.Unquoted(at[i])
		near := wording.Nearest(name, c.whole(at[:i]))
		if near == "" {
			return false
		}
		of := "the bundle"
		if from == 3 {
			of = "the team " + wording.Unquoted(at[2])
		}
		sibling := append(slices.Clone(at[:i]), strconv.Quote(near))
		c.found[strings.Join(path, ".")] |= badName
		c.Add(c.enclosing(path), strings.Join(path, "."), fmt.Sprintf("%s has no %s %q", of, what, name), fmt.Sprintf("did you mean %q%s?", near, wording.At(c.sourceAt(sibling).String())))
		return true
	}
	return false
}

// whole returns the names of the parts at a path that lack nothing.
func (c *Evaluation) whole(at []string) (names []string) {
	v := c.Root
	for _, label := range at {
		v = child(v, label)
	}
	for label, x := range FieldsOf(v) {
		if label.IsString() && !lacks(x, 0) {
			names = append(names, label.Unquoted())
		}
	}
	return names
}

// lacks reports whether a required field is missing in a value.
func lacks(v cue.Value, depth int) bool {
	const deepest = 4
	if depth > deepest {
		return false
	}
	for _, x := range FieldsOf(v) {
		if err := x.Err(); err != nil && formatOf(cueerrors.Errors(err)[0]) == notPresent || lacks(x, depth+1) {
			return true
		}
	}
	return false
}

// unset reports a field without a value, unless that follows from a missing field beside it.
func (c *Evaluation) unset(m *mistake, what string) {
	if c.found[m.parent()]&lacking != 0 {
		return
	}
	hint := ""
	if values := strings.Split(what, " | "); len(values) > 1 {
		hint = "one of " + wording.Enumerate(values)
	}
	c.missing(m.path, hint)
}

// exclusive reports a value that matches none of several alternatives. Usually CUE's errors about
// its parts are clearer; if there are none, the fields are not allowed together.
func (c *Evaluation) exclusive(m *mistake, below []*mistake) {
	var fields []string
	for _, x := range below {
		if x.parent() != m.String() || !x.hasOnlyFormats(notAllowed) || c.found[x.String()]&badName != 0 {
			return
		}
		fields = append(fields, strconv.Quote(x.name()))
	}
	slices.Sort(fields)
	hint := ""
	if g, _ := c.grammarAt(m.path); len(g.alternatives) > 0 {
		hint = "write one of " + wording.Enumerate(wording.Quoted(g.names()))
	}
	c.Add(c.sourceOf(below[0].errors[0]), m.String(), strings.Join(fields, " and ")+" exclude each other", hint)
}

// wrongName reports a field that is not allowed. If the definitions do allow it, then the field
// excludes another one, or the user's own definition is closed.
func (c *Evaluation) wrongName(at []string, pos schemas.Position, either bool) {
	g, allowed := c.grammarAt(at)
	switch {
	case c.inWrongName(at), allowed == len(at) && either:
	case allowed == len(at):
		c.found[strings.Join(at, ".")] |= badName
		c.Add(pos, strings.Join(at, "."), notAllowed, "")
	default:
		name := wording.Unquoted(at[allowed])
		if allowed < len(at)-1 || pos.IsZero() {
			pos = c.enclosing(at[:allowed+1])
		}
		if near := g.meant(name); near != "" {
			c.found[strings.Join(append(slices.Clone(at[:allowed]), near), ".")] |= meantBy
		}
		where := strings.Join(at[:allowed+1], ".")
		message, hint := g.refuse(name)
		c.found[where] |= badName
		c.Add(pos, where, message, hint)
	}
}

// inWrongName reports whether a path is under a rejected name, where nothing more is reported.
func (c *Evaluation) inWrongName(at []string) bool {
	for i := range at {
		if c.found[strings.Join(at[:i+1], ".")]&badName != 0 {
			return true
		}
	}
	return false
}

// sourceOf returns the user's position for an error: its own, that of its first value, or that of
// the enclosing struct.
func (c *Evaluation) sourceOf(e cueerrors.Error) schemas.Position {
	inputs := e.InputPositions()
	if pos, ok := bundles.Locate(e.Position()); ok {
		return pos
	}
	if len(inputs) > 0 {
		if pos, ok := bundles.Locate(inputs[0]); ok {
			return pos
		}
	}
	if x := c.conflict(e); x != nil && !x.at.IsZero() {
		return x.at
	}
	if pos := c.enclosing(e.Path()); !pos.IsZero() {
		return pos
	}
	for _, p := range inputs {
		if pos, ok := bundles.Locate(p); ok {
			return pos
		}
	}
	return schemas.Position{}
}

// inScope returns the names that a file can refer to.
func (c *Evaluation) inScope(file string) (names []string) {
	for _, i := range c.Instances {
		if !slices.ContainsFunc(i.Files, func(f *ast.File) bool { return f.Filename == file }) {
			continue
		}
		for _, f := range i.Files {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.Field:
					if name, _, err := ast.LabelName(d.Label); err == nil {
						names = append(names, name)
					}
				case *ast.LetClause:
					names = append(names, d.Ident.Name)
				case *ast.ImportDecl:
					if f.Filename != file {
						continue
					}
					for _, s := range d.Specs {
						name := path.Base(wording.Unquoted(s.Path.Value))
						if s.Name != nil {
							name = s.Name.Name
						}
						names = append(names, name)
					}
				}
			}
		}
	}
	return names
}

// inMessage matches a position inside of a message.
var inMessage = regexp.MustCompile(`\S+\.cue:\d+:\d+: `)

// MessageOf returns an error's message without positions.
func MessageOf(e cueerrors.Error) string {
	if format, args := e.Msg(); strings.HasPrefix(format, conflicting) {
		args = slices.Clone(args)
		for i := range args {
			text := fmt.Sprint(args[i])
			if i < 2 && len(args) == 4 && strings.ContainsAny(text, "#_") && strings.ContainsAny(text[:1], "{[") {
				text = fmt.Sprint(args[i+2]) // the type says more than the expression of the definitions
			}
			args[i] = shortened(text, maxValue)
		}
		return fmt.Sprintf(format, args...)
	}
	text := cueerrors.StringWithConfig(e, &cueerrors.Config{OmitPath: true})
	if strings.Contains(text, severalDocuments) {
		return "@embed: the file has several documents, and there is to be one for each"
	}
	return shortened(strings.TrimSuffix(inMessage.ReplaceAllString(text, ""), ":"), maxMessage)
}

// severalDocuments is part of CUE's message for a YAML file with several documents.
const severalDocuments = "found more than one value in file"

// Limits of characters shown of a value, and of CUE's message.
const (
	maxValue   = 64
	maxMessage = 512
)

func shortened(text string, limit int) string {
	return wording.Cut(bundles.Mask(text), limit) // first mask: a part of a secret is not recognized
}
