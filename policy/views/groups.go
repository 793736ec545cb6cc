package views

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// Key identifies an object within its resource.
type Key struct{ Namespace, Name string }

// Groups are the groups of a view with groupBy, and what each object adds to them. They are kept up to date object by object:
// sums are exact, so that they do not depend on the order. It is not safe for concurrent use.
type Groups struct {
	view    *View
	groups  map[string]*group // by the JSON of their values
	members map[Key]member
	changed map[*group]bool
}

// group is all objects with the same values of the columns.
type group struct {
	key, name string
	values    []Value
	members   int
	totals    []total
}

type member struct {
	*group
	adds []Value
}

// NewGroups returns groups without objects.
func NewGroups(v *View) *Groups {
	return &Groups{view: v, groups: map[string]*group{}, members: map[Key]member{}, changed: map[*group]bool{}}
}

// Use makes the groups those of another view that has the same rows.
func (g *Groups) Use(v *View) { g.view = v }

// Set sets what an object adds. row is nil if the view does not have the object.
func (g *Groups) Set(k Key, row *Row) {
	was, ok := g.members[k]
	var buffer [128]byte
	key := buffer[:0]
	if row != nil {
		for i := range row.Values {
			key = append(row.Values[i].appendJSON(key), ',')
		}
		if ok && string(key) == was.key && slices.Equal(row.Aggregated, was.adds) {
			return // most writes change nothing that is counted
		}
	}
	if ok {
		was.add(was.adds, -1)
		g.changed[was.group] = true
		delete(g.members, k)
	}
	if row == nil {
		return
	}
	in := g.groups[string(key)]
	if in == nil {
		in = &group{key: string(key), name: groupName(row.Values, key), values: slices.Clone(row.Values), totals: make([]total, len(g.view.aggregates))}
		for i := range in.values {
			in.values[i].text = strings.Clone(in.values[i].text) // the group outlives the object
		}
		g.groups[in.key] = in
	}
	in.add(row.Aggregated, 1)
	g.members[Key{strings.Clone(k.Namespace), strings.Clone(k.Name)}] = member{in, row.Aggregated}
	g.changed[in] = true
}

// add adds n objects with the same values to a group.
func (g *group) add(values []Value, n int) {
	g.members += n
	for i, v := range values {
		g.totals[i].add(v, n)
	}
}

// Change is a group that has changed. Payload is its row without resourceVersion; nil if the group has no objects any more.
type Change struct {
	Name    string
	Payload []byte
	SortKey string
}

// Changes returns the groups that have changed since the last call, by name.
func (g *Groups) Changes() []Change {
	changes := make([]Change, 0, len(g.changed))
	for x := range g.changed {
		c := Change{Name: x.name}
		if x.members == 0 {
			delete(g.groups, x.key)
		} else {
			c.Payload, c.SortKey = g.view.groupRow(x)
		}
		changes = append(changes, c)
	}
	clear(g.changed)
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return changes
}

// hashed is the number of hexadecimal digits at the end of names that are made of other values than labels.
const hashed = 20

// groupName returns the name of a group: its values with dots between them, if all are labels of DNS; else what is left of them,
// and a hash.
func groupName(values []Value, key []byte) string {
	var parts []string
	plain := true
	for _, v := range values {
		part := strings.Trim(string(v.appendJSON(nil)), `"`)
		plain = plain && isLabel(part) && v.kind != null
		parts = append(parts, part)
	}
	name := strings.Join(parts, ".")
	if plain && len(name) <= 200 && !endsInHash(name) {
		return name
	}
	sum := sha256.Sum256(key)
	var kept strings.Builder
	for _, c := range strings.ToLower(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			kept.WriteRune(c)
		} else if s := kept.String(); s != "" && s[len(s)-1] != '-' {
			kept.WriteByte('-')
		}
	}
	start := strings.Trim(kept.String()[:min(kept.Len(), 40)], "-")
	return strings.TrimPrefix(start+"-"+hex.EncodeToString(sum[:])[:hashed], "-")
}

// endsInHash reports whether a name could be one with a hash.
func endsInHash(name string) bool {
	end := name[max(0, len(name)-hashed):]
	return len(end) == hashed && strings.Trim(end, "0123456789abcdef") == ""
}

// total is an aggregate of one group.
type total struct {
	count int64
	sum   *big.Int // in units of 2^-fraction, if there are floats
	// values are all values with their numbers, in order, for min and max.
	values *btree.Map[string, counted]
}

type counted struct {
	Value
	n int
}

// fraction is the number of binary digits after the point of sums of floats, so that every float is a whole number of units.
const fraction = 1126

// add adds n objects with a value.
func (t *total) add(v Value, n int) {
	if v.kind == null || v.kind == boolean && v.integer == 0 {
		return
	}
	t.count += int64(n)
	if v.kind == boolean {
		return
	}
	if t.sum == nil {
		t.sum, t.values = new(big.Int), &btree.Map[string, counted]{}
	}
	x := big.NewInt(v.integer)
	if v.kind == float {
		part, exponent := math.Frexp(v.float)
		x.SetInt64(int64(part * (1 << 53)))
		x.Lsh(x, uint(exponent-53+fraction))
	}
	t.sum.Add(t.sum, x.Mul(x, big.NewInt(int64(n))))
	key := string(v.appendKey(nil))
	c, _ := t.values.Get(key)
	if c = (counted{v, c.n + n}); c.n == 0 {
		t.values.Delete(key)
	} else {
		t.values.Set(key, c)
	}
}

// value returns the aggregate. Without values, the sum is 0 and min and max are null.
func (t *total) value(a *aggregate) Value {
	kind := float
	if a.integer {
		kind = integer
	}
	switch {
	case a.function == "count":
		return Value{kind: integer, integer: t.count}
	case a.function == "sum" && t.sum == nil:
		return Value{kind: kind}
	case t.count == 0 && a.function != "sum":
		return Value{}
	case a.function == "min":
		_, c, _ := t.values.Min()
		return c.Value
	case a.function == "max":
		_, c, _ := t.values.Max()
		return c.Value
	case kind == integer:
		if !t.sum.IsInt64() {
			return Value{} // too large for an integer
		}
		return Value{kind: integer, integer: t.sum.Int64()}
	}
	f, _ := new(big.Float).SetMantExp(new(big.Float).SetInt(t.sum), -fraction).Float64()
	if !finite(f) {
		return Value{}
	}
	return Value{kind: float, float: f}
}
