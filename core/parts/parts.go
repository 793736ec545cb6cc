// Package parts keeps parts of policies between their upload and the push that consists of
// them. A bundle can be larger than a request: a client uploads what the server lacks of it, by
// content, and then pushes a policy that names the parts by their digests.
//
// Parts are files in a folder. They are not in the log: that has those of policies that came in
// force. What is not pushed within an hour is forgotten, and uploaded again.
package parts

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
	// MaxSize is how large a part may be: as large as the log's.
	MaxSize = policies.ChunkSize
	// maxBytes bounds what is kept: two of the largest bundles.
	maxBytes = 640 << 20
	// kept is how long a part is kept.
	kept = time.Hour
)

// ErrFull reports that as many parts are kept as there may be.
var ErrFull = errors.New("too many parts of policies are waiting to be pushed")

// Store keeps parts. It is safe for concurrent use.
type Store struct {
	dir string

	mu    sync.Mutex
	parts map[policies.Digest]part
	bytes int64
}

type part struct {
	size  int64
	until time.Time
}

// Open returns an empty store that keeps parts in a folder, which it makes.
func Open(dir string) (*Store, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("parts: %w", err)
	}
	return &Store{dir: dir, parts: map[policies.Digest]part{}}, nil
}

func (s *Store) file(d policies.Digest) string { return filepath.Join(s.dir, d.String()) }

// Put keeps a part, and returns its digest.
func (s *Store) Put(data []byte) (policies.Digest, error) {
	d := policies.DigestOf(data)
	now := time.Now()
	s.mu.Lock()
	s.expire(now)
	_, known := s.parts[d]
	full := !known && s.bytes+int64(len(data)) > maxBytes
	s.mu.Unlock()
	if full {
		return d, ErrFull
	}
	// Written under another name, so that nobody reads half of it.
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
	s.parts[d] = part{int64(len(data)), now.Add(kept)}
	return d, nil
}

// Get returns a part; false if it is not kept.
func (s *Store) Get(d policies.Digest) ([]byte, bool) {
	s.mu.Lock()
	_, known := s.parts[d]
	s.mu.Unlock()
	if !known {
		return nil, false
	}
	data, err := os.ReadFile(s.file(d))
	return data, err == nil && policies.DigestOf(data) == d
}

// Has reports whether a part is kept.
func (s *Store) Has(d policies.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.parts[d]
	return known
}

// Drop forgets parts: they are in the log.
func (s *Store) Drop(all []policies.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		s.drop(d)
	}
}

func (s *Store) expire(now time.Time) {
	for d, p := range s.parts {
		if now.After(p.until) {
			s.drop(d)
		}
	}
}

func (s *Store) drop(d policies.Digest) {
	if p, known := s.parts[d]; known {
		s.bytes -= p.size
		delete(s.parts, d)
		os.Remove(s.file(d))
	}
}
