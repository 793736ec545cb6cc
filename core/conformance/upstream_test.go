package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/stretchr/testify/require" // upstream's tests are compiled with this module's dependencies
	_ "k8s.io/apiextensions-apiserver/pkg/cmd/server/testing"
	_ "stele.dev/stele/core/conformance/testdata/fixtures"
)

const (
	upstream = "k8s.io/apiextensions-apiserver"
	cases    = upstream + "/test/integration" // a package of tests
	ours     = "stele.dev/stele/core/conformance/testdata/"
	table    = "../../docs/CONFORMANCE.md"
)

// verdict is what is said of a test of upstream's.
type verdict struct{ result, why string }

// verdicts reads the table of the documentation: file, test, result, and why.
func verdicts(t *testing.T) map[string]verdict {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]verdict{}
	for _, row := range regexp.MustCompile("(?m)^\\| `[a-z]+_test\\.go` \\| `(Test\\w+)` \\| (\\w+) \\| *(.*?) *\\|$").FindAllSubmatch(text, -1) {
		of[string(row[1])] = verdict{string(row[2]), string(row[3])}
	}
	return of
}

// Upstream's integration tests pass, but for those of which the documentation says why
// they do not. Each runs in a process of its own, against control planes of its own.
func TestUpstreamsCases(t *testing.T) {
	binary, dir := compileCases(t)
	list, err := exec.Command(binary, "-test.list", "^Test").Output()
	if err != nil {
		t.Fatal(err)
	}
	said := verdicts(t)
	var running sync.WaitGroup
	free := make(chan struct{}, 6) // most wait for something most of the time
	for _, name := range strings.Fields(string(list)) {
		v := said[name]
		delete(said, name)
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			t.Run(name, func(t *testing.T) {
				passed, output := runCase(t.Context(), binary, dir, name)
				switch {
				case passed && v.result != "passes":
					t.Errorf("it passes; %s says that it %s", table, v)
				case !passed && (v.result == "passes" || v.why == ""):
					t.Errorf("it fails; %s says that it %s:\n%s", table, v, output)
				case !passed:
					t.Logf("it fails, as %s says:\n%s", table, output)
				}
			})
		})
	}
	running.Wait()
	for name := range maps.Keys(said) {
		t.Errorf("%s is not one of upstream's tests", name)
	}
}

func (v verdict) String() string {
	if v.result == "" {
		return "is not there"
	}
	return v.result + " " + v.why
}

func runCase(ctx context.Context, binary, dir, name string) (bool, []byte) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+name+"$", "-test.v")
	cmd.Dir = dir
	output, err := cmd.CombinedOutput()
	return err == nil, output
}

// compileCases compiles upstream's tests as they are, but with our package fixtures in the
// place of theirs. It returns the binary, and the folder in which it must run.
func compileCases(t *testing.T) (binary, dir string) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", upstream).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(strings.TrimSpace(string(module)), "test", "integration")
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"conversion/webhook.go", "storage/objectreader.go", "fixtures/resources.go"} {
		files = append(files, filepath.Join(dir, more))
	}
	// Packages are found here, in folders that are not there; only fixtures is, and gets
	// upstream's definitions for tests beside what is ours.
	imports := strings.NewReplacer(`"`+cases+`/fixtures"`, `"`+ours+`fixtures"`, `"`+cases, `"`+ours+`integration`)
	tmp := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		laid := filepath.Join(tmp, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(laid, []byte(imports.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(rel, "fixtures") {
			rel = filepath.Join("integration", rel)
		}
		overlay.Replace[filepath.Join(here, "testdata", rel)] = laid
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	layout := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(layout, text, 0o600); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(tmp, "integration.test") // the name that they expect of a manager
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", layout, "-o", binary, "./testdata/integration").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary, dir
}
