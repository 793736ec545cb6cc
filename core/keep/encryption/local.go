package encryption

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"stele.dev/stele/limits/durable"
)

// LocalFile is the name of the file with the local key, in the folder of the keys.
const LocalFile = "encryption.yaml"

// keySize is that of secretbox.
const keySize = 32

// MakeLocal makes a file that encrypts Secrets under a key of its own, unless it is there. The key is derived from a secret (HKDF,
// RFC 5869), so that all replicas with the same secret make the same file. The name of the key has a part of its hash, so that messages tell
// one key from another. Only the owner may read it.
func MakeLocal(file string, secret []byte) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "stele.dev/encryption.yaml", keySize)
	if err != nil {
		return err
	}
	return durable.WriteFile(file, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, localText, sha256.Sum256(key), base64.StdEncoding.EncodeToString(key))
		return err
	})
}

const localText = `# The key under which Secrets are encrypted where they are stored, as long as --encryption-provider-config names no other file.
# Whoever has this file can read them. Keep a copy of the folder apart from backups: without the key nothing can be decrypted.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox: {keys: [{name: local-%.4x, secret: %s}]}
  - identity: {}
`

// LocalIn returns the path of the local file of a folder of keys.
func LocalIn(keys string) string { return filepath.Join(keys, LocalFile) }
