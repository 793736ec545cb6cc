package views

import (
	"strconv"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
	"stele.dev/stele/schemas/celtype"
)

// wanted says which parts of a value expressions read.
type wanted struct {
	all    bool
	fields map[string]*wanted
}

// add adds a chain of fields, by their names in CEL, of a value of a type.
func (w *wanted) add(t *celtype.Type, chain []string) {
	for _, name := range chain {
		if name == "*" { // an item, or an entry by a key that is computed
			break
		}
		if t != nil && t.IsMessage() {
			if f := t.Field(name); f != nil {
				name, t = f.Name, f.Type
			} else {
				t = nil
			}
		} else if t != nil {
			t = t.Items()
		}
		if w.fields == nil {
			w.fields = map[string]*wanted{}
		}
		next := w.fields[name]
		if next == nil {
			next = &wanted{}
			w.fields[name] = next
		}
		w = next
	}
	w.all = true
}

// join adds what another one wants.
func (w *wanted) join(other *wanted) {
	w.all = w.all || other.all
	for name, f := range other.fields {
		if w.fields == nil {
			w.fields = map[string]*wanted{}
		}
		if w.fields[name] == nil {
			w.fields[name] = &wanted{}
		}
		w.fields[name].join(f)
	}
}

// identity is what a row takes over from the metadata of its object.
type identity struct {
	name, namespace, uid string
	created, labels      string // in JSON; "" if there are none
}

// object decodes the wanted parts of an object.
func (w *wanted) object(json []byte, id *identity) map[string]any {
	content := map[string]any{}
	gjson.Parse(view(json)).ForEach(func(key, value gjson.Result) bool {
		if key.Str == "metadata" {
			id.read(value)
		}
		if w.all {
			content[key.Str] = decode(value)
		} else if part := w.fields[key.Str]; part != nil {
			content[key.Str] = part.decode(value)
		}
		return true
	})
	return content
}

func (id *identity) read(metadata gjson.Result) {
	metadata.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "name":
			id.name = value.Str
		case "namespace":
			id.namespace = value.Str
		case "uid":
			id.uid = value.Str
		case "creationTimestamp":
			id.created = value.Raw
		case "labels":
			id.labels = value.Raw
		case "managedFields":
			return true
		}
		return true
	})
}

// decode decodes the wanted parts of a value.
func (w *wanted) decode(value gjson.Result) any {
	if w.all || !value.IsObject() {
		return decode(value)
	}
	content := make(map[string]any, len(w.fields))
	value.ForEach(func(key, value gjson.Result) bool {
		if part := w.fields[key.Str]; part != nil {
			content[key.Str] = part.decode(value)
		}
		return true
	})
	return content
}

// decode decodes a whole value. Numbers without a fraction are int64.
func decode(value gjson.Result) any {
	switch value.Type {
	case gjson.True:
		return true
	case gjson.False:
		return false
	case gjson.String:
		return value.Str
	case gjson.Number:
		if !strings.ContainsAny(value.Raw, ".eE") {
			if n, err := strconv.ParseInt(value.Raw, 10, 64); err == nil {
				return n
			}
		}
		return value.Num
	case gjson.JSON:
		if value.IsArray() {
			list := []any{}
			value.ForEach(func(_, item gjson.Result) bool {
				list = append(list, decode(item))
				return true
			})
			return list
		}
		content := map[string]any{}
		value.ForEach(func(key, value gjson.Result) bool {
			content[key.Str] = decode(value)
			return true
		})
		return content
	}
	return nil
}

// view returns bytes that never change as a string, without copying them.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
