package expr

import (
	"github.com/google/cel-go/cel"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// LoadCounted is [LoadPatch] for a program whose cost is counted.
func LoadCounted(ast []byte, text string) (*Program, error) {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return nil, err
	}
	loaded, err := cel.CheckedExprToAstWithSource(&checked, nil)
	if err != nil {
		return nil, err
	}
	program, err := patching().Program(loaded, cel.InterruptCheckFrequency(interruptEvery))
	return &Program{program: program, text: text, loops: true}, err
}

// HowCounted returns how the cost of a program is known.
func (p *Program) HowCounted() string {
	switch {
	case p.value != nil:
		return "constant"
	case p.charge > 0:
		return "estimated"
	}
	return "counted"
}
