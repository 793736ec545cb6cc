package client

import (
	"slices"
	"time"
)

// writtenWithin bounds how much later than it was made a decision is in the log of its server, by which servers list.
const writtenWithin = time.Second

// newestFirst passes decisions on in the order of their times.
type newestFirst struct {
	each func([]*Decision) error
	held []timed // those that may follow others, the newest first
}

type timed struct {
	*Decision
	at time.Time
}

// add takes a page, and passes on what no later page can have newer ones than.
func (n *newestFirst) add(page []*Decision) error {
	for _, d := range page {
		at, err := time.Parse(time.RFC3339Nano, d.Time)
		if err != nil {
			return err
		}
		n.held = append(n.held, timed{d, at})
	}
	if len(n.held) == 0 {
		return nil
	}
	slices.SortStableFunc(n.held, func(a, b timed) int { return b.at.Compare(a.at) })
	safe := n.held[len(n.held)-1].at.Add(writtenWithin)
	return n.pass(slices.IndexFunc(n.held, func(x timed) bool { return !x.at.After(safe) }))
}

// end passes on the rest.
func (n *newestFirst) end() error { return n.pass(len(n.held)) }

func (n *newestFirst) pass(count int) error {
	page := make([]*Decision, count)
	for i, x := range n.held[:count] {
		page[i] = x.Decision
	}
	n.held = slices.Clone(n.held[count:])
	if count == 0 {
		return nil
	}
	return n.each(page)
}
