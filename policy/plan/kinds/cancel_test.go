package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/limits/cputime"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/kinds"
)

// A comparison of one kind ends when nobody waits for it any more.
func TestCompareIsCancelled(t *testing.T) {
	patterns := func(letters string) string {
		var fields []string
		for i := range 300 { // each takes tens of milliseconds
			fields = append(fields, fmt.Sprintf(`f%d?: =~"^(%s|b){1,%d}(b|c){1,%d}(a|c){1,90}$"`, i, letters, 80+i%100, 60+i%90))
		}
		return strings.Join(fields, ", ")
	}
	from, to := compiled(t, kind("gauges", patterns("a"), ""), nil), compiled(t, kind("gauges", patterns("[ab]"), ""), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	cputime.Within(t, 3*time.Second, func() {
		if _, err := kinds.Compare(ctx, plan.Sides{From: from, To: to}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
