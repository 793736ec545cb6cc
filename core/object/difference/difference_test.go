package difference_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/schemas"
)

// ports is a schema in which spec.ports is a list of type map.
func ports(keys ...string) *schemas.Node {
	structure := func(name string, n *schemas.Node) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: name, Presence: schemas.Optional, Schema: n}}}}
	}
	return structure("spec", structure("ports", &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: keys}}))
}

func decode(t testing.TB, text string) (o map[string]any) {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// lines are entries as people would note them down.
func lines(entries []difference.Entry) string {
	var b strings.Builder
	for _, e := range entries {
		from, _ := json.Marshal(e.From)
		to, _ := json.Marshal(e.To)
		switch e.Op {
		case difference.Add:
			fmt.Fprintf(&b, "+ %s: %s\n", e.Path, to)
		case difference.Remove:
			fmt.Fprintf(&b, "- %s: %s\n", e.Path, from)
		default:
			fmt.Fprintf(&b, "~ %s: %s -> %s\n", e.Path, from, to)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func TestWhatDiffers(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to string
		schema   *schemas.Node
		want     string
	}{
		"nothing":                      {`{"spec":{"a":[1,{"b":null}]}}`, `{"spec":{"a":[1,{"b":null}]}}`, nil, ``},
		"a scalar":                     {`{"spec":{"a":1}}`, `{"spec":{"a":2}}`, nil, `~ spec.a: 1 -> 2`},
		"a type":                       {`{"spec":{"a":{"b":1}}}`, `{"spec":{"a":"b"}}`, nil, `~ spec.a: {"b":1} -> "b"`},
		"a null":                       {`{"spec":{"a":null}}`, `{"spec":{}}`, nil, `- spec.a: null`},
		"what came is one entry":       {`{"spec":{}}`, `{"spec":{"a":{"b":[1,2]}}}`, nil, `+ spec.a: {"b":[1,2]}`},
		"odd names":                    {`{"metadata":{"annotations":{"a.b/c":"x"}}}`, `{"metadata":{"annotations":{"true":"y"}}}`, nil, "- metadata.annotations[\"a.b/c\"]: \"x\"\n+ metadata.annotations[\"true\"]: \"y\""},
		"one more at the end":          {`{"a":[1,2]}`, `{"a":[1,2,3]}`, nil, `+ a[2]: 3`},
		"one more in the middle":       {`{"a":["x","y","z"]}`, `{"a":["x","n","y","z"]}`, nil, `+ a[1]: "n"`},
		"one less in front":            {`{"a":["x","y","z"]}`, `{"a":["y","z"]}`, nil, `- a[0]: "x"`},
		"one for another":              {`{"a":["x","y"]}`, `{"a":["x","z"]}`, nil, `~ a[1]: "y" -> "z"`},
		"one more, and one changed":    {`{"a":[{"n":"x","v":1}]}`, `{"a":[{"n":"new","v":0},{"n":"x","v":2}]}`, nil, "+ a[0]: {\"n\":\"new\",\"v\":0}\n~ a[1].v: 1 -> 2"},
		"by key, in another order":     {`{"spec":{"ports":[{"name":"a","port":1},{"name":"b","port":2}]}}`, `{"spec":{"ports":[{"name":"b","port":3},{"name":"a","port":1}]}}`, ports("name"), `~ spec.ports[name=b].port: 2 -> 3`},
		"by two keys, one a number":    {`{"spec":{"ports":[{"port":1,"protocol":"TCP"}]}}`, `{"spec":{"ports":[{"port":1,"protocol":"UDP"}]}}`, ports("port", "protocol"), "- spec.ports[port=1,protocol=TCP]: {\"port\":1,\"protocol\":\"TCP\"}\n+ spec.ports[port=1,protocol=UDP]: {\"port\":1,\"protocol\":\"UDP\"}"},
		"a key that looks like others": {`{"spec":{"ports":[]}}`, `{"spec":{"ports":[{"name":"80"},{"name":"a]b"}]}}`, ports("name"), "+ spec.ports[name=\"80\"]: {\"name\":\"80\"}\n+ spec.ports[name=\"a]b\"]: {\"name\":\"a]b\"}"},
		"keys that are not unique":     {`{"spec":{"ports":[{"name":"a"},{"name":"a"}]}}`, `{"spec":{"ports":[{"name":"a"}]}}`, ports("name"), `- spec.ports[1]: {"name":"a"}`},
		"owners are known by uid":      {`{"metadata":{"ownerReferences":[{"uid":"u-1","name":"a"}]}}`, `{"metadata":{"ownerReferences":[{"uid":"u-1","name":"b"}]}}`, nil, `~ metadata.ownerReferences[uid=u-1].name: "a" -> "b"`},
		"the server's own account":     {`{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[1]},"spec":{"a":1}}`, `{"metadata":{"resourceVersion":"2","generation":2},"spec":{"a":2}}`, nil, `~ spec.a: 1 -> 2`},
		"a generation alone":           {`{"metadata":{"generation":1}}`, `{"metadata":{"generation":2}}`, nil, `~ metadata.generation: 1 -> 2`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(difference.Between(decode(t, tc.from), decode(t, tc.to), difference.Options{Schema: tc.schema})); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestAnObjectThatIsNewOrGone(t *testing.T) {
	o := decode(t, `{"apiVersion":"v1","kind":"K","metadata":{"name":"a","uid":"u","labels":{"x":"y"},"managedFields":[]},"spec":{"a":1,"b":2},"data":{"c":"d"}}`)
	const what = "data: {\"c\":\"d\"}\nmetadata.labels: {\"x\":\"y\"}\nspec: {\"a\":1,\"b\":2}"
	if got := lines(difference.Between(nil, o, difference.Options{})); got != "+ "+strings.ReplaceAll(what, "\n", "\n+ ") {
		t.Errorf("new:\n%s", got)
	}
	if got := lines(difference.Between(o, nil, difference.Options{})); got != "- "+strings.ReplaceAll(what, "\n", "\n- ") {
		t.Errorf("gone:\n%s", got)
	}
	if got := difference.Between(nil, nil, difference.Options{}); got != nil {
		t.Errorf("neither: %v", got)
	}
}

func TestIntegersStayIntegersInJSON(t *testing.T) {
	const text = `{"path":"spec.a","op":"replace","from":9007199254740993,"to":1.5}`
	var e difference.Entry
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.From != int64(9007199254740993) || e.To != 1.5 {
		t.Errorf("%#v, %v", e, err)
	}
	if got, err := json.Marshal(e); err != nil || string(got) != text {
		t.Errorf("%s, %v", got, err)
	}
}

// some makes values, those of the same seed mostly alike.
func some(g *rand.Rand, depth int) any {
	switch n := g.IntN(9); {
	case n < 3 && depth > 0:
		m := map[string]any{}
		for range g.IntN(5) {
			m[[]string{"a", "b", "a.b", "", "x-y", "0", "\"", "é", "null"}[g.IntN(9)]] = some(g, depth-1)
		}
		return m
	case n < 5 && depth > 0:
		l := make([]any, g.IntN(6))
		for i := range l {
			l[i] = some(g, depth-1)
		}
		return l
	case n == 5:
		return nil
	case n == 6:
		return int64(g.IntN(3))
	case n == 7:
		return float64(g.IntN(3)) // which is encoded as the integer is
	}
	return []string{"", "s", "t]"}[g.IntN(3)]
}

// changed is x with something else here and there.
func changed(g *rand.Rand, x any) any {
	if g.IntN(8) == 0 {
		return some(g, 2)
	}
	switch x := x.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, v := range x {
			if g.IntN(6) > 0 {
				m[k] = changed(g, v)
			}
		}
		if g.IntN(4) == 0 {
			m["new"] = some(g, 1)
		}
		return m
	case []any:
		l := []any{}
		for _, v := range x {
			switch g.IntN(6) {
			case 0:
			case 1:
				l = append(l, some(g, 1), changed(g, v))
			default:
				l = append(l, changed(g, v))
			}
		}
		return l
	}
	return x
}

// withPorts adds a list of type map, in any order.
func withPorts(g *rand.Rand, o map[string]any) map[string]any {
	list := []any{}
	for _, i := range g.Perm(5)[:g.IntN(5)] {
		item := map[string]any{"name": []any{"a", "80", int64(80), true, "x,y"}[i]}
		if g.IntN(2) == 0 {
			item["port"] = int64(g.IntN(3))
		}
		list = append(list, item)
	}
	o["spec"] = map[string]any{"ports": list}
	return o
}

// inOrder sorts the list of type map.
func inOrder(o map[string]any) map[string]any {
	if spec, ok := o["spec"].(map[string]any); ok {
		if list, ok := spec["ports"].([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b)) })
		}
	}
	return o
}

func TestADifferenceAppliedGivesTheOtherObject(t *testing.T) {
	for seed := range uint64(20_000) {
		g := rand.New(rand.NewPCG(seed, 1))
		from := withPorts(g, map[string]any{"data": some(g, 4), "metadata": map[string]any{"generation": int64(g.IntN(2)), "labels": some(g, 1)}})
		to := withPorts(g, map[string]any{"data": changed(g, from["data"]), "metadata": changed(g, from["metadata"])})
		d := difference.Between(from, to, difference.Options{Schema: ports("name"), Everything: true})
		text, err := json.Marshal(d) // as clients get it
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(difference.Between(from, to, difference.Options{Schema: ports("name"), Everything: true})); string(again) != string(text) {
			t.Fatalf("seed %d: once %s, then %s", seed, text, again)
		}
		got, err := difference.Apply(from, d)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, lines(d))
		}
		if !reflect.DeepEqual(inOrder(got), inOrder(to)) {
			t.Fatalf("seed %d: of\n%v\ncame\n%v, not\n%v, by\n%s", seed, from, got, to, lines(d))
		}
	}
}

