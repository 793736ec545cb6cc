package status_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/status"
)

// Clients that are refused at the same time come back at different times: at the earliest after what the refusal says, and at the
// latest half as much later, or a second.
func TestRetriesAreSpread(t *testing.T) {
	for after, most := range map[int32]int32{1: 2, 2: 3, 8: 12, 32: 48} {
		seen := map[int32]int{}
		for range 2000 {
			s := &metav1.Status{Code: http.StatusTooManyRequests, Details: &metav1.StatusDetails{Name: "a", RetryAfterSeconds: after}}
			d := s.Details
			status.Spread(s)
			if d.RetryAfterSeconds != after || s.Details.Name != "a" {
				t.Fatal("the details of the error have changed", d)
			}
			seen[s.Details.RetryAfterSeconds]++
		}
		for n, times := range seen {
			if n < after || n > most || times < 10 {
				t.Errorf("of %d s: %d times %d", after, times, n)
			}
		}
		if len(seen) != int(most-after)+1 {
			t.Errorf("of %d s: %v", after, seen)
		}
	}
	for _, s := range []*metav1.Status{{Code: 503, Details: &metav1.StatusDetails{RetryAfterSeconds: 1}}, {Code: 429, Details: &metav1.StatusDetails{}}, {Code: 429}} {
		if status.Spread(s); s.Details != nil && s.Details.RetryAfterSeconds > 1 {
			t.Errorf("%v is spread", s)
		}
	}
}
