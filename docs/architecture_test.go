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
	"limits":        {"limits/..."},
	"eventlog":      {"eventlog/...", "limits/..."},
	"schemas":       {"schemas/...", "limits/..."},
	"policy":        {"policy/...", "schemas/...", "eventlog"},
	"policy/audits": {"policy", "policy/rights", "eventlog/logpb"},               // what events have of a rule
	"projections":   {"schemas/...", "eventlog", "eventlog/logpb", "limits/..."}, // the log, not its backends; and no other projection
	"plugins":       {"plugins/...", "limits/..."},                               // authors of plugins import it
	"core":          {"core/...", "limits/...", "plugins/...", "policy/...", "projections/...", "schemas/...", "eventlog", "eventlog/logpb"},
	// What reads or writes the cold part of the log.
	"projections/views":   {"policy", "policy/views", "projections/objects", "schemas"}, // views are what a policy says, of objects
	"projections/quotas":  {"policy/quotas", "projections/objects"},                     // what a policy lets quotas count, of objects
	"core/keep/retention": {"core/...", "policy", "policy/reach", "projections/...", "eventlog", "eventlog/logpb", "eventlog/archive", "eventlog/segment", "limits/steady"},
	"core/run/plane":      {"core/...", "limits/...", "plugins/...", "policy/...", "projections/...", "schemas/...", "eventlog", "eventlog/archive", "eventlog/backup/stores", "eventlog/bucket", "eventlog/segment"},
	// The log of decisions is in local files.
	"core/record/decisions": {"core/...", "limits/...", "policy/...", "projections/audit/hashing", "schemas/wording", "eventlog", "eventlog/filelog", "eventlog/logpb"},
	// What replicas share.
	"core/keep/bucketsync": {"eventlog", "eventlog/archive", "eventlog/backup/stores", "eventlog/bucket", "eventlog/segment", "limits/...", "projections/checkpoint"},
	// The log's backends: the data directory has an etcd, and planes of tests keep their log in memory.
	"core/run/plane/datadir":   {"core/auth/pki", "eventlog", "eventlog/etcdlog", "limits/durable", "limits/steady"},
	"core/run/suiterun":        {"core/...", "eventlog", "eventlog/logpb", "eventlog/memlog", "policy/...", "projections/...", "schemas/..."}, // tests of bundles, in memory
	"core/run/plane/planetest": {"core/...", "eventlog", "eventlog/logpb", "eventlog/logtest", "eventlog/memlog", "policy/...", "projections/...", "schemas"},
	"core/embed":               {"core/...", "eventlog", "eventlog/memlog", "policy/bundles", "policy/compile", "schemas"},
	"examples":                 {"examples/...", "plugins/..."},
	"cmd":                      {"..."}, // it wires
	"docs":                     {},
	// The stored log as files, of which backups are made.
	"core/keep/logapi": {"core/...", "eventlog", "eventlog/archive", "eventlog/backup", "eventlog/proof", "projections/checkpoint"},
}

// home lists the folders that may import a heavy dependency, and the reason.
var home = []struct {
	dependency string
	folders    []string
	why        string
}{
	{"go.etcd.io/etcd", []string{"eventlog/etcdlog"}, "the log must not depend on where it is kept"},
	{"github.com/cockroachdb/pebble", []string{"projections/history"}, "the index of the past hides where its keys are"},
	{"cuelang.org/go", []string{"policy/bundles", "policy/compile", "policy/evaluation", "policy/format/internal/bundledoc", "policy/format/internal/componentroles", "policy/formatting", "policy/importing", "policy/pluginconfig", "policy/suites", "schemas/fromcue", "schemas/interpreter", "schemas/textforms", "schemas/builtin"}, "CUE never runs on the request path"},
	{"net/http", []string{"core", "cmd", "examples/ha/balance", "eventlog/etcdlog/members", "limits/connections", "limits/memory"}, "projections and the log know nothing of HTTP; members of etcd tell their time by it"},
	{"google.golang.org/grpc", []string{"core/tracing", "eventlog/etcdlog", "plugins", "examples/authorizer-plugin"}, "it is the transport of etcd, of plugins and of collectors of spans"},
	{"github.com/hashicorp/go-plugin", []string{"plugins"}, "the host and the SDK hide it"},
	{"github.com/spf13/cobra", []string{"cmd"}, "only the program has flags"},
	{"gocloud.dev", []string{"cmd/stele/internal/buckets"}, "the drivers of buckets are large"},
	{"github.com/google/go-containerregistry", []string{"cmd/stele/internal/artifact"}, "the client of registries is large, and speaks plain HTTP unless it is wrapped"},
	{"github.com/docker/cli", []string{"cmd/stele/internal/artifact"}, "only registries have credentials of docker"},
	{"filippo.io/age", []string{"eventlog/backup", "cmd/stele/internal/backup"}, "only backups are encrypted"},
	{"github.com/oklog/run", []string{"core/run/plane"}, "packages have errgroups and contexts; a control plane has one group"},
}

