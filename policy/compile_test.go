package policy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/probes"
)

var update = flag.Bool("update", false, "write the golden form anew")

func quickstart(t *testing.T) *compile.Result {
	t.Helper()
	source, err := bundles.ReadDir("../examples/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if diags != nil {
		t.Fatal(diags)
	}
	return compiled
}

// The form is what the log holds: it changes only together with FormVersion, or by
// additions that older forms do without.
func TestTheQuickstartsForm(t *testing.T) {
	compiled := quickstart(t)
	encoded, _ := compiled.Form.Encode()
	var got bytes.Buffer
	if err := json.Indent(&got, encoded, "", " "); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/quickstart.json"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFormLoadsAsItWasCompiled(t *testing.T) {
	compiled := quickstart(t)
	encoded, digest := compiled.Form.Encode()
	if other, _ := quickstart(t).Form.Encode(); !bytes.Equal(encoded, other) {
		t.Error("two compilations of one source differ")
	}
	loaded, err := policy.DecodeForm(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if other, _ := loaded.Encode(); !bytes.Equal(encoded, other) {
		t.Error("a form that was loaded encodes differently")
	}
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if p.Digest() != digest {
		t.Errorf("digest %x, want %x", p.Digest(), digest)
	}
	if _, err := probes.Load(bytes.Replace(encoded, []byte(`"version":1`), []byte(`"version":2`), 1)); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("a form of the future: %v", err)
	}
	if _, err := probes.Load(bytes.Replace(encoded, []byte(`"cluster":`), []byte(`"unheard":[],"cluster":`), 1)); err == nil || !strings.Contains(err.Error(), "unheard") {
		t.Errorf("a form with an unknown part: %v", err)
	}
}

