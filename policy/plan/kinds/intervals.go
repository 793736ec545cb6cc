package kinds

import (
	"math/big"
	"slices"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// Intervals are a set of numbers: disjoint intervals in order, for integers and for numbers with a fraction apart.
type intervals struct{ integers, fractions []interval }

// An interval has its ends; nil is no end.
type interval struct {
	lo, hi         *big.Rat
	loOpen, hiOpen bool
}

// newIntervals returns the numbers of a set. ok is false if it has multiples, which are no intervals.
func newIntervals(s *set) (all intervals, ok bool) {
	for _, v := range s.members {
		r, err := jsonvalue.ParseDecimal(string(v))
		if err != nil {
			return all, false
		}
		point := interval{lo: r, hi: r}
		if r.IsInt() {
			all.integers = append(all.integers, point)
		} else {
			all.fractions = append(all.fractions, point)
		}
	}
	for i := range s.rules {
		rule := &s.rules[i]
		if rule.MultipleOf != nil {
			return all, false
		}
		var whole interval
		if b := rule.Minimum; b != nil {
			r, err := jsonvalue.ParseDecimal(b.Value)
			if err != nil {
				return all, false
			}
			whole.lo, whole.loOpen = r, b.Exclusive
		}
		if b := rule.Maximum; b != nil {
			r, err := jsonvalue.ParseDecimal(b.Value)
			if err != nil {
				return all, false
			}
			whole.hi, whole.hiOpen = r, b.Exclusive
		}
		parts := []interval{whole}
		for _, not := range rule.Not {
			r, err := jsonvalue.ParseDecimal(string(not.Value))
			if err != nil {
				continue // no number
			}
			parts = split(parts, r)
		}
		for _, p := range parts {
			if closed := p.integers(); !closed.empty() {
				all.integers = append(all.integers, closed)
			}
			if rule.Kinds.Has(schemas.NumberKind) && !p.empty() {
				all.fractions = append(all.fractions, p)
			}
		}
	}
	all.integers = merged(all.integers, true)
	all.fractions = merged(all.fractions, false)
	return all, true
}

// split removes a number.
func split(parts []interval, r *big.Rat) (rest []interval) {
	for _, p := range parts {
		if !p.has(r) {
			rest = append(rest, p)
			continue
		}
		rest = append(rest, interval{p.lo, r, p.loOpen, true}, interval{r, p.hi, true, p.hiOpen})
	}
	return rest
}

func (p interval) has(r *big.Rat) bool {
	above := p.lo == nil || r.Cmp(p.lo) > 0 || !p.loOpen && r.Cmp(p.lo) == 0
	below := p.hi == nil || r.Cmp(p.hi) < 0 || !p.hiOpen && r.Cmp(p.hi) == 0
	return above && below
}

func (p interval) empty() bool {
	if p.lo == nil || p.hi == nil {
		return false
	}
	order := p.lo.Cmp(p.hi)
	return order > 0 || order == 0 && (p.loOpen || p.hiOpen)
}

// integers returns the closed interval of the integers in an interval.
func (p interval) integers() interval {
	one := big.NewInt(1)
	if p.lo != nil {
		n := new(big.Int).Div(p.lo.Num(), p.lo.Denom())
		if !p.lo.IsInt() || p.loOpen {
			n.Add(n, one)
		}
		p.lo, p.loOpen = new(big.Rat).SetInt(n), false
	}
	if p.hi != nil {
		n := new(big.Int).Div(p.hi.Num(), p.hi.Denom())
		if p.hi.IsInt() && p.hiOpen {
			n.Sub(n, one)
		}
		p.hi, p.hiOpen = new(big.Rat).SetInt(n), false
	}
	return p
}

// merged sorts intervals, and joins those that overlap or touch.
func merged(all []interval, integer bool) (joined []interval) {
	slices.SortFunc(all, func(a, b interval) int {
		switch {
		case a.lo == nil && b.lo == nil:
			return 0
		case a.lo == nil:
			return -1
		case b.lo == nil:
			return 1
		}
		if order := a.lo.Cmp(b.lo); order != 0 {
			return order
		}
		switch {
		case a.loOpen == b.loOpen:
			return 0
		case a.loOpen:
			return 1
		}
		return -1
	})
	for _, p := range all {
		if n := len(joined); n > 0 && joined[n-1].touches(p, integer) {
			last := &joined[n-1]
			if last.hi != nil {
				if p.hi == nil {
					last.hi = nil
				} else if order := p.hi.Cmp(last.hi); order > 0 || order == 0 && !p.hiOpen {
					last.hi, last.hiOpen = p.hi, p.hiOpen
				}
			}
			continue
		}
		joined = append(joined, p)
	}
	return joined
}

// touches reports whether nothing is between p and a later interval.
func (p interval) touches(later interval, integer bool) bool {
	if p.hi == nil || later.lo == nil {
		return true
	}
	order := later.lo.Cmp(p.hi)
	if integer {
		return new(big.Rat).Sub(later.lo, p.hi).Cmp(big.NewRat(1, 1)) <= 0
	}
	return order < 0 || order == 0 && !(p.hiOpen && later.loOpen)
}

// isSubset reports whether all numbers of x are in y.
func (x *intervals) isSubset(y *intervals) bool {
	return covered(x.integers, y.integers) && covered(x.fractions, y.fractions)
}

func covered(x, y []interval) bool {
	return !slices.ContainsFunc(x, func(p interval) bool {
		return !slices.ContainsFunc(y, func(q interval) bool { return q.contains(p) })
	})
}

func (q interval) contains(p interval) bool {
	below := q.lo == nil || p.lo != nil && (p.lo.Cmp(q.lo) > 0 || p.lo.Cmp(q.lo) == 0 && (!q.loOpen || p.loOpen))
	above := q.hi == nil || p.hi != nil && (p.hi.Cmp(q.hi) < 0 || p.hi.Cmp(q.hi) == 0 && (!q.hiOpen || p.hiOpen))
	return below && above
}
