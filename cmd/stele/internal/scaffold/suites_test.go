package scaffold_test

import (
	"os"
	"strings"
	"testing"

	"stele.dev/stele/cmd/stele/internal/scaffold"
	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/suites"
)

// TestTheTestsOfANewRepositoryPass runs the suites as `stele policy test` does.
func TestTheTestsOfANewRepositoryPass(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, _, err := run(t, scaffold.InitCommand(), ".", "--team", "data-stores"); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"clusters/dev", "clusters/prod"} {
		source, err := bundles.ReadFS(os.DirFS("."), cluster)
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
		tests := 0
		for _, pkg := range []string{cluster + "/tests", "teams/data-stores/tests"} {
			of := *source
			of.Package = pkg
			s, diags := suites.Read(&of)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			for i := range s.Tests {
				result, err := r.Run(t.Context(), s, &s.Tests[i])
				if err != nil {
					t.Fatal(err)
				}
				if tests++; len(result.Failures) > 0 {
					t.Errorf("%s, %s: %s", cluster, result.Test.Name, strings.Join(result.Failures, "\n"))
				}
			}
		}
		if tests != 5 {
			t.Errorf("%s has %d tests", cluster, tests)
		}
	}
}
