package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"stele.dev/stele/eventlog/backup/stores"
)

// ErrUnsigned reports a backup without a signature.
var ErrUnsigned = errors.New("it is not signed; `stele backup create --sign-key` signs new ones")

// SignatureError reports a backup that no allowed key has signed.
type SignatureError struct {
	Backup string // its name
	Err    error
}

func (e *SignatureError) Error() string { return fmt.Sprintf("backup %s: %v", e.Backup, e.Err) }
func (e *SignatureError) Unwrap() error { return e.Err }

// maxSignature limits the size of a signature in bytes.
const maxSignature = 64 << 10

// signedAs returns the name of the signature of the manifest in the store.
func (m *Manifest) signedAs() string { return m.storedAs() + ".sig" }

// CheckSignature returns a [*SignatureError] if verify refuses the signature of a backup, or there is none: [ErrUnsigned]. What is signed is the
// manifest, which has the checksums of all files: so the signature is that of the whole backup.
func CheckSignature(ctx context.Context, store stores.Store, p stores.Patience, m *Manifest, verify func(manifest, signature []byte) error) error {
	return checkSignature(ctx, stores.WithPatience(store, p), m, verify)
}

func checkSignature(ctx context.Context, patient *stores.Patient, m *Manifest, verify func(manifest, signature []byte) error) error {
	entries, err := patient.List(ctx, m.signedAs())
	if err != nil {
		return err
	}
	var signature []byte
	for _, e := range entries {
		if e.Name != m.signedAs() {
			continue
		}
		err := patient.Read(ctx, e.Name, func(r io.Reader) (err error) {
			signature, err = io.ReadAll(io.LimitReader(r, maxSignature))
			return err
		})
		if err != nil {
			return err
		}
	}
	text, err := m.encode()
	if err == nil && signature == nil {
		err = ErrUnsigned
	}
	if err == nil {
		err = verify(text, signature)
	}
	if err != nil {
		return &SignatureError{m.Name(), err}
	}
	return nil
}

// sign stores the signature of a manifest. It is there before the manifest is, so that no backup lacks it.
func (c *creation) sign(ctx context.Context, text []byte) error {
	if c.Sign == nil {
		return nil
	}
	signature, err := c.Sign(text)
	if err != nil {
		return err
	}
	return c.store.Put(ctx, c.m.signedAs(), bytes.NewReader(signature), int64(len(signature)))
}
