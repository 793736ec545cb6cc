package core_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/logtest"
	"stele.dev/stele/eventlog/memlog"
)

// fillLog creates widgets until the log is full, and returns how many.
func fillLog(r *planetest.Replica, t *testing.T) (n int) {
	t.Helper()
	for ; ; n++ {
		a := r.Do("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("w", n), 1))
		if a.Code == 507 {
			return n
		}
		if a.Code != 201 || n > 1000 {
			t.Fatalf("create %d: %s", n, a)
		}
	}
}

func TestAFullLog(t *testing.T) {
	var store memlog.Store
	r := planetest.StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, planetest.Bundle)
	held := `{"metadata":{"name":"held","finalizers":["example.com/a","example.com/b"]},"spec":{"size":1}}`
	r.Must(t, 201, "POST", planetest.WidgetsPath, held)
	store.Room.Store(r.Log.Usage().Used + 200_000) // an eighth of it has room for a policy
	n := fillLog(r, t)

	a := r.Must(t, 507, "PUT", planetest.WidgetsPath+"/w0", strings.Replace(string(r.Must(t, 200, "GET", planetest.WidgetsPath+"/w0", "").Body), `"size":1`, `"size":2`, 1))
	for _, part := range []string{"nothing has changed", "database", "MiB", "deletes are accepted", "quota"} {
		if !strings.Contains(string(a.Body), part) {
			t.Errorf("the answer does not say %q: %s", part, a)
		}
	}
	if a.Field("reason") != "InsufficientStorage" {
		t.Errorf("reason %v", a.Field("reason"))
	}
	if list := r.Must(t, 200, "GET", planetest.WidgetsPath, ""); len(list.Field("items").([]any)) != n+1 {
		t.Errorf("a list: %s", list)
	}
	if a := r.Must(t, 200, "GET", "/readyz?verbose", ""); !strings.Contains(string(a.Body), "[!]room failed") {
		t.Errorf("/readyz: %s", a)
	}
	if a := r.Must(t, 500, "GET", "/readyz/room", ""); !strings.Contains(string(a.Body), "limit") {
		t.Errorf("/readyz/room: %s", a)
	}

	r.Must(t, 200, "DELETE", planetest.WidgetsPath+"/w1", "")
	r.Must(t, 200, "DELETE", planetest.WidgetsPath+"/held", "")
	for _, finalizers := range []string{`["example.com/b"]`, `[]`} {
		r.Must(t, 200, "PATCH", planetest.WidgetsPath+"/held", `{"metadata":{"finalizers":`+finalizers+`}}`, "Content-Type", "application/merge-patch+json")
	}
	r.Must(t, 404, "GET", planetest.WidgetsPath+"/held", "")
	if _, err := activation.ActivateCompiled(t.Context(), r.Committer, planetest.Compile(t, planetest.LockedOut), "test"); err != nil {
		t.Errorf("a policy: %v", err)
	}
	r.Must(t, 507, "POST", planetest.WidgetsPath, planetest.Widget("late", 1))

	r.Trim(t, &logtest.Archive{})
	r.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("late", 1))
	r.Must(t, 200, "GET", "/readyz/room", "")
}

// The limit of deletes is above that of other writes, and is a limit.
func TestALogThatIsFullEvenForDeletes(t *testing.T) {
	var store memlog.Store
	r := planetest.StartReplica(t, store.Open(nil), 0)
	r.Bootstrap(t, planetest.Bundle)
	store.Room.Store(r.Log.Usage().Used + 20_000)
	n := fillLog(r, t)
	store.Room.Store(store.Room.Load() / 9 * 8)
	for i := range n {
		if a := r.Do("DELETE", planetest.WidgetsPath+fmt.Sprint("/w", i), ""); a.Code == 507 {
			break
		} else if a.Code != 200 || i == n-1 {
			t.Fatalf("delete %d: %s", i, a)
		}
	}
	r.Must(t, 200, "GET", planetest.WidgetsPath, "")
	r.Trim(t, &logtest.Archive{})
	r.Must(t, 200, "DELETE", planetest.WidgetsPath+fmt.Sprint("/w", n-1), "")
}

// Creates and deletes that arrive together would be one batch: the deletes are not refused because of the creates.
func TestDeletesAmongCreatesOnAFullLog(t *testing.T) {
	planetest.Compile(t, planetest.Bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		r := planetest.StartReplica(t, store.Open(func(op memlog.Op) memlog.Fault {
			if op == memlog.Append {
				return memlog.Fault{Request: 10 * time.Millisecond, Answer: 10 * time.Millisecond}
			}
			return memlog.Fault{}
		}), 0)
		r.Bootstrap(t, planetest.Bundle)
		store.Room.Store(r.Log.Usage().Used + 20_000)
		n := fillLog(r, t)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if a := r.Do("POST", planetest.WidgetsPath, planetest.Widget(fmt.Sprint("late", i), 1)); a.Code != 507 {
					t.Errorf("create: %s", a)
				}
			})
			all.Go(func() {
				if a := r.Do("DELETE", planetest.WidgetsPath+fmt.Sprint("/w", i), ""); a.Code != 200 {
					t.Errorf("delete: %s", a)
				}
			})
		}
		all.Wait()
		if left := r.Committer.Tip().Objects.Len(planetest.WidgetsResource); left != 0 {
			t.Errorf("%d widgets are left", left)
		}
		r.CloseInBubble()
	})
}
