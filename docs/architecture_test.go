// Package docs_test checks the documentation against the code.
package docs_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "stele.dev/stele/"

// mayImport lists, for each top folder, the packages of this module that its packages may
// import: imports point one way, and siblings never meet. A trailing /... is everything
// below.
var mayImport = map[string][]string{
	"limits":        {},
	"eventlog":      {"eventlog/...", "limits/..."},
	"schemas":       {"schemas/...", "limits/..."},
	"policy":        {"policy/...", "schemas/...", "eventlog"},
	"policy/audits": {"policy", "policy/rights/members", "eventlog/logpb"},       // what events have of a rule
	"projections":   {"schemas/...", "eventlog", "eventlog/logpb", "limits/..."}, // the log, not its backends; and no other projection
	"plugins":       {"plugins/...", "limits/..."},                               // authors of plugins import it
	"core":          {"core/...", "limits/...", "plugins/...", "policy/...", "projections/...", "schemas/...", "eventlog", "eventlog/logpb"},
	// What reads or writes the cold part of the log.
	"core/logproof":      {"core/...", "eventlog", "eventlog/proof"},
	"projections/views":  {"policy", "policy/views", "projections/objects", "schemas"}, // views are what a policy says, of objects
	"projections/quotas": {"policy/quotas", "projections/objects"},                     // what a policy lets quotas count, of objects
	"core/retention":     {"core/...", "policy", "policy/reach", "projections/...", "eventlog", "eventlog/logpb", "eventlog/archive", "eventlog/segment"},
	"core/plane":         {"core/...", "limits/...", "plugins/...", "policy/...", "projections/...", "schemas/...", "eventlog", "eventlog/archive", "eventlog/backup/stores", "eventlog/bucket", "eventlog/segment"},
	// The log of decisions is in local files.
	"core/decisions": {"core/...", "limits/...", "policy/...", "projections/audit/hashing", "eventlog", "eventlog/filelog", "eventlog/logpb"},
	// What replicas share.
	"core/bucketsync": {"eventlog", "eventlog/archive", "eventlog/backup/stores", "eventlog/bucket", "eventlog/segment", "projections/checkpoint"},
	// The log's backends: the data directory has an etcd, and planes of tests keep their log in memory.
	"core/plane/datadir":   {"core/pki", "eventlog", "eventlog/etcdlog"},
	"core/suiterun":        {"core/...", "eventlog", "eventlog/logpb", "eventlog/memlog", "policy/...", "projections/...", "schemas/..."}, // tests of bundles, in memory
	"core/plane/planetest": {"core/...", "eventlog", "eventlog/memlog", "policy/...", "projections/policies"},
	"examples":             {"examples/...", "plugins/..."},
	"cmd":                  {"..."}, // it wires
	"docs":                 {},
	// The stored log as files, of which backups are made.
	"core/logfiles": {"core/...", "eventlog", "eventlog/archive", "eventlog/backup", "projections/checkpoint"},
}

// home lists the folders that may import a heavy dependency, and the reason.
var home = []struct {
	dependency string
	folders    []string
	why        string
}{
	{"go.etcd.io/etcd", []string{"eventlog/etcdlog"}, "the log must not depend on where it is kept"},
	{"github.com/cockroachdb/pebble", []string{"projections/history"}, "the index of the past hides where its keys are"},
	{"cuelang.org/go", []string{"policy/bundles", "policy/compile", "policy/evaluation", "policy/format/internal/bundledoc", "policy/formatting", "policy/importing", "policy/pluginconfig", "policy/suites", "schemas/fromcue", "schemas/interpreter", "schemas/textforms", "schemas/builtin"}, "CUE never runs on the request path"},
	{"net/http", []string{"core", "cmd", "examples/ha/balance", "eventlog/etcdlog/members"}, "projections and the log know nothing of HTTP; members of etcd tell their time by it"},
	{"google.golang.org/grpc", []string{"eventlog/etcdlog", "plugins", "examples/authorizer-plugin"}, "it is etcd's transport, and that of plugins"},
	{"github.com/hashicorp/go-plugin", []string{"plugins"}, "the host and the SDK hide it"},
	{"github.com/spf13/cobra", []string{"cmd"}, "only the program has flags"},
	{"gocloud.dev", []string{"cmd/stele/internal/buckets"}, "the drivers of buckets are large"},
	{"github.com/google/go-containerregistry", []string{"cmd/stele/internal/artifact"}, "the client of registries is large, and speaks plain HTTP unless it is wrapped"},
	{"github.com/docker/cli", []string{"cmd/stele/internal/artifact"}, "only registries have credentials of docker"},
	{"filippo.io/age", []string{"eventlog/backup", "cmd/stele/internal/backup"}, "only backups are encrypted"},
	{"github.com/oklog/run", []string{"core/plane"}, "packages have errgroups and contexts; a control plane has one group"},
}

// A package has at most maxLines lines of code, and should have at most aimLines. Tests and generated files do not
// count; comments and blank lines do.
const (
	aimLines = 2500
	maxLines = 4000
)

