package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write into the READMEs and the scripts what their commands print")

// TestREADMEs runs the console blocks of the documentation as printed, from the root of a
// fresh checkout, with one server per file. It compares all output that does not differ
// from run to run. A block that begins with "console last" runs after all others: a README
// can show first what its tour leads to.
func TestREADMEs(t *testing.T) {
	withKubectl(t)
	t.Parallel()
	for _, file := range []string{"README.md", "examples/quickstart/README.md", "examples/platform/README.md", "examples/packs/README.md", "examples/mutation/README.md", "examples/controller/README.md", "examples/authorizer-plugin/README.md", "examples/admission-plugin/README.md", "docs/TUTORIAL.md", "docs/INCIDENT.md", "docs/HISTORY.md", "docs/ACCESS.md", "docs/AUTHENTICATION.md", "docs/AUTHORIZATION.md", "docs/PROOF.md", "examples/ha/README.md"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join("..", "..", file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			tour := parseTour(string(text))
			tour.run(t)
			if *update {
				if err := os.WriteFile(path, []byte(tour.text()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, s := range tour.steps() {
				if diff := cmp.Diff(constant(s.printed), constant(s.output)); diff != "" {
					t.Errorf("$ %s\n(-printed +got):\n%s", s.command, diff)
				}
			}
		})
	}
}

// A tour is a file of the documentation: prose and steps in turn.
type tour struct{ parts []tourPart }

type tourPart struct {
	prose string
	*step // nil if prose
}

type step struct {
	command string // several lines if the shell would ask for more
	printed string // the output in the file
	output  string // the output of the command
	last    bool   // runs after all others
}

func parseTour(text string) *tour {
	t := new(tour)
	inside, runsLast := false, false
	for line := range strings.Lines(text) {
		var last *tourPart
		if n := len(t.parts); n > 0 {
			last = &t.parts[n-1]
		}
		command, isCommand := strings.CutPrefix(line, "$ ")
		more, isMore := strings.CutPrefix(line, ">")
		switch {
		case inside && isCommand:
			t.parts = append(t.parts, tourPart{step: &step{command: command, last: runsLast}})
		case inside && isMore && last.step != nil && last.printed == "":
			last.command += strings.TrimPrefix(more, " ")
		case inside && last.step != nil && line != "```\n":
			last.printed += line
		default:
			if strings.HasPrefix(line, "```") {
				runsLast = line == "```console last\n"
				inside = line == "```console\n" || runsLast
			}
			if last == nil || last.step != nil {
				t.parts = append(t.parts, tourPart{})
				last = &t.parts[len(t.parts)-1]
			}
			last.prose += line
		}
	}
	return t
}

// steps returns the steps in the order in which they run.
func (t *tour) steps() (steps []*step) {
	var last []*step
	for _, p := range t.parts {
		switch {
		case p.step == nil:
		case p.last:
			last = append(last, p.step)
		default:
			steps = append(steps, p.step)
		}
	}
	return append(steps, last...)
}

// text returns the file with the output of its commands.
func (t *tour) text() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.step == nil {
			b.WriteString(p.prose)
			continue
		}
		for i, line := range slices.Collect(strings.Lines(p.command)) {
			prompt := "$ "
			if i > 0 {
				prompt = "> "
			}
			b.WriteString(strings.TrimRight(prompt+line, " \n") + "\n")
		}
		b.WriteString(p.output)
	}
	return b.String()
}

const (
	program = "go run ./cmd/stele"
	marker  = "--- end of step ---"
)

// built are the programs that the READMEs have Go build, which the test binary is.
var built = strings.NewReplacer(
	program, "stele",
	"go build -o bin/stele ./cmd/stele", `mkdir -p bin && ln -sf "$(command -v stele)" bin/stele`,
	"go build -o controller ./examples/controller", `ln -s "$(command -v controller)" controller`,
	"go build -o my-plugins/", `go build -C "$REPO" -o "$PWD"/my-plugins/`, // programs that serve starts
)

