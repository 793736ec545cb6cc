// This file stores uploaded parts of policies until the policy is pushed. A bundle can be larger than a request,
// so a client uploads the parts that the server lacks, and then pushes a policy that names all parts by their digests.
//
// Parts are files in a folder. They are not in the log, which only has those of activated policies. A part that is not
// pushed within an hour is deleted, and must be uploaded again.

package activation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stele.dev/stele/projections/policies"
)

const (
	// MaxSize limits the size of a part, as in the log.
	MaxSize = policies.ChunkSize
	// maxBytes limits the size of all parts: two of the largest bundles.
	maxBytes = 640 << 20
	// kept is how long a part is kept.
	kept = time.Hour
)

// ErrUploadsFull reports that there is no room for more parts.
var ErrUploadsFull = errors.New("too many parts of policies are waiting to be pushed")

// Uploads stores parts. It is safe for concurrent use.
type Uploads struct {
	dir string

	mu    sync.Mutex
	parts map[policies.Digest]storedPart
	bytes int64
}

type storedPart struct {
	size  int64
	until time.Time
}

// OpenUploads creates a folder for parts, and returns an empty store in it.
func OpenUploads(dir string) (*Uploads, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("parts: %w", err)
	}
	return &Uploads{dir: dir, parts: map[policies.Digest]storedPart{}}, nil
}

func (s *Uploads) file(d policies.Digest) string { return filepath.Join(s.dir, d.String()) }

// Put stores a part and returns its digest.
func (s *Uploads) Put(data []byte) (policies.Digest, error) {
	d := policies.DigestOf(data)
	now := time.Now()
	s.mu.Lock()
	s.expire(now)
	_, known := s.parts[d]
	full := !known && s.bytes+int64(len(data)) > maxBytes
	s.mu.Unlock()
	if full {
		return d, ErrUploadsFull
	}
	// It is written under another name first, so that nobody reads a part of it.
	temporary, err := os.CreateTemp(s.dir, "new-*")
	if err != nil {
		return d, fmt.Errorf("parts: %w", err)
	}
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), s.file(d))
	}
	if err != nil {
		os.Remove(temporary.Name())
		return d, fmt.Errorf("parts: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += int64(len(data)) - s.parts[d].size
	s.parts[d] = storedPart{int64(len(data)), now.Add(kept)}
	return d, nil
}

// Get returns a part, and false if there is none.
func (s *Uploads) Get(d policies.Digest) ([]byte, bool) {
	s.mu.Lock()
	_, known := s.parts[d]
	s.mu.Unlock()
	if !known {
		return nil, false
	}
	data, err := os.ReadFile(s.file(d))
	return data, err == nil && policies.DigestOf(data) == d
}

// Has reports whether there is a part.
func (s *Uploads) Has(d policies.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.parts[d]
	return known
}

// Drop deletes parts that are in the log.
func (s *Uploads) Drop(all []policies.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		s.drop(d)
	}
}

func (s *Uploads) expire(now time.Time) {
	for d, p := range s.parts {
		if now.After(p.until) {
			s.drop(d)
		}
	}
}

func (s *Uploads) drop(d policies.Digest) {
	if p, known := s.parts[d]; known {
		s.bytes -= p.size
		delete(s.parts, d)
		os.Remove(s.file(d))
	}
}
