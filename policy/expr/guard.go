package expr

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// CEL counts the cost of a call after it returns, and cannot interrupt it. With some functions, a
// short input from a client could use a processor for hours, or all memory. Such calls are rejected
// before they start.

const (
	// maxMade limits the bytes that a call may create: the size limit of an object.
	maxMade = 4 << 20
	// maxSteps limits the work of a call to about 20 ms.
	maxSteps = 10_000_000
)

// excess returns what is too large about a call; "" if the call is allowed.
type excess func(args []ref.Val) string

// excessive has the check of each such function, by name.
var excessive = map[string]excess{
	"replace": func(args []ref.Val) string {
		s, old, by := length(args[0]), length(args[1]), length(args[2])
		return made(s + (s/max(1, old)+1)*by)
	},
	"join": func(args []ref.Val) string {
		list, ok := args[0].(traits.Lister)
		if !ok {
			return ""
		}
		between, total := 0, 0
		if len(args) > 1 {
			between = length(args[1])
		}
		for it := list.Iterator(); it.HasNext() == types.True; {
			if total += length(it.Next()) + between; total > maxMade {
				break
			}
		}
		return made(total)
	},
	"format": func(args []ref.Val) string {
		digits := 0
		s, _ := args[0].Value().(string)
		for _, c := range s {
			if digits++; c < '0' || c > '9' {
				digits = 0
			}
			if digits > 3 {
				return "a format with such a precision"
			}
		}
		return ""
	},
	"sets.contains":   product,
	"sets.equivalent": product,
	"sets.intersects": product,
	"distinct":        func(args []ref.Val) string { return product([]ref.Val{args[0], args[0]}) },
	"indexOf":         search,
	"lastIndexOf":     search,
	"quantity":        digits,
	"isQuantity":      digits,
	"semver":          versionText,
	"isSemver":        versionText,
	"find":            pattern,
	"findAll":         pattern,
}

// digits checks quantities, which are compared digit by digit: an exponent can make them long.
func digits(args []ref.Val) string {
	if s, _ := args[0].Value().(string); len(s) > 128 || exponent.MatchString(s) {
		return "a number of that size"
	}
	return ""
}

func versionText(args []ref.Val) string {
	if length(args[0]) > 1024 {
		return "a version of that length"
	}
	return ""
}

var exponent = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)

func length(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case traits.Sizer:
		if n, ok := v.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

func made(bytes int) string {
	if bytes > maxMade {
		return fmt.Sprintf("a text of more than %d MiB", maxMade>>20)
	}
	return ""
}

func steps(n float64) string {
	if n > maxSteps {
		return "arguments of that size"
	}
	return ""
}

func product(args []ref.Val) string {
	return steps(float64(length(args[0])) * float64(length(args[1])))
}

// search checks a search in a text or in a list.
func search(args []ref.Val) string {
	if _, ok := args[0].(types.String); !ok {
		return ""
	}
	return product(args)
}

// pattern checks regular expressions that are not constant: each character may be compared with each
// state.
func pattern(args []ref.Val) string {
	text, ok := args[1].Value().(string)
	if !ok {
		return ""
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return "" // the function reports the error
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return ""
	}
	return steps(float64(length(args[0])+1) * float64(len(program.Inst)))
}

// chosenPattern reports whether an expression matches a text with a pattern that clients choose: one
// that is neither a constant nor a param.
func chosenPattern(e *exprpb.Expr) bool {
	found := false
	visit(e.ProtoReflect(), func(m protoreflect.Message) {
		call, ok := m.Interface().(*exprpb.Expr_Call)
		if !ok || call.Function != "matches" || len(call.Args) == 0 {
			return
		}
		pattern := call.Args[len(call.Args)-1]
		for pattern.GetSelectExpr() != nil {
			pattern = pattern.GetSelectExpr().Operand
		}
		if pattern.GetConstExpr() == nil && pattern.GetIdentExpr().GetName() != "params" {
			found = true
		}
	})
	return found
}

// maxGrowth limits how many copies of its inputs a text or list can contain.
const maxGrowth = 64

// growth returns how many lists or texts are added up in an expression's value; vars has that number
// for variables. Adding a variable to itself doubles it.
func growth(e *exprpb.Expr, types map[int64]*exprpb.Type, vars map[string]int) int {
	if e == nil {
		return 1
	}
	if call := e.GetCallExpr(); call != nil && call.Function == "_+_" && len(call.Args) == 2 {
		switch types[e.Id].GetPrimitive() {
		case exprpb.Type_INT64, exprpb.Type_UINT64, exprpb.Type_DOUBLE:
			return 1 // a number
		}
		return min(growth(call.Args[0], types, vars)+growth(call.Args[1], types, vars), maxGrowth+1)
	}
	most := 1
	if name := qualified(e); name != "" {
		most = max(most, vars[name])
	}
	eachOperand(e, func(x *exprpb.Expr) { most = max(most, growth(x, types, vars)) })
	return most
}

// qualified returns the dotted name that an expression is, or "".
func qualified(e *exprpb.Expr) string {
	if id := e.GetIdentExpr(); id != nil {
		return id.Name
	}
	if s := e.GetSelectExpr(); s != nil && !s.TestOnly {
		if of := qualified(s.Operand); of != "" {
			return of + "." + s.Field
		}
	}
	return ""
}

// eachOperand calls each with the direct operands of an expression.
func eachOperand(e *exprpb.Expr, each func(*exprpb.Expr)) {
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			in := func(m protoreflect.Message) {
				if x, ok := m.Interface().(*exprpb.Expr); ok {
					each(x)
				} else {
					walk(m)
				}
			}
			switch {
			case f.Message() == nil || f.IsMap():
			case f.IsList():
				for i := range v.List().Len() {
					in(v.List().Get(i).Message())
				}
			default:
				in(v.Message())
			}
			return true
		})
	}
	walk(e.ProtoReflect())
}

