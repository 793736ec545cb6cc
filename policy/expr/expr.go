// Package expr compiles and evaluates the CEL expressions of policies, with the CEL environment,
// libraries and limits of Kubernetes' API server. [Scope.Compile] checks an expression when a bundle
// is compiled, and returns its checked AST as bytes. [Load] makes a program of these bytes on each
// replica, without checking them again.
//
// The environment is pinned to one version of Kubernetes', so that a newer library does not change
// the meaning of an expression.
package expr

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/schemas/celtype"
)

// base is the environment with Kubernetes' libraries and without variables.
var base = sync.OnceValue(func() *cel.Env {
	env, err := guarded(environment.MustBaseEnvSet(version.MajorMinor(1, 37)).NewExpressionsEnv())
	if err == nil {
		env, err = env.Extend(stored.Library())
	}
	if err != nil {
		panic(err) // does not depend on any input
	}
	return env
})

// Scope is a set of variables for expressions. It is safe for concurrent use.
type Scope struct {
	env    *cel.Env
	vars   map[string]*celtype.Type
	growth map[string]int // of variables that are expressions, see func growth
	// patches is the type of the objects that mutations change; nil if the scope has no types of mutations.
	patches *celtype.Type
	kinds   map[string]*stored.Kind // those of the variables that are stored objects, by the name of the CEL type
}

// Root returns the scope without variables.
func Root() *Scope { return &Scope{env: base()} }

// With returns the scope with more variables. Their names may contain dots.
func (s *Scope) With(vars map[string]*celtype.Type) (*Scope, error) {
	next := &Scope{vars: make(map[string]*celtype.Type, len(s.vars)+len(vars)), growth: s.growth, patches: s.patches, kinds: s.kinds}
	for name, t := range s.vars {
		next.vars[name] = t
	}
	var options []cel.EnvOption
	var declared []*apiservercel.DeclType
	for name, t := range vars {
		next.vars[name] = t
		options = append(options, cel.Variable(name, t.CEL()))
		if of := t.Selected(); of != nil {
			t = of
		}
		if hasMessages(t) {
			declared = append(declared, t.Declaration())
		}
	}
	if len(declared) > 0 {
		provider := apiservercel.NewDeclTypeProvider(declared...)
		provider.SetRecognizeKeywordAsFieldName(true)
		under := &covered{Provider: s.env.CELTypeProvider(), adapter: s.env.CELTypeAdapter(), hidden: true}
		provided, err := provider.EnvOptions(under)
		under.hidden = false
		if err != nil {
			return nil, err
		}
		options = append(options, provided...)
	}
	var err error
	next.env, err = s.env.Extend(options...)
	return next, err
}

// Declare returns the scope with a variable that is another expression of the scope.
func (s *Scope) Declare(name string, is *Checked) (*Scope, error) {
	env, err := s.env.Extend(cel.Variable(name, is.Type))
	next := &Scope{env: env, vars: s.vars, growth: maps.Clone(s.growth), patches: s.patches, kinds: s.kinds}
	if next.growth == nil {
		next.growth = map[string]int{}
	}
	next.growth[name] = is.growth
	return next, err
}

// covered is a provider of types under another one, which may declare types of this one again: Kubernetes' provider requires
// that types with one name are one type, and each of ours is declared with each variable.
type covered struct {
	types.Provider
	adapter types.Adapter
	hidden  bool // while the other one is made
}

// FindStructType implements types.Provider.
func (c *covered) FindStructType(name string) (*types.Type, bool) {
	if c.hidden {
		return nil, false
	}
	return c.Provider.FindStructType(name)
}

// NativeToValue implements types.Adapter.
func (c *covered) NativeToValue(v any) ref.Val { return c.adapter.NativeToValue(v) }

func hasMessages(t *celtype.Type) bool {
	for ; t != nil; t = t.Items() {
		if t.IsMessage() {
			return true
		}
	}
	return false
}

// WithAuthorizer returns the scope with Kubernetes' authorizer (KEP-3488), by which expressions
// check what else the user may do.
func (s *Scope) WithAuthorizer() (*Scope, error) {
	env, err := s.env.Extend(cel.Variable("authorizer", library.AuthorizerType), cel.Variable("authorizer.requestResource", library.ResourceCheckType))
	return &Scope{env: env, vars: s.vars, growth: s.growth, patches: s.patches, kinds: s.kinds}, err
}

