// Package bodies limits the memory of all request bodies together, so that many large writes at once wait for each
// other instead of ending the process.
//
// A body takes memory twice: its bytes while they are read, and about ten times as much when it is decoded. Each has a
// budget. A request holds its share of both until it ends. It takes the first share before it reads a byte, for the
// length that the client announced, and the second share when all bytes are read. A request that waits for the second
// share holds the first, and one that holds both does not wait, so there is no deadlock.
package bodies

import (
	"context"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
	"stele.dev/stele/core/status"
)

const (
	// small is the size up to which a body is not counted.
	small = 16 << 10
	// patience is how long a request waits for its share.
	patience = 30 * time.Second
	// DefaultMemory is the memory that [New] assumes if there is no limit.
	DefaultMemory = 4 << 30
)

// Budget is the memory that bodies may take. It is safe for concurrent use.
type Budget struct {
	max     int64 // the limit of one body
	reading *share
	decoded *share
}

type share struct {
	*semaphore.Weighted
	size int64
}

func newShare(size int64) *share { return &share{semaphore.NewWeighted(size), size} }

// New returns a budget for a process with a memory limit in bytes; 0 means [DefaultMemory]. maxBody is the limit of a
// body; the budget always has room for a few of these.
func New(memory, maxBody int64) *Budget {
	if memory == 0 {
		memory = DefaultMemory
	}
	return &Budget{max: maxBody, reading: newShare(max(memory/8, 4*maxBody)), decoded: newShare(max(memory/48, 2*maxBody))}
}

// Limit returns a body that counts against the budget until the context ends. length is the announced length, or -1.
// Read returns an error with code 429 if there is no room for a long time.
func (b *Budget) Limit(ctx context.Context, body io.ReadCloser, length int64) io.ReadCloser {
	if body == nil || length >= 0 && length <= small {
		return body
	}
	if length < 0 || length > b.max {
		length = b.max
	}
	return &counted{ReadCloser: body, budget: b, ctx: ctx, length: length}
}

// counted is a body that counts against a budget. It is for one goroutine.
type counted struct {
	io.ReadCloser
	budget *Budget
	ctx    context.Context // of the request
	length int64
	read   int64
	begun  bool
	ended  bool
}

func (c *counted) Read(p []byte) (int, error) {
	if !c.begun {
		if err := c.budget.reading.take(c.ctx, c.length); err != nil {
			return 0, err
		}
		c.begun = true
	}
	n, err := c.ReadCloser.Read(p)
	c.read += int64(n)
	if err == io.EOF && !c.ended {
		c.ended = true
		if c.read > small {
			if full := c.budget.decoded.take(c.ctx, c.read); full != nil {
				return n, full
			}
		}
	}
	return n, err
}

// take waits for a share, which it releases when the context ends.
func (s *share) take(ctx context.Context, n int64) error {
	n = min(n, s.size)
	if !s.TryAcquire(n) {
		waiting, cancel := context.WithTimeout(ctx, patience)
		err := s.Acquire(waiting, n)
		cancel()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				s.Release(n)
			}
			return context.Cause(ctx)
		case err != nil:
			return status.TooManyRequests("the server has no memory for more large requests now, please try again later")
		}
	}
	context.AfterFunc(ctx, func() { s.Release(n) })
	return nil
}
