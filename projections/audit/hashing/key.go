// Package hashing replaces secrets in JSON by keyed hashes, so that the audit log shows whether two values are equal
// and never what they are.
//
// A hash is "hmac-sha256:" and 32 hexadecimal digits: the first 16 bytes of the HMAC-SHA-256 (RFC 2104) of the value.
// Without the key nobody can find a value by hashing guesses. All replicas of a log have the same key, so equal values
// have equal hashes, in all lines of all replicas.
package hashing

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stele.dev/stele/limits/durable"
)

// Prefix begins every hash.
const Prefix = "hmac-sha256:"

// File is the name of the key's file in the folder of the keys.
const File = "audit.key"

const keySize = 32

// Key is a secret key. It is immutable and safe for concurrent use.
type Key struct{ key []byte }

// New returns the key with these bytes.
func New(key []byte) *Key { return &Key{append([]byte(nil), key...)} }

// Load reads the key in a folder, or creates it if the folder has none. secret makes the new key, so that all replicas with
// the same secret make the same one; nil makes a random one. Of several processes that create it at once, one does, and the
// others read it. Only the owner may read the file. If it cannot be written, for example because the folder is read-only, the
// key of the secret is used without a file.
func Load(dir string, secret []byte) (*Key, error) {
	file := filepath.Join(dir, File)
	k, err := read(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, err
	}
	key, err := newKey(secret)
	if err != nil {
		return nil, err
	}
	err = create(dir, file, key)
	switch {
	case errors.Is(err, fs.ErrExist):
		return read(file)
	case err != nil && secret == nil:
		return nil, fmt.Errorf("create %s: %w", file, err)
	}
	return &Key{key}, nil
}

// newKey returns the key of a secret by HKDF (RFC 5869), or a random one without a secret.
func newKey(secret []byte) ([]byte, error) {
	if secret != nil {
		return hkdf.Key(sha256.New, secret, nil, "stele.dev/audit.key", keySize)
	}
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	return key, nil
}

func read(file string) (*Key, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%s: want %d hexadecimal digits; restore the file from a backup, or delete it, so that a new key is made and hashes may change", file, 2*keySize)
	}
	return &Key{key}, nil
}

// create writes a key, and makes the folder. The error is [fs.ErrExist] if there is one already.
func create(dir, file string, key []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+File+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(key) + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); err != nil { // unlike a rename, it never replaces a key
		return err
	}
	return durable.SyncFolder(dir)
}

// Hash returns the hash of a value. A nil key gives all values the same hash, of zeros.
func (k *Key) Hash(value []byte) string {
	var sum [sha256.Size]byte
	if k != nil {
		mac := hmac.New(sha256.New, k.key)
		mac.Write(value)
		mac.Sum(sum[:0])
	}
	return Prefix + hex.EncodeToString(sum[:16])
}

// Fingerprint identifies the key without giving it away: 16 hexadecimal digits; "" for a nil key.
func (k *Key) Fingerprint() string {
	if k == nil {
		return ""
	}
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte("stele.dev/audit.key fingerprint"))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
