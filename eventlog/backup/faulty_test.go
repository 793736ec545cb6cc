package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
)

// faulty is a store with the faults of a bucket. Its fields are set before it is used.
type faulty struct {
	stores.Store
	failAfter     int // Put fails for ever after this many; 0 with failOpenAfter set: never
	failOpenAfter int // Open fails for ever after this many; 0: never

	put func(call int, content []byte) (stored []byte, err error) // what a Put stores; nil content is stored as nothing

	mu          sync.Mutex
	puts, opens int
	slow        func(ctx context.Context, call int) error // before each call
}

func (f *faulty) Put(ctx context.Context, name string, content io.ReaderAt, size int64) error {
	f.mu.Lock()
	f.puts++
	call := f.puts
	f.mu.Unlock()
	if f.slow != nil {
		if err := f.slow(ctx, call); err != nil {
			return err
		}
	}
	if f.put != nil {
		text, err := io.ReadAll(io.NewSectionReader(content, 0, size))
		if err != nil {
			return err
		}
		stored, err := f.put(call, text)
		if stored != nil {
			if err := f.Store.Put(ctx, name, bytes.NewReader(stored), int64(len(stored))); err != nil {
				return err
			}
		}
		return err
	}
	if f.failOpenAfter == 0 && f.slow == nil && call > f.failAfter {
		return errFault
	}
	return f.Store.Put(ctx, name, content, size)
}

func (f *faulty) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	f.mu.Lock()
	f.opens++
	call := f.opens
	f.mu.Unlock()
	r, err := f.Store.Open(ctx, name)
	if err == nil && f.failOpenAfter > 0 && call > f.failOpenAfter {
		r.Close()
		return io.NopCloser(io.MultiReader(bytes.NewReader([]byte("x")), iotest.ErrReader(errFault))), nil
	}
	return r, err
}

func TestAStoreThatFailsNowAndThenIsAskedAgain(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	store := &faulty{Store: stores.NewFolder(t.TempDir()), put: func(call int, content []byte) ([]byte, error) {
		if call%2 == 1 {
			return nil, fmt.Errorf("call %d: %w", call, errFault)
		}
		return content, nil
	}}
	var retried []error
	m := p.backup(store, func(o *backup.CreateOptions) { o.Patience.Report = func(err error) { retried = append(retried, err) } })
	assert.Len(t, retried, len(m.Files())+1)
	assert.Empty(t, verify(t, store.Store, m).Problems)
}

// A bucket says that it has stored a file: and has not, or has something else.
func TestAStoreThatLiesIsFoundOut(t *testing.T) {
	for name, lie := range map[string]func([]byte) []byte{
		"it has nothing":       func([]byte) []byte { return nil },
		"it has half":          func(b []byte) []byte { return b[:len(b)/2] },
		"it has another bit":   func(b []byte) []byte { return flipped(b, len(b)/2) },
		"it has the last part": func(b []byte) []byte { return b[len(b)/2:] },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t)
			p.grow(60)
			folder := stores.NewFolder(t.TempDir())
			_, err := backup.Create(t.Context(), p.options(&faulty{Store: folder, put: func(_ int, b []byte) ([]byte, error) { return lie(b), nil }}))
			require.ErrorContains(t, err, "the store has accepted it, and")
			found, err := backup.List(t.Context(), folder, impatient)
			require.NoError(t, err)
			assert.Empty(t, found)

			// It lies once about each file.
			seen := 0
			m := p.backup(&faulty{Store: folder, put: func(_ int, b []byte) ([]byte, error) {
				if seen++; seen%2 == 1 {
					return lie(b), nil
				}
				return b, nil
			}})
			assert.Empty(t, verify(t, folder, m).Problems)
		})
	}
}

func TestAStoreThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		p.grow(5)
		hangs := &faulty{Store: stores.NewFolder(t.TempDir()), slow: func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		o := p.options(hangs)
		o.Patience.Stall = time.Minute
		_, err := backup.Create(t.Context(), o)
		require.ErrorContains(t, err, "no progress for 1m0s (tried 3 times)")

		hangs.slow = func(ctx context.Context, call int) error {
			if call%2 == 0 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		_, err = backup.Create(t.Context(), o)
		require.NoError(t, err)
	})
}

func TestAnEndedContextEndsABackup(t *testing.T) {
	p := newPlant(t)
	p.grow(5)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := backup.Create(ctx, p.options(&faulty{Store: stores.NewFolder(t.TempDir()), slow: func(context.Context, int) error { cancel(); return errFault }}))
	require.ErrorIs(t, err, context.Canceled)
}

func TestASingleFileIsOneWholeBackup(t *testing.T) {
	p := newPlant(t)
	p.grow(60)
	name := t.TempDir() + "/nightly.tar"
	file, err := stores.CreateSingleFile(name)
	require.NoError(t, err)
	m := p.backup(file)
	require.NoFileExists(t, name, "before it is complete")
	require.NoError(t, file.Commit())
	require.NoError(t, file.Close())

	whole, err := stores.OpenSingleFile(name)
	require.NoError(t, err)
	defer whole.Close()
	found, err := backup.List(t.Context(), whole, impatient)
	require.NoError(t, err)
	chosen, err := backup.Choose(found, "", "")
	require.NoError(t, err)
	assert.Equal(t, m, chosen)
	assert.True(t, verify(t, whole, chosen).Chain)
	r := newRestoration(t, whole, chosen)
	assert.Equal(t, p.tip, r.run(t).At)
	require.ErrorIs(t, whole.Put(t.Context(), "x", nil, 0), errors.ErrUnsupported)
	_, err = whole.Open(t.Context(), "x")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// changing is a log that changes after it has told its state for the first time.
type changing struct {
	*backup.Local
	change  func()
	changed bool
}

func (c *changing) State(ctx context.Context) (*backup.State, error) {
	state, err := c.Local.State(ctx)
	if !c.changed {
		c.changed = true
		c.change()
	}
	return state, err
}