// Checked is an expression that has been type-checked.
type Checked struct {
	AST  []byte // an encoded google.api.expr.v1alpha1.CheckedExpr
	Type *cel.Type
	// Names are the variables that the expression uses, sorted.
	Names []string
	// Reads are the calls that read stored objects.
	Reads  []stored.Use
	growth int
}

// Fault is an error in an expression. Line counts from 1, Column from 0; both are 0 if the error has
// no position.
type Fault struct {
	Line, Column int
	Message      string
	// Name is the misspelled name, if there is one, and Known are the names that exist.
	Name  string
	Known []string
	// Inside is the path of a field of that name inside of the value, if it has none itself.
	Inside string
	// Hint is what to do, if it does not follow from the others.
	Hint string
}

func (f *Fault) Error() string { return f.Message }

// CostLimit limits the estimated cost of an expression, as Kubernetes limits rules in CRDs. Lists,
// maps and strings without a bound in the schema are assumed to have assumedSize elements.
// Evaluation has its own limits, whatever the real size.
const (
	CostLimit   = 10_000_000
	assumedSize = 1000
)

// Compile checks an expression. Its type must be want, if that is not nil.
func (s *Scope) Compile(text string, want *cel.Type) (*Checked, *Fault) {
	ast, issues := s.env.Parse(text)
	if issues.Err() == nil {
		if s.patches != nil {
			patchTypes{s.patches}.writeMaps(ast.NativeRep())
		}
		ast, issues = s.env.Check(ast)
	}
	if issues.Err() != nil {
		return nil, s.fault(issues.Errors()[0], text)
	}
	if out := ast.OutputType(); want != nil && !out.IsExactType(want) && !out.IsExactType(cel.DynType) {
		return nil, &Fault{Message: fmt.Sprintf("its value is of type %s, and must be of type %s", cel.FormatCELType(out), cel.FormatCELType(want))}
	}
	cost, err := s.env.EstimateCost(ast, &library.CostEstimator{SizeEstimator: sizes(s.vars)}, stored.Costs()...)
	if err != nil {
		return nil, &Fault{Message: err.Error()}
	}
	if cost.Max > CostLimit {
		return nil, &Fault{Message: fmt.Sprintf("it may cost %.1f times what an expression may cost at most", float64(cost.Max)/CostLimit)}
	}
	checked, err := cel.AstToCheckedExpr(ast)
	if err != nil {
		return nil, &Fault{Message: err.Error()}
	}
	if chosenPattern(checked.Expr) {
		return nil, &Fault{Message: "the pattern of matches must be a constant or one of the params: one that clients choose can take very long"}
	}
	grown := growth(checked.Expr, checked.TypeMap, s.growth)
	if grown > maxGrowth {
		return nil, &Fault{Message: fmt.Sprintf("it adds up more than %d lists or texts, by way of variables", maxGrowth)}
	}
	reads, fault := s.reads(checked)
	if fault != nil {
		return nil, fault
	}
	checked.SourceInfo = nil // the caller keeps the text
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(checked)
	if err != nil {
		return nil, &Fault{Message: err.Error()}
	}
	return &Checked{AST: encoded, Type: ast.OutputType(), Names: names(checked), Reads: reads, growth: grown}, nil
}

func names(checked *exprpb.CheckedExpr) (list []string) {
	seen := map[string]bool{}
	for _, r := range checked.ReferenceMap {
		if r.Name != "" && !seen[r.Name] {
			seen[r.Name] = true
			list = append(list, r.Name)
		}
	}
	return sorted(list)
}

// sizes implements [checker.CostEstimator] for the types of variables.
type sizes map[string]*celtype.Type

func (v sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if size := element.ComputedSize(); size != nil {
		return size
	}
	path := element.Path()
	t, rest := v.variable(path)
	for _, name := range rest {
		if t == nil {
			break
		}
		switch name {
		case "@items", "@values":
			t = t.Items()
		case "@keys":
			t = celtype.String
		default:
			if f := t.Field(name); f != nil {
				t = f.Type
			} else {
				t = t.Items()
			}
		}
	}
	if t != nil && t.Limit() != celtype.Unlimited {
		return &checker.SizeEstimate{Max: uint64(t.Limit())}
	}
	return &checker.SizeEstimate{Max: assumedSize}
}

