package policy_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// perKind is what a definition takes in memory when its policy is loaded: 60 fields with descriptions of 200 characters, of which ten have a pattern and
// ten a CEL rule that is evaluated. It is held with a margin of 10 %.
//
//	170 KiB ten programs of CEL; the types of their values are made at the first evaluation, which here is that of the probes
//	the rest the form: fields, descriptions and positions; rules with their syntax trees; probes; the definition, compressed;
//	        the program of the form: a check for each field, an index of their names, and compiled patterns
const perKind = 370_000

func TestMemoryOfAKind(t *testing.T) {
	const n = 20
	var fields strings.Builder
	for i := range 60 {
		fmt.Fprintf(&fields, "              field%d:\n                type: string\n                description: %q\n", i, strings.Repeat(fmt.Sprintf("What the field %d says. ", i), 9))
		if i%6 == 0 {
			fmt.Fprintf(&fields, "                pattern: '^[a-z]{%d,80}$'\n", i)
		}
		if i%6 == 1 {
			fmt.Fprintf(&fields, "                x-kubernetes-validations:\n                - rule: self.size() < %d\n", 100+i)
		}
	}
	files := map[string]string{}
	var crds strings.Builder
	for i := range n {
		name := fmt.Sprintf("crds/thing%d.yaml", i)
		files[name] = strings.ReplaceAll(strings.ReplaceAll(thing("            properties:\n"+fields.String()), "thing", fmt.Sprint("thing", i)), "Thing", fmt.Sprint("Thing", i))
		fmt.Fprintf(&crds, "crds: \"thing%ds.a.example.com\": {...} @embed(file=%s)\n", i, name)
	}
	files["bundle.cue"] = "@extern(embed)\n\n" + bundleFile("teams: a: {\n"+crds.String()+"}")
	source, _ := module(t, ".", files)
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	all, _ := compiled.Form.Encode()
	compiled.Form.Kinds = compiled.Form.Kinds[:len(compiled.Form.Kinds)-n]
	compiled.Form.Probes = nil
	without, _ := compiled.Form.Encode()
	held := func(form []byte) int {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		p, err := probes.Load(form)
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		defer runtime.KeepAlive(p)
		return int(after.HeapAlloc) - int(before.HeapAlloc)
	}
	held(all) // what is made once, by this package and by others
	took := (held(all) - held(without)) / n
	t.Logf("a kind takes %d KiB", took>>10)
	if took > perKind*110/100 || took < perKind*90/100 {
		t.Errorf("a kind takes %d bytes, not about %d", took, perKind)
	}
}
