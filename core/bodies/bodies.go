// Package bodies bounds the memory that the bodies of requests take together, so that many large
// writes at once wait for each other instead of ending the process.
//
// A body takes memory twice: its bytes while it is read, and some ten times as much once it is
// decoded. Each has a share of the budget, which a request holds to its end. The first share is
// taken before a byte is read, for the length that the client announced; the second when all
// has been read. Who waits for the second holds the first, and who holds both waits for
// nobody, so requests cannot wait for each other in a circle.
package bodies

import (
	"context"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// small is up to how many bytes a body is not counted.
	small = 16 << 10
	// patience is how long a request waits for its share, at most.
	patience = 30 * time.Second
	// DefaultMemory is that of [New] where memory is not limited.
	DefaultMemory = 4 << 30
)

// Budget is the memory that bodies may take. It is safe for concurrent use.
type Budget struct {
	max     int64 // of one body
	reading *share
	decoded *share
}

type share struct {
	*semaphore.Weighted
	size int64
}

func newShare(size int64) *share { return &share{semaphore.NewWeighted(size), size} }

// New makes a budget for a process that may take so many bytes of memory, or [DefaultMemory] if
// that is 0. No body is longer than maxBody bytes; a few of that length always have room.
func New(memory, maxBody int64) *Budget {
	if memory == 0 {
		memory = DefaultMemory
	}
	return &Budget{max: maxBody, reading: newShare(max(memory/8, 4*maxBody)), decoded: newShare(max(memory/48, 2*maxBody))}
}

// Limit returns a body that is counted. length is the one that the client announced, or -1. What is taken is
// given back when the context ends. Reading returns an error of 429 if there is no room for
// long.
func (b *Budget) Limit(ctx context.Context, body io.ReadCloser, length int64) io.ReadCloser {
	if body == nil || length >= 0 && length <= small {
		return body
	}
	if length < 0 || length > b.max {
		length = b.max
	}
	return &counted{ReadCloser: body, budget: b, ctx: ctx, length: length}
}

// counted is a body whose bytes are counted. It belongs to one goroutine.
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

// take waits for room, which is given back when the context ends.
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
			return apierrors.NewTooManyRequests("the server has no memory for more large requests now, please try again later", 1)
		}
	}
	context.AfterFunc(ctx, func() { s.Release(n) })
	return nil
}