// rooms orders the folders in core: a package imports only packages of its own room and of rooms with a lower number. The
// stages, in core itself, are number 11.
var rooms = map[string]int{
	"status": 0, "tracing": 0, "object": 1, "commit": 2, "past": 3, "call": 4, "decide": 5, "catalog": 5, "reviewers": 5, "auth": 6, "serve": 7, "read": 8,
	"load": 9, "write": 9, "record": 9, "resources": 10, "": 11, "keep": 12, "run": 13, "embed": 14, "conformance": 14,
}

// between lists which resources import others. All others stand alone.
var between = map[string][]string{
	"activation":   {"rendered"},
	"delivery":     {"activation"},
	"explain":      {"changes"},
	"decisionsapi": {"changes"},
	"plans":        {"activation", "decisionsapi"},
	"shadow":       {"activation", "plans"},
}

// A package that only one other package imports hides a dependency, unless it has more than leastLines lines. A package with
// more than manyLines lines should be looked at: does one sentence without "and" still name it? Tests and generated files
// do not count; comments and blank lines do.
const (
	leastLines = 300
	manyLines  = 4000
)

// small says for each such package why it is one all the same. Each command of the program is a package, and so is each example.
var small = map[string]string{
	"core/keep/expiry":          "a control plane assembles what keeps its log; each of them is started and tested alone",
	"core/run/clientca":         "the same",
	"core/record/audit/otlp":    "the protocol of OpenTelemetry stays apart from the queue of lines",
	"core/resources/plans/past": "the state at each revision of a replay, which knows nothing of plans",
	"limits/batches":            "work on all processors, which knows nothing of plans",
	"projections/history/disk":  "a file system for the index, which knows nothing of the index",
	"schemas/fromcue/join":      "joining forms needs no CUE",
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
	assembly := []string{"core/run/plane", "core/run/plane/planetest", "core/run/suiterun"}
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

func TestRoomsOfCorePointOneWay(t *testing.T) {
	sources(t, func(folder, file string) {
		if !below("core", folder) || strings.HasSuffix(file, "_test.go") {
			return
		}
		room, inside := place(folder)
		if _, known := rooms[room]; !known {
			t.Errorf("%s: core/%s is not a room, see ARCHITECTURE.md", file, room)
			return
		}
		for _, spec := range parse(t, file, parser.ImportsOnly).Imports {
			imported, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
			if !own || !below("core", imported) {
				continue
			}
			other, part := place(imported)
			switch {
			case room == "resources" && other == room && inside != part && !slices.Contains(between[inside], part):
				t.Errorf("%s imports %s: resources stand alone", file, imported)
			case room != other && rooms[room] <= rooms[other]:
				t.Errorf("%s imports %s: the room %q must not import the room %q", file, imported, room, other)
			}
		}
	})
}

// place returns the room of a folder below core, and the folder in that room.
func place(folder string) (room, inside string) {
	parts := append(strings.Split(folder, "/"), "", "")
	return parts[1], parts[2]
}

func TestPackagesAreWorthTheirName(t *testing.T) {
	lines, importers := map[string]int{}, map[string]map[string]bool{}
	sources(t, func(folder, file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
		if head, _, _ := bytes.Cut(text, []byte("\npackage ")); !generated.Match(head) {
			lines[folder] += bytes.Count(text, []byte("\n"))
		}
		for _, spec := range parse(t, file, parser.ImportsOnly).Imports {
			if imported, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module); own {
				if importers[imported] == nil {
					importers[imported] = map[string]bool{}
				}
				importers[imported][folder] = true
			}
		}
	})
	for folder, n := range lines {
		if n > manyLines {
			t.Logf("warning: %s has %d lines: does one sentence without \"and\" still name it?", folder, n)
		}
		_, listed := small[folder]
		hidden := n > 0 && n <= leastLines && len(importers[folder]) == 1 && !below("cmd", folder) && !below("examples", folder)
		switch {
		case hidden && !listed:
			t.Errorf("%s has %d lines and only one package imports it: join the two, or say in small why not", folder, n)
		case listed && !hidden:
			t.Errorf("%s is in small, and need not be", folder)
		}
	}
	for folder := range small {
		if lines[folder] == 0 {
			t.Errorf("%s is in small, and does not exist", folder)
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
