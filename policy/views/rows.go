package views

import (
	"strconv"

	"stele.dev/stele/policy"
)

// Shown is the row of an object.
type Shown struct {
	// JSON is the row with the resourceVersion; JSON[At:At+N] is that field.
	JSON  []byte
	At, N int
	// SortKey is where the row stands among the others, if the view is sorted.
	SortKey string
	// Fields are the values of the kind's selectable fields, as selectors compare them.
	Fields []string
}

// RowOf returns the row of an object at a revision. It has the object's name, namespace, UID, creation and labels.
func (v *View) RowOf(o *Object, row *Row, revision uint64) Shown {
	to := make([]byte, 0, len(v.head)+len(o.name)+len(o.namespace)+len(o.uid)+len(o.created)+len(o.labels)+120+24*len(v.columns))
	to = append(to, v.head...)
	s := Shown{At: len(to), SortKey: v.sortKeyOf(row.Values), Fields: v.fields(row.Values)}
	to = append(to, `"resourceVersion":"`...)
	to = strconv.AppendUint(to, revision, 10)
	to = append(to, `",`...)
	s.N = len(to) - s.At
	to = append(to, `"name":`...)
	to = appendText(to, o.name)
	if o.namespace != "" {
		to = append(to, `,"namespace":`...)
		to = appendText(to, o.namespace)
	}
	to = append(to, `,"uid":`...)
	to = appendText(to, o.uid)
	if o.created != "" {
		to = append(append(to, `,"creationTimestamp":`...), o.created...)
	}
	if o.labels != "" {
		to = append(append(to, `,"labels":`...), o.labels...)
	}
	to = append(to, '}')
	s.JSON = v.appendColumns(to, row.Values)
	return s
}

// fields returns the values of the selectable fields.
func (v *View) fields(values []Value) []string {
	if len(v.selectable) == 0 {
		return nil
	}
	fields := make([]string, len(v.selectable), len(v.selectable)+1) // the store adds the sort key
	var buffer [256]byte
	text := buffer[:0] // one text for all, which keeps nothing of the object in memory
	lengths := make([]int, len(fields))
	for i, at := range v.selectable {
		before := len(text)
		text = values[at].appendPlain(text)
		lengths[i] = len(text) - before
	}
	rest := string(text)
	for i := range fields {
		fields[i], rest = rest[:lengths[i]], rest[lengths[i]:]
	}
	return fields
}

// appendColumns appends the rest of a row after its metadata: the values of the columns, and then those of the aggregates.
func (v *View) appendColumns(to []byte, values []Value) []byte {
	to = append(to, `,"`+policy.ColumnsField+`":{`...)
	for i := range values {
		if i > 0 {
			to = append(to, ',')
		}
		name := ""
		if n := len(v.columns); i < n {
			name = v.columns[i].name
		} else {
			name = v.aggregates[i-n].name
		}
		to = append(append(append(to, '"'), name...), `":`...)
		to = values[i].appendJSON(to)
	}
	return append(to, "}}"...)
}

// groupRow returns the row of a group.
func (v *View) groupRow(g *group) (payload []byte, sortKey string) {
	values := make([]Value, 0, len(v.columns)+len(v.aggregates))
	values = append(values, g.values...)
	for i := range v.aggregates {
		values = append(values, g.totals[i].value(&v.aggregates[i]))
	}
	to := append(make([]byte, 0, 256), v.head...)
	to = append(to, `"name":`...)
	to = appendText(to, g.name)
	to = append(to, `,"uid":"`...)
	to = append(to, policy.UIDOf(policy.ViewsGroup, v.Form.Name, "", g.name)...)
	to = append(to, `"}`...)
	return v.appendColumns(to, values), v.sortKeyOf(values)
}

// isLabel reports whether a text is a label of DNS.
func isLabel(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c != '-' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != "" && len(s) <= 63
}
