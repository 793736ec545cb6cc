package flow

import (
	"fmt"
	"math"
	"slices"
)

// Claim is what one level asks of [Allocate].
type Claim struct {
	// Target is what the level would like to have, at least Lower.
	Target float64
	// Lower and Upper bound what it gets.
	Lower, Upper float64
}

// minTarget replaces smaller targets, so that a part of each is more than nothing.
const minTarget = 0.001

// seatSlack is how far sums may be apart because of rounding.
const seatSlack = 1e-7

// share returns what the claim gets if the fair fraction is f.
func (c Claim) share(f float64) float64 {
	return max(c.Lower, min(c.Upper, f*max(c.Target, minTarget)))
}

// Allocate divides a sum among claims: each gets the same fraction of its target, except where its bounds say otherwise. It
// returns what each gets, and the fraction. There is an error if the bounds do not admit the sum.
func Allocate(sum int, claims []Claim) ([]float64, float64, error) {
	want, lower, upper := float64(sum), 0.0, 0.0
	for i, c := range claims {
		if c.Lower < 0 || c.Upper < c.Lower || c.Target < c.Lower {
			return nil, 0, fmt.Errorf("claim %d: 0 <= lower bound %v <= target %v, and upper bound %v not below it, must hold", i, c.Lower, c.Target, c.Upper)
		}
		lower, upper = lower+c.Lower, upper+c.Upper
	}
	if lower > want+seatSlack || upper < want-seatSlack {
		return nil, 0, fmt.Errorf("the bounds admit sums from %v to %v, not %d", lower, upper, sum)
	}
	fair := fraction(min(max(want, lower), upper), claims)
	got := make([]float64, len(claims))
	for i, c := range claims {
		got[i] = c.share(fair)
	}
	return got, fair, nil
}

// fraction returns the smallest fraction at which the claims get a sum, which their bounds admit. What they get in total is a
// line between two neighbours of the fractions at which a bound begins or ceases to hold.
func fraction(sum float64, claims []Claim) float64 {
	if len(claims) == 0 {
		return 0
	}
	corners := make([]float64, 0, 2*len(claims))
	for _, c := range claims {
		corners = append(corners, c.Lower/max(c.Target, minTarget), c.Upper/max(c.Target, minTarget))
	}
	slices.Sort(corners)
	total := func(f float64) (t float64) {
		for _, c := range claims {
			t += c.share(f)
		}
		return t
	}
	i, _ := slices.BinarySearchFunc(corners, sum, func(f, sum float64) int {
		if total(f) < sum-seatSlack*seatSlack {
			return -1
		}
		return 1
	})
	if i == 0 || i == len(corners) {
		return corners[min(i, len(corners)-1)]
	}
	from, to := corners[i-1], corners[i]
	low, high := total(from), total(to)
	if high-low < math.SmallestNonzeroFloat32 {
		return to
	}
	return from + (to-from)*(sum-low)/(high-low)
}
