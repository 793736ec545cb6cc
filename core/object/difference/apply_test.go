package difference

import (
	"fmt"
	"maps"
	"slices"
)

// Apply returns the object with the differences applied. The result shares values with the object and the entries. The
// order of lists of type map may differ. An error names the first entry that does not fit.
func Apply(object map[string]any, entries []Entry) (map[string]any, error) {
	root := &edit{}
	for i := range entries {
		p, err := Parse(entries[i].Path)
		if err != nil {
			return nil, err
		}
		root.put(p, &entries[i])
	}
	after, err := root.apply(object)
	if err != nil {
		return nil, err
	}
	result, ok := after.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("difference: it makes of the object a %T", after)
	}
	return result, nil
}

// edit is the change of a value, or of its parts.
type edit struct {
	entry *Entry
	parts []part
	at    map[string]int // indexes of parts by their steps
	gone  []part         // removed items, by their index in the old list
}

type part struct {
	step Step
	edit *edit
}

func (e *edit) put(p Path, entry *Entry) {
	if len(p) == 0 {
		e.entry = entry
		return
	}
	if p[0].Item && len(p) == 1 && entry.Op == Remove {
		e.gone = append(e.gone, part{p[0], &edit{entry: entry}})
		return
	}
	key := Path{p[0]}.String()
	i, ok := e.at[key]
	if !ok {
		if e.at == nil {
			e.at = map[string]int{}
		}
		i = len(e.parts)
		e.at[key] = i
		e.parts = append(e.parts, part{p[0], &edit{}})
	}
	e.parts[i].edit.put(p[1:], entry)
}

func (e *edit) adds() bool    { return e.entry != nil && e.entry.Op == Add }
func (e *edit) removes() bool { return e.entry != nil && e.entry.Op == Remove }

func (e *edit) apply(to any) (any, error) {
	if e.entry != nil {
		return e.entry.To, nil
	}
	if len(e.parts) == 0 && len(e.gone) == 0 {
		return to, nil
	}
	switch x := to.(type) {
	case map[string]any:
		return e.fields(x)
	case []any:
		if len(e.parts) > 0 && e.parts[0].step.Key != nil {
			return e.keyed(x)
		}
		return e.items(x)
	}
	return nil, fmt.Errorf("difference: a part of %v is to change, which has none", to)
}

func (e *edit) fields(x map[string]any) (any, error) {
	if len(e.gone) > 0 {
		return nil, fmt.Errorf("difference: %s does not fit, there is no list", e.gone[0].edit.entry.Path)
	}
	x = maps.Clone(x)
	if x == nil {
		x = map[string]any{}
	}
	for _, p := range e.parts {
		name := p.step.Field
		before, ok := x[name]
		switch {
		case p.step.Item || p.step.Key != nil:
			return nil, fmt.Errorf("difference: %v does not fit, there is no list", Path{p.step})
		case !ok && !p.edit.adds(), ok && p.edit.adds():
			return nil, fmt.Errorf("difference: the field %s does not fit", name)
		case p.edit.removes():
			delete(x, name)
			continue
		}
		after, err := p.edit.apply(before)
		if err != nil {
			return nil, err
		}
		x[name] = after
	}
	return x, nil
}

func (e *edit) keyed(x []any) (any, error) {
	if len(e.gone) > 0 {
		return nil, fmt.Errorf("difference: %s does not fit, items have keys", e.gone[0].edit.entry.Path)
	}
	x = slices.Clone(x)
	var removed []int
	for _, p := range e.parts {
		i := slices.IndexFunc(x, func(item any) bool { return hasKeys(item, p.step.Key) })
		switch {
		case p.step.Key == nil:
			return nil, fmt.Errorf("difference: %v does not fit, items have keys", Path{p.step})
		case i < 0 && p.edit.adds():
			x = append(x, p.edit.entry.To)
			continue
		case i < 0 || p.edit.adds():
			return nil, fmt.Errorf("difference: the item %v does not fit", Path{p.step})
		case p.edit.removes():
			removed = append(removed, i)
			continue
		}
		var err error
		if x[i], err = p.edit.apply(x[i]); err != nil {
			return nil, err
		}
	}
	slices.Sort(removed)
	for _, i := range slices.Backward(removed) {
		x = slices.Delete(x, i, i+1)
	}
	return x, nil
}

func hasKeys(item any, keys []KeyValue) bool {
	fields, ok := item.(map[string]any)
	return ok && !slices.ContainsFunc(keys, func(k KeyValue) bool {
		v, ok := fields[k.Name]
		switch v.(type) {
		case map[string]any, []any:
			return true
		}
		return !ok || v != k.Value
	})
}

func (e *edit) items(x []any) (any, error) {
	gone := map[int]bool{}
	for _, p := range e.gone {
		if p.step.Index >= len(x) {
			return nil, fmt.Errorf("difference: %s does not fit", p.edit.entry.Path)
		}
		gone[p.step.Index] = true
	}
	byIndex, added := map[int]*edit{}, 0
	for _, p := range e.parts {
		if !p.step.Item {
			return nil, fmt.Errorf("difference: %v does not fit, there is a list", Path{p.step})
		}
		byIndex[p.step.Index] = p.edit
		if p.edit.adds() {
			added++
		}
	}
	after, next := make([]any, len(x)-len(gone)+added), 0
	for j := range after {
		one := byIndex[j]
		delete(byIndex, j)
		if one != nil && one.adds() {
			after[j] = one.entry.To
			continue
		}
		for gone[next] {
			next++
		}
		if next == len(x) {
			return nil, fmt.Errorf("difference: the list has no item for index %d", j)
		}
		after[j] = x[next]
		next++
		if one != nil {
			var err error
			if after[j], err = one.apply(after[j]); err != nil {
				return nil, err
			}
		}
	}
	for j := range byIndex {
		return nil, fmt.Errorf("difference: the list has no index %d", j)
	}
	return after, nil
}
