package planetest

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/eventlog/memlog"
)

// Restored is a control plane that was restored from a backup: revisions from lost up to
// next, that one excluded, had been issued and are in no history any more.
type Restored struct {
	*Replica
	Store      memlog.Store
	Lost, Next uint64
	Token      string // of a page of before
}

// NewRestored starts a control plane, fills it, and declares 50 revisions lost.
func NewRestored(t testing.TB) *Restored {
	t.Helper()
	p := &Restored{}
	p.Replica = StartReplica(t, p.Store.Open(nil), 0)
	p.Bootstrap(t, Bundle)
	Fill(t, p.Replica, 2)
	page := p.Must(t, 200, "GET", WidgetsPath+"?limit=1", "")
	p.Token, _ = page.Field("metadata", "continue").(string)
	p.StartEpoch(t, 50)
	return p
}

// StartEpoch declares as many revisions lost.
func (p *Restored) StartEpoch(t testing.TB, n uint64) {
	t.Helper()
	tip := p.Committer.Tip().Head
	p.Lost, p.Next = tip.Revision+1, tip.Revision+1+n
	if started, newer, err := p.Log.StartEpoch(t.Context(), tip, p.Lost, p.Next); err != nil || started == nil {
		t.Fatal(started, newer, err)
	}
}

// ExactAt returns a path with an exact resourceVersion.
func ExactAt(path string, revision uint64) string {
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	return fmt.Sprintf("%s%sresourceVersion=%d&resourceVersionMatch=Exact", path, join, revision)
}

// BelowAt returns a path at a moment of the past.
func BelowAt(moment any, path string) string { return fmt.Sprintf("/at/%v%s", moment, path) }
