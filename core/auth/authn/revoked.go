package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stele.dev/stele/limits/reload"
)

// Revocations are certificates that are refused although they are valid, as a file lists them. The file may change. A nil
// *Revocations refuses nothing. It is safe for concurrent use.
type Revocations struct {
	file    string
	content []byte // when it was first read
	current atomic.Pointer[revoked]
	logger  *slog.Logger
}

// revoked is the content of the file at one time. A new one means that the file has changed.
type revoked struct {
	fingerprints map[[sha256.Size]byte]int // the lines
	serials      map[string]int            // by the number, in hexadecimal without leading zeros
	mu           sync.Mutex
	logged       map[int]time.Time // when a use of the certificate of a line was logged last
}

// logRevokedEvery is how often the use of one revoked certificate is logged.
const logRevokedEvery = time.Minute

// NewRevocations reads the file. Each line has one certificate, by its SHA-256 fingerprint or its serial number. A serial
// number stands for the certificates of all authorities that have it. Empty lines, and what follows a #, mean nothing.
// An error names the line.
func NewRevocations(file string, logger *slog.Logger) (*Revocations, error) {
	content, err := reload.Read(file)
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r := &Revocations{file: file, content: content, logger: logger}
	return r, r.load(context.Background(), content)
}

func (r *Revocations) load(_ context.Context, content []byte) error {
	next := &revoked{fingerprints: map[[sha256.Size]byte]int{}, serials: map[string]int{}, logged: map[int]time.Time{}}
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text, _, _ := strings.Cut(string(line), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := next.add(text, number); err != nil {
			return fmt.Errorf("%s:%d: %w", r.file, number, err)
		}
	}
	r.current.Store(next)
	return nil
}

// add adds a line. A serial number must be called so, because the SHA-1 of a certificate looks like one.
func (r *revoked) add(text string, line int) error {
	what, value, named := strings.Cut(text, "=")
	if !named {
		what, value = "", text
	}
	digits := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(value), ":", ""))
	switch strings.ToLower(strings.TrimSpace(what)) {
	case "serial":
		number, ok := new(big.Int).SetString(digits, 16)
		if !ok || number.Sign() < 0 || strings.ContainsAny(digits, "+_") {
			return fmt.Errorf("%q is not a serial number in hexadecimal", text)
		}
		r.serials[number.Text(16)] = line
		return nil
	case "", "sha256 fingerprint", "x509sha256":
		sum, err := hex.DecodeString(digits)
		if err == nil && len(sum) == sha256.Size {
			r.fingerprints[[sha256.Size]byte(sum)] = line
			return nil
		}
	}
	return fmt.Errorf("%q is not a certificate: want its SHA-256 fingerprint, 64 hexadecimal digits with or without colons, or serial=NUMBER in hexadecimal", text)
}

// now returns the content that is in use; nil if there is no file.
func (r *Revocations) now() *revoked {
	if r == nil {
		return nil
	}
	return r.current.Load()
}

// Has reports whether a certificate is revoked.
func (r *Revocations) Has(c *x509.Certificate) bool {
	return r.now().line(c) > 0
}

// line returns the line that revokes a certificate; 0 if none does.
func (r *revoked) line(c *x509.Certificate) int {
	if r == nil || len(r.fingerprints)+len(r.serials) == 0 {
		return 0
	}
	if line := r.fingerprints[sha256.Sum256(c.Raw)]; line > 0 || c.SerialNumber == nil {
		return line
	}
	return r.serials[c.SerialNumber.Text(16)]
}

// check rejects a chain if one of its certificates is revoked, and logs that somebody tried to use it.
func (r *Revocations) check(by Method, chain []*x509.Certificate) error {
	now := r.now()
	for _, c := range chain {
		line := now.line(c)
		if line == 0 {
			continue
		}
		if now.mayLog(line, time.Now()) {
			r.logger.Warn("a revoked certificate was refused", "file", r.file, "line", line, "commonName", c.Subject.CommonName,
				"sha256", fmt.Sprintf("%x", sha256.Sum256(c.Raw)), "serial", c.SerialNumber.Text(16))
		}
		return &Rejection{Method: by, Reason: Revoked, Err: errors.New("the certificate is revoked")}
	}
	return nil
}

func (r *revoked) mayLog(line int, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.logged[line]; ok && now.Sub(last) < logRevokedEvery {
		return false
	}
	r.logged[line] = now
	return true
}
