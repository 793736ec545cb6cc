package quotas_test

import (
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"stele.dev/stele/policy/quotas"
)

// TestAmountsAreQuantities adds, subtracts and compares amounts as Kubernetes does its quantities.
func TestAmountsAreQuantities(t *testing.T) {
	texts := []string{"0", "1", "999", "1500m", "1n", "999999999n", "1u", "0.1", "1e3", "5E", "9223372036854775807", "9223372036854775807.5", "8Ei", "7.5Ei", "1Gi", "1536Mi", "100Ki", "1k", "12345678901234567"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := resource.MustParse(texts[rng.IntN(len(texts))])
		got := quotas.AmountOf(want)
		for range rng.IntN(20) {
			q := resource.MustParse(texts[rng.IntN(len(texts))])
			if rng.IntN(2) == 0 {
				want.Add(q)
				got = got.Add(quotas.AmountOf(q))
			} else {
				want.Sub(q)
				got = got.Sub(quotas.AmountOf(q))
			}
			if got.Cmp(quotas.AmountOf(q)) != want.Cmp(q) || got.Sign() != want.Sign() {
				t.Fatalf("%s compared with %s: %d and %d", want.String(), q.String(), got.Cmp(quotas.AmountOf(q)), want.Cmp(q))
			}
		}
		if is := got.Quantity(want.Format); is.Cmp(want) != 0 || got.Text(want.Format) != want.String() {
			t.Fatalf("%s, want %s", got.Text(want.Format), want.String())
		}
	}
}
