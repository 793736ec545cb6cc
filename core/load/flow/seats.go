// This file divides the seats of a server among its priority levels: by their shares, and by how many they need. The
// rules are those of API priority and fairness in Kubernetes (KEP-1040).

package flow

import "math"

// SeatShares is what the policy says of the seats of a priority level.
type SeatShares struct {
	// Shares are its part of the sum of the shares of all levels.
	Shares int
	// LendablePercent is how many of its nominal seats others may borrow, in percent.
	LendablePercent int
	// BorrowingLimitPercent bounds the seats that it may borrow, in percent of its nominal seats; nil for no limit.
	BorrowingLimitPercent *int
}

// SeatLimits bound the seats of a priority level.
type SeatLimits struct {
	// Nominal is the number of seats by its shares.
	Nominal int
	// Lower is what it keeps when it lends as many seats as it may, and Upper what it has when it borrows as many as it may.
	Lower, Upper int
}

// Divide returns the limits of levels that share a number of seats. Nominal seats are rounded up. Levels without shares have
// no seats.
func Divide(total int, levels []SeatShares) []SeatLimits {
	sum := 0
	for _, l := range levels {
		sum += l.Shares
	}
	limits := make([]SeatLimits, len(levels))
	for i, l := range levels {
		nominal := 0
		if sum > 0 {
			nominal = int(math.Ceil(float64(total) * float64(l.Shares) / float64(sum)))
		}
		borrow := total
		if l.BorrowingLimitPercent != nil {
			borrow = percent(nominal, *l.BorrowingLimitPercent)
		}
		limits[i] = SeatLimits{Nominal: nominal, Lower: nominal - percent(nominal, l.LendablePercent), Upper: nominal + borrow}
	}
	return limits
}

func percent(n, percent int) int { return int(math.Round(float64(n) * float64(percent) / 100)) }

// SeatDemand is how many seats the requests of a level wanted: those taken, and those waited for.
type SeatDemand struct {
	// High is the maximum of the last period.
	High int
	// Average and Deviation are of the last period, weighted by time.
	Average, Deviation float64
	// Smoothed is the sum of average and deviation. It rises at once, and falls by half in five minutes.
	Smoothed float64
}

// smoothing is the coefficient with which smoothed demand falls in a period of 10 s.
const smoothing = 0.977

// Unknown returns the demand of a level that has not been observed: its nominal seats.
func (l SeatLimits) Unknown() SeatDemand { return SeatDemand{High: l.Nominal} }

// Observe adds the observations of a period.
func (d *SeatDemand) Observe(high, average, deviation float64) {
	d.High, d.Average, d.Deviation = int(math.Round(high)), average, deviation
	envelope := average + deviation
	d.Smoothed = max(envelope, smoothing*d.Smoothed+(1-smoothing)*envelope)
}

// SeatLevel is a priority level that lends and borrows seats.
type SeatLevel struct {
	SeatLimits
	// Exempt is set if the level takes as many seats as it wants. What it takes is missing to the others.
	Exempt bool
	Demand SeatDemand
	// Current is the number of seats that the level has.
	Current int
	// Target is the number of seats that it would have if there were enough.
	Target float64
}

// floor returns the seats that a level should keep: what it wanted at most, within its nominal seats.
func (l *SeatLevel) floor() int {
	if l.Exempt {
		return max(l.Lower, l.Demand.High)
	}
	return max(l.Lower, min(l.Nominal, l.Demand.High))
}

// Adjust sets Current and Target of the levels by their demand. It returns the fair fraction: the part of their targets that
// levels get unless their limits say otherwise. It is 0 if there is not enough for what they should keep. A level that has
// shares keeps one seat at least, so that its requests run until its demand is known. If the error is not nil, the seats of the
// levels that are not exempt are as before.
func Adjust(levels []*SeatLevel) (fair float64, err error) {
	remaining, lower, floors, upper := 0, 0, 0, 0
	var limited []*SeatLevel
	var claims []Claim
	for _, l := range levels {
		remaining += l.Nominal
		floor := l.floor()
		if l.Target = max(float64(floor), l.Demand.Smoothed); l.Exempt {
			l.Current = floor
			remaining -= floor
			continue
		}
		limited = append(limited, l)
		claims = append(claims, Claim{Target: l.Target, Lower: float64(floor), Upper: float64(l.Upper)})
		lower, floors, upper = lower+l.Lower, floors+floor, upper+l.Upper
	}
	if remaining <= floors { // exempt requests have taken what the others should keep
		part := 0.0
		if remaining > lower {
			part = float64(remaining-lower) / float64(floors-lower)
		}
		for _, l := range limited {
			l.give(float64(l.Lower) + float64(l.floor()-l.Lower)*part)
		}
		return 0, nil
	}
	allocated, fair, err := Allocate(min(remaining, upper), claims)
	if err != nil {
		return 0, err
	}
	for i, l := range limited {
		l.give(allocated[i])
	}
	return fair, nil
}

// give sets Current.
func (l *SeatLevel) give(n float64) { l.Current = max(int(math.Round(n)), min(1, l.Nominal)) }

// PerRequest returns the maximum number of seats that one request of the level takes: three quarters of those that the level
// has now. So a request that takes all it may leaves seats for small requests, which need not wait until it ends.
//
// kube-apiserver's maximum is 15 % of the nominal seats. A list of many objects then takes so few seats of those that a level
// has borrowed that dozens run at once, and whatever runs beside them waits for the processors.
func (l *SeatLevel) PerRequest() int { return max(1, l.Current-(l.Current+3)/4) }
