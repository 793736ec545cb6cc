package restore_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"stele.dev/stele/cmd/stele/internal/restore"
	"stele.dev/stele/schemas"
)

var undoSeeds = flag.Uint64("restore.undo", 3000, "how many random histories of an object are undone")

// Several users write an object of structs, lists and items with keys, delete it, and create it again. Some writes of some of
// them are taken back: what is left is what a twin has that saw only the other writes.
func TestUndoLeavesWhatATwinHasThatSawOnlyTheOtherWrites(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range *undoSeeds {
		h := randomHistory(rand.New(rand.NewPCG(seed, 11)))
		want, outcome := h.twin()
		outcomes[outcome]++
		s := restore.Undo(restore.Subject{Kind: widgets, Namespace: "shop", Name: "x"}, h.versions(), portShape)
		got := "left alone"
		switch {
		case s.Stays != "":
			got = "stays"
		case s.Then == nil && s.Now != nil:
			got = "deleted"
		case s.Then != nil && s.Now == nil:
			got = "created"
		case s.Then != nil:
			got = "updated"
		}
		if got != outcome {
			t.Fatalf("seed %d: the object is %s, want %s\n%s", seed, got, outcome, h)
		}
		if outcome == "stays" && !reflect.DeepEqual(s.Then, s.Now) {
			t.Fatalf("seed %d: an object that stays is changed\n%s", seed, h)
		}
		if want == nil {
			continue
		}
		if diff := cmp.Diff(map[string]string(want), map[string]string(leavesOf(s.Then))); diff != "" {
			t.Fatalf("seed %d: (-twin +undo):\n%s\n%s", seed, diff, h)
		}
		for _, note := range s.Notes {
			if path, _, _ := strings.Cut(note, " stays"); !h.keptByOthers(path) {
				t.Fatalf("seed %d: %s\n%s", seed, note, h)
			}
		}
	}
	for _, outcome := range []string{"stays", "deleted", "created", "updated", "left alone"} {
		if outcomes[outcome] < int(*undoSeeds)/100 {
			t.Errorf("only %d of %d objects were %s", outcomes[outcome], *undoSeeds, outcome)
		}
	}
}

// portShape says that spec.ports has items with keys.
var portShape = &schemas.Node{Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "spec", Schema: &schemas.Node{Struct: &schemas.Struct{Fields: []schemas.Field{
	{Name: "ports", Schema: &schemas.Node{List: &schemas.List{Type: "map", MapKeys: []string{"name"}, Items: &schemas.Node{}}}},
}}}}}}}

// leaves are the fields of an object by their paths. A struct has a leaf of its own, whose path ends with a slash.
type leaves map[string]string

// history has the states of an object. The first one is that before all writes.
type history struct {
	states []*unstructured.Unstructured // nil where the object does not exist
	users  []string                     // who made each; "" of the first
	undone []bool
}

func (h *history) versions() (all []restore.Version) {
	for i, o := range h.states {
		all = append(all, restore.Version{Object: o, Undo: h.undone[i], By: h.users[i], Revision: uint64(i + 1)})
	}
	return all
}

func (h *history) String() string {
	var text strings.Builder
	for i, o := range h.states {
		fmt.Fprintf(&text, "%d %s undone %v: ", i+1, h.users[i], h.undone[i])
		if o == nil {
			text.WriteString("-\n")
			continue
		}
		l := leavesOf(o)
		for _, path := range slices.Sorted(maps.Keys(l)) {
			fmt.Fprintf(&text, "%s=%s ", path, l[path])
		}
		text.WriteString("\n")
	}
	return text.String()
}

// randomHistory makes up to twelve writes. Those of one user, or of one in a range, are taken back.
func randomHistory(r *rand.Rand) *history {
	h := &history{users: []string{""}, undone: []bool{false}}
	var now *unstructured.Unstructured
	life := 0
	create := func() *unstructured.Unstructured {
		life++
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "x", "namespace": "shop", "uid": fmt.Sprint("u-", life)}}}
		change(r, o)
		return o
	}
	if r.IntN(4) > 0 {
		now = create()
	}
	h.states = append(h.states, now)
	users := []string{"robot", "dana", "controller"}
	from, to := r.IntN(6), 4+r.IntN(10)
	for i := range 1 + r.IntN(12) {
		switch {
		case now == nil:
			now = create()
		case r.IntN(7) == 0:
			now = nil
		default:
			before := now
			now = now.DeepCopy()
			for range 10 {
				if change(r, now); !reflect.DeepEqual(now, before) { // a write that changes nothing makes no event
					break
				}
			}
			if reflect.DeepEqual(now, before) {
				continue
			}
		}
		user := users[r.IntN(len(users))]
		h.states, h.users, h.undone = append(h.states, now), append(h.users, user), append(h.undone, user == "robot" && from <= i && i <= to)
	}
	return h
}

// change writes some fields.
func change(r *rand.Rand, o *unstructured.Unstructured) {
	value := func() any { return fmt.Sprint(r.IntN(3)) }
	for range 1 + r.IntN(3) {
		switch r.IntN(10) {
		case 0, 1:
			put(o, value(), "spec", fmt.Sprint("f", r.IntN(2)))
		case 2, 3:
			put(o, value(), "spec", "inner", fmt.Sprint("g", r.IntN(2)))
		case 4:
			unstructured.RemoveNestedField(o.Object, "spec", []string{"f0", "inner", "list", "ports"}[r.IntN(4)])
		case 5:
			unstructured.RemoveNestedField(o.Object, "spec", "inner", fmt.Sprint("g", r.IntN(2)))
		case 6:
			put(o, []any{value(), value()}[:1+r.IntN(2)], "spec", "list")
		case 7:
			put(o, map[string]any{}, "metadata", "labels")
			put(o, value(), "metadata", "labels", fmt.Sprint("l", r.IntN(2)))
		case 8:
			put(o, value(), "status", "phase")
		case 9:
			writePort(r, o, value())
		}
	}
}