// Repositories have a copy of the definitions for CUE's own tools.
func TestCopiesOfTheDefinitions(t *testing.T) {
	for _, module := range []string{"../examples/quickstart", "../examples/platform"} {
		for file, want := range format.Files() {
			data, err := os.ReadFile(filepath.Join(module, file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(data)); diff != "" {
				t.Errorf("%s has another copy of %s (-program +copy):\n%s", module, file, diff)
			}
		}
	}
}

// compileTwoTeams compiles a bundle of two teams with these additions, and returns what is wrong.
func compileTwoTeams(t *testing.T, bundle string) []string {
	t.Helper()
	_, diags := compile.Bundle(twoTeams(t, bundle))
	var lines []string
	for _, d := range diags {
		lines = append(lines, d.String())
	}
	return lines
}

// loaded is the policy of a bundle of two teams with these additions.
func loaded(t testing.TB, bundle string) *policy.Policy {
	t.Helper()
	compiled, diags := compile.Bundle(twoTeams(t, bundle))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func twoTeams(t testing.TB, bundle string) *bundles.Source {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
		"bundle.cue": {Data: []byte(`package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: [_]: contact: "#x"
	teams: a: {groups: ["a.example.com"], namespaces: ["a-*"]}
	teams: b: {groups: ["b.example.com", "a.example.com", "batch.k8s.io"], namespaces: ["*"]}
}
bundle: ` + bundle)},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func kind(plural, group, rest string) string {
	return fmt.Sprintf(`kinds: "%s.%s": {group: %q, names: {kind: "Thing", plural: %q}, storageVersion: "v1", versions: v1: #schema: {}%s}`, plural, group, group, plural, rest)
}

func TestWhatIsWrongWithABundleIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		bundle string
		want   []string // parts of the lines
	}{
		"nothing": {bundle: `teams: a: ` + kind("things", "a.example.com", "")},
		"a group that is not the team's": {
			bundle: `teams: a: ` + kind("things", "b.example.com", ""),
			want:   []string{`bundle.cue:11: bundle.teams.a.kinds."things.b.example.com".group: `},
		},
		"the same kind of two teams": {
			bundle: "{\nteams: a: " + kind("things", "a.example.com", "") + "\nteams: b: " + kind("things", "a.example.com", "") + "\n}",
			want:   []string{`bundle.cue:13: bundle.teams.b.kinds."things.a.example.com": the kind things.a.example.com is in the teams a and b; a kind has one owner, and a has it (bundle.cue:12)`},
		},
		"two kinds of one name": {
			bundle: "{\nteams: a: " + kind("things", "a.example.com", "") + "\nteams: a: " + kind("others", "a.example.com", "") + "\n}",
			want:   []string{`has two kinds named Thing; the other one is`},
		},
		"a group of Kubernetes'": {
			bundle: `teams: b: ` + kind("jobs", "batch.k8s.io", ""),
			want:   []string{`bundle.cue:11: the group batch.k8s.io is not free for own kinds; use a group under a domain of yours`},
		},
		"a team with the name of what is built in": {
			bundle: `teams: builtin: {groups: [], namespaces: []}`,
			want:   []string{`bundle.cue:11: bundle.teams.builtin: the name builtin stands for what every policy has; name the team otherwise`},
		},
		"one role twice": {
			bundle: "{\nteams: a: rbac: clusterRoles: r: rules: {}\nteams: b: rbac: clusterRoles: r: rules: {}\n}",
			want:   []string{`bundle.cue:13: b/clusterRoles/r: the role "r" is defined twice; the other one is a/clusterRoles/r (bundle.cue:12)`},
		},
		"roles that do not exist": {
			bundle: "{\nteams: a: rbac: clusterRoles: \"x.y\": rules: {}\nteams: a: rbac: bindings: b: {clusterRole: \"nobody\", subjects: [], namespaces: []}\n" +
				"teams: b: rbac: bindings: b: {clusterRole: \"xxy\", subjects: [], namespaces: []}\n}",
			want: []string{
				`bundle.cue:13: bundle.teams.a.rbac.bindings.b.clusterRole: "nobody" is not one of "admin", "cluster-admin", "edit", "view", "x.y"`,
				`bundle.cue:14: bundle.teams.b.rbac.bindings.b.clusterRole: "xxy" is not one of "admin", "cluster-admin", "edit", "view", "x.y"`,
			},
		},
		"rules that grant nothing": {
			bundle: `teams: a: rbac: clusterRoles: r: rules: {
	both: {verbs: ["get"], apiGroups: [""], resources: ["secrets"], nonResourceURLs: ["/x"]}
	half: {verbs: ["get"], resources: ["secrets"]}
	none: {verbs: [], apiGroups: [""], resources: ["secrets"]}
}`,
			want: []string{
				`bundle.cue:12: bundle.teams.a.rbac.clusterRoles.r.rules.both: a rule is about resources or about nonResourceURLs`,
				`bundle.cue:13: bundle.teams.a.rbac.clusterRoles.r.rules.half: a rule needs apiGroups and resources`,
				`bundle.cue:14: bundle.teams.a.rbac.clusterRoles.r.rules.none: a rule needs verbs`,
			},
		},
		"rules beside an aggregation": {
			bundle: `teams: a: rbac: clusterRoles: r: {aggregate: x: "y", rules: x: {verbs: ["get"], apiGroups: [""], resources: ["secrets"]}}`,
			want:   []string{`a role that aggregates others has no rules of its own`},
		},
		"a role of a namespace that another role would include": {
			bundle: `teams: a: rbac: clusterRoles: r: {namespace: "one", labels: "rbac.authorization.k8s.io/aggregate-to-view": "true", rules: x: {verbs: ["get"], apiGroups: [""], resources: ["secrets"]}}`,
			want:   []string{`a/clusterRoles/r: the role "view" does not include a role of the namespace one, which has its labels`},
		},
		"another chain of authorizers": {
			bundle: `authorizers: ["rbac"]`,
		},
		"registration through the API": {
			bundle: `dynamic: flowControl: "Allow"`,
			want:   []string{`bundle.dynamic.flowControl: Allow is not supported for flowControl`},
		},
		"a deny": {
			bundle: `teams: a: {` + kind("things", "a.example.com", "") + `, rbac: denies: d: {subjects: [{group: "x"}], rules: r: {apiGroups: ["a.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no"}}`,
		},
		"a deny with an exception": {
			bundle: `teams: a: {` + kind("things", "a.example.com", "") + `, rbac: denies: d: {subjects: [{group: "x"}], rules: r: {apiGroups: ["a.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no", unless: "true"}}`,
		},
		"a deny outside of the team's groups": {
			bundle: `teams: a: rbac: denies: d: {subjects: [{group: "x"}], rules: r: {apiGroups: ["other.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no"}`,
			want:   []string{`bundle.cue:11: bundle.teams.a.rbac.denies.d.rules.r.apiGroups.0: `},
		},
		"a deny that locks everybody out": {
			bundle: `teams: all: {groups: ["*"], namespaces: ["*"], rbac: denies: d: {subjects: [{group: "system:authenticated"}], rules: r: {apiGroups: ["*"], resources: ["*"], verbs: ["create"]}, reason: "no"}}`,
			want:   []string{`bundle.cue:11: all/denies/d: it also meets the administrators (system:masters), so nobody could create policies any more; narrow subjects, or add unless: "'system:masters' in request.userInfo.groups"`},
		},
		"an unknown field": {
			bundle: `teams: a: roles: {}`,
			want:   []string{`bundle.cue:11: bundle.teams.a.roles: field not allowed`},
		},
		"something that is not there": {
			bundle: `teams: a: contact: nobody`,
			want:   []string{`bundle.cue:11: `},
		},
	} {
		t.Run(name, func(t *testing.T) {
			lines := compileTwoTeams(t, tc.bundle)
			if len(lines) != len(tc.want) {
				t.Fatalf("said %d things, want %d:\n%s", len(lines), len(tc.want), strings.Join(lines, "\n"))
			}
			for i, want := range tc.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("said  %s\nwant  %s", lines[i], want)
				}
			}
		})
	}
}