// visit calls each with a message and all messages inside of it.
func visit(m protoreflect.Message, each func(protoreflect.Message)) {
	each(m)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				visit(v.List().Get(i).Message(), each)
			}
		default:
			visit(v.Message(), each)
		}
		return true
	})
}

// guarded returns an environment in which these functions reject excessive calls.
func guarded(env *cel.Env) (*cel.Env, error) {
	var options []cel.EnvOption
	for name, too := range excessive {
		declared := env.Functions()[name]
		if declared == nil {
			return nil, fmt.Errorf("expr: there is no function %s", name)
		}
		bindings, err := declared.Bindings()
		if err != nil {
			return nil, err
		}
		byID := map[string]*functions.Overload{}
		for _, b := range bindings {
			byID[b.Operator] = b
		}
		var overloads []cel.FunctionOpt
		for _, o := range declared.OverloadDecls() {
			if byID[o.ID()] == nil {
				return nil, fmt.Errorf("expr: %s has no implementation of its own", o.ID())
			}
			overloads = append(overloads, guard(name, o, byID[o.ID()], too))
		}
		options = append(options, cel.Function(name, overloads...))
	}
	return env.Extend(options...)
}

// guard declares an overload again, with an implementation that checks its arguments first.
func guard(name string, o *decls.OverloadDecl, as *functions.Overload, too excess) cel.FunctionOpt {
	refused := func(args ...ref.Val) ref.Val {
		if what := too(args); what != "" {
			return types.NewErr("%s was given %s", name, what)
		}
		return nil
	}
	var binding cel.OverloadOpt
	switch {
	case as.Unary != nil && len(o.ArgTypes()) == 1:
		binding = cel.UnaryBinding(func(v ref.Val) ref.Val {
			if err := refused(v); err != nil {
				return err
			}
			return as.Unary(v)
		})
	case as.Binary != nil && len(o.ArgTypes()) == 2:
		binding = cel.BinaryBinding(func(a, b ref.Val) ref.Val {
			if err := refused(a, b); err != nil {
				return err
			}
			return as.Binary(a, b)
		})
	default:
		binding = cel.FunctionBinding(func(args ...ref.Val) ref.Val {
			if err := refused(args...); err != nil {
				return err
			}
			return as.Function(args...)
		})
	}
	if o.IsMemberFunction() {
		return cel.MemberOverload(o.ID(), o.ArgTypes(), o.ResultType(), binding)
	}
	return cel.Overload(o.ID(), o.ArgTypes(), o.ResultType(), binding)
}
