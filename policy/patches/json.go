package patches

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/schemas/jsonvalue"
)

// Operation is an operation of a JSON patch (RFC 6902).
type Operation struct {
	Op, Path, From string
	Value          any // decoded JSON
}

// The limits of a JSON patch, as of one that a client sends: operations, and bytes that it copies.
const (
	maxOperations = 10000
	maxCopied     = 3 << 20
)

// ErrTest says that an operation "test" of a patch failed, so that the patch was not applied.
var ErrTest = errors.New("the test of a JSON patch failed")

// JSON applies a JSON patch, and returns the fields that it changed. As in Kubernetes, replacing a field of a struct
// that is not there adds it.
func (d *Document) JSON(patch []Operation) ([]Change, error) {
	if len(patch) > maxOperations {
		return nil, fmt.Errorf("a JSON patch may have %d operations, and this one has %d", maxOperations, len(patch))
	}
	p := patching{Document: d}
	before := d.root
	if len(patch) > 1 || len(patch) == 1 && patch[0].Op == "move" { // what is done first can be undone
		p.Document = New(d.root)
	}
	for i := range patch {
		if err := p.apply(&patch[i]); err != nil {
			return nil, err
		}
	}
	if p.Document != d {
		d.root = p.root
		for at := range p.own {
			d.own[at] = true
		}
	}
	return p.changed(before), nil
}

// patching is the application of one patch.
type patching struct {
	*Document
	changes []Change
	bytes   int  // that were copied
	removed bool // a field was removed
}

func (p *patching) apply(o *Operation) error {
	switch o.Op {
	case "add":
		return p.put(o.Op, o.Path, jsonvalue.Clone(o.Value), true)
	case "replace":
		return p.put(o.Op, o.Path, jsonvalue.Clone(o.Value), false)
	case "remove":
		_, err := p.remove(o.Op, o.Path)
		return err
	case "move":
		value, err := p.remove(o.Op, o.From)
		if err != nil {
			return err
		}
		return p.put(o.Op, o.Path, value, true)
	case "copy":
		value, err := p.value(o.Op, o.From)
		if err != nil {
			return err
		}
		if p.bytes += size(value); p.bytes > maxCopied {
			return fmt.Errorf("a JSON patch may copy %d bytes, and this one copies more", maxCopied)
		}
		return p.put(o.Op, o.Path, jsonvalue.Clone(value), true)
	case "test":
		value, err := p.value(o.Op, o.Path)
		if err != nil {
			return err
		}
		if !equal(value, o.Value) {
			return fmt.Errorf("testing value %s failed: %w", o.Path, ErrTest)
		}
		return nil
	}
	return fmt.Errorf("unexpected kind of operation: %q", o.Op)
}

var errMissing = errors.New("missing value")

func missing(op, path string) error {
	return fmt.Errorf("%s operation does not apply: doc is missing path: %q: %w", op, path, errMissing)
}

// value returns the value at a pointer. A field of a struct that is not there has the value nil.
func (p *patching) value(op, pointer string) (any, error) { return valueIn(p.root, op, pointer) }

func valueIn(root map[string]any, op, pointer string) (any, error) {
	if pointer == "" {
		return root, nil
	}
	path, ok := jsonvalue.PointerSteps(pointer)
	if !ok {
		return nil, missing(op, pointer)
	}
	var at any = root
	for i, step := range path {
		switch x := at.(type) {
		case map[string]any:
			var has bool
			if at, has = x[step]; !has && i < len(path)-1 {
				return nil, missing(op, pointer)
			}
		case []any:
			n, err := index(x, step, len(x)-1)
			if err != nil {
				return nil, fmt.Errorf("error in %s for path: '%s': %w", op, pointer, err)
			}
			at = x[n]
		default:
			return nil, missing(op, pointer)
		}
	}
	return at, nil
}

// lookup returns the value at a pointer, and whether there is one.
func lookup(root map[string]any, pointer string) (any, bool) {
	if pointer == "" {
		return root, true
	}
	at := pointer[:strings.LastIndexByte(pointer, '/')]
	in, err := valueIn(root, "", at)
	if err != nil {
		return nil, false
	}
	if fields, ok := in.(map[string]any); ok {
		value, has := fields[jsonvalue.Unescape(pointer[len(at)+1:])]
		return value, has
	}
	value, err := valueIn(root, "", pointer)
	return value, err == nil
}

// index reads the index of a list; negative ones count from the end, as in Kubernetes.
func index(list []any, step string, last int) (int, error) {
	n, err := strconv.Atoi(step)
	if err != nil {
		return 0, fmt.Errorf("value was not a proper array index: '%s'", step)
	}
	if n < 0 {
		n += last + 1
	}
	if n < 0 || n > last {
		return 0, fmt.Errorf("unable to access invalid index: %s", step)
	}
	return n, nil
}

