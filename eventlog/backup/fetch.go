package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"filippo.io/age"
	"stele.dev/stele/eventlog/backup/stores"
)

// BadFileError reports a file of a backup that is missing or damaged.
type BadFileError struct {
	Name   string // in the store
	Reason string
}

func (e *BadFileError) Error() string { return e.Name + " " + e.Reason }

// fetcher reads the files of one backup.
type fetcher struct {
	store      *stores.Patient
	manifest   *Manifest
	identities []age.Identity
	done       func(File) // called after each file
}

// fetch reads a file and checks its size and its checksums. It calls into, perhaps more than once, with a function that
// writes the plain content. Errors are a [*BadFileError], [ErrNoIdentity], or those of into and the store.
func (f *fetcher) fetch(ctx context.Context, file File, into func(write func(io.Writer) error) error) error {
	name := path.Join(f.manifest.Log, file.Stored)
	err := f.store.Read(ctx, name, func(r io.Reader) error {
		return into(func(w io.Writer) error { return f.copy(w, r, name, file) })
	})
	if errors.Is(err, fs.ErrNotExist) {
		return &BadFileError{name, "is missing"}
	}
	if bad := (*BadFileError)(nil); errors.As(err, &bad) {
		return bad
	}
	if err == nil && f.done != nil {
		f.done(file)
	}
	return err
}

// copy writes the plain content of a stored file.
func (f *fetcher) copy(w io.Writer, stored io.Reader, name string, file File) error {
	sum, plainSum, size := sha256.New(), sha256.New(), &counter{}
	tee := io.TeeReader(&readErrors{Reader: io.LimitReader(stored, file.Size+1)}, io.MultiWriter(sum, size))
	plain, err := decrypt(tee, f.manifest, f.identities)
	if errors.Is(err, ErrNoIdentity) {
		return err
	}
	var plainSize int64
	if err == nil {
		plainSize, err = io.Copy(io.MultiWriter(w, plainSum), plain)
	}
	if _, drained := io.Copy(io.Discard, tee); drained != nil {
		return drained // the store failed, and may do better at the next attempt
	}
	bad := func(format string, args ...any) error {
		return stores.Final(&BadFileError{name, fmt.Sprintf(format, args...)})
	}
	switch {
	case size.n < file.Size:
		return bad("is truncated: it has %d of %d bytes", size.n, file.Size)
	case size.n > file.Size:
		return bad("has more than its %d bytes", file.Size)
	case hex.EncodeToString(sum.Sum(nil)) != file.SHA256:
		return bad("is damaged: its content does not match its checksum")
	case err != nil && f.manifest.Encrypted():
		return fmt.Errorf("decrypt it: %w", err)
	case err != nil:
		return err
	case plainSize != file.PlainSize || hex.EncodeToString(plainSum.Sum(nil)) != file.PlainSHA256:
		return bad("was encrypted with another content than the manifest says")
	}
	return nil
}

// sum checks a file without decrypting it.
func (f *fetcher) sum(ctx context.Context, file File) error {
	raw := *f
	raw.manifest = &Manifest{Log: f.manifest.Log} // not encrypted
	file.PlainSize, file.PlainSHA256 = file.Size, file.SHA256
	return raw.fetch(ctx, file, func(write func(io.Writer) error) error { return write(io.Discard) })
}

// spooled fetches a file into a temporary file.
func (f *fetcher) spooled(ctx context.Context, file File, dir string) (s *spool, err error) {
	err = f.fetch(ctx, file, func(write func(io.Writer) error) error {
		if s, err = newSpool(dir); err != nil {
			return stores.Final(err)
		}
		if err := write(s); err != nil {
			s.discard()
			return err
		}
		return nil
	})
	return s, err
}

type counter struct{ n int64 }

func (c *counter) Write(b []byte) (int, error) { c.n += int64(len(b)); return len(b), nil }

// readErrors repeats the first error of a reader, so that a store's failure is not taken for the end of a file.
type readErrors struct {
	io.Reader
	err error
}

func (r *readErrors) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.Reader.Read(b)
	r.err = err
	return n, err
}
