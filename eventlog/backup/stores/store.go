// Package stores keeps the files of backups: in a folder, in a single file, or wherever a [Store] is implemented. A
// [Patient] store tries operations again, ends those that make no progress, and compares what it stored with what the
// store returns.
package stores

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"stele.dev/stele/limits/steady"
)

// Store holds the files of backups. Names have slashes. Implementations are safe for concurrent use.
type Store interface {
	// Put stores a file: wholly or not at all, and durably once it returns nil. It replaces a file of this name. It
	// may be called again after an error, whose outcome is unknown.
	Put(ctx context.Context, name string, content io.ReaderAt, size int64) error
	// Open opens a file for reading. The error is [fs.ErrNotExist] if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the files whose names begin with prefix, in any order.
	List(ctx context.Context, prefix string) ([]Entry, error)
}

// Remover is a [Store] whose files can be removed.
type Remover interface {
	Store
	// Remove removes a file. If the file does not exist, it returns nil.
	Remove(ctx context.Context, name string) error
}

// Entry is a file in a store.
type Entry struct {
	Name string
	Size int64
}

// Patience says how long a store is given.
type Patience struct {
	// Attempts is how often an operation is tried; 5 if 0.
	Attempts int
	// Pause is the time before the second attempt, which doubles for each further one; 1 s if 0.
	Pause time.Duration
	// Stall is how long an operation may make no progress; one minute if 0.
	Stall time.Duration
	// Report is called before an operation is tried again, with the reason; nil for none.
	Report func(err error)
}

// Patient is a store whose operations are tried again, are ended if they make no progress, and which compares what it
// stored with what the store returns.
type Patient struct {
	Store Store
	Patience
}

// WithDefaults returns p with the defaults of its fields.
func (p Patience) WithDefaults() Patience {
	p.Attempts, p.Pause, p.Stall = cmp.Or(p.Attempts, 5), cmp.Or(p.Pause, time.Second), cmp.Or(p.Stall, time.Minute)
	if p.Report == nil {
		p.Report = func(error) {}
	}
	return p
}

// WithPatience returns a patient store.
func WithPatience(store Store, p Patience) *Patient { return &Patient{store, p.WithDefaults()} }

// errStalled reports an operation that made no progress.
var errStalled = errors.New("no progress")

// finalError is an error after which an operation is not tried again.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// Final marks an error: the operation is not tried again.
func Final(err error) error { return finalError{err} }

// final reports whether another attempt cannot succeed.
func final(err error) bool {
	return errors.As(err, new(finalError)) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported)
}

// Try runs an operation until it succeeds, its error is final, or there were too many attempts. The context of an
// attempt ends if moved is not called for Stall. The operation must end with its context.
func (p Patience) Try(ctx context.Context, what string, do func(ctx context.Context, moved func()) error) error {
	pause := p.Pause
	for attempt := 1; ; attempt++ {
		err := p.attempt(ctx, do)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case final(err):
			return fmt.Errorf("%s: %w", what, err)
		case attempt == p.Attempts:
			return fmt.Errorf("%s: %w (tried %d times)", what, err, attempt)
		}
		p.Report(fmt.Errorf("%s: %w; trying again in %s", what, err, pause))
		if err := steady.Wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, time.Minute)
	}
}

func (p Patience) attempt(ctx context.Context, do func(ctx context.Context, moved func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(p.Stall, func() { cancel(fmt.Errorf("%w for %s", errStalled, p.Stall)) })
	defer timer.Stop()
	err := do(ctx, func() { timer.Reset(p.Stall) })
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStalled) {
		return cause
	}
	return err
}

// Put stores a file and reads it back.
func (p *Patient) Put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	want, err := SumOf(io.NewSectionReader(content, 0, size))
	if err != nil {
		return err
	}
	return p.Try(ctx, "store "+name, func(ctx context.Context, moved func()) error {
		if err := p.Store.Put(ctx, name, movingAt{content, moved}, size); err != nil {
			return err
		}
		moved()
		r, err := p.Store.Open(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("the store has accepted it, and does not have it")
		}
		if errors.Is(err, errors.ErrUnsupported) { // a single file is read back when it is complete
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading it back: %w", err)
		}
		defer r.Close()
		got, err := SumOf(moving{r, moved})
		switch {
		case err != nil:
			return fmt.Errorf("reading it back: %w", err)
		case got != want:
			return errors.New("the store has accepted it, and returns another content")
		}
		return nil
	})
}

// Read calls visit with the content of a file, again from the beginning if it has failed with an error that is not
// [Final].
func (p *Patient) Read(ctx context.Context, name string, visit func(io.Reader) error) error {
	return p.Try(ctx, "read "+name, func(ctx context.Context, moved func()) error {
		r, err := p.Store.Open(ctx, name)
		if err != nil {
			return err
		}
		defer r.Close()
		return visit(moving{r, moved})
	})
}

// List returns the files whose names begin with prefix.
func (p *Patient) List(ctx context.Context, prefix string) (entries []Entry, err error) {
	err = p.Try(ctx, "list the files of the store", func(ctx context.Context, _ func()) (err error) {
		entries, err = p.Store.List(ctx, prefix)
		return err
	})
	return entries, err
}

// Remove removes a file. The error is [errors.ErrUnsupported] if the store is no [Remover].
func (p *Patient) Remove(ctx context.Context, name string) error {
	remover, ok := p.Store.(Remover)
	if !ok {
		return errors.ErrUnsupported
	}
	return p.Try(ctx, "remove "+name, func(ctx context.Context, _ func()) error { return remover.Remove(ctx, name) })
}

// Moving returns a reader that calls moved when it has read something.
func Moving(r io.Reader, moved func()) io.Reader { return moving{r, moved} }

// moving reports the progress of a reader.
type moving struct {
	io.Reader
	moved func()
}

func (r moving) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if n > 0 {
		r.moved()
	}
	return n, err
}

// movingAt reports the progress of a reader.
type movingAt struct {
	io.ReaderAt
	moved func()
}

func (r movingAt) ReadAt(b []byte, at int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, at)
	if n > 0 {
		r.moved()
	}
	return n, err
}

// SumOf returns the SHA-256 of a content, in hexadecimal.
func SumOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
