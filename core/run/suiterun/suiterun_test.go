package suiterun_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/suites"
)

// TestThePlatformPasses runs the suites of the example, as `stele policy test` does.
func TestThePlatformPasses(t *testing.T) {
	tests, invariants, coverage := runAll(t, "platform", map[string][]string{
		"clusters/dev":     {"clusters/dev/tests", "teams/widgets/tests"},
		"clusters/prod-eu": {"clusters/prod-eu/tests", "teams/widgets/tests"},
	})
	if len(tests) < 30 || invariants < 5 {
		t.Errorf("only %d tests and %d invariants", len(tests), invariants)
	}
	t.Log(coverage.Summary(), "\n", strings.Join(missing(coverage), "\n"))
}

// The suite of the example has a test for each pack, and each rule that comes of a pack refuses something there and lets something
// pass.
func TestThePacksPass(t *testing.T) {
	tests, _, coverage := runAll(t, "packs", map[string][]string{"clusters/dev": {"teams/data/tests"}})
	if left := missing(coverage); len(left) > 0 {
		t.Errorf("not tried: %q", left)
	}
	packs, err := os.ReadFile("../../../policy/format/packs/packs.cue")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^#([A-Z][A-Za-z]+): \{`).FindAllSubmatch(packs, -1)
	for _, match := range found {
		if name := string(match[1]); name != "Pack" && !slices.ContainsFunc(tests, func(test string) bool { return test == name || strings.HasPrefix(test, name+"/") }) {
			t.Errorf("the pack %s has no test in examples/packs", name)
		}
	}
	if len(found) < 9 {
		t.Errorf("found %d packs", len(found))
	}
}

// runAll runs suites of an example, and returns the names of its tests, the number of invariants, and what was tried.
func runAll(t *testing.T, example string, clusters map[string][]string) (names []string, invariants int, coverage *suiterun.Coverage) {
	t.Helper()
	module := os.DirFS("../../../examples/" + example)
	coverage = suiterun.NewCoverage()
	for bundle, packages := range clusters {
		source, err := bundles.ReadFS(module, bundle)
		if err != nil {
			t.Fatal(err)
		}
		compiled, diags := compile.Bundle(source)
		if len(diags) > 0 {
			t.Fatal(diags)
		}
		r, err := suiterun.New(t.Context(), compiled, suiterun.Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		coverage.AddPolicy(r.Form())
		for _, pkg := range packages {
			of := *source
			of.Package = pkg
			s, diags := suites.Read(&of)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			if diags := r.Check(s, false); len(diags) > 0 {
				t.Fatal(diags)
			}
			for i := range s.Tests {
				result, err := r.Run(t.Context(), s, &s.Tests[i])
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, result.Test.Name)
				coverage.Observe(result.Answer)
				if len(result.Failures) > 0 {
					t.Errorf("%s, %s: %s\n%s\n%s", bundle, result.Test.Name, result.Test.Source, strings.Join(result.Failures, "\n"), strings.Join(result.Why, "\n"))
				}
			}
			for i := range s.Invariants {
				result, err := r.Decide(t.Context(), &s.Invariants[i])
				if err != nil {
					t.Fatal(err)
				}
				invariants++
				if len(result.Failures) > 0 {
					t.Errorf("%s, %s: %s", bundle, result.Invariant.Name, strings.Join(result.Failures, "\n"))
				}
			}
		}
	}
	return names, invariants, coverage
}

// missing returns what no test tried.
func missing(coverage *suiterun.Coverage) (list []string) {
	for _, p := range coverage.Points() {
		if !p.Exercised() {
			list = append(list, fmt.Sprint(p.Part, " ", p.ID, " ", p.Missing()))
		}
	}
	return list
}
