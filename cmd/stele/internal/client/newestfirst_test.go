package client_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/client"
)

// A server lists decisions by when they were written to its log, up to a moment after they were made. They are listed by when they were
// made.
func TestDecisionsAreListedByTheirTimes(t *testing.T) {
	const count, batch = 1400, 100 * time.Millisecond
	rng := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var items []map[string]any // the newest first, by the time of their batches
	for i := range count {
		at := begin.Add(time.Duration(count-i) * 10 * time.Millisecond).Truncate(batch).Add(-time.Duration(rng.IntN(int(batch))))
		items = append(items, map[string]any{"metadata": map[string]any{"name": fmt.Sprint("id-", i)}, "time": at.Format(time.RFC3339Nano)})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/decisions") {
			http.Error(w, "{}", http.StatusForbidden)
			return
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		to := min(from+limit, count)
		list := map[string]any{"kind": "DecisionList", "apiVersion": "log.stele.dev/v1", "metadata": map[string]any{"resourceVersion": "7"}, "items": items[from:to]}
		if to < count {
			list["metadata"].(map[string]any)["continue"] = fmt.Sprint(to)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	api, err := client.NewDecisionsEverywhere(t.Context(), &rest.Config{Host: server.URL}, func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []int{0, 1, 100} {
		var times []string
		pages := 0
		if _, err := api.List(t.Context(), client.DecisionsQuery{Limit: limit}, func(page []*client.Decision) error {
			pages++
			for _, d := range page {
				times = append(times, d.Time)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want := count
		if limit > 0 {
			want = limit
		}
		if len(times) != want {
			t.Errorf("limit %d: %d decisions", limit, len(times))
		}
		if limit == 0 && pages < 3 {
			t.Errorf("%d pages: the list is held back", pages)
		}
		if !slices.IsSortedFunc(times, func(a, b string) int { return parsed(t, b).Compare(parsed(t, a)) }) {
			t.Errorf("limit %d: the decisions are not sorted", limit)
		}
	}
}

func parsed(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Error(err)
	}
	return at
}
