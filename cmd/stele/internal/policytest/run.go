package policytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/suites"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// outcome is the results of a run, by bundle and suite.
type outcome struct {
	parts    []*part
	coverage *suiterun.Coverage
}

// part is the results of a suite under a bundle.
type part struct {
	root       string // of the module, as a path that can be opened
	prefix     string // of the module's files, in the output
	source     *bundles.Source
	bundle     string
	suite      *suites.Suite
	tests      []*suiterun.Result // Answer is nil if the test was skipped
	invariants []*suiterun.InvariantResult
}

// planned is a suite and the bundles to run it under.
type planned struct {
	dir     string // an argument
	source  *bundles.Source
	suite   *suites.Suite
	bundles []string
}

// results reads the suites, compiles the bundles once each, and runs all tests. If anything has errors, it prints them and
// runs nothing.
func (o *options) results(ctx context.Context, cmd *cobra.Command, args []string) (*outcome, error) {
	plan, err := o.plan(ctx, cmd, args)
	if err != nil {
		return nil, err
	}
	out := &outcome{coverage: suiterun.NewCoverage()}
	runners := map[string]*suiterun.Runner{}
	defer func() {
		for _, r := range runners {
			r.Close()
		}
	}()
	wrong := 0
	for _, p := range plan {
		root, prefix := rootOf(p.dir, p.source)
		for _, bundle := range p.bundles {
			key := filepath.Join(root, filepath.FromSlash(bundle))
			r := runners[key]
			if r == nil {
				if r, err = o.open(ctx, cmd, p, bundle); err != nil {
					return nil, err
				}
				runners[key] = r
				out.coverage.AddPolicy(r.Form())
			}
			if diags := r.Check(p.suite, o.update); len(diags) > 0 {
				_ = show.ErrDiagnostics(cmd.ErrOrStderr(), p.source, diags, bundle)
				wrong += len(diags)
				continue
			}
			x := &part{root: root, prefix: prefix, source: p.source, bundle: bundle, suite: p.suite}
			out.parts = append(out.parts, x)
			if wrong == 0 {
				if err := x.run(ctx, r, o, out.coverage); err != nil {
					return nil, err
				}
			}
		}
	}
	if wrong > 0 {
		return nil, errors.New(usage.Count(wrong, "error") + " in tests")
	}
	if o.run != "" && !slices.ContainsFunc(out.parts, func(p *part) bool { return len(p.tests)+len(p.invariants) > 0 }) {
		return nil, fmt.Errorf("no test and no invariant matches --run %s", o.run)
	}
	return out, nil
}

// open compiles a bundle and returns a runner for it.
func (o *options) open(ctx context.Context, cmd *cobra.Command, p *planned, bundle string) (*suiterun.Runner, error) {
	source := *p.source
	source.Package = bundle
	compiled, diags, err := o.compile.Compile(ctx, &source)
	if err == nil && len(diags) > 0 {
		err = show.ErrDiagnostics(cmd.ErrOrStderr(), &source, diags, bundle)
	}
	if err != nil {
		return nil, err
	}
	return suiterun.New(ctx, compiled, suiterun.Options{Worker: worker})
}

// plan finds and reads the suites that the arguments name, each once.
func (o *options) plan(ctx context.Context, cmd *cobra.Command, args []string) (plan []*planned, err error) {
	seen := map[string]bool{}
	wrong := 0
	for _, arg := range args {
		dir := strings.TrimSuffix(strings.TrimSuffix(arg, "..."), "/")
		dir = cmp.Or(dir, ".")
		source, err := bundles.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		module := bundles.ModuleOf(source)
		within := source.Package
		if o.all {
			within = "."
		}
		found := module.Suites(within)
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no tests: no package there has a field `suite`; write one into %s, for example", arg, path.Join(dir, "tests"))
		}
		root, _ := rootOf(dir, source)
		for _, pkg := range found {
			if key := filepath.Join(root, filepath.FromSlash(pkg)); seen[key] {
				continue
			} else {
				seen[key] = true
			}
			of := *source
			of.Package = pkg
			suite, diags, err := o.read(ctx, &of)
			if err != nil {
				return nil, err
			}
			p := &planned{dir: dir, source: source, suite: suite}
			if len(diags) == 0 {
				p.bundles, diags = bundlesOf(module, suite, &of)
			}
			if len(diags) > 0 {
				_ = show.ErrDiagnostics(cmd.ErrOrStderr(), &of, diags, pkg)
				wrong += len(diags)
				continue
			}
			plan = append(plan, p)
		}
	}
	if wrong > 0 {
		return nil, errors.New(usage.Count(wrong, "error") + " in tests")
	}
	return plan, nil
}

