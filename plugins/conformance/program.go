package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"stele.dev/stele/plugins/host"
)

// Checksum returns the checksum of a program, as bundles contain it.
func Checksum(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Program returns a function that starts a plugin from a file as `stele serve` does, but with any checksum.
// The plugin's output goes to the log, which may be nil.
func Program(file string, log *slog.Logger) func(ctx context.Context) (*Instance, error) {
	checksum := sync.OnceValues(func() (string, error) { return Checksum(file) })
	return func(ctx context.Context) (*Instance, error) {
		sum, err := checksum()
		if err != nil {
			return nil, err
		}
		h, err := host.New(host.Options{Dir: filepath.Dir(file), Logger: log})
		if err != nil {
			return nil, err
		}
		p, err := h.Open(ctx, host.Spec{Name: filepath.Base(file), SHA256: map[string]string{host.System: sum}})
		if err != nil {
			h.Close()
			return nil, err
		}
		return &Instance{Authorizer: p.Authorizer, Admission: p.Admission, Close: func() {
			p.Close()
			h.Close()
		}}, nil
	}
}
