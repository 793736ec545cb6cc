package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/docker/cli/cli/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"stele.dev/stele/policy/bundles"
)

// Registry is the repository of a reference, in a registry. It speaks HTTPS, and plain HTTP only with this machine.
type Registry struct {
	ref     Reference
	options []remote.Option
	puller  *remote.Puller
}

// Open returns the registry of a reference, without asking it. credentials is a file like docker's config.json; "" for
// the configuration of docker or podman of the user.
func Open(ref Reference, credentials string) (*Registry, error) {
	keys, err := keychain(credentials)
	if err != nil {
		return nil, err
	}
	r := &Registry{ref: ref, options: []remote.Option{
		remote.WithAuthFromKeychain(keys), remote.WithUserAgent("stele"), remote.WithTransport(&secure{ref, remote.DefaultTransport}),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}), // the caller tries again
	}}
	r.puller, err = remote.NewPuller(r.options...)
	return r, err
}

// keychain returns the credentials of a file, or else of the user.
func keychain(file string) (authn.Keychain, error) {
	if file == "" {
		return authn.DefaultKeychain, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed, err := config.LoadFromReader(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return resolver(func(target authn.Resource) (authn.Authenticator, error) {
		host := target.RegistryStr()
		if host == name.DefaultRegistry {
			host = authn.DefaultAuthKey
		}
		found, err := parsed.GetAuthConfig(host)
		if err != nil {
			return nil, err
		}
		c := authn.AuthConfig{Username: found.Username, Password: found.Password, Auth: found.Auth, IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken}
		if c == (authn.AuthConfig{}) {
			return authn.Anonymous, nil
		}
		return authn.FromConfig(c), nil
	}), nil
}

// resolver is a function as a keychain.
type resolver func(authn.Resource) (authn.Authenticator, error)

// Resolve calls the function.
func (f resolver) Resolve(target authn.Resource) (authn.Authenticator, error) { return f(target) }

// secure refuses plain HTTP, unless both the registry and the host that is asked are this machine. The library would
// speak it with private addresses.
type secure struct {
	ref  Reference
	next http.RoundTripper
}

// RoundTrip sends a request.
func (s *secure) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" || s.ref.local() && loopback(req.URL.Host) {
		return s.next.RoundTrip(req)
	}
	if req.URL.Host != s.ref.repository.RegistryStr() {
		return nil, fmt.Errorf("the registry leads to %s://%s: only https is used", req.URL.Scheme, req.URL.Host)
	}
	req = req.Clone(req.Context())
	req.URL.Scheme = "https"
	return s.next.RoundTrip(req)
}

// Push pushes an artifact and its signature, and then moves the tag of the reference to it. signature is nil for none.
func (r *Registry) Push(ctx context.Context, a *Artifact, signature []byte) error {
	if r.ref.Pinned() {
		return errTagNeeded
	}
	pusher, err := remote.NewPusher(r.options...)
	if err != nil {
		return err
	}
	put := func(a *Artifact, as name.Reference) error {
		for _, layer := range []v1.Layer{static.NewLayer(emptyObject, emptyConfig), static.NewLayer(a.layer, a.layerType)} {
			if err := pusher.Upload(ctx, r.ref.repository, layer); err != nil {
				return err
			}
		}
		return pusher.Put(ctx, as, a)
	}
	if err := put(a, r.ref.repository.Digest(a.Digest())); err != nil {
		return err
	}
	if signature != nil {
		signed, err := build(SignatureType, signatureLayer, signature, nil)
		if err != nil {
			return err
		}
		if err := put(signed, r.signatureOf(a.Digest())); err != nil {
			return err
		}
	}
	return pusher.Put(ctx, r.ref.name(), a)
}

// InvalidError reports that an artifact is not what this program makes.
type InvalidError struct {
	Digest string
	Why    error
}

// Error says what is wrong.
func (e *InvalidError) Error() string { return fmt.Sprintf("artifact %s: %v", e.Digest, e.Why) }

// Unwrap returns what is wrong.
func (e *InvalidError) Unwrap() error { return e.Why }

// Digest asks for the digest of what the reference names now, without reading it. Registries count reads, and not this.
// Not every registry answers it.
func (r *Registry) Digest(ctx context.Context) (string, error) {
	found, err := r.puller.Head(ctx, r.ref.name())
	if err != nil {
		return "", err
	}
	return found.Digest.String(), nil
}

// Manifest reads the manifest that the reference names now. The error is an [*InvalidError] if it is no policy.
func (r *Registry) Manifest(ctx context.Context) (*Manifest, error) {
	return r.manifest(ctx, r.ref.name(), Type, moduleLayer)
}

func (r *Registry) manifest(ctx context.Context, ref name.Reference, kind string, layer types.MediaType) (*Manifest, error) {
	found, err := r.puller.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	m, err := parse(found.Manifest, kind, layer)
	if err != nil {
		return nil, &InvalidError{descriptor("", found.Manifest).Digest.String(), err}
	}
	return m, nil
}

// Read reads the bundle of an artifact, and verifies it by the digests in the manifest.
func (r *Registry) Read(ctx context.Context, m *Manifest) (*bundles.Source, error) {
	layer, err := r.layer(ctx, m)
	if err != nil {
		return nil, err
	}
	source, err := unpack(layer, m.Package)
	if err != nil {
		return nil, &InvalidError{m.Digest, err}
	}
	return source, nil
}

// layer reads the layer of an artifact. It reads no more than the manifest says.
func (r *Registry) layer(ctx context.Context, m *Manifest) ([]byte, error) {
	layer, err := r.puller.Layer(ctx, r.ref.repository.Digest(m.layer.String()))
	if err != nil {
		return nil, err
	}
	body, err := layer.Compressed() // as it is stored
	if err != nil {
		return nil, err
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, m.Size+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) != m.Size || fmt.Sprintf("%x", sha256.Sum256(content)) != m.layer.Hex {
		return nil, &InvalidError{m.Digest, fmt.Errorf("the registry has another layer than the manifest says: want %d bytes with digest %s", m.Size, m.layer)}
	}
	return content, nil
}

// missing reports whether a registry has answered that something does not exist.
func missing(err error) bool {
	var answer *transport.Error
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}
