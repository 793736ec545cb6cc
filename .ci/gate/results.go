package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// outcome is what became of a test or subtest.
type outcome struct {
	action  string // pass, skip, fail, or "" if it did not end
	elapsed float64
	output  string // if it did not pass
}

// results collects the events of several calls of go test. It prints the lines that go test prints, and what failed tests print.
type results struct {
	out      io.Writer
	tests    map[test]*outcome // subtests have names with slashes
	order    map[string][]string
	ran      map[test]int // top-level tests: how often they ran
	failed   []string     // packages
	packages map[string]float64
}

func newResults(out io.Writer) *results {
	return &results{out: out, tests: map[test]*outcome{}, order: map[string][]string{}, ran: map[test]int{}, packages: map[string]float64{}}
}

// usage is the time that a command took.
type usage struct{ wall, cpu time.Duration }

func (u usage) add(v usage) usage { return usage{u.wall + v.wall, u.cpu + v.cpu} }

func (u usage) String() string {
	return fmt.Sprintf("%v, processor time %v", u.wall.Round(time.Second), u.cpu.Round(time.Second))
}

// goTest calls go test and collects its events. An error means that it could not be called; failed tests are in the results.
func goTest(into *results, args ...string) (usage, error) {
	start := time.Now()
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return usage{}, err
	}
	if err := cmd.Start(); err != nil {
		return usage{}, err
	}
	read := into.read(stdout)
	err = cmd.Wait()
	used := usage{time.Since(start), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(into.failed) > 0 {
		err = nil
	}
	return used, errors.Join(read, err)
}

func (r *results) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text()) // go test's own words
			continue
		}
		r.take(e)
	}
	return lines.Err()
}

func (r *results) take(e event) {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Package == "":
	case e.Test == "":
		r.takePackage(e)
	default:
		r.takeTest(e)
	}
}

func (r *results) takePackage(e event) {
	switch e.Action {
	case "output":
		if e.Output != "PASS\n" && e.Output != "FAIL\n" {
			fmt.Fprint(r.out, e.Output)
		}
	case "pass", "skip", "fail":
		r.packages[e.Package] += e.Elapsed
		if e.Action == "fail" {
			r.failed = append(r.failed, e.Package)
			r.printUnfinished(e.Package)
		}
	}
}

func (r *results) takeTest(e event) {
	t := test{e.Package, e.Test}
	o := r.tests[t]
	if o == nil {
		o = &outcome{}
		r.tests[t] = o
		r.order[e.Package] = append(r.order[e.Package], e.Test)
	}
	switch e.Action {
	case "run":
		if !strings.Contains(e.Test, "/") {
			r.ran[t]++
		}
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			o.output += e.Output
		}
	case "pass", "skip":
		o.action, o.elapsed, o.output = e.Action, e.Elapsed, ""
	case "fail":
		o.action, o.elapsed = e.Action, e.Elapsed
		if !strings.Contains(e.Test, "/") {
			fmt.Fprint(r.out, r.text(t))
		}
	}
}

// text returns the output of a test and of its subtests, without those that passed.
func (r *results) text(t test) string {
	var text strings.Builder
	for _, name := range r.order[t.pkg] {
		if name == t.name || strings.HasPrefix(name, t.name+"/") {
			text.WriteString(r.tests[test{t.pkg, name}].output)
		}
	}
	return text.String()
}

// printUnfinished prints the output of tests that had not ended when their process did.
func (r *results) printUnfinished(pkg string) {
	for _, name := range r.order[pkg] {
		if o := r.tests[test{pkg, name}]; o.action == "" {
			fmt.Fprint(r.out, o.output)
		}
	}
}

