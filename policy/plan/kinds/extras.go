package kinds

import (
	"fmt"
	"slices"

	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas"
)

// extras compares what versions have beside schemas and validations: subresources, selectable fields, columns.
func (c *comparison) extras() {
	at := func(path string) place { return place{route: route{text: path}} }
	was, is := sourceOf(c.was), sourceOf(c.is)
	if c.was.Deprecated != c.is.Deprecated {
		c.as(plan.Changes, at("versions."+c.is.Name+".deprecated"), difference{rule: "VERSION_DEPRECATED", before: short(c.was.Deprecated), after: short(c.is.Deprecated),
			was: was, is: is, message: "Clients of the version get another warning, or none."})
	}
	c.subresource(at("subresources.status"), c.was.Status, c.is.Status, was, is)
	c.subresource(at("subresources.scale"), c.was.Scale != nil, c.is.Scale != nil, was, is)
	if a, b := c.was.Scale, c.is.Scale; a != nil && b != nil && *a != *b {
		paths := func(s *schemas.Scale) string {
			return fmt.Sprintf("spec %s, status %s, selector %s", s.SpecReplicasPath, s.StatusReplicasPath, s.LabelSelectorPath)
		}
		c.as(plan.Changes, at("subresources.scale"), difference{rule: "SUBRESOURCE_CHANGED", before: paths(a), after: paths(b), was: was, is: is,
			message: "Autoscalers and kubectl scale read and write other fields."})
	}
	for _, f := range c.was.SelectableFields {
		if !slices.Contains(c.is.SelectableFields, f) {
			c.as(plan.Breaks, at("selectableFields."+f[min(1, len(f)):]), difference{rule: "SELECTABLE_REMOVED", way: loses, before: f, was: was, is: is,
				message: "Lists and watches that select by the field are refused."})
		}
	}
	for _, f := range c.is.SelectableFields {
		if !slices.Contains(c.was.SelectableFields, f) {
			c.as(plan.Changes, at("selectableFields."+f[min(1, len(f)):]), difference{rule: "SELECTABLE_ADDED", after: f, was: was, is: is,
				message: "Lists and watches can select by the field."})
		}
	}
	c.columns(was, is)
}

func (c *comparison) subresource(at place, had, has bool, was, is schemas.Position) {
	switch {
	case had && !has:
		c.as(plan.Breaks, at, difference{rule: "SUBRESOURCE_REMOVED", before: "served", was: was, is: is, message: "Requests for the subresource get 404; clients and roles that name it have no effect."})
	case has && !had:
		d := difference{rule: "SUBRESOURCE_ADDED", after: "served", was: was, is: is, message: "Clients can use the subresource."}
		if at.text == "subresources.status" {
			d.details = []string{"A write of the object no longer writes its status, and a write of the status writes nothing else."}
		}
		c.as(plan.Changes, at, d)
	}
}

func (c *comparison) columns(was, is schemas.Position) {
	text := func(x *schemas.Column) string {
		return fmt.Sprintf("%s %s%s priority %d", x.Type, x.JSONPath, word(x.Format != "", " "+x.Format), x.Priority)
	}
	look := func(name, before, after, message string) {
		c.as(plan.Looks, place{route: route{text: "columns." + name}}, difference{rule: "COLUMN_CHANGED", before: before, after: after, was: was, is: is, message: message})
	}
	named := func(all []schemas.Column, name string) *schemas.Column {
		i := slices.IndexFunc(all, func(x schemas.Column) bool { return x.Name == name })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	same := len(c.was.Columns) == len(c.is.Columns)
	for i := range c.was.Columns {
		a := &c.was.Columns[i]
		b := named(c.is.Columns, a.Name)
		switch {
		case b == nil:
			same = false
			look(a.Name, text(a), "", "The column is gone.")
		case text(a) != text(b):
			look(a.Name, text(a), text(b), "The column shows something else.")
		case a.Description != b.Description:
			look(a.Name, short(clean(a.Description)), short(clean(b.Description)), "The description of the column differs.")
		}
	}
	for i := range c.is.Columns {
		b := &c.is.Columns[i]
		if named(c.was.Columns, b.Name) == nil {
			same = false
			look(b.Name, "", text(b), "The column is new.")
		}
	}
	if same && !slices.EqualFunc(c.was.Columns, c.is.Columns, func(a, b schemas.Column) bool { return a.Name == b.Name }) {
		names := func(all []schemas.Column) (text string) {
			for i, x := range all {
				text += word(i > 0, ", ") + x.Name
			}
			return text
		}
		look("*", names(c.was.Columns), names(c.is.Columns), "The columns are in another order.")
	}
}
