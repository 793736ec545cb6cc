package jsonvalue

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent is the maximum magnitude of the exponent of a decimal number in a form. It covers every
// float64, and keeps arithmetic on hostile forms cheap.
const maxExponent = 400

// ParseDecimal parses a decimal number with an optional fraction and exponent.
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

// CanonicalDecimal returns the canonical form of a decimal number: no redundant zeros, and an exponent
// only if the number would have more than 24 digits.
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

// scientific returns a plain decimal number in the form d.ddde±x.
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

// Int64 returns x as an integer. ok is false if x has a fraction or does not fit in 64 bits.
func Int64(x float64) (int64, bool) {
	if x != math.Trunc(x) || x < -(1<<63) || x >= 1<<63 {
		return 0, false
	}
	return int64(x), true
}
