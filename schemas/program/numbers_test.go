package program_test

import (
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

func TestInterval(t *testing.T) {
	bound := func(v string, exclusive bool) *schemas.Bound { return &schemas.Bound{Value: v, Exclusive: exclusive} }
	for _, test := range []struct {
		name         string
		lower, upper *schemas.Bound
		in, out      []float64
	}{
		{"open ended", nil, nil, []float64{-1e300, 0, 1e300}, nil},
		{"inclusive", bound("1", false), bound("5", false), []float64{1, 5}, []float64{0, 6, 0.9, 5.1}},
		{"exclusive", bound("1", true), bound("5", true), []float64{2, 4, 1.1}, []float64{1, 5}},
		{"fractions", bound("0.5", false), bound("2.5", false), []float64{1, 2, 0.5, 2.5}, []float64{0, 3}},
		{"exclusive fractions", bound("-0.5", true), bound("0.5", true), []float64{0}, []float64{-1, 1, 0.5, -0.5}},
		{"a tenth", bound("0.1", false), bound("0.3", true), []float64{0.1, 0.29}, []float64{0.09, 0.3}},
		{"beyond 64 bits", bound("9223372036854775807", true), nil, []float64{1e19}, []float64{0, 1 << 62}},
		{"beyond all floats", nil, bound("1e400", false), []float64{0, 1e308}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			iv, err := program.NewInterval(test.lower, test.upper)
			if err != nil {
				t.Fatal(err)
			}
			check := func(x float64, want bool) {
				if got := iv.HasFloat(x); got != want {
					t.Errorf("float %v: %t", x, got)
				}
				if n, ok := jsonvalue.Int64(x); ok && iv.HasInt(n) != want {
					t.Errorf("int %d: %t", n, !want)
				}
			}
			for _, x := range test.in {
				check(x, true)
			}
			for _, x := range test.out {
				check(x, false)
			}
		})
	}
}
