package celtype

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// An unorderedList is a list of type set or map. It equals another list with the same items in any
// order. Adding another list adds the items that are missing. In a list of type map, an item of the
// other list replaces the item with the same key (KEP-2876).
type unorderedList struct {
	traits.Lister
	keys []string // nil for a set
}

// key returns a string that identifies the item.
func (l *unorderedList) key(item ref.Val) string {
	if l.keys == nil {
		return fmt.Sprintf("%T %v", item, item.Value())
	}
	var b strings.Builder
	fields, ok := item.(traits.Mapper)
	for _, name := range l.keys {
		if ok {
			if v, found := fields.Find(types.String(name)); found {
				fmt.Fprintf(&b, "%T %q", v, fmt.Sprint(v.Value()))
			}
		}
		b.WriteByte(',')
	}
	return b.String()
}

func eachItem(l traits.Lister, do func(ref.Val) bool) {
	for i := l.Iterator(); i.HasNext() == types.True; {
		if !do(i.Next()) {
			return
		}
	}
}

// Equal implements ref.Val.
func (l *unorderedList) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if l.Size() != o.Size() {
		return types.False
	}
	own := map[string]ref.Val{}
	eachItem(l.Lister, func(v ref.Val) bool { own[l.key(v)] = v; return true })
	seen, same := map[string]bool{}, ref.Val(types.True)
	eachItem(o, func(v ref.Val) bool {
		key := l.key(v)
		mine, ok := own[key]
		if !ok {
			same = types.False
			return false
		}
		seen[key] = true
		same = mine.Equal(v)
		return same == types.True
	})
	if same == types.True && len(seen) != len(own) {
		return types.False
	}
	return same
}

// Add implements traits.Adder.
func (l *unorderedList) Add(other ref.Val) ref.Val {
	o, ok := other.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	var all []ref.Val
	at := map[string]int{}
	eachItem(l.Lister, func(v ref.Val) bool {
		at[l.key(v)] = len(all)
		all = append(all, v)
		return true
	})
	eachItem(o, func(v ref.Val) bool {
		key := l.key(v)
		if i, ok := at[key]; !ok {
			at[key] = len(all)
			all = append(all, v)
		} else if l.keys != nil {
			all[i] = v
		}
		return true
	})
	return &unorderedList{types.NewRefValList(types.DefaultTypeAdapter, all), l.keys}
}
