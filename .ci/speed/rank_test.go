package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRankTest(t *testing.T) {
	for _, c := range []struct {
		what string
		a, b []float64
		want float64
	}{
		{"five that are all less than five: 2 of the 252 choices", []float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 2.0 / 252},
		{"the other way round", []float64{6, 7, 8, 9, 10}, []float64{1, 2, 3, 4, 5}, 2.0 / 252},
		{"one pair is the other way round: 4 choices", []float64{1, 2, 3, 4, 6}, []float64{5, 7, 8, 9, 10}, 4.0 / 252},
		{"three and three", []float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20},
		{"all alike", []float64{7, 7, 7, 7, 7}, []float64{7, 7, 7, 7, 7}, 1},
		{"a tie in the middle", []float64{1, 2, 3}, []float64{3, 4, 5}, 4.0 / 20},
		{"nothing", nil, []float64{1}, 1},
	} {
		if got := rankTest(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}

// Of samples of one distribution, as many are said to differ as the p-value promises, or fewer.
func TestNoiseIsRarelySignificant(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sample := func(shift float64) (values []float64) {
		for range 8 {
			values = append(values, math.Round(100*(rng.NormFloat64()+shift)))
		}
		return values
	}
	const tries = 2000
	wrong, found := 0, 0
	for range tries {
		if rankTest(sample(0), sample(0)) < significant {
			wrong++
		}
		if rankTest(sample(0), sample(3)) < significant {
			found++
		}
	}
	if wrong > 2*significant*tries || found < tries*9/10 {
		t.Errorf("of %d: %d false differences, %d true ones", tries, wrong, found)
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{5, 1, 3}); m != 3 {
		t.Error(m)
	}
	if m := median([]float64{4, 1, 3, 2}); m != 2.5 {
		t.Error(m)
	}
}
