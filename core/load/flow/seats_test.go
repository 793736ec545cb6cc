package flow_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"stele.dev/stele/core/load/flow"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// Random claims are allocated so that the sum is met, and each gets the fair part of its target or the bound that prevents
// this.
func TestAllocationIsFairWithinBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	solved, refused := 0, 0
	for range 20000 {
		n := r.IntN(10)
		claims := make([]flow.Claim, n)
		var lower, upper float64
		for i := range claims {
			x := max(0, r.Float64()*5-1)
			claims[i] = flow.Claim{Target: x + 2*r.Float64(), Lower: x, Upper: x + 3*r.Float64()}
			if r.IntN(4) == 0 {
				claims[i] = flow.Claim{Upper: r.Float64() + 0.001}
			}
			if r.IntN(6) == 0 {
				claims[i].Upper = claims[i].Lower
			}
			lower, upper = lower+claims[i].Lower, upper+claims[i].Upper
		}
		sum := int(math.Round(lower + (upper-lower)*r.Float64()))
		if r.IntN(10) == 0 {
			sum = r.IntN(3*n + 2)
		}
		got, fair, err := flow.Allocate(sum, claims)
		if float64(sum) < lower-1e-7 || float64(sum) > upper+1e-7 {
			if refused++; err == nil {
				t.Fatalf("Allocate(%d, %v) = %v, want an error", sum, claims, got)
			}
			continue
		}
		if solved++; err != nil {
			t.Fatalf("Allocate(%d, %v): %v", sum, claims, err)
		}
		total := 0.0
		for i, c := range claims {
			total += got[i]
			part := fair * max(c.Target, 0.001)
			switch {
			case near(got[i], part), got[i] == c.Lower && part < c.Lower, got[i] == c.Upper && part > c.Upper:
			default:
				t.Fatalf("Allocate(%d, %v) = %v, %v: %d is neither fair nor bounded", sum, claims, got, fair, i)
			}
		}
		if !near(total, float64(sum)) && n > 0 {
			t.Fatalf("Allocate(%d, %v) = %v, of sum %v", sum, claims, got, total)
		}
	}
	if solved < 10000 || refused < 500 {
		t.Errorf("solved %d, refused %d: the problems are too much alike", solved, refused)
	}
}

func TestClaimsThatContradictThemselvesAreRefused(t *testing.T) {
	for name, c := range map[string]flow.Claim{
		"negative":            {Target: 1, Lower: -1, Upper: 2},
		"target below lower":  {Target: 1, Lower: 2, Upper: 3},
		"upper below lower":   {Target: 5, Lower: 4, Upper: 3},
		"sum cannot be meant": {Target: 5, Lower: 4, Upper: 4},
	} {
		if got, _, err := flow.Allocate(3, []flow.Claim{c}); err == nil {
			t.Errorf("%s: Allocate = %v, want an error", name, got)
		}
	}
}

func TestSharesAreDividedWithLimits(t *testing.T) {
	thirty, none := 30, 0
	got := flow.Divide(100, []flow.SeatShares{
		{Shares: 1}, {Shares: 2, LendablePercent: 50}, {Shares: 0}, {Shares: 4, LendablePercent: 100, BorrowingLimitPercent: &thirty}, {Shares: 2, BorrowingLimitPercent: &none},
	})
	want := []flow.SeatLimits{
		{Nominal: 12, Lower: 12, Upper: 112}, {Nominal: 23, Lower: 11, Upper: 123}, {Nominal: 0, Lower: 0, Upper: 100}, {Nominal: 45, Lower: 0, Upper: 59}, {Nominal: 23, Lower: 23, Upper: 23},
	}
	if !slices.Equal(got, want) {
		t.Errorf("Divide = %v, want %v", got, want)
	}
	if got := flow.Divide(100, []flow.SeatShares{{}, {}}); got[0].Nominal != 0 {
		t.Errorf("Divide of no shares = %v", got)
	}
}

