package policy_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// An edit replaces a text in a file, or writes a new file if there is no old text.
type edit struct{ file, old, new string }

// severalMistakes are modules with several mistakes, in different files and packages. Each of want is how a line begins,
// and, behind "…", what the line contains. Every mistake must be reported at once.
// Mistakes in values and names are reported once every file can be parsed and every import be found.
var severalMistakes = []struct {
	name  string
	edits []edit
	want  []string
}{
	{"names of two packages", []edit{{databaseCUE, `string & strings.MinRunes(12)`, `strng`}, {deliveryCUE, `source!: string`, `source!: strng`}},
		[]string{`teams/data/database.cue:17: … reference "strng" not found`, `teams/delivery/kinds.cue:4: … reference "strng" not found`}},
	{"a name and a kind of another package", []edit{{databaseCUE, `string & strings.MinRunes(12)`, `strng`}, {deliveryCUE, `kind: "Pipeline"`, `kind: "pipeline"`}},
		[]string{`teams/data/database.cue:17: … reference "strng" not found`, `teams/delivery/kinds.cue:16: … "pipeline" is not a word`}},
	{"syntax in two packages", []edit{{databaseCUE, `"mysql"`, `"mysql`}, {deliveryCUE, `source!: string`, `source! = string`}},
		[]string{`teams/data/database.cue:10: the string does not end`, `teams/delivery/kinds.cue:4: … a field with =`}},
	{"syntax in two files of a package", []edit{{databaseCUE, `"mysql"`, `"mysql`}, {accessCUE, `clusterRole: "data:editor"`, `clusterRole = "data:editor"`}},
		[]string{`teams/data/access.cue:17: a field with =`, `teams/data/database.cue:10: the string does not end`}},
	{"syntax and a wrong verb", []edit{{deliveryCUE, `source!: string`, `source! = string`}, {accessCUE, `"watch"`, `"wach"`}},
		[]string{`teams/delivery/kinds.cue:4: a field with =`}},
	{"syntax and a missing package", []edit{{databaseCUE, `"mysql"`, `"mysql`}, {clusterCUE, `law/teams/delivery"`, `law/teams/delivry"`}},
		[]string{`clusters/dev/cluster.cue:6: there is no package`, `teams/data/database.cue:10: the string does not end`}},
	{"two missing packages", []edit{{clusterCUE, `law/teams/data"`, `law/teams/dta"`}, {clusterCUE, `law/teams/delivery"`, `law/teams/delivry"`}},
		[]string{`clusters/dev/cluster.cue:5: … did you mean "example.com/law/teams/data"`, `clusters/dev/cluster.cue:6: … did you mean "example.com/law/teams/delivery"`}},
	{"missing packages of two packages", []edit{{clusterCUE, `law/teams/delivery"`, `law/teams/delivry"`}, {databaseCUE, "\t\"time\"\n", "\t\"time\"\n\t\"example.com/law/lib/regons\"\n"}},
		[]string{`clusters/dev/cluster.cue:6: there is no package`, `teams/data/database.cue:6: there is no package`}},
	{"an import cycle", []edit{{baseCUE, "import \"stele.dev/policy\"\n", "import (\n\t\"stele.dev/policy\"\n\t\"example.com/law/teams/data\"\n)\n\n#kinds: data.team.kinds\n"}, {databaseCUE, "\t\"time\"\n", "\t\"time\"\n\t\"example.com/law/base\"\n"}},
		[]string{`teams/data/database.cue:6: … import cycle`}},
	{"a package that imports itself", []edit{{deliveryCUE, "package delivery\n", "package delivery\n\nimport \"example.com/law/teams/delivery\"\n\n#x: delivery.#Step\n"}},
		[]string{`teams/delivery/kinds.cue:3: … import cycle`}},
	{"a name in the schema and a role of a binding", []edit{{databaseCUE, `=~"^[a-z]+@example\\.com$"`, `email`}, {accessCUE, `clusterRole: "data:editor"`, `clusterRole: "data:edtor"`}},
		[]string{`teams/data/access.cue:17: … did you mean "data:editor"`, `teams/data/database.cue:13: … reference "email" not found`}},
	{"a pattern in the schema and a role of a binding", []edit{{databaseCUE, `^[a-z]+@example`, `^[a-z+@example`}, {accessCUE, `clusterRole: "data:editor"`, `clusterRole: "data:edtor"`}},
		[]string{`teams/data/access.cue:17: … did you mean "data:editor"`, `teams/data/database.cue:13: … missing closing ]`}},
	{"a condition and a rule", []edit{{admit, `"object.spec.storageGiB <=`, `"object.spec.storageGib <=`}, {accessCUE, `object.spec.tier == 'dev' &&`, `object.spec.teir == 'dev' &&`}},
		[]string{`teams/data/access.cue:30: … did you mean "tier"`, `teams/data/admission.cue:8: … did you mean "storageGiB"`}},
	{"a verb, a resource and a column", []edit{{accessCUE, `"watch"`, `"wach"`}, {admit, `resources: ["databases"], operations`, `resources: ["database"], operations`}, {databaseCUE, `".spec.engine"`, `".spec.engin"`}},
		[]string{`teams/data/access.cue:10: … did you mean "watch"`, `teams/data/admission.cue:13: … "database" is not served`, `teams/data/database.cue:36: … no field .spec.engin`}},
	{"the cluster and a team", []edit{{clusterCUE, `cluster: "dev"`, `clustr: "dev"`}, {deliveryCUE, `storageVersion: "v1"`, `storageVersion: "v2"`}},
		[]string{`clusters/dev/cluster.cue:10: … did you mean "cluster"`, `teams/delivery/kinds.cue:17: … "v2" is not one of "v1"`}},
	{"a param of the cluster and a team's group", []edit{{clusterCUE, `params: maxGiB: 500`, `params: maxGiB: "500"`}, {databaseCUE, `group: "data.example.com"`, `group: "ship.example.com"`}},
		[]string{`clusters/dev/cluster.cue:15: … the other one is at teams/data/admission.cue:6`, `teams/data/database.cue:26: … is not one of "data.example.com"`}},
	{"an embedded file and a schema", []edit{{gauges, "type: integer", "type: int"}, {databaseCUE, `*10 | int & >=1 & <=4096`, `float`}},
		[]string{`teams/data/database.cue:11: … write number`, `teams/delivery/crds/gauges.yaml:20: … supported values`}},
	{"an unreadable embedded file and an undefined name", []edit{{gauges, "  scope: Namespaced\n", "\tscope: Namespaced\n"}, {databaseCUE, `*"dev" | "prod"`, `*"dev" | prod`}},
		[]string{`teams/data/database.cue:12: … reference "prod" not found`, `teams/delivery/crds/gauges.yaml:6: it cannot be read`}},
	{"an unused import and a role", []edit{{databaseCUE, "\t\"time\"\n", "\t\"time\"\n\t\"list\"\n"}, {accessCUE, `clusterRole: "data:editor"`, `clusterRole: "data:edtor"`}},
		[]string{`teams/data/access.cue:17: … did you mean "data:editor"`, `teams/data/database.cue:6: … imported and not used`}},
	{"unused imports of two packages", []edit{{databaseCUE, "\t\"time\"\n", "\t\"time\"\n\t\"list\"\n"}, {deliveryCUE, "package delivery\n", "package delivery\n\nimport \"list\"\n"}},
		[]string{`teams/data/database.cue:6: … imported and not used`, `teams/delivery/kinds.cue:3: … imported and not used`}},
	{"a vendored package with two mistakes", []edit{{"cue.mod/pkg/example.org/sizes/sizes.cue", "", "package sizes\n\n#Size: it & >0\n"}, {"cue.mod/pkg/example.org/sizes/more.cue", "", "package sizes\n\n#More: strng\n"}, {databaseCUE, "\t\"time\"\n", "\t\"time\"\n\t\"example.org/sizes\"\n"}, {databaseCUE, `*10 | int & >=1 & <=4096`, `sizes.#Size`}},
		[]string{`cue.mod/pkg/example.org/sizes/more.cue:3: … reference "strng" not found`, `cue.mod/pkg/example.org/sizes/sizes.cue:3: … reference "it" not found`}},
	{"a value of a vendored package and a verb", []edit{{"cue.mod/pkg/example.org/roles/roles.cue", "", "package roles\n\nreader: rules: x: {apiGroups: [\"data.example.com\"], resources: [\"databases\"], verbs: [\"gett\"]}\n"}, {accessCUE, `import "stele.dev/policy"`, "import (\n\t\"stele.dev/policy\"\n\t\"example.org/roles\"\n)\nteam: rbac: clusterRoles: \"data:reader\": roles.reader"}, {accessCUE, `"watch"`, `"wach"`}},
		[]string{`cue.mod/pkg/example.org/roles/roles.cue:3: … did you mean "get"`, `teams/data/access.cue:14: … did you mean "watch"`}},
	{"a file of another package and a verb", []edit{{"teams/data/more.cue", "", "package date\n"}, {accessCUE, `"watch"`, `"wach"`}},
		[]string{`teams/data/access.cue:10: … did you mean "watch"`, `teams/data/more.cue:1: package date is imported by nothing`}},
	{"two owners of a kind and a verb", []edit{{"teams/delivery/more.cue", "", "package delivery\n\nteam: kinds: \"databases.data.example.com\": {group: \"data.example.com\", names: {kind: \"Database\", plural: \"databases\"}, storageVersion: \"v1\", versions: v1: #schema: #Pipeline}\n"}, {accessCUE, `"watch"`, `"wach"`}},
		[]string{`teams/data/access.cue:10: … did you mean "watch"`, `teams/delivery/more.cue:3: … a kind has one owner`, `teams/delivery/more.cue:3: … is not one of "ship.example.com"`}},
	{"a secret and a verb", []edit{{baseCUE, `"#platform"`, `"AK` + `IAQ4Q4Q4Q4Q4Q4Q4Q4"`}, {accessCUE, `"watch"`, `"wach"`}},
		[]string{`base/base.cue:7: … name a secret instead`, `teams/data/access.cue:10: … did you mean "watch"`}},
}

