package artifact

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"stele.dev/stele/cmd/stele/internal/signers"
)

const (
	// Namespace is the namespace of signatures of policies, for which a line of allowed signers must allow a key.
	Namespace = "policy@stele.dev"
	// signatureSuffix ends the tag of a signature.
	signatureSuffix = ".stele-sig"
	// maxSignature limits the size of a signature.
	maxSignature = 16 << 10
)

// ErrUnsigned reports that a registry has no signature of an artifact.
var ErrUnsigned = errors.New("it is not signed; `stele policy publish --sign-key` signs it")

// Sign signs an artifact with the private SSH key in a file. What is signed is the text of its digest.
func (a *Artifact) Sign(file string) ([]byte, error) {
	key, err := signers.ReadKey(file)
	if err != nil {
		return nil, err
	}
	return key.Sign([]byte(a.Digest()), Namespace)
}

// signatureOf returns the tag of an artifact's signature.
func (r *Registry) signatureOf(digest string) name.Reference {
	return r.ref.repository.Tag(strings.Replace(digest, ":", "-", 1) + signatureSuffix)
}

// Signature reads the signature of an artifact. The error is [ErrUnsigned] if there is none, and an [*InvalidError] if
// it is not what this program makes.
func (r *Registry) Signature(ctx context.Context, digest string) ([]byte, error) {
	m, err := r.manifest(ctx, r.signatureOf(digest), SignatureType, signatureLayer)
	switch {
	case missing(err):
		return nil, ErrUnsigned
	case err != nil:
		return nil, err
	case m.Size > maxSignature:
		return nil, &InvalidError{m.Digest, fmt.Errorf("the signature has more than %d KiB", maxSignature>>10)}
	}
	return r.layer(ctx, m)
}
