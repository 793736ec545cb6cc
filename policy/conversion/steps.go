package conversion

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// newOperation compiles a step that is not in CEL.
func newOperation(form *schemas.ConversionStep, items Path, from, to []Path, s sides) (operation, error) {
	for _, p := range append(append([]Path{}, from...), to...) {
		if _, list := p.split(); len(list) == 0 {
			return nil, fmt.Errorf("%s is no field", p)
		}
	}
	switch form.Do {
	case schemas.StepRename, schemas.StepMove:
		return newMove(items, from, to, s)
	case schemas.StepSplit:
		return newSplit(form.Separator, items, from, to, s)
	case schemas.StepJoin:
		op, err := newSplit(form.Separator, items, to, from, sides{s.hub, s.version})
		return reversed{op}, err
	case schemas.StepWrap:
		op, err := newMove(items, from, to, s)
		return &wrap{op}, err
	case schemas.StepUnwrap:
		op, err := newMove(items, to, from, sides{s.hub, s.version})
		return reversed{&wrap{op}}, err
	case schemas.StepDefault, schemas.StepDrop:
		return newDefault(form, items, from, to, s)
	case schemas.StepMap:
		return newValues(form, from)
	}
	return nil, fmt.Errorf("a step %q, which this program does not know", form.Do)
}

// reversed does on the way to the hub what another operation does on the way back.
type reversed struct{ operation }

func (r reversed) up(m map[string]any) error   { return r.operation.down(m) }
func (r reversed) down(m map[string]any) error { return r.operation.up(m) }

// move moves a value to another field.
type move struct {
	from, to           []string
	fromEmpty, toEmpty int // see emptied
}

func newMove(items Path, from, to []Path, s sides) (*move, error) {
	if len(from) != 1 || len(to) != 1 {
		return nil, errors.New("it needs one field in the version, and one in the hub")
	}
	op := &move{from: names(from)[0], to: names(to)[0]}
	op.fromEmpty, op.toEmpty = emptied(items, op.from, s.hub), emptied(items, op.to, s.version)
	return op, nil
}

func (op *move) up(m map[string]any) error {
	if x, ok := take(m, op.from, op.fromEmpty); ok {
		return set(m, op.to, x)
	}
	return nil
}

func (op *move) down(m map[string]any) error {
	if x, ok := take(m, op.to, op.toEmpty); ok {
		return set(m, op.from, x)
	}
	return nil
}

// wrap makes a list of one item of a value. On the way back it takes the first item.
type wrap struct{ *move }

func (op *wrap) up(m map[string]any) error {
	x, ok := take(m, op.from, op.fromEmpty)
	if !ok || x == nil {
		return nil
	}
	return set(m, op.to, []any{x})
}

func (op *wrap) down(m map[string]any) error {
	x, ok := take(m, op.to, op.toEmpty)
	if !ok || x == nil {
		return nil
	}
	list, ok := x.([]any)
	if !ok {
		return fmt.Errorf("%s is no list", fieldText(op.to))
	}
	if len(list) == 0 {
		return nil
	}
	return set(m, op.from, list[0])
}

// split splits a text at a separator. The last part has the rest of the text.
type split struct {
	separator string
	whole     []string
	parts     [][]string
	integers  []bool // whether a part is an integer
	wholeLeft int    // see emptied
	partsLeft []int
	secret    bool // errors do not show the whole
}

func newSplit(separator string, items Path, from, to []Path, s sides) (*split, error) {
	if len(from) != 1 || len(to) < 2 || separator == "" {
		return nil, errors.New("it needs one field with the whole, two or more with its parts, and a separator")
	}
	op := &split{separator: separator, whole: names(from)[0], parts: names(to)}
	op.wholeLeft = emptied(items, op.whole, s.hub)
	if n, _ := from[0].Node(s.version); n != nil {
		op.secret = n.HasSensitive()
	}
	for i, p := range to {
		n, _ := p.Node(s.hub)
		op.integers = append(op.integers, n != nil && n.Kinds == schemas.IntegerKind)
		op.partsLeft = append(op.partsLeft, emptied(items, op.parts[i], s.version))
	}
	return op, nil
}

