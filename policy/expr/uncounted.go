package expr

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"k8s.io/apiserver/pkg/cel/library"
	"stele.dev/stele/policy/stored"
)

// smallCost is the highest cost, in CEL's units, of an expression whose cost is not counted. CEL counts step by step,
// which takes twice as long as the evaluation itself. An expression that cannot cost more, whatever its variables are, is
// evaluated without counting and charged one unit, so that it is never refused where counting would not refuse it. Many
// evaluations of such expressions end with the time limit; see [Limited].
const smallCost = 1000

// uncounted is an expression that is evaluated without counting its cost, or whose value is known.
type uncounted struct {
	program cel.Program
	value   ref.Val // of an expression without variables; nil for others
	charge  Budget
}

// newUncounted plans an expression; nil if its cost has to be counted.
func newUncounted(env *planner, ast *cel.Ast, counted cel.Program, checked *exprpb.Expr) (*uncounted, error) {
	cost, err := env.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: anySize{}}, stored.Costs()...)
	if err != nil {
		return nil, nil // a cost that cannot be estimated is counted
	}
	if cost.Max <= constantCost && isConstant(checked) {
		if value, details, err := counted.Eval(cel.NoVars()); err == nil {
			return &uncounted{value: value, charge: Budget(*details.ActualCost())}, nil
		}
	}
	if cost.Max > smallCost {
		return nil, nil
	}
	program, err := env.plain().Program(ast, cel.EvalOptions(cel.OptOptimize), cel.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization))
	if err != nil {
		return nil, err
	}
	return &uncounted{program: program, charge: 1}, nil
}

// isConstant reports whether an expression has no variables.
func isConstant(e *exprpb.Expr) bool {
	is := true
	each(e, func(part *exprpb.Expr) {
		is = is && part.GetIdentExpr() == nil && part.GetComprehensionExpr() == nil
	})
	return is
}

// eval evaluates the expression.
func (u *uncounted) eval(vars interpreter.Activation) (ref.Val, error) {
	if u.value != nil {
		return u.value, nil
	}
	v, _, err := u.program.Eval(vars)
	return v, err
}

// anySize implements [checker.CostEstimator] for variables of any size.
type anySize struct{}

func (anySize) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if size := element.ComputedSize(); size != nil {
		return size
	}
	return &checker.SizeEstimate{Max: math.MaxUint64}
}

func (anySize) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// planner makes programs in an environment.
type planner struct {
	env *cel.Env
	// plain has what the environment has, but does not count costs.
	plain func() *cel.Env
}

func newPlanner(env *cel.Env) *planner {
	return &planner{env, sync.OnceValue(func() *cel.Env {
		plain, err := cel.NewCustomEnv(cel.OptionalTypes(), cel.FunctionDecls(slices.Collect(maps.Values(env.Functions()))...),
			cel.CustomTypeAdapter(env.CELTypeAdapter()), cel.CustomTypeProvider(env.CELTypeProvider()))
		if err != nil {
			panic(err) // does not depend on any input
		}
		return plain
	})}
}
