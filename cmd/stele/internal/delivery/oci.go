package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stele.dev/stele/cmd/stele/internal/artifact"
	"stele.dev/stele/cmd/stele/internal/signers"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/delivery"
	"stele.dev/stele/policy/bundles"
)

// ociActor is the user in the log who activates policies of a registry.
const ociActor = activation.ServerActor + ":policy-oci"

// OCI is an artifact of an OCI registry. It implements [delivery.Source]. It keeps nothing on disk.
type OCI struct {
	// Signers is the file of allowed signers, which is read for every pull; "" to verify no signatures.
	Signers string
	// Credentials is a file like docker's config.json, which is read for every pull; "" for the user's configuration.
	Credentials string
	// Timeout limits a pull, and MaxBytes the size of the artifact.
	Timeout  time.Duration
	MaxBytes int64

	ref artifact.Reference
	// manifest and signature were read last, so that they are not read again while the reference names the same artifact.
	manifest  *artifact.Manifest
	signature []byte
}

// Parse sets what the source follows: REGISTRY/REPOSITORY:TAG, or with a digest.
func (o *OCI) Parse(text string) (err error) {
	o.ref, err = artifact.ParseReference(text)
	return err
}

// String returns the reference.
func (o *OCI) String() string { return "oci " + o.ref.String() }

// Actor returns the user in the log who activates its policies.
func (o *OCI) Actor() string { return ociActor }

// Pull reads the manifest that the reference names now, and verifies its signature. A tag may move to any artifact that
// is signed, also back to an earlier one, so what was delivered last does not matter.
func (o *OCI) Pull(ctx context.Context, _ string) (v *delivery.Version, err error) {
	err = o.limited(ctx, func(ctx context.Context) error {
		v, err = o.pull(ctx)
		return err
	})
	return v, err
}

func (o *OCI) pull(ctx context.Context) (*delivery.Version, error) {
	registry, err := artifact.Open(o.ref, o.Credentials)
	if err != nil {
		return nil, fmt.Errorf("--policy-oci-credentials: %w", err)
	}
	m, err := o.newest(ctx, registry)
	var invalid *artifact.InvalidError
	switch {
	case errors.As(err, &invalid):
		return nil, &delivery.RefusedError{ID: invalid.Digest, Why: invalid.Why.Error()}
	case err != nil:
		return nil, err
	case m.Size > o.MaxBytes:
		return nil, &delivery.RefusedError{ID: m.Digest, Why: fmt.Sprintf("it has %d bytes, more than %d; --policy-oci-max-size raises the limit", m.Size, o.MaxBytes)}
	}
	signer, err := o.verify(ctx, registry, m.Digest)
	if err != nil {
		return nil, err
	}
	return &delivery.Version{ID: m.Digest, Signer: signer, Read: func(ctx context.Context) (source *bundles.Source, err error) {
		err = o.limited(ctx, func(ctx context.Context) error {
			source, err = registry.Read(ctx, m)
			return err
		})
		return source, err
	}}, nil
}

// newest returns the manifest that the reference names now. It reads it only if it is another one than before.
func (o *OCI) newest(ctx context.Context, registry *artifact.Registry) (*artifact.Manifest, error) {
	if o.manifest != nil {
		if digest, err := registry.Digest(ctx); err == nil && digest == o.manifest.Digest {
			return o.manifest, nil
		}
	}
	m, err := registry.Manifest(ctx)
	o.manifest, o.signature = m, nil
	return m, err
}

// limited calls a function with the limit of time, and names the source in its error.
func (o *OCI) limited(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%s did not answer within %s", o, o.Timeout))
	defer cancel()
	err := call(ctx)
	var refused *delivery.RefusedError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &refused):
		return err
	}
	return fmt.Errorf("pull %s: %w", o, err)
}

// verify returns who signed an artifact. The key must be allowed now, because a signature has no time of its own.
func (o *OCI) verify(ctx context.Context, registry *artifact.Registry, digest string) (string, error) {
	if o.Signers == "" {
		return "", nil
	}
	allowed, err := signers.Read(o.Signers)
	if err != nil {
		return "", fmt.Errorf("--policy-oci-signers: %w", err)
	}
	if o.signature != nil {
		if principals, err := allowed.Verify([]byte(digest), o.signature, artifact.Namespace, time.Now()); err == nil {
			return principals, nil
		} // it may have been replaced
	}
	signature, err := registry.Signature(ctx, digest)
	var invalid *artifact.InvalidError
	switch {
	case errors.Is(err, artifact.ErrUnsigned):
		return "", &delivery.RefusedError{ID: digest, Why: err.Error()}
	case errors.As(err, &invalid):
		return "", &delivery.RefusedError{ID: digest, Why: "its signature: " + err.Error()}
	case err != nil:
		return "", err
	}
	principals, err := allowed.Verify([]byte(digest), signature, artifact.Namespace, time.Now())
	if err != nil {
		return "", &delivery.RefusedError{ID: digest, Why: err.Error()}
	}
	o.signature = signature
	return principals, nil
}
