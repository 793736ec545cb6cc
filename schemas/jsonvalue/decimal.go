package jsonvalue

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

// ParseDecimal reads a decimal number with an optional fraction and exponent.
func ParseDecimal(s string) (*big.Rat, error) {
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

// CanonicalDecimal returns the one spelling of a decimal number: no redundant
// zeros, and an exponent only where the plain spelling is longer than 24 digits.
func CanonicalDecimal(s string) (string, error) {
	r, err := ParseDecimal(s)
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

// Int64 returns x as an integer if it is one that fits in 64 bits.
func Int64(x float64) (int64, bool) {
	if x != math.Trunc(x) || x < -(1<<63) || x >= 1<<63 {
		return 0, false
	}
	return int64(x), true
}