// large says for each package with more than aimLines lines why it is not two.
var large = map[string]string{
	"eventlog":                   "the format, its hashes and the log that checks them are one promise",
	"schemas/fromcue":            "its parts ask each other: what a condition means depends on the union around it, and the reverse",
	"schemas/program":            "pruning, defaulting and validation are one recursion over the same prepared schema",
	"cmd/stele/internal/restore": "undo, undelete and revert share the plan and the writes",
	"cmd/stele/internal/client":  "a file for each kind of answer, on one connection",
	"cmd/stele":                  "a file for each command",
	"core":                       "a file for each stage, and the loop that runs them on one request",
	"core/plans":                 "stored objects and recorded writes are tried by the same code, and explained by the same findings",
	"policy":                     "deciding is one program over one form: access, the chain, conditions and admission share it",
	"core/authn":                 "a file for each kind of credential and header, and the chain that tries them",
	"core/read":                  "get, list and watch share pages, history windows and the past, also for the rows of views",
	"projections/objects":        "trees, changes, watchers and indexes are written under the same locks; derived objects are written as the others",
	"policy/importing":           "a file for each kind of objects",
	"policy/compile":             "a file for each section of a bundle",
	"plugins/host":               "processes, their limits and the calls of both services share one plugin and its lock",
	"policy/plan/kinds":          "comparing two forms is one recursion; a file for each part of a form",
}

// badNames are packages whose names promise nothing.
var badNames = regexp.MustCompile(`(^|/)(util|utils|common|helper|helpers|misc|base)$`)

// sources calls visit for every Go file of the module, with its folder and its name
// relative to the root.
func sources(t *testing.T, visit func(folder, file string)) {
	t.Helper()
	root := os.DirFS("..")
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && file != "."):
			return fs.SkipDir
		case path.Ext(file) == ".go":
			visit(path.Dir(file), file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t *testing.T, file string, mode parser.Mode) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, mode)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func TestImportsPointOneWay(t *testing.T) {
	files := 0
	sources(t, func(folder, file string) {
		files++
		if badNames.MatchString(folder) {
			t.Errorf("%s: name a package for its purpose", folder)
		}
		top, _, _ := strings.Cut(folder, "/")
		allowed, known := mayImport[folder]
		if !known {
			allowed, known = mayImport[top]
		}
		if !known {
			t.Errorf("%s: the folder %s is not in the house's plan, see ARCHITECTURE.md", file, top)
			return
		}
		if strings.HasSuffix(file, "_test.go") {
			return // a test may bring what it needs to stand in for the rest
		}
		for _, spec := range parse(t, file, parser.ImportsOnly).Imports {
			imported := strings.Trim(spec.Path.Value, `"`)
			if own, ok := strings.CutPrefix(imported, module); ok {
				if !matches(allowed, own) && !(top == "projections" && sameProjection(folder, own)) {
					t.Errorf("%s imports %s, which packages below %s must not", file, imported, top)
				}
				continue
			}
			for _, h := range home {
				if below(h.dependency, imported) && !slices.ContainsFunc(h.folders, func(f string) bool { return below(f, folder) }) {
					t.Errorf("%s imports %s, whose home is %s: %s", file, imported, strings.Join(h.folders, " and "), h.why)
				}
			}
		}
	})
	if files < 100 {
		t.Errorf("only %d files were looked at", files)
	}
}

func TestNothingBelowCoreImportsCore(t *testing.T) {
	// The assembly of a control plane, and what tests of it need.
	assembly := []string{"core/plane", "core/plane/planetest", "core/suiterun"}
	sources(t, func(folder, file string) {
		if !strings.HasPrefix(folder, "core/") || strings.HasSuffix(file, "_test.go") || slices.Contains(assembly, folder) {
			return
		}
		for _, spec := range parse(t, file, parser.ImportsOnly).Imports {
			if spec.Path.Value == `"`+module+`core"` {
				t.Errorf("%s imports core: core imports the packages below it, and only %s may import core", file, strings.Join(assembly, " and "))
			}
		}
	})
}

func TestPackagesAreSmall(t *testing.T) {
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	lines := map[string]int{}
	sources(t, func(folder, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if head, _, _ := bytes.Cut(text, []byte("\npackage ")); !generated.Match(head) {
			lines[folder] += bytes.Count(text, []byte("\n"))
		}
	})
	for folder, n := range lines {
		why, listed := large[folder]
		switch {
		case n > maxLines:
			t.Errorf("%s has %d lines of code, at most %d are allowed: split it", folder, n, maxLines)
		case n > aimLines && why == "":
			t.Errorf("%s has %d lines of code, more than %d: split it, or say in large why not", folder, n, aimLines)
		case n <= aimLines && listed:
			t.Errorf("%s has %d lines of code, no more than %d: remove it from large", folder, n, aimLines)
		}
	}
	for folder := range large {
		if lines[folder] == 0 {
			t.Errorf("%s is in large, and does not exist", folder)
		}
	}
}

// below reports whether name is folder or lies in it.
func below(folder, name string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

func matches(allowed []string, imported string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		folder, all := strings.CutSuffix(a, "/...")
		return a == "..." || imported == folder || all && below(folder, imported)
	})
}

func sameProjection(folder, imported string) bool {
	parts := strings.SplitN(folder, "/", 3)
	return len(parts) > 1 && below(parts[0]+"/"+parts[1], imported)
}

func TestEveryPackageHasAComment(t *testing.T) {
	documented := map[string]bool{}
	sources(t, func(folder, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		doc := parse(t, file, parser.PackageClauseOnly|parser.ParseComments).Doc.Text()
		documented[folder] = documented[folder] || strings.HasPrefix(doc, "Package ") || strings.HasPrefix(doc, "Command ")
	})
	for folder, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", folder)
		}
	}
}

func TestTheArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]bool{"docs": true} // has no code, only these tests
	sources(t, func(folder, _ string) {
		if !reported[folder] && !strings.Contains(string(text), "`"+folder+"`") {
			reported[folder] = true
			t.Errorf("ARCHITECTURE.md does not mention `%s`", folder)
		}
	})
}
