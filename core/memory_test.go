package core_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/eventlog/memlog"
)

// Large writes wait for the memory that their bodies take, and are told to come again if there is
// none for long.
func TestBodiesThatHaveNoRoomAreTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		slow := false
		r, err := tryStartWith(t.Context(), store.Open(func(op memlog.Op) memlog.Fault {
			if slow && op == memlog.Append {
				return memlog.Fault{Request: 2 * time.Minute}
			}
			return memlog.Fault{}
		}), replicaOptions{memory: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer r.closeInBubble()
		r.bootstrap(t, bundle)
		slow = true
		padding := strings.Repeat(" ", 2900<<10)
		codes := map[int]int{}
		var mu sync.Mutex
		var requests sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			requests.Go(func() {
				a := r.do("POST", widgetsPath, widget(name, 1)+padding)
				mu.Lock()
				codes[a.code]++
				mu.Unlock()
			})
		}
		requests.Wait()
		if codes[429] != 2 || codes[503]+codes[504] != 2 {
			t.Errorf("answers by code: %v, want two that the log has not answered, and two without room", codes)
		}
		time.Sleep(5 * time.Minute)
		slow = false
		r.must(t, 201, "POST", widgetsPath, widget("later", 1)+padding)
	})
}
