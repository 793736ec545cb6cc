package schemas

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent bounds the magnitude of the decimal numbers that a form may hold.
// It is above that of every float64, and keeps arithmetic on hostile forms cheap.
const maxExponent = 400

// parseDecimal reads a decimal number with an optional fraction and exponent.
func parseDecimal(s string) (*big.Rat, error) {
	mantissa, exponent, found := strings.Cut(strings.ToLower(s), "e")
	if found {
		e, err := strconv.Atoi(exponent)
		if err != nil || e < -maxExponent || e > maxExponent {
			return nil, fmt.Errorf("schemas: the exponent of %q is out of range", s)
		}
	}
	if strings.Trim(mantissa, "+-.0123456789") != "" || len(mantissa) > 2*maxExponent {
		return nil, fmt.Errorf("schemas: %q is not a decimal number", s)
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil, fmt.Errorf("schemas: %q is not a decimal number", s)
	}
	return r, nil
}

// canonicalDecimal returns the one spelling of a decimal number: no redundant
// zeros, and an exponent only where the plain spelling is longer than 24 digits.
func canonicalDecimal(s string) (string, error) {
	r, err := parseDecimal(s)
	if err != nil {
		return "", err
	}
	if n, exact := r.FloatPrec(); exact {
		plain := r.FloatString(n)
		if len(plain) <= 24 {
			return plain, nil
		}
		return scientific(plain), nil
	}
	return "", fmt.Errorf("schemas: %q is not a decimal number", s)
}

// scientific rewrites a plain decimal number as d.ddde±x.
func scientific(plain string) string {
	sign := ""
	if plain[0] == '-' {
		sign, plain = "-", plain[1:]
	}
	whole, fraction, _ := strings.Cut(plain, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent := len(digits) - len(fraction) - 1
	digits = strings.TrimRight(digits, "0")
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return sign + digits + "e" + strconv.Itoa(exponent)
}

// exactInt64 returns x as an integer if it is one that fits in 64 bits.
func exactInt64(x float64) (int64, bool) {
	if x != math.Trunc(x) || x < -(1<<63) || x >= 1<<63 {
		return 0, false
	}
	return int64(x), true
}

// interval is a pair of bounds, made ready for both representations of numbers.
// An integer is in it iff minInt <= x <= maxInt and it is not empty; a float
// iff it is on the right side of min and max.
//
// Data reaches a program as float64, so a bound is rounded as a number in the
// data was: 0.1 in the data is the 0.1 of the policy.
type interval struct {
	emptyInt         bool
	minInt, maxInt   int64
	min, max         float64
	openMin, openMax bool // the bound itself is outside
}

var (
	minInt64 = big.NewInt(math.MinInt64)
	maxInt64 = big.NewInt(math.MaxInt64)
	one      = big.NewInt(1)
)

// newInterval returns the interval between two bounds, either of which may be
// nil.
func newInterval(lower, upper *Bound) (interval, error) {
	iv := interval{
		minInt: math.MinInt64, maxInt: math.MaxInt64,
		min: math.Inf(-1), max: math.Inf(1),
	}
	if lower != nil {
		r, err := parseDecimal(lower.Value)
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
		r, err := parseDecimal(upper.Value)
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

// floor returns the greatest integer that is not above r.
func floor(r *big.Rat) *big.Int {
	// Int.Div rounds towards negative infinity for a positive divisor, and the
	// denominator of a Rat is positive.
	return new(big.Int).Div(r.Num(), r.Denom())
}

func (iv *interval) hasInt(x int64) bool {
	return !iv.emptyInt && iv.minInt <= x && x <= iv.maxInt
}

func (iv *interval) hasFloat(x float64) bool {
	return (x > iv.min || x == iv.min && !iv.openMin) &&
		(x < iv.max || x == iv.max && !iv.openMax)
}
