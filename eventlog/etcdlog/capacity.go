package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/etcdlog/members"
)

// errNoSpace reports that etcd refuses writes, because a member has raised the alarm NOSPACE.
var errNoSpace = fmt.Errorf("%w: etcd has raised the alarm NOSPACE, as a database has reached --quota-backend-bytes; let etcd compact and defragment, or raise the quota, and end the alarm with `etcdctl alarm disarm`", eventlog.ErrFull)

// capacity decides whether there is space for an append in a cluster. It knows what the members said last, and counts what
// was appended since. Its methods are safe for concurrent use.
type capacity struct {
	members func() []members.Member
	askAll  func()
	log     *slog.Logger

	mu      sync.Mutex
	used    int64     // what the members said last
	pending int64     // bytes that were appended since
	refusal time.Time // when etcd refused a write for lack of space; zero if a member has said since that there is none
	refused uint64
	full    bool // the last append that needed space was refused
}

// usage returns what is used now.
func (c *capacity) usage() eventlog.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, _ := c.look()
	return u
}

// look returns what is used, and whether etcd refuses all writes. The caller holds c.mu.
func (c *capacity) look() (u eventlog.Usage, alarm bool) {
	var used, quota int64
	newer := c.refusal.IsZero()
	for _, m := range c.members() {
		used, u.Allocated = max(used, m.InUse), max(u.Allocated, m.DBSize)
		if m.Quota > 0 && (quota == 0 || m.Quota < quota) {
			quota = m.Quota
		}
		alarm = alarm || m.NoSpace
		newer = newer || m.Asked.After(c.refusal)
	}
	if newer {
		c.refusal = time.Time{}
	}
	if used != c.used {
		c.used, c.pending = used, 0
	}
	u.Used, u.Refused = used+c.pending, c.refused
	if quota > 0 {
		u.Limit, u.FreeingLimit = min(quota/100*limitPercent, quota-leastReserve), min(quota/100*freeingPercent, quota-leastReserve/2)
	}
	return u, alarm || !newer
}

// take returns an error if there is no space for a proposal, and else counts its bytes.
func (c *capacity) take(_ context.Context, p eventlog.Proposal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, alarm := c.look()
	size := int64(len(p.Value))
	u.Used += size // the limit is not to be crossed by it
	err := c.checkLimit(u, u.Limit)
	if alarm {
		err = errNoSpace
	}
	switch {
	case err != nil && !c.full:
		c.full = true
		c.log.Error("the log is full; writes are refused", "reason", err)
	case err == nil && c.full:
		c.full = false
		c.log.Warn("the log has room again; writes are accepted")
	}
	if p.Frees && !alarm {
		err = c.checkLimit(u, u.FreeingLimit)
	}
	if err != nil && !p.Again {
		c.refused++
		return err
	}
	c.pending += size
	return nil
}

// checkLimit returns an error if more is used than a limit allows.
func (*capacity) checkLimit(u eventlog.Usage, limit int64) error {
	if limit <= 0 || u.Used < limit {
		return nil
	}
	return fmt.Errorf("%w: the databases of the etcd cluster have %d MiB in use, and the limit is %d MiB, which is less than their quota; let etcd compact (--auto-compaction-retention) and defragment, or raise --quota-backend-bytes",
		eventlog.ErrFull, u.Used>>20, limit>>20)
}

// refuse records that etcd has refused a write for lack of space. Writes are refused until a member says that there is no
// alarm any more.
func (c *capacity) refuse() {
	c.mu.Lock()
	c.refusal = time.Now()
	c.mu.Unlock()
	c.askAll()
}

// settleNoSpace finds out what became of a proposal to which etcd has answered "no space": it may have applied it. If it has
// not, and there was no earlier attempt, the error is eventlog.ErrFull.
func (b *Backend) settleNoSpace(ctx context.Context, p eventlog.Proposal, err error) (eventlog.Answer, error) {
	b.full()
	answer, readErr := b.Read(ctx, p.At)
	switch {
	case readErr != nil:
		return eventlog.Answer{}, errors.Join(fmt.Errorf("etcd: %w", err), readErr)
	case len(answer.Batches) > 0 && answer.Batches[0].First == p.At && string(answer.Batches[0].Value) == string(p.Value):
		return eventlog.Answer{Applied: true}, nil
	case string(answer.Head) != string(p.From):
		return answer, nil // another writer was first
	case p.Again: // an earlier attempt may still be on its way
		return eventlog.Answer{}, fmt.Errorf("etcd: %w", err)
	default:
		return eventlog.Answer{}, errNoSpace
	}
}