// run runs the steps up to the server's start in one shell, and those after it in
// another: it has the other terminal.
func (t *tour) run(test *testing.T) {
	dir := test.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join("..", "..", "examples"))); err != nil {
		test.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "KUBECONFIG=", "TZ=UTC") // as it stands in the READMEs
	env = append(env, forGo(test)...)
	steps := t.steps()
	start := slices.IndexFunc(steps, func(s *step) bool { return strings.HasPrefix(built.Replace(s.command), "stele serve") })
	if start < 0 { // its own script starts servers
		t.runScript(test, dir, env)
		return
	}
	shell(test, dir, env, steps[:start])
	args := strings.Fields(strings.TrimPrefix(built.Replace(steps[start].command), "stele serve"))
	stele, err := exec.LookPath("stele")
	if err != nil {
		test.Fatal(err)
	}
	server, err := serveProcess(stele, dir, env, args...)
	if err != nil {
		test.Fatal(err)
	}
	test.Cleanup(func() {
		if err := server.end(syscall.SIGTERM); err != nil {
			test.Error(err)
		}
	})
	if err := server.await(); err != nil {
		test.Fatal(err)
	}
	steps[start].output = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(server.stdout.String(), "127.0.0.1:6443")
	steps[start].output = strings.ReplaceAll(steps[start].output, dir, "~/stele")
	shell(test, dir, env, steps[start+1:])
}

// forGo is what Go needs to build in a home that has nothing: the repository, and what was
// built and fetched before.
func forGo(t *testing.T) []string {
	out, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Split(strings.TrimSpace(string(out)), "\n")
	return []string{"REPO=" + root, "GOCACHE=" + caches[0], "GOMODCACHE=" + caches[1]}
}

func shell(t *testing.T, dir string, env []string, steps []*step) {
	t.Helper()
	var script strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&script, "%s\necho '%s'\n", built.Replace(strings.TrimRight(s.command, "\n")), marker)
	}
	sh := exec.Command("sh")
	sh.Dir, sh.Env, sh.Stdin = dir, env, strings.NewReader(script.String())
	out, err := sh.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, output := range strings.Split(string(out), marker+"\n") {
		if i < len(steps) {
			steps[i].output = output
		}
	}
}

// varying is what no two runs have in common, and the words that stand for it.
var varying = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.0-9]*(Z|[-+]\d\d:\d\d)?`), "TIME"},
	{regexp.MustCompile(`"?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"?`), "UID"},
	{regexp.MustCompile(`\b[0-9a-f]{12,}\b`), "DIGEST"},
	{regexp.MustCompile(`\+[0-9a-f]{8}\+[A-Za-z0-9+/]{40,}|[A-Za-z0-9+/]{40,}=+`), "BASE64"}, // keys, signatures and hashes
	{regexp.MustCompile(`(?m)^\d+$|\b\d+ batches\b`), "SIZE"},
	{regexp.MustCompile(`(?m)\b\d+m?s *$`), "AGE"},
	{regexp.MustCompile(`([("])linux/\w+([)"])`), "${1}PLATFORM$2"},
	{regexp.MustCompile(`(?m)^waiting for the server \(\d+s\)\n`), ""}, // where the machine is busy
	// Controllers write when they come to it.
	{regexp.MustCompile(`\b(revisions?|stele@|newest is|to|name":|[rR]evision":|resourceVersion":)( ?"?)\d+(( to | and )\d+)?\b`), "$1${2}REVISION"},
	{regexp.MustCompile(`(?m)^(---|\+\+\+) (.*) at \d+$`), "$1 $2 at REVISION"},
	{regexp.MustCompile(`(?m)^ *\d+  TIME`), "REVISION  TIME"},
	{regexp.MustCompile(`(?m)^\d+ `), "REVISION "},
}

func constant(output string) string {
	for _, v := range varying {
		output = v.pattern.ReplaceAllString(output, v.word)
	}
	return output
}
