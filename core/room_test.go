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
func (r *replica) fillLog(t *testing.T) (n int) {
	t.Helper()
	for ; ; n++ {
		a := r.do("POST", widgetsPath, widget(fmt.Sprint("w", n), 1))
		if a.code == 507 {
			return n
		}
		if a.code != 201 || n > 1000 {
			t.Fatalf("create %d: %s", n, a)
		}
	}
}

// trim moves all but the newest event to an archive.
func (r *replica) trim(t *testing.T, archive *logtest.Archive) {
	t.Helper()
	r.log.SetArchive(archive)
	if err := archive.Seal(t.Context(), r.log, r.committer.Tip().Revision()); err != nil {
		t.Fatal(err)
	}
	if err := r.log.Trim(t.Context(), archive.Tip().Revision); err != nil {
		t.Fatal(err)
	}
}

func TestAFullLog(t *testing.T) {
	var store memlog.Store
	r := start(t, store.Open(nil), 0)
	r.bootstrap(t, bundle)
	held := `{"metadata":{"name":"held","finalizers":["example.com/a","example.com/b"]},"spec":{"size":1}}`
	r.must(t, 201, "POST", widgetsPath, held)
	store.Room.Store(r.log.Usage().Used + 200_000) // an eighth of it has room for a policy
	n := r.fillLog(t)

	a := r.must(t, 507, "PUT", widgetsPath+"/w0", strings.Replace(string(r.must(t, 200, "GET", widgetsPath+"/w0", "").body), `"size":1`, `"size":2`, 1))
	for _, part := range []string{"nothing has changed", "database", "MiB", "deletes are accepted", "quota"} {
		if !strings.Contains(string(a.body), part) {
			t.Errorf("the answer does not say %q: %s", part, a)
		}
	}
	if a.field("reason") != "InsufficientStorage" {
		t.Errorf("reason %v", a.field("reason"))
	}
	if list := r.must(t, 200, "GET", widgetsPath, ""); len(list.field("items").([]any)) != n+1 {
		t.Errorf("a list: %s", list)
	}
	if a := r.must(t, 200, "GET", "/readyz?verbose", ""); !strings.Contains(string(a.body), "[!]room failed") {
		t.Errorf("/readyz: %s", a)
	}
	if a := r.must(t, 500, "GET", "/readyz/room", ""); !strings.Contains(string(a.body), "limit") {
		t.Errorf("/readyz/room: %s", a)
	}

	r.must(t, 200, "DELETE", widgetsPath+"/w1", "")
	r.must(t, 200, "DELETE", widgetsPath+"/held", "")
	for _, finalizers := range []string{`["example.com/b"]`, `[]`} {
		r.must(t, 200, "PATCH", widgetsPath+"/held", `{"metadata":{"finalizers":`+finalizers+`}}`, "Content-Type", "application/merge-patch+json")
	}
	r.must(t, 404, "GET", widgetsPath+"/held", "")
	if _, err := activation.ActivateCompiled(t.Context(), r.committer, planetest.Compile(t, lockedOut), "test"); err != nil {
		t.Errorf("a policy: %v", err)
	}
	r.must(t, 507, "POST", widgetsPath, widget("late", 1))

	r.trim(t, &logtest.Archive{})
	r.must(t, 201, "POST", widgetsPath, widget("late", 1))
	r.must(t, 200, "GET", "/readyz/room", "")
}

// The limit of deletes is above that of other writes, and is a limit.
func TestALogThatIsFullEvenForDeletes(t *testing.T) {
	var store memlog.Store
	r := start(t, store.Open(nil), 0)
	r.bootstrap(t, bundle)
	store.Room.Store(r.log.Usage().Used + 20_000)
	n := r.fillLog(t)
	store.Room.Store(store.Room.Load() / 9 * 8)
	for i := range n {
		if a := r.do("DELETE", widgetsPath+fmt.Sprint("/w", i), ""); a.code == 507 {
			break
		} else if a.code != 200 || i == n-1 {
			t.Fatalf("delete %d: %s", i, a)
		}
	}
	r.must(t, 200, "GET", widgetsPath, "")
	r.trim(t, &logtest.Archive{})
	r.must(t, 200, "DELETE", widgetsPath+fmt.Sprint("/w", n-1), "")
}

// Creates and deletes that arrive together would be one batch: the deletes are not refused because of the creates.
func TestDeletesAmongCreatesOnAFullLog(t *testing.T) {
	planetest.Compile(t, bundle)
	synctest.Test(t, func(t *testing.T) {
		var store memlog.Store
		r := start(t, store.Open(func(op memlog.Op) memlog.Fault {
			if op == memlog.Append {
				return memlog.Fault{Request: 10 * time.Millisecond, Answer: 10 * time.Millisecond}
			}
			return memlog.Fault{}
		}), 0)
		r.bootstrap(t, bundle)
		store.Room.Store(r.log.Usage().Used + 20_000)
		n := r.fillLog(t)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if a := r.do("POST", widgetsPath, widget(fmt.Sprint("late", i), 1)); a.code != 507 {
					t.Errorf("create: %s", a)
				}
			})
			all.Go(func() {
				if a := r.do("DELETE", widgetsPath+fmt.Sprint("/w", i), ""); a.code != 200 {
					t.Errorf("delete: %s", a)
				}
			})
		}
		all.Wait()
		if left := r.committer.Tip().Objects.Len(widgetsResource); left != 0 {
			t.Errorf("%d widgets are left", left)
		}
		r.closeInBubble()
	})
}
