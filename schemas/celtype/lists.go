package celtype

import (
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"stele.dev/stele/schemas"
)

// An itemKey is what tells the items of a list apart: comparable in Go, or an error.
type itemKey func(item ref.Val) (key any, err ref.Val)

func keyOf(l *schemas.List) itemKey {
	switch l.Type {
	case schemas.ListSet:
		return scalar
	case schemas.ListMap:
		return fieldsOf(l.MapKeys)
	}
	return nil
}

// scalar tells the items of a set apart.
func scalar(item ref.Val) (any, ref.Val) {
	switch item := item.(type) {
	case traits.Lister, traits.Mapper:
		return nil, types.NewErr("sets are only compared and added if their items are scalars")
	case types.Bytes: // which Go cannot compare
		return "bytes " + string(item), nil
	}
	return item.Value(), nil
}

// fieldsOf tells the items of a list of type map apart.
func fieldsOf(names []string) itemKey {
	return func(item ref.Val) (any, ref.Val) {
		m, ok := item.(traits.Mapper)
		if !ok {
			return nil, types.MaybeNoSuchOverloadErr(item)
		}
		values := make([]any, len(names))
		for i, name := range names {
			if v, ok := m.Find(types.String(name)); ok && !types.IsUnknownOrError(v) {
				values[i] = v.Value()
			}
		}
		return fmt.Sprintf("%#v", values), nil
	}
}

// associative is a list whose order is no matter: a set, or a list of type map. Added to
// another it keeps its order, and items with the same key take the place of its own
// (KEP-2876).
type associative struct {
	traits.Lister
	key itemKey
}

func (l *associative) items() []ref.Val {
	size, _ := l.Size().(types.Int)
	items := make([]ref.Val, 0, size)
	for it := l.Iterator(); it.HasNext() == types.True; {
		items = append(items, it.Next())
	}
	return items
}

// byKey are the positions of items.
func (l *associative) byKey(items []ref.Val) (map[any]int, ref.Val) {
	at := make(map[any]int, len(items))
	for i, item := range items {
		key, err := l.key(item)
		if err != nil {
			return nil, err
		}
		at[key] = i
	}
	return at, nil
}

func (l *associative) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	items := l.items()
	at, err := l.byKey(items)
	if err != nil {
		return err
	}
	seen := make(map[any]struct{}, len(at))
	for it := o.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		key, err := l.key(item)
		if err != nil {
			return err
		}
		i, ok := at[key]
		if !ok {
			return types.False
		}
		if equal := items[i].Equal(item); equal != types.True {
			return equal // false, or an error
		}
		seen[key] = struct{}{}
	}
	return types.Bool(len(seen) == len(at))
}

func (l *associative) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	items := l.items()
	at, err := l.byKey(items)
	if err != nil {
		return err
	}
	for it := o.Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		key, err := l.key(item)
		if err != nil {
			return err
		}
		if i, ok := at[key]; ok {
			items[i] = item
		} else {
			at[key] = len(items)
			items = append(items, item)
		}
	}
	return &associative{types.NewRefValList(types.DefaultTypeAdapter, items), l.key}
}
