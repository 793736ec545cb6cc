// Package patches changes decoded objects by JSON patches (RFC 6902) and by apply configurations, as mutating admission
// of Kubernetes does, and reports which fields changed. An apply configuration is merged by the types of server-side
// apply; what it may not change are atomic lists, maps and structs.
package patches

import (
	"fmt"
	"reflect"

	"stele.dev/stele/schemas/jsonvalue"
)

// Document is an object that is changed by patches. It copies what it changes, so that the object that it was made of
// stays as it is. A patch that fails changes nothing. It is for use by one goroutine.
type Document struct {
	root map[string]any
	own  map[uintptr]bool // the maps that no one else has
	path path             // memory for the next patch
}

// New returns a document of an object.
func New(root map[string]any) *Document { return &Document{root: root, own: map[uintptr]bool{}} }

// Root returns the object as it is now. The next patch may change it.
func (d *Document) Root() map[string]any { return d.root }

// Own returns the object as a map that the caller may change.
func (d *Document) Own() map[string]any {
	d.root = d.owned(d.root)
	return d.root
}

// Keep undoes changes of some fields at the top of the object, and returns an error if there were any.
func (d *Document) Keep(changes []Change, names ...string) error {
	for i := range changes {
		c := &changes[i]
		for _, name := range names {
			was := c.Old
			if whole, ok := c.Old.(map[string]any); ok && c.Path == "" {
				was = whole[name]
			} else if c.Path != "/"+name {
				continue
			}
			if is, has := d.root[name]; has && equal(is, was) {
				continue
			}
			d.Own()[name] = was
			return fmt.Errorf("%s cannot be changed", name)
		}
	}
	return nil
}

// Lasting returns the changes with the values that are in the object now, without those of fields that were dropped since.
func (d *Document) Lasting(changes []Change) (list []Change) {
	for _, c := range changes {
		is, has := lookup(d.root, c.Path)
		if has || c.New == nil {
			c.New = is
			list = append(list, c)
		}
	}
	return list
}

// Change is a field that a patch set or removed.
type Change struct {
	Path     string // a JSON pointer
	Old, New any    // nil if the field was not there, or is not there now

	had bool // the field was there
}

// owned returns a map that may be changed: m itself, or a copy.
func (d *Document) owned(m map[string]any) map[string]any {
	if m != nil && d.own[address(m)] {
		return m
	}
	clone := make(map[string]any, len(m)+1)
	for name, value := range m {
		clone[name] = value
	}
	d.own[address(clone)] = true
	return clone
}

func address(m map[string]any) uintptr { return reflect.ValueOf(m).Pointer() }

// equal compares decoded JSON. A number equals the same number of another type.
func equal(a, b any) bool { return jsonvalue.EqualFunc(a, b, jsonvalue.SameScalar) }

// child returns the JSON pointer of a field.
func child(path, name string) string { return path + "/" + jsonvalue.Escape(name) }
