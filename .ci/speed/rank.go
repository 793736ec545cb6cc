package main

import (
	"math"
	"slices"
)

// significant is the p-value below which a difference is called larger than the noise. Each run compares some forty numbers, so
// with 0.05 two of them would differ by chance.
const significant = 0.01

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// rankTest returns the two-sided p-value of the Mann-Whitney U test: how likely ranks of a and b that differ as much, or more,
// are if both are of one distribution. It is exact, also with ties: it counts the ways to choose as many ranks as a has by
// their sum. See H. B. Mann, D. R. Whitney: On a test of whether one of two random variables is stochastically larger than the
// other (1947). benchstat uses the same test.
func rankTest(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	all := slices.Concat(a, b)
	sorted := slices.Sorted(slices.Values(all))
	ranks := make([]int, len(all)) // doubled, so that the mean rank of ties is whole
	for i, v := range all {
		first, _ := slices.BinarySearch(sorted, v)
		last := first
		for last < len(sorted) && sorted[last] == v {
			last++
		}
		ranks[i] = first + last + 1
	}
	observed, most := 0, 0
	for i, r := range ranks {
		most += r
		if i < len(a) {
			observed += r
		}
	}
	// ways[k][s] is how many choices of k ranks have the sum s.
	ways := make([][]float64, len(a)+1)
	for k := range ways {
		ways[k] = make([]float64, most+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := len(a); k > 0; k-- {
			for s := most; s >= r; s-- {
				ways[k][s] += ways[k-1][s-r]
			}
		}
	}
	expected := float64(len(a)) * float64(len(all)+1) // of doubled ranks
	distance := math.Abs(float64(observed) - expected)
	var as, total float64
	for s, n := range ways[len(a)] {
		total += n
		if math.Abs(float64(s)-expected) >= distance {
			as += n
		}
	}
	return as / total
}
