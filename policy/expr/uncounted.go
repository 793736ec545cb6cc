package expr

import (
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"k8s.io/apiserver/pkg/cel/library"
	"stele.dev/stele/policy/stored"
)

// smallCost is the highest cost, in CEL's units, of an expression whose cost is not counted. CEL counts step by step,
// which takes twice as long as the evaluation itself. An expression that cannot cost more, whatever its variables are, is
// evaluated without counting and charged one unit, so that it is never refused where counting would not refuse it. Many
// evaluations of such expressions end with the time limit; see [Limited].
const smallCost = 1000

func newProgram(env *planner, checked *exprpb.CheckedExpr, text string) (*Program, error) {
	ast, err := cel.CheckedExprToAstWithSource(checked, nil)
	if err != nil {
		return nil, err
	}
	highest, constant := env.highestCost(ast), isConstant(checked.Expr)
	if highest <= smallCost && !constant {
		program, err := env.plain().Program(ast, cel.EvalOptions(cel.OptOptimize), cel.OptimizeRegex(library.FindRegexOptimization, library.FindAllRegexOptimization))
		return &Program{program: program, text: text, charge: 1}, err
	}
	program, err := env.Program(ast, cel.InterruptCheckFrequency(interruptEvery))
	if err != nil {
		return nil, err
	}
	if highest <= constantCost && constant {
		if value, details, err := program.Eval(cel.NoVars()); err == nil {
			return &Program{value: value, text: text, charge: Budget(*details.ActualCost())}, nil
		}
	}
	return &Program{program: program, text: text, loops: loops(checked.Expr)}, nil
}

// isConstant reports whether an expression has no variables.
func isConstant(e *exprpb.Expr) bool {
	is := true
	eachExpr(e, func(part *exprpb.Expr) {
		is = is && part.GetIdentExpr() == nil && part.GetComprehensionExpr() == nil
	})
	return is
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
	*cel.Env
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

// highestCost returns the highest cost of an expression, whatever its variables are.
func (p *planner) highestCost(ast *cel.Ast) uint64 {
	cost, err := p.EstimateCost(ast, &library.CostEstimator{SizeEstimator: anySize{}}, stored.Costs()...)
	if err != nil {
		return math.MaxUint64
	}
	return cost.Max
}