func TestADifferenceThatDoesNotFitIsAnError(t *testing.T) {
	for _, e := range []difference.Entry{
		{Path: "spec.missing", Op: difference.Remove}, {Path: "spec.a", Op: difference.Add}, {Path: "spec.l[4]", Op: difference.Remove}, {Path: "spec.l[4]", Op: difference.Add},
		{Path: "spec.l[0].x", Op: difference.Replace}, {Path: "spec[0]", Op: difference.Remove}, {Path: "spec.l.x", Op: difference.Add}, {Path: "spec.l[name=x]", Op: difference.Remove},
		{Path: "", Op: difference.Replace, To: "x"}, {Path: "spec[", Op: difference.Add},
	} {
		if got, err := difference.Apply(map[string]any{"spec": map[string]any{"a": int64(1), "l": []any{"x"}}}, []difference.Entry{e}); err == nil {
			t.Errorf("%s %q: %v", e.Op, e.Path, got)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, text := range []string{"", "a", "spec.ports[name=http,port=80].x", `metadata.annotations["a.b/c"]`, "a[0][1]", `[true="x"]`, `["\u00e9"]`, "a[", "a..b", "[1.5]", "[null=false]", "[ 1]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := difference.Parse(text)
		if err != nil {
			return
		}
		again, err := difference.Parse(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q is %q, and that is %v, %v", text, p, again, err)
		}
	})
}

func FuzzBetween(f *testing.F) {
	f.Add(`{"spec":{"ports":[{"name":"a"}]}}`, `{"spec":{"ports":[{"name":"b"},{"name":"a","x":[1]}]}}`)
	f.Add(`{"metadata":1}`, `{"metadata":{"ownerReferences":[{"uid":null}]}}`)
	f.Fuzz(func(t *testing.T, before, after string) {
		var from, to map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(before), &from) != nil || kjson.UnmarshalCaseSensitivePreserveInts([]byte(after), &to) != nil || from == nil || to == nil {
			return
		}
		got, err := difference.Apply(from, difference.Between(from, to, difference.Options{Everything: true}))
		if err != nil {
			t.Fatal(err)
		}
		if meta, ok := to["metadata"].(map[string]any); ok && meta["ownerReferences"] != nil {
			return // whose order does not count
		}
		if !reflect.DeepEqual(got, to) {
			t.Errorf("%v, not %v", got, to)
		}
	})
}

// In long lists of large items, of which each has changed and one has gone, what has gone is
// found without comparing every field of each with every other's by name.
func BenchmarkListsInWhichAllHasChanged(b *testing.B) {
	items := func(version int64) (list []any) {
		for i := range int64(500) {
			item := map[string]any{"version": version}
			for f := range int64(100) {
				item[fmt.Sprint("field-", f)] = 1000*i + f
			}
			list = append(list, item)
		}
		return list
	}
	from, to := map[string]any{"items": items(1)}, map[string]any{"items": items(2)[1:]}
	for b.Loop() {
		if n := len(difference.Between(from, to, difference.Options{})); n != 500 {
			b.Fatal(n)
		}
	}
}