// variable returns the type of the variable at the start of a path, and the rest of the path.
func (v sizes) variable(path []string) (*celtype.Type, []string) {
	for n := min(2, len(path)); n > 0; n-- {
		if t := v[strings.Join(path[:n], ".")]; t != nil {
			return t, path[n:]
		}
	}
	return nil, nil
}

func (v sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// Program is an expression that can be evaluated. It is safe for concurrent use.
type Program struct {
	program cel.Program
	text    string
	loops   bool    // it has loops, and its cost is counted
	value   ref.Val // of an expression without variables; nil for others
	charge  Budget  // what an evaluation costs if its cost is not counted; see smallCost
}

// Load makes a program of a checked expression. text is shown in errors.
func Load(ast []byte, text string) (*Program, error) { return loadIn(evaluating(), ast, text) }

// evaluating is the environment in which expressions are evaluated.
var evaluating = sync.OnceValue(func() *planner { return newPlanner(base()) })

func loadIn(env *planner, ast []byte, text string) (*Program, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	p, err := newProgram(env, &checked, text)
	if err != nil {
		return nil, fmt.Errorf("expression %q: %w", text, err)
	}
	return p, nil
}

// Budget is the remaining cost, in CEL's units, of evaluations that share it.
type Budget int64

// NewBudget returns the budget for all expressions of one rule, or for the schema of one object.
func NewBudget() Budget { return celconfig.RuntimeCELCostBudget }

// ErrBudget says that expressions exceed their cost budget, so that they have no result.
var ErrBudget = errors.New("running out of cost budget")

// loops reports whether an expression contains a loop.
func loops(e *exprpb.Expr) bool {
	found := false
	visit(e.ProtoReflect(), func(m protoreflect.Message) {
		_, comprehension := m.Interface().(*exprpb.Expr_Comprehension)
		found = found || comprehension
	})
	return found
}

// interruptEvery is the number of loop iterations between two checks of the time limit.
const interruptEvery = 10

// Limited returns a context that limits the time of all evaluations for one request. Cost limits are
// not enough: counting the cost of a loop takes quadratic time.
func Limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Second, errTimeout)
}

var errTimeout = errors.New("evaluation took too long")

// Eval evaluates the program. When the context ends, so does the evaluation of loops; see [Limited].
func (p *Program) Eval(ctx context.Context, vars interpreter.Activation, budget *Budget) (ref.Val, error) {
	if *budget <= 0 {
		return nil, ErrBudget
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("expression '%s' was not evaluated: %w", p.text, context.Cause(ctx))
	}
	var v ref.Val
	var details *cel.EvalDetails
	var err error
	switch {
	case p.value != nil:
		v = p.value
	case p.loops:
		v, details, err = p.program.ContextEval(ctx, vars)
	default:
		v, details, err = p.program.Eval(vars)
	}
	*budget -= p.charge
	if details != nil {
		if cost := details.ActualCost(); cost != nil {
			*budget -= Budget(min(*cost, uint64(*budget)+1))
		}
	}
	switch {
	case *budget < 0:
		return nil, ErrBudget
	case err != nil:
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", p.text, err)
	}
	return v, nil
}

// Bool evaluates a program that is a condition.
func (p *Program) Bool(ctx context.Context, vars interpreter.Activation, budget *Budget) (bool, error) {
	v, err := p.Eval(ctx, vars, budget)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, fmt.Errorf("expression '%s' resulted in a %s, not a bool", p.text, v.Type().TypeName())
	}
	return bool(b), nil
}

// Message evaluates a messageExpression. It returns "" if the result cannot be shown.
func (p *Program) Message(ctx context.Context, vars interpreter.Activation, budget *Budget) string {
	v, err := p.Eval(ctx, vars, budget)
	if err != nil {
		return ""
	}
	s, ok := v.Value().(string)
	if s = strings.TrimSpace(s); !ok || len(s) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(s, "\n") {
		return ""
	}
	return s
}