// put sets a field; an empty struct is set only if there is none.
func put(o *unstructured.Unstructured, value any, path ...string) {
	if m, is := value.(map[string]any); is && len(m) == 0 {
		if _, there, _ := unstructured.NestedMap(o.Object, path...); there {
			return
		}
	}
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		panic(err)
	}
}

// writePort adds, changes or removes an item with a key.
func writePort(r *rand.Rand, o *unstructured.Unstructured, value any) {
	ports, there, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	name := fmt.Sprint("p", r.IntN(3))
	i := slices.IndexFunc(ports, func(p any) bool { return p.(map[string]any)["name"] == name })
	switch {
	case i < 0:
		ports = append(ports, map[string]any{"name": name, "port": value})
	case r.IntN(3) == 0:
		ports = slices.Delete(ports, i, i+1)
	case r.IntN(2) == 0:
		ports[i].(map[string]any)["port"] = value
	default:
		ports[i].(map[string]any)["protocol"] = value
	}
	if there || len(ports) > 0 {
		put(o, ports, "spec", "ports")
	}
}

// leavesOf takes an object apart.
func leavesOf(o *unstructured.Unstructured) leaves {
	l := leaves{}
	if o != nil {
		content := o.DeepCopy().Object
		delete(content["metadata"].(map[string]any), "uid")
		l.add("", content)
	}
	return l
}

func (l leaves) add(path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		l[path+"/"] = "{}"
		for name, field := range v {
			l.add(strings.TrimPrefix(path+"."+name, "."), field)
		}
	case []any:
		if path != "spec.ports" {
			l[path] = fmt.Sprint(v)
			return
		}
		l[path+"/"] = "{}"
		for _, item := range v {
			l.add(path+"."+fmt.Sprint("[name=", item.(map[string]any)["name"], "]"), item)
		}
	default:
		l[path] = fmt.Sprint(v)
	}
}

// twin says what becomes of the object, and what it then has; nil if nothing is written.
func (h *history) twin() (leaves, string) {
	end := len(h.states) - 1
	born := h.lastBirth(end) // the last write that created or deleted the object; 0 if there is none
	exists := h.states[end] != nil
	switch {
	case born == 0:
		return h.replay(0, end), updatedIf(exists)
	case !h.undone[born] && !exists:
		return nil, "left alone" // somebody else deleted it
	case !h.undone[born]:
		return h.replay(born, end), "updated" // of the life that somebody else has begun
	}
	first := born // of the writes that are taken back, and that created and deleted it in turn
	for earlier := h.lastBirth(first - 1); earlier > 0 && h.undone[earlier]; earlier = h.lastBirth(first - 1) {
		first = earlier
	}
	existed := h.states[first-1] != nil
	switch {
	case existed && exists:
		return h.replay(0, end), "updated"
	case existed:
		return h.replay(0, born-1), "created"
	case !exists:
		return nil, "left alone"
	}
	for i := born + 1; i <= end; i++ {
		if !h.undone[i] && !reflect.DeepEqual(withoutStatus(h.states[i]), withoutStatus(h.states[i-1])) {
			return nil, "stays"
		}
	}
	return nil, "deleted"
}

func updatedIf(exists bool) string {
	if exists {
		return "updated"
	}
	return "left alone"
}

func withoutStatus(o *unstructured.Unstructured) leaves {
	l := leavesOf(o)
	maps.DeleteFunc(l, func(path, _ string) bool { return strings.HasPrefix(path, "status") })
	return l
}

func (h *history) lastBirth(upto int) int {
	for i := upto; i > 0; i-- {
		if (h.states[i] == nil) != (h.states[i-1] == nil) {
			return i
		}
	}
	return 0
}

// replay makes the changes of the writes from..to that are not taken back on what there was at from, leaf by leaf.
func (h *history) replay(from, to int) leaves {
	twin := leavesOf(h.states[from])
	before := leavesOf(h.states[from])
	for i := from + 1; i <= to; i++ {
		now := leavesOf(h.states[i])
		for path := range union(before, now) {
			was, had := before[path]
			is, has := now[path]
			if h.undone[i] || had == has && was == is {
				continue
			}
			if delete(twin, path); has {
				twin[path] = is
			}
		}
		before = now
	}
	if to == len(h.states)-1 && h.states[to] == nil {
		return nil
	}
	for path := range maps.Clone(twin) { // whatever has a field is there
		for i, c := range path {
			if c == '.' && i > 0 {
				twin[path[:i]+"/"] = "{}"
			}
		}
		if item, field, is := strings.Cut(path, "]."); is && field != "" { // and an item has its key
			_, key, _ := strings.Cut(item, "[name=")
			twin[item+"].name"] = key
		}
		twin["/"] = "{}"
	}
	return twin
}

func union(a, b leaves) leaves {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// keptByOthers reports whether the last write that changed a field, or something in it, was not taken back.
func (h *history) keptByOthers(path string) bool {
	i := len(h.states) - 1
	if h.states[i] == nil { // its deletion is taken back as a whole
		i = h.lastBirth(i) - 1
	}
	for ; i > 0; i-- {
		was, is := leavesOf(h.states[i-1]), leavesOf(h.states[i])
		for p := range union(was, is) {
			if (p == path || strings.HasPrefix(p, path+"/") || strings.HasPrefix(p, path+".")) && was[p] != is[p] {
				return !h.undone[i]
			}
		}
	}
	return false
}
