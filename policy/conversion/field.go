package conversion

import "stele.dev/stele/schemas"

// Field returns where the value of a field of the first version is in the second one. ok is false if the value is another one there,
// or is not there. The path has no [*].
func (w *Way) Field(path string) (moved string, ok bool) {
	p, err := ParsePath(path)
	if err != nil {
		return "", false
	}
	if w.up != nil {
		if p, ok = w.up.field(p, true); !ok {
			return "", false
		}
	}
	if w.down != nil {
		if p, ok = w.down.field(p, false); !ok {
			return "", false
		}
	}
	if _, has := p.Node(w.to); !has {
		return "", false
	}
	return p.String(), true
}

// field follows a field through the steps.
func (c *Conversion) field(p Path, up bool) (Path, bool) {
	for i := range c.steps {
		s := &c.steps[i]
		if !up {
			s = &c.steps[len(c.steps)-1-i]
		}
		from, to := Fields(s.form)
		if !up {
			from, to = to, from
		}
		moves := s.form.Do == schemas.StepRename || s.form.Do == schemas.StepMove
		for j, text := range from {
			at, err := ParsePath(text)
			if err != nil {
				return nil, false
			}
			if !p.In(at) && !at.In(p) {
				continue
			}
			if !moves || !p.In(at) {
				return nil, false
			}
			next, err := ParsePath(to[j])
			if err != nil {
				return nil, false
			}
			p = append(next, p[len(at):]...)
		}
	}
	return p, true
}