func (op *split) up(m map[string]any) error {
	x, ok := take(m, op.whole, op.wholeLeft)
	if !ok || x == nil {
		return nil
	}
	text, ok := x.(string)
	if !ok {
		return fmt.Errorf("%s is no string", fieldText(op.whole))
	}
	for i, piece := range strings.SplitN(text, op.separator, len(op.parts)) {
		var value any = piece
		if op.integers[i] {
			n, err := strconv.ParseInt(piece, 10, 64)
			if (err != nil || strconv.FormatInt(n, 10) != piece) && op.secret {
				return fmt.Errorf("a part of %s is no integer", fieldText(op.whole))
			}
			if err != nil || strconv.FormatInt(n, 10) != piece {
				return fmt.Errorf("%q in %s is no integer", piece, fieldText(op.whole))
			}
			value = n
		}
		if err := set(m, op.parts[i], value); err != nil {
			return err
		}
	}
	return nil
}

func (op *split) down(m map[string]any) error {
	var pieces []string
	missing := ""
	for i, part := range op.parts {
		switch x, _ := take(m, part, op.partsLeft[i]); x := x.(type) {
		case nil:
			missing = fieldText(part)
			continue
		case string:
			pieces = append(pieces, x)
		case int64:
			pieces = append(pieces, strconv.FormatInt(x, 10))
		default:
			return fmt.Errorf("%s is neither a string nor an integer", fieldText(part))
		}
		if missing != "" {
			return fmt.Errorf("%s is set without %s", fieldText(part), missing)
		}
	}
	if len(pieces) == 0 {
		return nil
	}
	return set(m, op.whole, strings.Join(pieces, op.separator))
}

// defaulted is a field of the hub that the version does not have. On the way to the hub it gets a value if it is absent; on the
// way back it is removed.
type defaulted struct {
	field []string
	value any // nil for none
	left  int // see emptied
}

// fill is a field of both that gets a value in the hub if it is absent.
type fill struct{ *defaulted }

func (op fill) down(map[string]any) error { return nil }

func newDefault(form *schemas.ConversionStep, items Path, from, to []Path, s sides) (operation, error) {
	field := append(append([]Path{}, from...), to...)
	if len(field) == 0 {
		return nil, errors.New("it needs a field")
	}
	op := &defaulted{field: names(field)[0]}
	if len(form.Value) > 0 {
		var err error
		if op.value, err = jsonvalue.Decode(form.Value); err != nil {
			return nil, err
		}
	}
	switch {
	case len(from) > 0 && len(to) > 0:
		return fill{op}, nil
	case len(to) > 0:
		op.left = emptied(items, op.field, s.version)
		return op, nil
	}
	op.left = emptied(items, op.field, s.hub)
	return reversed{op}, nil
}

func (op *defaulted) up(m map[string]any) error {
	if _, has := get(m, op.field); has || op.value == nil {
		return nil
	}
	return set(m, op.field, jsonvalue.Clone(op.value))
}

func (op *defaulted) down(m map[string]any) error {
	take(m, op.field, op.left)
	return nil
}

// values replaces values. Those that it does not name stay as they are.
type values struct {
	field          []string
	toHub, fromHub map[any]any
}

func newValues(form *schemas.ConversionStep, from []Path) (operation, error) {
	if len(from) != 1 || len(form.Values) == 0 {
		return nil, errors.New("it needs a field, and values")
	}
	op := &values{field: names(from)[0], toHub: map[any]any{}, fromHub: map[any]any{}}
	for _, v := range form.Values {
		x, err := jsonvalue.Decode(v.From)
		if err != nil {
			return nil, err
		}
		y, err := jsonvalue.Decode(v.To)
		if err != nil {
			return nil, err
		}
		if _, twice := op.fromHub[y]; !twice {
			op.fromHub[y] = x
		}
		op.toHub[x] = y
	}
	return op, nil
}

func (op *values) up(m map[string]any) error   { return op.replace(m, op.toHub) }
func (op *values) down(m map[string]any) error { return op.replace(m, op.fromHub) }

func (op *values) replace(m map[string]any, by map[any]any) error {
	x, ok := get(m, op.field)
	if !ok {
		return nil
	}
	switch x.(type) {
	case map[string]any, []any:
		return fmt.Errorf("%s is no scalar", fieldText(op.field))
	}
	if is, ok := by[x]; ok {
		return set(m, op.field, is)
	}
	return nil
}
