package artifact

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// Reference names an artifact in a registry: REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY[:TAG]@sha256:HEX.
type Reference struct {
	text       string
	repository name.Repository
	tag        string // "" if the reference has a digest
	digest     string // "" if the tag decides
}

// ParseReference parses a reference. The registry must be named, and the tag or the digest.
func ParseReference(text string) (Reference, error) {
	parsed, err := name.ParseReference(text, name.StrictValidation)
	if err != nil {
		return Reference{}, fmt.Errorf("%q: want REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:HEX, for example registry.example.com/platform/policy:prod: %w", text, err)
	}
	r := Reference{text: text, repository: parsed.Context()}
	switch p := parsed.(type) {
	case name.Digest:
		if r.digest = p.DigestStr(); !strings.HasPrefix(r.digest, "sha256:") {
			return Reference{}, fmt.Errorf("%q: want a digest of SHA-256", text)
		}
	case name.Tag:
		if r.tag = p.TagStr(); strings.HasSuffix(r.tag, signatureSuffix) {
			return Reference{}, fmt.Errorf("%q: tags that end in %s are for signatures", text, signatureSuffix)
		}
	}
	return r, nil
}

// ParseTag parses a reference with a tag and without a digest, under which an artifact can be published.
func ParseTag(text string) (Reference, error) {
	r, err := ParseReference(text)
	if err == nil && r.Pinned() {
		err = fmt.Errorf("%q: %w", text, errTagNeeded)
	}
	return r, err
}

// String returns the reference as it was written.
func (r Reference) String() string { return r.text }

// Pinned reports whether the reference has a digest, so that it always names the same artifact.
func (r Reference) Pinned() bool { return r.digest != "" }

// name returns the reference for the registry.
func (r Reference) name() name.Reference {
	if r.Pinned() {
		return r.repository.Digest(r.digest)
	}
	return r.repository.Tag(r.tag)
}

// local reports whether the registry is on this machine.
func (r Reference) local() bool { return loopback(r.repository.RegistryStr()) }

// loopback reports whether a host, with or without a port, is this machine.
func loopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

var errTagNeeded = errors.New("an artifact is published under a tag: want REGISTRY/REPOSITORY:TAG without a digest")
