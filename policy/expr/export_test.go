package expr

// Counted returns the program as one whose cost is counted.
func (p *Program) Counted() *Program {
	next := *p
	next.uncounted = nil
	return &next
}

// HowCounted returns how the cost of a program is known.
func (p *Program) HowCounted() string {
	switch {
	case p.uncounted == nil:
		return "counted"
	case p.uncounted.value != nil:
		return "constant"
	}
	return "estimated"
}
