// Package table renders objects as metav1.Table, which kubectl requests to print them.
package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// Printer renders the objects of one version of a kind. It is safe for concurrent use.
type Printer struct {
	headers []metav1.TableColumnDefinition
	cells   []cell
	layout  *layout // of a built-in kind; nil if cells are enough
}

type cell struct {
	column schemas.Column
	// path is for gjson; "" if the value needs jsonpath.
	path string
}

// plainPath matches a JSONPath that only names fields.
var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_-]*)+$`)

var docs = metav1.ObjectMeta{}.SwaggerDoc()

// New returns the printer of a version.
func New(v *policy.Version) *Printer {
	if l := layoutOf(v); l != nil {
		return &Printer{headers: l.headers, layout: l}
	}
	p := &Printer{headers: []metav1.TableColumnDefinition{nameHeader}}
	columns := v.Columns
	if len(columns) == 0 {
		columns = []schemas.Column{{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp", Description: docs["creationTimestamp"]}}
	}
	for _, c := range columns {
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		p.headers = append(p.headers, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority})
		x := cell{column: c}
		if plainPath.MatchString(c.JSONPath) {
			x.path = c.JSONPath[1:]
		}
		p.cells = append(p.cells, x)
	}
	return p
}

// Options are the options of the request.
type Options struct {
	// Version is the version of meta.k8s.io.
	Version string
	// Include tells how much of each object a row contains.
	Include   metav1.IncludeObjectPolicy
	NoHeaders bool
	Now       time.Time // to compute ages
}

// Table renders objects, given as JSON.
func (p *Printer) Table(o Options, list metav1.ListMeta, objects [][]byte) ([]byte, error) {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/" + o.Version}, ListMeta: list}
	if !o.NoHeaders {
		t.ColumnDefinitions = p.headers
	}
	t.Rows = make([]metav1.TableRow, len(objects))
	for i, object := range objects {
		t.Rows[i] = p.tableRow(o, object)
	}
	return json.Marshal(t)
}

// Row renders the row of an object as JSON, as it is in the table.
func (p *Printer) Row(o Options, object []byte) ([]byte, error) {
	row := p.tableRow(o, object)
	return json.Marshal(&row)
}

func (p *Printer) tableRow(o Options, object []byte) metav1.TableRow {
	row := metav1.TableRow{Cells: p.row(object, o.Now)}
	switch {
	case o.Include == metav1.IncludeNone && !endsInitialEvents(object):
	case o.Include == metav1.IncludeObject:
		row.Object.Raw = object
	default:
		row.Object.Raw = Metadata(object, o.Version)
	}
	return row
}

// endsInitialEvents reports whether an object is that of the bookmark after the initial events. Only the row of the
// table can mark it.
func endsInitialEvents(object []byte) bool {
	return gjson.GetBytes(object, "metadata.annotations."+strings.ReplaceAll(metav1.InitialEventsAnnotationKey, ".", `\.`)).String() == "true"
}

// Metadata returns only the metadata of an object.
func Metadata(object []byte, version string) []byte {
	return fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%s","metadata":%s}`,
		version, gjson.GetBytes(object, "metadata").Raw)
}

func (p *Printer) row(object []byte, now time.Time) []any {
	if p.layout != nil {
		return p.layout.row(gjson.ParseBytes(object), now)
	}
	cells := make([]any, 1, 1+len(p.cells))
	cells[0] = gjson.GetBytes(object, "metadata.name").String()
	for _, c := range p.cells {
		cells = append(cells, c.value(object, now))
	}
	return cells
}

func (c *cell) value(object []byte, now time.Time) any {
	if c.path == "" {
		return c.find(object, now)
	}
	v := gjson.GetBytes(object, c.path)
	if c.column.Count && v.IsArray() {
		return v.Get("#").Int()
	}
	switch v.Type {
	case gjson.Null:
		if c.path == "metadata.creationTimestamp" {
			return "<unknown>" // as in kube-apiserver, for an object that was not created
		}
		return nil
	case gjson.String:
		return c.typed(v.Str, v.Str, now)
	case gjson.True, gjson.False:
		return c.typed(v.Bool(), v.Raw, now)
	case gjson.Number:
		if !strings.ContainsAny(v.Raw, ".eE") {
			return c.typed(v.Int(), v.Raw, now)
		}
		return c.typed(v.Float(), v.Raw, now)
	default:
		return c.typed(nil, v.Raw, now)
	}
}

// typed converts a value to the type of its column. As in kube-apiserver, a value of another type is not shown, except
// in a string column.
func (c *cell) typed(value any, text string, now time.Time) any {
	switch c.column.Type {
	case "string":
		return text
	case "integer":
		switch v := value.(type) {
		case int64:
			return v
		case float64:
			return int64(v)
		}
	case "number":
		switch v := value.(type) {
		case int64:
			return float64(v)
		case float64:
			return v
		}
	case "boolean":
		if v, ok := value.(bool); ok {
			return v
		}
	case "date":
		if v, ok := value.(string); ok {
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				return "<invalid>"
			}
			return duration.HumanDuration(now.Sub(at))
		}
	}
	return nil
}

// find returns the value of a JSONPath, or of a template of several.
func (c *cell) find(object []byte, now time.Time) any {
	template := strings.HasPrefix(c.column.JSONPath, "{")
	text := c.column.JSONPath
	if !template {
		text = "{" + text + "}"
	}
	path := jsonpath.New(c.column.Name).AllowMissingKeys(true)
	if err := path.Parse(text); err != nil {
		return nil
	}
	var decoded any
	if err := json.Unmarshal(object, &decoded); err != nil {
		return nil
	}
	if template {
		var filled strings.Builder
		if err := path.Execute(&filled, decoded); err != nil {
			return nil
		}
		return filled.String()
	}
	results, err := path.FindResults(decoded)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := results[0][0].Interface()
	var printed bytes.Buffer
	if err := path.PrintResults(&printed, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return c.typed(value, printed.String(), now)
}
