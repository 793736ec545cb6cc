package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The words of .ci/tests.txt.
const (
	modeRace  = "race"  // with the race detector
	modePlain = "plain" // without
	waits     = "waits" // for the time of a clock: a failure is repeated once, alone
)

// rule is a line of .ci/tests.txt: what holds for some tests of some packages.
type rule struct {
	word     string
	packages []*regexp.Regexp
	tests    *regexp.Regexp
}

func (r rule) matches(p goPackage, name string) bool {
	return r.tests.MatchString(name) && slices.ContainsFunc(r.packages, func(pattern *regexp.Regexp) bool { return pattern.MatchString(p.folder()) })
}

// folders returns a pattern of folders as a regular expression. A part ... stands for any number of parts.
func folders(pattern string) *regexp.Regexp {
	text := regexp.QuoteMeta(pattern)
	text = strings.ReplaceAll(text, `/\.\.\./`, "/(.*/)?")
	if folder, ok := strings.CutSuffix(text, `/\.\.\.`); ok {
		text = folder + "(/.*)?"
	}
	return regexp.MustCompile("^" + text + "$")
}

// parseRules reads lines of a word, packages, a regular expression for names of tests, and a reason.
func parseRules(text string) ([]rule, error) {
	var rules []rule
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 4 || !slices.Contains([]string{modeRace, modePlain, waits}, fields[0]) {
			return nil, fmt.Errorf("line %d: want race, plain or waits, packages, tests, and why", i+1)
		}
		tests, err := regexp.Compile(fields[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		r := rule{word: fields[0], tests: tests}
		for pattern := range strings.SplitSeq(fields[1], ",") {
			r.packages = append(r.packages, folders(pattern))
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// mode returns what the last rule about a test says: race or plain.
func mode(rules []rule, p goPackage, name string) string {
	found := modePlain
	for _, r := range rules {
		if r.word != waits && r.matches(p, name) {
			found = r.word
		}
	}
	return found
}

func mayRepeat(rules []rule, p goPackage, name string) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.word == waits && r.matches(p, name) })
}

// testRun is one call of go test.
type testRun struct {
	mode     string
	packages []string
	only     []string // the tests to run; all if empty
	not      []string // the tests to leave out
}

func (r testRun) String() string {
	text := map[string]string{modeRace: "with the race detector", modePlain: "without the race detector"}[r.mode]
	if len(r.only) > 0 {
		text += ", tests of packages that are tested with it"
	}
	return fmt.Sprintf("%s, %d packages", text, len(r.packages))
}

func (r testRun) arguments() []string {
	// -vet=off, because `go vet` has run all its checks. `go test` would run some of them with other flags, and for that analyze
	// all dependencies again.
	args := []string{"-vet=off", "-timeout=30m"}
	if r.mode == modeRace {
		args = append(args, "-race")
	}
	if len(r.only) > 0 {
		args = append(args, "-run="+anyOf(r.only))
	}
	if len(r.not) > 0 {
		args = append(args, "-skip="+anyOf(r.not))
	}
	return append(args, r.packages...)
}

func anyOf(names []string) string { return "^(" + strings.Join(names, "|") + ")$" }

// planRuns divides all tests into calls of go test: without the race detector, with it, and without it the tests of the same
// packages that shall not have it. A package without tests is compiled without it.
func planRuns(packages []goPackage, rules []rule) ([]testRun, error) {
	plain, race, rest := testRun{mode: modePlain}, testRun{mode: modeRace}, testRun{mode: modePlain}
	for _, p := range packages {
		var without []string
		for _, name := range p.tests {
			if mode(rules, p, name) == modePlain {
				without = append(without, name)
			}
		}
		if len(without) == len(p.tests) {
			plain.packages = append(plain.packages, p.ImportPath)
			continue
		}
		race.packages = append(race.packages, p.ImportPath)
		if len(without) > 0 {
			race.not, rest.only, rest.packages = append(race.not, without...), append(rest.only, without...), append(rest.packages, p.ImportPath)
		}
	}
	if err := checkNames(packages, rules, race, rest); err != nil {
		return nil, err
	}
	var runs []testRun
	for _, r := range []testRun{plain, race, rest} {
		if len(r.packages) > 0 {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// checkRules checks that each rule is about a test, in each of its packages.
func checkRules(packages []goPackage, rules []rule) error {
	for _, r := range rules {
		for _, pattern := range r.packages {
			one := rule{r.word, []*regexp.Regexp{pattern}, r.tests}
			if !slices.ContainsFunc(packages, func(p goPackage) bool {
				return slices.ContainsFunc(p.tests, func(name string) bool { return one.matches(p, name) })
			}) {
				return fmt.Errorf("%s %s %s: there is no such test", r.word, pattern, r.tests)
			}
		}
	}
	return nil
}

// checkNames checks that no two packages with a test of one name want it differently: go test has one -run for all packages.
func checkNames(packages []goPackage, rules []rule, race, rest testRun) error {
	for _, p := range packages {
		if !slices.Contains(race.packages, p.ImportPath) {
			continue
		}
		for _, name := range p.tests {
			if mode(rules, p, name) == modeRace && slices.Contains(rest.only, name) {
				return fmt.Errorf("%s %s: another package has a test of this name that runs without the race detector: give one a name of its own", p.folder(), name)
			}
		}
	}
	return nil
}
