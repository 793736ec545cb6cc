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
	// MaxUploads limits the size of all parts: two of the largest bundles.
	MaxUploads = 640 << 20
	// kept is how long a part is kept.
	kept = time.Hour
)

// ErrUploadsFull reports that there is no room for more parts.
var ErrUploadsFull = errors.New("too many parts of policies are waiting to be pushed")

// Uploads stores parts. It is safe for concurrent use.
type Uploads struct {
	dir  string
	room int64

	mu    sync.Mutex
	parts map[policies.Digest]storedPart
	bytes int64
	held  map[string]int64 // bytes by owner
}

type storedPart struct {
	owner string
	size  int64
	until time.Time
}

// OpenUploads creates a folder for parts, and returns an empty store in it, with room for so many bytes.
func OpenUploads(dir string, room int64) (*Uploads, error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return nil, fmt.Errorf("parts: %w", err)
	}
	return &Uploads{dir: dir, room: room, parts: map[policies.Digest]storedPart{}, held: map[string]int64{}}, nil
}

func (s *Uploads) file(d policies.Digest) string { return filepath.Join(s.dir, d.String()) }

// Put stores a part of a user and returns its digest. Without room, the oldest parts of the user who has most are deleted; the error
// is [ErrUploadsFull] if that would be this user. So nobody can keep others from pushing.
func (s *Uploads) Put(owner string, data []byte) (policies.Digest, error) {
	d := policies.DigestOf(data)
	now := time.Now()
	s.mu.Lock()
	s.expire(now)
	_, known := s.parts[d]
	room := known || s.makeRoom(owner, int64(len(data)))
	s.mu.Unlock()
	if !room {
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
	s.forget(d)
	s.bytes += int64(len(data))
	s.held[owner] += int64(len(data))
	s.parts[d] = storedPart{owner, int64(len(data)), now.Add(kept)}
	return d, nil
}

// makeRoom reports whether there is room for a part of a user. s.mu must be held.
func (s *Uploads) makeRoom(owner string, size int64) bool {
	for s.bytes+size > s.room {
		most := ""
		for other, held := range s.held {
			if held > s.held[most] {
				most = other
			}
		}
		if s.held[most] <= s.held[owner]+size {
			return false
		}
		var oldest policies.Digest
		for d, p := range s.parts {
			if p.owner == most && (s.parts[oldest].owner != most || p.until.Before(s.parts[oldest].until)) {
				oldest = d
			}
		}
		s.drop(oldest)
	}
	return true
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
	if s.forget(d) {
		os.Remove(s.file(d))
	}
}

// forget drops a part, but not its file. It reports whether there was one.
func (s *Uploads) forget(d policies.Digest) bool {
	p, known := s.parts[d]
	if !known {
		return false
	}
	s.bytes -= p.size
	if s.held[p.owner] -= p.size; s.held[p.owner] == 0 {
		delete(s.held, p.owner)
	}
	delete(s.parts, d)
	return true
}
