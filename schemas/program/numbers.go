// This file checks numbers against exact intervals and multiples.

package program

import (
	"errors"
	"math"
	"math/big"
	"strconv"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
)

// An Interval has bounds for int64 and float64 values.
//
// Numbers with a fraction arrive as float64, so a bound is rounded in the same way: 0.1 in the data
// equals 0.1 in the policy.
type Interval struct {
	emptyInt         bool
	minInt, maxInt   int64
	min, max         float64
	openMin, openMax bool // the bound itself is excluded
}

var (
	minInt64 = big.NewInt(math.MinInt64)
	maxInt64 = big.NewInt(math.MaxInt64)
	one      = big.NewInt(1)
)

// NewInterval returns the interval between two bounds. A nil bound means no limit.
func NewInterval(lower, upper *schemas.Bound) (Interval, error) {
	iv := Interval{
		minInt: math.MinInt64, maxInt: math.MaxInt64,
		min: math.Inf(-1), max: math.Inf(1),
	}
	if lower != nil {
		r, err := jsonvalue.ParseDecimal(lower.Value)
		if err != nil {
			return iv, err
		}
		iv.min, _ = r.Float64()
		iv.openMin = lower.Exclusive && !math.IsInf(iv.min, 0)
		n := floor(r)
		if !r.IsInt() || lower.Exclusive {
			n.Add(n, one)
		}
		switch {
		case n.Cmp(maxInt64) > 0:
			iv.emptyInt = true
		case n.Cmp(minInt64) > 0:
			iv.minInt = n.Int64()
		}
	}
	if upper != nil {
		r, err := jsonvalue.ParseDecimal(upper.Value)
		if err != nil {
			return iv, err
		}
		iv.max, _ = r.Float64()
		iv.openMax = upper.Exclusive && !math.IsInf(iv.max, 0)
		n := floor(r)
		if r.IsInt() && upper.Exclusive {
			n.Sub(n, one)
		}
		switch {
		case n.Cmp(minInt64) < 0:
			iv.emptyInt = true
		case n.Cmp(maxInt64) < 0:
			iv.maxInt = n.Int64()
		}
	}
	return iv, nil
}

// floor returns the greatest integer that is at most r.
func floor(r *big.Rat) *big.Int {
	// Int.Div rounds down for a positive divisor, and the denominator of a Rat is positive.
	return new(big.Int).Div(r.Num(), r.Denom())
}

// HasInt reports whether an integer lies within the bounds.
func (iv *Interval) HasInt(x int64) bool {
	return !iv.emptyInt && iv.minInt <= x && x <= iv.maxInt
}

// HasFloat reports whether a float lies within the bounds.
func (iv *Interval) HasFloat(x float64) bool {
	return (x > iv.min || x == iv.min && !iv.openMin) &&
		(x < iv.max || x == iv.max && !iv.openMax)
}

// A Multiple checks whether numbers are multiples of a given number. It computes with decimals: 0.3 is a
// multiple of 0.1.
type Multiple struct {
	of  *big.Rat
	int int64 // the number, if it is an integer that fits in an int64; otherwise 0
}

// NewMultiple returns the check for multiples of a bound. The bound must be above 0.
func NewMultiple(b *schemas.Bound) (*Multiple, error) {
	r, err := jsonvalue.ParseDecimal(b.Value)
	if err != nil {
		return nil, err
	}
	if r.Sign() <= 0 {
		return nil, errors.New("schemas: a multiple of what is not above 0")
	}
	m := &Multiple{of: r}
	if r.IsInt() && r.Num().IsInt64() {
		m.int = r.Num().Int64()
	}
	return m, nil
}

// Has reports whether x is a number and a multiple.
func (m *Multiple) Has(x any) bool {
	switch x := x.(type) {
	case int64:
		return m.HasInt(x)
	case float64:
		return m.HasFloat(x)
	}
	return false
}

// HasInt reports whether an integer is a multiple.
func (m *Multiple) HasInt(x int64) bool {
	if m.int != 0 {
		return x%m.int == 0
	}
	r := new(big.Rat).SetInt64(x)
	return r.Quo(r, m.of).IsInt()
}

// HasFloat reports whether a float is a multiple.
func (m *Multiple) HasFloat(x float64) bool {
	r, err := jsonvalue.ParseDecimal(strconv.FormatFloat(x, 'g', -1, 64))
	return err == nil && r.Quo(r, m.of).IsInt()
}