func TestARequestLeavesSeatsToOthers(t *testing.T) {
	for _, x := range []struct{ current, want int }{{0, 1}, {1, 1}, {2, 1}, {5, 3}, {17, 12}, {20, 15}, {100, 75}} {
		if got := (&flow.SeatLevel{Current: x.current}).PerRequest(); got != x.want {
			t.Errorf("PerRequest of %d seats = %d, want %d", x.current, got, x.want)
		}
	}
}

func TestSmoothedDemandRisesAtOnceAndHalvesInFiveMinutes(t *testing.T) {
	var d flow.SeatDemand
	d.Observe(10, 6, 2)
	if d.High != 10 || d.Smoothed != 8 {
		t.Errorf("demand = %+v, want the envelope 8", d)
	}
	for range 30 { // periods of 10 s
		d.Observe(0, 0, 0)
	}
	if d.High != 0 || d.Smoothed < 3.8 || d.Smoothed > 4.2 {
		t.Errorf("demand after five minutes = %+v, want about 4", d)
	}
}

// The levels of Kubernetes without system and leader-election, and 6 seats for each share.
func fourLevels() (exempt, high, low, rest *flow.SeatLevel, all []*flow.SeatLevel) {
	limits := flow.Divide(870, []flow.SeatShares{{}, {Shares: 40, LendablePercent: 50}, {Shares: 100, LendablePercent: 90}, {Shares: 5}})
	exempt, high, low, rest = &flow.SeatLevel{SeatLimits: limits[0], Exempt: true}, &flow.SeatLevel{SeatLimits: limits[1]}, &flow.SeatLevel{SeatLimits: limits[2]}, &flow.SeatLevel{SeatLimits: limits[3]}
	return exempt, high, low, rest, []*flow.SeatLevel{high, exempt, low, rest}
}

func observe(n float64, levels ...*flow.SeatLevel) {
	for _, l := range levels {
		l.Demand.Observe(n, n, 0)
	}
}

func adjust(t *testing.T, levels []*flow.SeatLevel) float64 {
	t.Helper()
	fair, err := flow.Adjust(levels)
	if err != nil {
		t.Fatal(err)
	}
	return fair
}

func TestExemptRequestsLeaveTheOthersTheirLowerLimits(t *testing.T) {
	exempt, high, low, rest, all := fourLevels()
	observe(970, all...)
	if fair := adjust(t, all); fair != 0 {
		t.Errorf("fair fraction = %v, want 0", fair)
	}
	if exempt.Current != 970 || high.Current != high.Lower || low.Current != low.Lower || rest.Current != rest.Lower {
		t.Errorf("seats = %d, %d, %d, %d", exempt.Current, high.Current, low.Current, rest.Current)
	}
}

func TestExemptRequestsTakeInProportionFromAll(t *testing.T) {
	exempt, high, low, rest, all := fourLevels()
	half := func(l *flow.SeatLevel) int { return (l.Nominal + l.Lower) / 2 }
	observe(970, high, low, rest)
	observe(float64(870-half(high)-half(low)-half(rest)), exempt)
	adjust(t, all)
	if high.Current != half(high) || low.Current != half(low) || rest.Current != half(rest) {
		t.Errorf("seats = %d, %d, %d, %d; want the middle between lower and nominal", exempt.Current, high.Current, low.Current, rest.Current)
	}
}

func TestExemptRequestsTakeWhatALevelDoesNotUse(t *testing.T) {
	exempt, high, low, rest, all := fourLevels()
	observe(970, high, rest)
	observe(1, low)
	observe(float64(low.Nominal-low.Lower), exempt)
	adjust(t, all)
	if exempt.Current != low.Nominal-low.Lower || high.Current != high.Nominal || low.Current != low.Lower || rest.Current != rest.Nominal {
		t.Errorf("seats = %d, %d, %d, %d", exempt.Current, high.Current, low.Current, rest.Current)
	}
}

// Before the demand is known, levels have their nominal seats.
func TestALevelBeginsWithItsNominalSeats(t *testing.T) {
	exempt, high, low, rest, all := fourLevels()
	for _, l := range all {
		l.Demand = l.Unknown()
	}
	adjust(t, all)
	if exempt.Current != 0 || high.Current != high.Nominal || low.Current != low.Nominal || rest.Current != rest.Nominal {
		t.Errorf("seats = %d, %d, %d, %d", exempt.Current, high.Current, low.Current, rest.Current)
	}
}