// judge returns what is wrong with the results: tests that failed, did not run, or ran twice. Failures of tests that wait for
// the time of a clock are repeated, and only reported if they pass then.
func (r *results) judge(packages []goPackage, rules []rule, again func(t test, subtest string) (bool, string)) []error {
	var problems []error
	for _, p := range packages {
		excused := 0
		for _, name := range p.tests {
			t := test{p.ImportPath, name}
			switch o := r.tests[t]; {
			case r.ran[t] != 1:
				problems = append(problems, fmt.Errorf("%s ran %d times, not once", t, r.ran[t]))
			case o.action == "pass" || o.action == "skip":
			case o.action == "fail" && mayRepeat(rules, p, name) && !blamesTheProgram(r.text(t)) && r.repeat(t, again):
				excused++
			default:
				problems = append(problems, fmt.Errorf("%s failed", t))
			}
		}
		if slices.Contains(r.failed, p.ImportPath) && excused == 0 {
			problems = append(problems, fmt.Errorf("%s failed", p.ImportPath))
		}
	}
	return problems
}

// blamesTheProgram reports whether an output has what no slow machine can be the cause of.
func blamesTheProgram(output string) bool {
	return strings.Contains(output, "DATA RACE") || strings.Contains(output, "panic:") || strings.Contains(output, "fatal error:")
}

// repeat runs a failed test again; of a test with subtests, those that failed.
func (r *results) repeat(t test, again func(t test, subtest string) (bool, string)) bool {
	var subtests []string
	for _, name := range r.order[t.pkg] {
		if rest, ok := strings.CutPrefix(name, t.name+"/"); ok && r.tests[test{t.pkg, name}].action == "fail" && !strings.Contains(rest, "/") {
			subtests = append(subtests, rest)
		}
	}
	if len(subtests) == 0 {
		subtests = []string{""}
	}
	for _, subtest := range subtests {
		passed, output := again(t, subtest)
		if !passed {
			fmt.Fprintf(r.out, "%s\n", output)
			return false
		}
	}
	fmt.Fprintf(r.out, "\nFLAKY %s failed, and passed when it was repeated alone. The output of the failure:\n%s\n", t, r.text(t))
	return true
}

// repeat runs a test, or one of its subtests, alone, and with the race detector if it had it before.
func repeat(runs []testRun, t test, subtest string) (bool, string) {
	args := []string{"test", "-vet=off", "-count=1", "-timeout=30m"}
	for _, r := range runs {
		if r.mode == modeRace && slices.Contains(r.packages, t.pkg) && !slices.Contains(r.not, t.name) {
			args = append(args, "-race")
		}
	}
	pattern := "^" + t.name + "$"
	if subtest != "" {
		pattern += "/^" + regexp.QuoteMeta(subtest) + "$"
	}
	out, err := exec.Command("go", append(args, "-run="+pattern, t.pkg)...).CombinedOutput()
	fmt.Printf("\n== repeated alone: %s %s\n", t, subtest)
	return err == nil && !strings.Contains(string(out), "no tests to run"), string(out)
}

// report prints how long packages took that took more than ten seconds, and the slowest tests.
func (r *results) report(out io.Writer, most int) {
	skipped := 0
	slow := slices.SortedFunc(maps.Keys(r.tests), func(a, b test) int { return cmp.Compare(r.tests[b].elapsed, r.tests[a].elapsed) })
	slow = slices.DeleteFunc(slow, func(t test) bool { return strings.Contains(t.name, "/") })
	fmt.Fprintf(out, "\nThe slowest packages:\n")
	for _, pkg := range slices.SortedFunc(maps.Keys(r.packages), func(a, b string) int { return cmp.Compare(r.packages[b], r.packages[a]) })[:min(most, len(r.packages))] {
		fmt.Fprintf(out, "%8.1fs %s\n", r.packages[pkg], pkg)
	}
	fmt.Fprintf(out, "\nThe slowest tests:\n")
	for i, t := range slow {
		if i < most {
			fmt.Fprintf(out, "%8.1fs %s\n", r.tests[t].elapsed, t)
		}
		if r.tests[t].action == "skip" {
			skipped++
		}
	}
	fmt.Fprintf(out, "\n%d tests of %d packages ran, %d of them skipped\n", len(slow), len(r.packages), skipped)
}
