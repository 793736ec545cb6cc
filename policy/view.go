package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

// ViewsGroup and ViewsVersion are the API group and version in which views are served.
const (
	ViewsGroup   = "views.stele.dev"
	ViewsVersion = "v1"
)

// View is a list of objects of one kind, which the server keeps up to date and serves read-only.
type View struct {
	ID   string `json:"id"`   // team/views/name
	Name string `json:"name"` // the resource in ViewsGroup
	// Kind is the resource of the objects, plural.group. Expressions read the objects in Version.
	Kind        string `json:"kind"`
	Version     string `json:"version"`
	Description string `json:"description,omitempty"`
	// Filter selects objects; nil for all.
	Filter  *Expression  `json:"filter,omitempty"`
	Columns []ViewColumn `json:"columns"` // in the order of the bundle
	// Sort are names of columns and aggregates, with "-" in front for the reverse order.
	Sort []string `json:"sort,omitempty"`
	// Grouped is set if a row stands for all objects with the same values of all columns.
	Grouped    bool             `json:"grouped,omitempty"`
	Aggregates []ViewAggregate  `json:"aggregates,omitempty"`
	Source     schemas.Position `json:"source,omitzero"`
}

// ViewColumn is a column of a view.
type ViewColumn struct {
	Name        string     `json:"name"`
	Type        string     `json:"type"` // string, integer, number, boolean or date
	Expression  Expression `json:"expression"`
	Description string     `json:"description,omitempty"`
	Priority    int32      `json:"priority,omitempty"`
}

// ViewAggregate is what a row of a grouped view shows of its group.
type ViewAggregate struct {
	Name     string `json:"name"`
	Function string `json:"function"` // count, sum, min or max
	Type     string `json:"type"`     // integer or number
	// Expression is nil for the count of all objects.
	Expression  *Expression `json:"expression,omitempty"`
	Description string      `json:"description,omitempty"`
	Priority    int32       `json:"priority,omitempty"`
}

// Resource returns the resource under which the view is served.
func (v *View) Resource() schema.GroupResource {
	return schema.GroupResource{Group: ViewsGroup, Resource: v.Name}
}

// KindName returns the kind of the view's rows: BigDatabases for big-databases.
func (v *View) KindName() string {
	var name strings.Builder
	for part := range strings.SplitSeq(v.Name, "-") {
		if part != "" {
			name.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return name.String()
}

// ColumnsField is the field of a row that has its columns and aggregates.
const ColumnsField = "columns"

var viewTypes = map[string]schemas.Kinds{
	"string": schemas.StringKind, "date": schemas.StringKind, "boolean": schemas.BoolKind,
	"integer": schemas.IntegerKind, "number": schemas.IntegerKind | schemas.NumberKind,
}

// rows returns the kind of the view's rows. source is the kind of its objects.
func (v *View) rows(source *Kind) *schemas.Kind {
	columns := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{}, Doc: "The values of the view's columns."}
	version := schemas.Version{Name: ViewsVersion, Served: true, NoDeleteCollection: true,
		Schema: &schemas.Node{Kinds: schemas.StructKind, Doc: v.Description, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: ColumnsField, Presence: schemas.Optional, Schema: columns}}}}}
	secrets := secretsOf(source, v.Version)
	add := func(name, kind, doc string, priority int32, e *Expression) {
		n := &schemas.Node{Kinds: viewTypes[kind] | schemas.NullKind, Doc: doc, Sensitive: e != nil && expr.ReadsAny(e.Checked, secrets) != nil}
		if kind == "date" {
			n.Format = schemas.FormatDateTime
		}
		n.Plain = true
		columns.Struct.Fields = append(columns.Struct.Fields, schemas.Field{Name: name, Presence: schemas.Optional, Schema: n})
		path := "." + ColumnsField + "." + name
		version.Columns = append(version.Columns, schemas.Column{Name: name, Type: kind, Description: doc, JSONPath: path, Priority: priority})
		if kind != "number" && kind != "date" {
			version.SelectableFields = append(version.SelectableFields, path)
		}
	}
	for _, c := range v.Columns {
		add(c.Name, c.Type, c.Description, c.Priority, &c.Expression)
	}
	for _, a := range v.Aggregates {
		add(a.Name, a.Type, a.Description, a.Priority, a.Expression)
	}
	kind := v.KindName()
	return &schemas.Kind{Group: ViewsGroup, Kind: kind, ListKind: kind + "List", Plural: v.Name, Singular: strings.ToLower(kind),
		Namespaced: source.Namespaced && !v.Grouped, StorageVersion: ViewsVersion, Versions: []schemas.Version{version}, Source: v.Source}
}

// secretsOf returns the paths to the secrets in a version of a kind.
func secretsOf(k *Kind, version string) [][]string {
	if isSecrets(k.Kind) {
		return [][]string{{"data"}, {"stringData"}}
	}
	if v, _ := k.Version(version); v != nil && v.Schema != nil {
		return v.Schema.SensitivePaths()
	}
	return nil
}

// Same reports whether both views have the same rows for the same objects: all is equal but positions in the source.
func (v *View) Same(other *View) bool {
	plain := func(v View) []byte {
		v.ID, v.Source = "", schemas.Position{}
		if v.Filter != nil {
			v.Filter = &Expression{Text: v.Filter.Text, Checked: v.Filter.Checked}
		}
		v.Columns, v.Aggregates = slices.Clone(v.Columns), slices.Clone(v.Aggregates)
		for i := range v.Columns {
			v.Columns[i].Expression.Source = schemas.Position{}
		}
		for i := range v.Aggregates {
			if e := v.Aggregates[i].Expression; e != nil {
				v.Aggregates[i].Expression = &Expression{Text: e.Text, Checked: e.Checked}
			}
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("policy: %v", err)) // plain data always encodes
		}
		return text
	}
	return string(plain(*v)) == string(plain(*other))
}

// Views returns the kinds of the rows of all views, sorted by name. They are not among [Policy.Kinds], because their
// objects are not stored. The caller must not change them.
func (p *Policy) Views() []*Kind { return p.views }

// openViews makes the kinds of the views. The kinds of stored objects and their windows are known.
func (p *Policy) openViews(options []program.Option) error {
	for i := range p.form.Views {
		view := &p.form.Views[i]
		of := p.byResource[schema.ParseGroupResource(view.Kind)]
		if of == nil {
			return fmt.Errorf("policy: the view %s is of %s, which the form does not have", view.Name, view.Kind)
		}
		source := p.byGVR[of.GroupResource().WithVersion(view.Version)]
		if source == nil {
			return fmt.Errorf("policy: the view %s is of %s %s, which is not served", view.Name, view.Kind, view.Version)
		}
		k := &Kind{Kind: view.rows(of), View: view, Reads: source, window: of.Reach()}
		v := &Version{Version: &k.Kind.Versions[0], Kind: k}
		var err error
		if v.Program, err = program.New(v.Schema, options...); err != nil {
			return fmt.Errorf("policy: the view %s: %w", view.Name, err)
		}
		k.Versions = []*Version{v}
		p.views = append(p.views, k)
		p.byGVR[v.GroupVersionResource()], p.byResource[k.GroupResource()] = v, k
	}
	return nil
}