func TestSeveralMistakes(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/mistakes/module.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range severalMistakes {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fsys := fstest.MapFS{}
			for _, f := range archive.Files {
				fsys[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			for _, e := range tc.edits {
				text := e.new
				if e.old != "" {
					before := string(fsys[e.file].Data)
					if !strings.Contains(before, e.old) {
						t.Fatalf("%s has no %q", e.file, e.old)
					}
					text = strings.Replace(before, e.old, e.new, 1)
				}
				fsys[e.file] = &fstest.MapFile{Data: []byte(text)}
			}
			source, err := bundles.ReadFS(fsys, "clusters/dev")
			if err != nil {
				t.Fatal(err)
			}
			_, diags := compile.Bundle(source)
			var got []string
			for _, d := range diags {
				got = append(got, d.String())
			}
			said := strings.Join(got, "\n")
			if len(got) != len(tc.want) {
				t.Errorf("%d mistakes are reported, want %d:\n%s", len(got), len(tc.want), said)
			}
			for _, want := range tc.want {
				begin, contained, _ := strings.Cut(want, "… ")
				found := false
				for _, line := range got {
					found = found || strings.HasPrefix(line, begin) && strings.Contains(line, contained)
				}
				if !found {
					t.Errorf("no line %q in\n%s", want, said)
				}
			}
		})
	}
}