// edit calls change with the value that encloses a pointer, and stores what it returns in its place. All values on the
// way are copied, unless the document has copied them before.
func (p *patching) edit(op, pointer string, change func(in any, last string) (any, error)) error {
	path, ok := jsonvalue.PointerSteps(pointer)
	if !ok {
		return missing(op, pointer)
	}
	var descend func(at any, path []string) (any, error)
	descend = func(at any, path []string) (any, error) {
		if len(path) == 1 {
			switch at.(type) {
			case map[string]any, []any:
				return change(at, path[0])
			}
			return nil, missing(op, pointer)
		}
		switch x := at.(type) {
		case map[string]any:
			below, has := x[path[0]]
			if !has {
				return nil, missing(op, pointer)
			}
			below, err := descend(below, path[1:])
			if err != nil {
				return nil, err
			}
			x = p.owned(x)
			x[path[0]] = below
			return x, nil
		case []any:
			n, err := index(x, path[0], len(x)-1)
			if err != nil {
				return nil, missing(op, pointer)
			}
			below, err := descend(x[n], path[1:])
			if err != nil {
				return nil, err
			}
			x = slices.Clone(x)
			x[n] = below
			return x, nil
		}
		return nil, missing(op, pointer)
	}
	root, err := descend(p.root, path)
	if err != nil {
		return err
	}
	p.root = root.(map[string]any)
	return nil
}

// put adds a value, or replaces the one that is there.
func (p *patching) put(op, pointer string, value any, add bool) error {
	if pointer == "" && !add {
		root, ok := value.(map[string]any)
		if !ok {
			return errors.New("replace operation value must be an object")
		}
		p.changes = append(p.changes, Change{"", p.root, root, true})
		p.root = root
		return nil
	}
	return p.edit(op, pointer, func(in any, last string) (any, error) {
		switch x := in.(type) {
		case map[string]any:
			was, had := x[last]
			p.changes = append(p.changes, Change{pointer, was, value, had})
			x = p.owned(x)
			x[last] = value
			return x, nil
		case []any:
			return p.putItem(op, pointer, x, last, value, add)
		}
		return nil, missing(op, pointer)
	})
}

// putItem returns a list with a value at an index.
func (p *patching) putItem(op, pointer string, list []any, at string, value any, add bool) (any, error) {
	parent := pointer[:strings.LastIndexByte(pointer, '/')]
	if !add {
		n, err := index(list, at, len(list)-1)
		if err != nil {
			return nil, fmt.Errorf("%s operation does not apply: doc is missing key: %s: %w", op, pointer, errMissing)
		}
		p.changes = append(p.changes, Change{child(parent, strconv.Itoa(n)), list[n], value, true})
		list = slices.Clone(list)
		list[n] = value
		return list, nil
	}
	n := len(list)
	if at != "-" {
		var err error
		if n, err = index(list, at, len(list)); err != nil {
			return nil, fmt.Errorf("error in %s for path: '%s': %w", op, pointer, err)
		}
	}
	longer := slices.Insert(slices.Clone(list), n, value)
	if n == len(list) {
		p.changes = append(p.changes, Change{child(parent, strconv.Itoa(n)), nil, value, false})
	} else { // the others have other indexes now
		p.changes = append(p.changes, Change{parent, list, longer, true})
	}
	return longer, nil
}

// remove removes a value and returns it.
func (p *patching) remove(op, pointer string) (removed any, err error) {
	err = p.edit(op, pointer, func(in any, last string) (any, error) {
		switch x := in.(type) {
		case map[string]any:
			value, has := x[last]
			if !has {
				return nil, fmt.Errorf("error in %s for path: '%s': unable to remove nonexistent key: %s: %w", op, pointer, last, errMissing)
			}
			removed, p.removed = value, true
			p.changes = append(p.changes, Change{pointer, value, nil, true})
			x = p.owned(x)
			delete(x, last)
			return x, nil
		case []any:
			n, err := index(x, last, len(x)-1)
			if err != nil {
				return nil, fmt.Errorf("error in %s for path: '%s': %w", op, pointer, err)
			}
			removed = x[n]
			shorter := slices.Delete(slices.Clone(x), n, n+1)
			p.changes = append(p.changes, Change{pointer[:strings.LastIndexByte(pointer, '/')], x, shorter, true})
			return shorter, nil
		}
		return nil, missing(op, pointer)
	})
	return removed, err
}

// changed returns the changes of the whole patch, each with the values before and after it. A field that has its value
// again is none, and neither is a field of one that changed as a whole.
func (p *patching) changed(before map[string]any) (list []Change) {
	if len(p.changes) == 1 {
		if c := p.changes[0]; c.had && equal(c.Old, c.New) && !(c.New == nil && p.removed) {
			return nil
		}
		return p.changes
	}
	for i, c := range p.changes {
		covered := slices.ContainsFunc(p.changes, func(o Change) bool { return o.Path != c.Path && strings.HasPrefix(c.Path, o.Path+"/") }) ||
			slices.ContainsFunc(p.changes[:i], func(o Change) bool { return o.Path == c.Path })
		if covered {
			continue
		}
		var has bool
		c.Old, c.had = lookup(before, c.Path)
		if c.New, has = lookup(p.root, c.Path); c.had != has || !equal(c.Old, c.New) {
			list = append(list, c)
		}
	}
	return list
}

// size returns about how many bytes a value has as JSON.
func size(x any) int {
	n := 8
	switch x := x.(type) {
	case string:
		n += len(x)
	case map[string]any:
		for name, value := range x {
			n += len(name) + size(value)
		}
	case []any:
		for _, item := range x {
			n += size(item)
		}
	}
	return n
}
