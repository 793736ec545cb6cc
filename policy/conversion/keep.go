package conversion

import "stele.dev/stele/schemas/jsonvalue"

// Loses reports whether the steps of the way admit that values are lost.
func (w *Way) Loses() bool {
	return w.up.loses() || w.down.loses()
}

func (c *Conversion) loses() bool {
	if c == nil {
		return false
	}
	for i := range c.steps {
		if c.steps[i].form.Drop != "" {
			return true
		}
	}
	return false
}

// Keep restores what an update in one version would lose of the stored object. converted is the object of the update, converted by
// the way. asked is that object as the client wrote it, shown the stored object in the client's version, and stored the stored
// object. If a client has not changed the fields of a step that loses values, the fields stay that the step made them of. Fields in
// items of lists and maps are not restored, and nothing is between two versions that are both converted to the hub.
func (w *Way) Keep(asked, shown, stored, converted map[string]any) error {
	switch {
	case w.up != nil && w.down != nil:
		return nil
	case w.up != nil:
		return w.up.keep(true, asked, shown, stored, converted)
	case w.down != nil:
		return w.down.keep(false, asked, shown, stored, converted)
	}
	return nil
}

// keep is Keep for a way that is one conversion, to the hub or from it.
func (c *Conversion) keep(up bool, asked, shown, stored, converted map[string]any) error {
	for i := range c.steps {
		s := &c.steps[i]
		if s.form.Drop == "" || len(s.items) > 0 {
			continue
		}
		fields, kept := Fields(s.form)
		if !up {
			fields, kept = kept, fields
		}
		if changed, err := differ(fields, asked, shown); changed || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		for _, text := range kept {
			p, err := ParsePath(text)
			if err != nil {
				return err
			}
			_, names := p.split()
			if x, has := get(stored, names); has {
				if err := set(converted, names, jsonvalue.Clone(x)); err != nil {
					return err
				}
			} else {
				take(converted, names, 0)
			}
		}
	}
	return nil
}

// differ reports whether one of the fields differs between two objects.
func differ(fields []string, a, b map[string]any) (bool, error) {
	for _, text := range fields {
		p, err := ParsePath(text)
		if err != nil {
			return false, err
		}
		_, names := p.split()
		x, hasX := get(a, names)
		y, hasY := get(b, names)
		if hasX != hasY || !jsonvalue.EqualFunc(x, y, jsonvalue.SameScalar) {
			return true, nil
		}
	}
	return false, nil
}