// bundlesOf returns the bundles that a suite is for.
func bundlesOf(module *bundles.Module, s *suites.Suite, source *bundles.Source) (list []string, diags schemas.Diagnostics) {
	all := module.Below(".")
	for _, name := range s.Clusters {
		if folder := path.Clean(name.Text); slices.Contains(all, folder) {
			list = append(list, folder)
			continue
		}
		diags = append(diags, schemas.Diagnostic{Pos: name.Source, Message: fmt.Sprintf("the module has no bundle in the folder %q", name.Text), Hint: wording.DidYouMean(name.Text, all, "bundles are in")})
	}
	for dir := path.Dir(s.Package); len(s.Clusters) == 0 && len(list) == 0; dir = path.Dir(dir) {
		list = module.Of(dir)
		if dir == "." {
			break
		}
	}
	if len(list) == 0 && len(diags) == 0 {
		diags = schemas.Diagnostics{{Pos: schemas.Position{File: bundles.FirstFile(source), Line: 1, Column: 1},
			Message: "there is no bundle to run the tests under: no folder above is part of one", Hint: wording.DidYouMean("", all, "name bundles in clusters:")}}
	}
	return list, diags
}

// rootOf returns the folder of a module, and how the user would write the beginning of its files' paths.
func rootOf(dir string, source *bundles.Source) (root, prefix string) {
	up, err := filepath.Rel(filepath.FromSlash(source.Package), ".")
	if err != nil {
		up = "."
	}
	prefix = filepath.ToSlash(filepath.Join(dir, up))
	if root, err = filepath.Abs(prefix); err != nil {
		root = prefix
	}
	if prefix == "." || strings.HasPrefix(prefix, "..") || filepath.IsAbs(prefix) {
		prefix = ""
	}
	return root, prefix
}

// run runs the tests that the pattern selects, several at a time.
func (p *part) run(ctx context.Context, r *suiterun.Runner, o *options, coverage *suiterun.Coverage) error {
	for i := range p.suite.Tests {
		if t := &p.suite.Tests[i]; o.pattern.MatchString(t.Name) {
			p.tests = append(p.tests, &suiterun.Result{Test: t})
		}
	}
	g, groupCtx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, t := range p.tests {
		if t.Test.Skip == "" {
			g.Go(func() (err error) {
				p.tests[i], err = r.Run(groupCtx, p.suite, t.Test)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, t := range p.tests {
		if t.Answer != nil {
			coverage.Observe(t.Answer)
		}
	}
	for i := range p.suite.Invariants {
		x := &p.suite.Invariants[i]
		if !o.pattern.MatchString(x.Name) {
			continue
		}
		result := &suiterun.InvariantResult{Invariant: x}
		if x.Skip == "" {
			var err error
			if result, err = r.Decide(ctx, x); err != nil {
				return err
			}
		}
		p.invariants = append(p.invariants, result)
	}
	return nil
}

// failed counts the tests and invariants that failed.
func (o *outcome) failed() (n int) {
	for _, p := range o.parts {
		for _, t := range p.tests {
			if len(t.Failures) > 0 {
				n++
			}
		}
		for _, i := range p.invariants {
			if len(i.Failures) > 0 {
				n++
			}
		}
	}
	return n
}
