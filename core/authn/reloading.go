package authn

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync/atomic"
	"time"
)

// reloadEvery is how often files are looked at. They are read whole, for they are small, and what
// replaces them may be a link to another folder, of which a watch would not tell.
const reloadEvery = time.Second

// reloading is something made of files, and made anew when they have changed. What cannot be used is
// said once, and leaves in place what there is. get may be called at any time; load and run
// belong to one goroutine.
type reloading[T any] struct {
	what string // it is, for messages
	// read returns all that it is made of, and how.
	read    func() (content []byte, make func() (T, error), err error)
	logger  *slog.Logger
	current atomic.Pointer[T]
	tried   [sha256.Size]byte // digest of what was last tried to make it of
	said    string            // what is wrong with the files, as far as it was said
	changed func()            // called after it was made anew, if not nil
}

func (l *reloading[T]) get() T { return *l.current.Load() }

// load makes it, unless the files are those that it was last tried with.
func (l *reloading[T]) load() error {
	content, make, err := l.read()
	if err != nil {
		l.tried = [sha256.Size]byte{}
		return err
	}
	digest := sha256.Sum256(content)
	if digest == l.tried {
		return nil
	}
	l.tried = digest
	made, err := make()
	if err != nil {
		return err
	}
	l.current.Store(&made)
	l.said = ""
	return nil
}

// run keeps it current until the context ends.
func (l *reloading[T]) run(ctx context.Context) error {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		before := l.current.Load()
		if err := l.load(); err != nil {
			if text := err.Error(); text != l.said {
				l.said = text
				l.logger.Error(l.what+" cannot be read anew; what was read before stays in use", "error", err)
			}
			continue
		}
		if l.current.Load() != before {
			l.logger.Info(l.what + " was read anew")
			if l.changed != nil {
				l.changed()
			}
		}
	}
}