// A bundle is all there is: nothing is fetched, and nothing is read from beside it.
func TestABundleIsHermetic(t *testing.T) {
	for name, file := range map[string]string{
		"a module":         `import "github.com/example/other"` + "\nbundle: other.x",
		"a file beside it": `import "example.com/test/beside"` + "\nbundle: beside.x",
		"an attribute":     "@extern(embed)\npackage test\nbundle: _ @embed(file=/etc/hostname,type=text)",
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(file, "package") {
				file = "package test\n" + file
			}
			source, err := bundles.ReadFS(fstest.MapFS{
				"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
				"bundle.cue":         {Data: []byte(file)},
			}, ".")
			if err != nil {
				t.Fatal(err)
			}
			if _, diags := compile.Bundle(source); len(diags) == 0 || diags[0].Pos.File != "bundle.cue" {
				t.Errorf("said %v", diags)
			}
		})
	}
}

// Whatever the log holds, loading it is an error or a policy.
func FuzzNew(f *testing.F) {
	data, err := os.ReadFile("testdata/quickstart.json")
	if err != nil {
		f.Fatal(err)
	}
	form, err := policy.DecodeForm(data)
	if err != nil {
		f.Fatal(err)
	}
	form.Kinds, form.Roles, form.Bindings = form.Kinds[len(form.Kinds)-1:], form.Roles[:1], form.Bindings[:1]
	small, _ := form.Encode()
	f.Add(small)
	f.Fuzz(func(t *testing.T, form []byte) {
		p, err := probes.Load(form)
		if err != nil {
			return
		}
		for _, k := range p.Kinds() {
			for _, v := range k.Versions {
				v.Program.Validate(map[string]any{"spec": map[string]any{"a": "b"}})
			}
		}
		p.Authorize(context.Background(), &policy.Request{User: "u", IsResource: true, Verb: "get", Resource: "x"})
	})
}

// Editors leave files behind whose names begin so; CUE does not see them either.
func TestHiddenFilesAreNoPartOfASource(t *testing.T) {
	source, err := bundles.ReadFS(fstest.MapFS{
		"cue.mod/module.cue":  {Data: []byte("module: \"example.com/test\"\n")},
		"bundle.cue":          {},
		".#bundle.cue":        {},
		"_draft.cue":          {},
		".git/x.cue":          {},
		"teams/a/_old/x.cue":  {},
		"teams/a/.#kinds.cue": {},
		"teams/a/kinds.cue":   {},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range source.Files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"bundle.cue", "cue.mod/module.cue", "teams/a/kinds.cue"}, paths); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
