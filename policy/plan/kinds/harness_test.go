package kinds_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/kinds"
	"stele.dev/stele/policy/probes"
)

const head = `@extern(embed)

package p

import (
	"list"
	"net"
	"strings"
	"time"

	"stele.dev/policy"
)

_use: [strings.MinRunes(0), list.MinItems(0), net.IP, time.Time]

bundle: policy.#Bundle & {cluster: "test", teams: data: {contact: "data", groups: ["example.com"], namespaces: ["*"]}}
`

// compiled is the policy of a bundle with these declarations. files are further files of the module.
func compiled(t testing.TB, text string, files map[string]string) *policy.Policy {
	t.Helper()
	module := fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte(`module: "test.example"` + "\n" + `language: version: "v0.14.0"`)},
		"p.cue":              {Data: []byte(head + text)},
	}
	for name, text := range files {
		module[name] = &fstest.MapFile{Data: []byte(text)}
	}
	source, err := bundles.ReadFS(module, ".")
	if err != nil {
		t.Fatal(err)
	}
	return load(t, source)
}

func load(t testing.TB, source *bundles.Source) *policy.Policy {
	t.Helper()
	result, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := result.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// kind is the declaration of a kind in CUE. spec are its fields, rest is what the version has besides.
func kind(plural, spec, rest string) string {
	name := strings.ToUpper(plural[:1]) + plural[1:]
	return fmt.Sprintf(`bundle: teams: data: kinds: "%s.example.com": {
	group: "example.com", names: {kind: "%s", plural: "%s"}
	storageVersion: "v1"
	versions: v1: {
		#schema: {spec: {
%s
		}, status?: {replicas?: int, selector?: string, phase?: string}}
		%s
	}
}
`, plural, name, plural, spec, rest)
}

func compare(t testing.TB, from, to *policy.Policy) []plan.Finding {
	t.Helper()
	found, err := kinds.Compare(context.Background(), plan.Sides{From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inLine is what a test expects of a finding: class, rule, path, and both sides.
func inLine(f *plan.Finding) string {
	version := ""
	if f.Version != "" {
		version = " (" + f.Version + ")"
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s%s: %s → %s", f.Class, f.Rule, f.Path, version, f.Before, f.After))
}
