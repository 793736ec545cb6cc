package tokens

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/client-go/util/keyutil"
	"stele.dev/stele/core/auth/pki"
	"stele.dev/stele/limits/reload"
)

// algorithms are the signature algorithms, one for each type of key.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.ES384, jose.ES512}

// Keys are the keys that sign and verify the tokens of service accounts. They are read from files again when these
// change. Keys is safe for concurrent use.
type Keys struct {
	files []string // the first has the signing key
	ring  atomic.Pointer[ring]
}

// ring is all keys at one moment. It is immutable.
type ring struct {
	signer jose.Signer
	first  *key // the public key of signer
	keys   []*key
	byID   map[string]*key
	// content is the digests of the files, one after the other.
	content []byte
}

// key verifies signatures of one algorithm.
type key struct {
	id        string
	algorithm jose.SignatureAlgorithm
	public    crypto.PublicKey
}

// OpenKeys reads the signing key, and other keys that only verify, from PEM files. If a file has several keys, the
// first key of the signing file signs, and all keys verify. So a key is rotated by putting a new one before it. Keys
// are RSA, or ECDSA on P-256, P-384 or P-521. Errors name the file and its flag.
func OpenKeys(signing string, others []string) (*Keys, error) {
	k := &Keys{files: append([]string{signing}, others...)}
	return k, k.Reload()
}

// MakeKey creates a signing key that only its owner can read, unless the file exists.
func MakeKey(file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Every verifier of OpenID Connect must support RS256.
	made, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(made)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return pki.WritePrivate(file, text)
}

// Reload reads the files again. If one of them cannot be read, or has no key, nothing changes. After it returns,
// tokens that were signed by removed keys are refused.
func (k *Keys) Reload() error {
	texts, content, err := k.read()
	if err == nil {
		err = k.load(texts, content)
	}
	if wrong := (*fileError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("--%s %s: %w", flagOf(wrong.file), k.files[wrong.file], err)
	}
	return err
}

// read returns the content of each file, and the digests of all, one after the other.
func (k *Keys) read() (texts [][]byte, content []byte, err error) {
	for i, file := range k.files {
		text, err := reload.Read(file)
		if err != nil {
			return nil, nil, &fileError{i, err}
		}
		digest := sha256.Sum256(text)
		texts, content = append(texts, text), append(content, digest[:]...)
	}
	return texts, content, nil
}

// flagOf returns the flag that names a key file.
func flagOf(i int) string {
	if i == 0 {
		return "service-account-signing-key-file"
	}
	return "service-account-key-file"
}

// fileError is an error in one of the files.
type fileError struct {
	file int
	err  error
}

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// load replaces all keys at once.
func (k *Keys) load(texts [][]byte, content []byte) error {
	next := &ring{byID: map[string]*key{}, content: content}
	for i, text := range texts {
		var err error
		if i == 0 {
			err = next.signBy(text)
		}
		if err == nil {
			err = next.verifyBy(text)
		}
		if err != nil {
			return &fileError{i, err}
		}
	}
	k.ring.Store(next)
	return nil
}

// signBy makes the first private key of a file the signing key.
func (r *ring) signBy(text []byte) error {
	private, err := keyutil.ParsePrivateKeyPEM(text)
	if err != nil {
		return fmt.Errorf("it has no private key: %w", err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return fmt.Errorf("%T does not sign", private)
	}
	if r.first, err = r.add(signer.Public()); err != nil {
		return err
	}
	r.signer, err = jose.NewSigner(jose.SigningKey{
		Algorithm: r.first.algorithm,
		Key:       &jose.JSONWebKey{Key: private, KeyID: r.first.id, Algorithm: string(r.first.algorithm), Use: "sig"},
	}, nil)
	return err
}

// verifyBy adds all keys of a file, public or private.
func (r *ring) verifyBy(text []byte) error {
	var public []any
	var others []byte // blocks that the library knows: it finds no public keys of ECDSA in PKCS#8
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if private, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
			if key, ok := private.(*ecdsa.PrivateKey); ok {
				public = append(public, key.Public())
				continue
			}
		}
		others = append(others, pem.EncodeToMemory(block)...)
	}
	if found, err := keyutil.ParsePublicKeysPEM(others); err == nil {
		public = append(public, found...)
	} else if len(public) == 0 {
		return err
	}
	for _, x := range public {
		if _, err := r.add(x); err != nil {
			return err
		}
	}
	return nil
}

