package suiterun_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"stele.dev/stele/core/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/suites"
)

// TestThePlatformPasses runs the suites of the example, as `stele policy test` does.
func TestThePlatformPasses(t *testing.T) {
	module := os.DirFS("../../examples/platform")
	coverage := suiterun.NewCoverage()
	tests, invariants := 0, 0
	for bundle, packages := range map[string][]string{
		"clusters/dev":     {"clusters/dev/tests", "teams/widgets/tests"},
		"clusters/prod-eu": {"clusters/prod-eu/tests", "teams/widgets/tests"},
	} {
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
				tests++
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
	if tests < 30 || invariants < 5 {
		t.Errorf("only %d tests and %d invariants", tests, invariants)
	}
	var missing []string
	for _, p := range coverage.Points() {
		if !p.Exercised() {
			missing = append(missing, fmt.Sprint(p.Part, " ", p.ID, " ", p.Missing()))
		}
	}
	t.Log(coverage.Summary(), "\n", strings.Join(missing, "\n"))
}