// With few exempt requests, no more seats are given out than exempt requests leave.
func TestSeatsThatAreGivenOutAreWhatExemptRequestsLeave(t *testing.T) {
	exempt, high, low, rest, all := fourLevels()
	observe(30, high, low, rest)
	observe(100, exempt)
	fair := adjust(t, all)
	if got := high.Current + low.Current + rest.Current; got < 769 || got > 771 {
		t.Errorf("seats = %d, %d, %d of fair fraction %v, want about 770 in sum", high.Current, low.Current, rest.Current, fair)
	}
	if !near(fair, 770.0/(120+60+30)) { // two levels may not lend so much that their targets are 30
		t.Errorf("fair fraction = %v, want 770/210", fair)
	}
}

func TestABorrowerStopsAtItsLimitAndALenderAtIts(t *testing.T) {
	percent := func(n int) *int { return &n }
	for name, shares := range map[string][]flow.SeatShares{
		"lendable":  {{Shares: 1, LendablePercent: 50, BorrowingLimitPercent: percent(67)}, {Shares: 1, LendablePercent: 33, BorrowingLimitPercent: percent(50)}},
		"borrowing": {{Shares: 1, LendablePercent: 50, BorrowingLimitPercent: percent(33)}, {Shares: 1, LendablePercent: 67, BorrowingLimitPercent: percent(50)}},
	} {
		limits := flow.Divide(24, shares)
		busy, idle := &flow.SeatLevel{SeatLimits: limits[0]}, &flow.SeatLevel{SeatLimits: limits[1]}
		observe(24, busy)
		observe(6, idle)
		adjust(t, []*flow.SeatLevel{busy, idle})
		if busy.Current != 16 || idle.Current != 8 {
			t.Errorf("%s: seats = %d, %d, want 16, 8", name, busy.Current, idle.Current)
		}
	}
}

func TestALevelThatLendsAllKeepsOneSeat(t *testing.T) {
	limits := flow.Divide(20, []flow.SeatShares{{Shares: 1}, {Shares: 1, LendablePercent: 100}, {}})
	busy, idle, none := &flow.SeatLevel{SeatLimits: limits[0]}, &flow.SeatLevel{SeatLimits: limits[1]}, &flow.SeatLevel{SeatLimits: limits[2]}
	observe(50, busy)
	if adjust(t, []*flow.SeatLevel{busy, idle, none}); busy.Current != 20 || idle.Current != 1 || none.Current != 0 {
		t.Errorf("seats = %d, %d, %d, want 20, 1, 0", busy.Current, idle.Current, none.Current)
	}
}

// Nominal seats that an exempt level lends are not forced upon levels that may not borrow them.
func TestSeatsThatNobodyMayBorrowStayFree(t *testing.T) {
	zero := 0
	limits := flow.Divide(10, []flow.SeatShares{{Shares: 1, LendablePercent: 100}, {Shares: 1, BorrowingLimitPercent: &zero}})
	exempt, only := &flow.SeatLevel{SeatLimits: limits[0], Exempt: true}, &flow.SeatLevel{SeatLimits: limits[1]}
	observe(20, only)
	if adjust(t, []*flow.SeatLevel{exempt, only}); only.Current != 5 || exempt.Current != 0 {
		t.Errorf("seats = %d, %d, want 5, 0", only.Current, exempt.Current)
	}
}

func TestLimitsThatContradictThemselvesChangeNothing(t *testing.T) {
	one, other := &flow.SeatLevel{SeatLimits: flow.SeatLimits{Nominal: 5, Lower: -5, Upper: 10}, Current: 3}, &flow.SeatLevel{SeatLimits: flow.SeatLimits{Nominal: 5, Upper: 10}, Current: 7}
	one.Demand.Observe(-2, 0, 0)
	if _, err := flow.Adjust([]*flow.SeatLevel{one, other}); err == nil || one.Current != 3 || other.Current != 7 {
		t.Errorf("Adjust: %v, seats %d and %d; want an error, 3 and 7", err, one.Current, other.Current)
	}
}