// add adds a public key unless the ring has it, and returns it.
func (r *ring) add(public crypto.PublicKey) (*key, error) {
	id, err := keyID(public)
	if err != nil {
		return nil, err
	}
	if has := r.byID[id]; has != nil {
		return has, nil
	}
	algorithm, err := algorithmOf(public)
	if err != nil {
		return nil, err
	}
	added := &key{id, algorithm, public}
	r.byID[id] = added
	r.keys = append(r.keys, added)
	return added, nil
}

// keyID returns the ID of a key as Kubernetes computes it. Verifiers find keys by their ID.
func keyID(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

func algorithmOf(public crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch public := public.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch public.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", fmt.Errorf("an ECDSA key on %s: want P-256, P-384 or P-521", public.Curve.Params().Name)
	}
	return "", fmt.Errorf("a key of type %T: want RSA or ECDSA", public)
}

// IDs returns the ID of the key that signs, and the sorted IDs of all keys that verify. They are those in the headers of
// tokens.
func (k *Keys) IDs() (signing string, verifying []string) {
	r := k.ring.Load()
	return r.first.id, slices.Sorted(maps.Keys(r.byID))
}

// Follow returns a reload.File that reads all files together when one changes, so that a key that moves between files
// stays in use. report returns the function to call when the file of a flag and path has changed or cannot be used.
func (k *Keys) Follow(report func(flag, path string) func(error)) *reload.File {
	reports := make([]func(error), len(k.files))
	for i, path := range k.files {
		reports[i] = report(flagOf(i), path)
	}
	told := k.ring.Load().content // the digests that were last reported
	var texts [][]byte            // the files as they were last read
	return &reload.File{
		Content: told,
		Read: func() (content []byte, err error) {
			texts, content, err = k.read()
			return content, err
		},
		Load: func(_ context.Context, content []byte) error { return k.load(texts, content) },
		Outcome: func(err error) {
			if wrong := (*fileError)(nil); errors.As(err, &wrong) {
				told = bytes.Clone(told)
				clear(digestOf(told, wrong.file)) // report the next good content
				reports[wrong.file](err)
				return
			}
			now := k.ring.Load().content
			for i := range k.files {
				if !bytes.Equal(digestOf(told, i), digestOf(now, i)) {
					reports[i](nil)
				}
			}
			told = now
		},
	}
}

// digestOf returns the digest of one of the files.
func digestOf(content []byte, file int) []byte {
	return content[file*sha256.Size : (file+1)*sha256.Size]
}

// public returns the keys that verify, as a JSON Web Key Set.
func (r *ring) public() jose.JSONWebKeySet {
	var set jose.JSONWebKeySet
	for _, k := range r.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.public, KeyID: k.id, Algorithm: string(k.algorithm), Use: "sig"})
	}
	return set
}

// candidates returns the keys that may have made a signature: the key that the header names, or every key of its algorithm if
// it names none.
func (r *ring) candidates(h jose.Header) []*key {
	if h.KeyID != "" {
		if k := r.byID[h.KeyID]; k != nil && h.Algorithm == string(k.algorithm) {
			return []*key{k}
		}
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.keys), func(k *key) bool { return h.Algorithm != string(k.algorithm) })
}

// sign returns a signed token of the claims.
func (r *ring) sign(claims []byte) (string, error) {
	signed, err := r.signer.Sign(claims)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
