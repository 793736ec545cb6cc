package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
)

// spool is a temporary file without a name, and the SHA-256 of its content. It is for one goroutine.
type spool struct {
	file *os.File
	hash hash.Hash
	size int64
}

func newSpool(dir string) (*spool, error) {
	file, err := os.CreateTemp(dir, ".stele-backup-*")
	if err != nil {
		return nil, err
	}
	_ = os.Remove(file.Name()) // the content lives as long as it is open
	return &spool{file: file, hash: sha256.New()}, nil
}

// Write implements [io.Writer].
func (s *spool) Write(b []byte) (int, error) {
	n, err := s.file.Write(b)
	s.hash.Write(b[:n])
	s.size += int64(n)
	return n, err
}

func (s *spool) reader() io.Reader { return io.NewSectionReader(s.file, 0, s.size) }

func (s *spool) sum() string { return hex.EncodeToString(s.hash.Sum(nil)) }

func (s *spool) discard() { _ = s.file.Close() }

// openSpool opens a file as a spool that is only read. Its hash is not computed.
func openSpool(file string) (*spool, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &spool{file: f, hash: sha256.New(), size: info.Size()}, nil
}
