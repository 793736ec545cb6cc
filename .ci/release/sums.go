package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// The names of the files that tell whether the others are right.
const (
	sumsName      = "SHA256SUMS"
	signatureName = "SHA256SUMS.sig"
	// namespace says what the signature is for, so that a signature of a commit by the same key is none of a release.
	namespace = "stele-release"
)

type digestSet map[string]string

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string    `json:"name,omitempty"`
	URI    string    `json:"uri,omitempty"`
	Digest digestSet `json:"digest"`
}

// statement is an in-toto Statement v1 with a predicate of SLSA v1, see https://slsa.dev/spec/v1.0/provenance.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string         `json:"buildType"`
			ExternalParameters   map[string]any `json:"externalParameters"`
			InternalParameters   map[string]any `json:"internalParameters"`
			ResolvedDependencies []resource     `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

// provenance writes an in-toto statement with SLSA's provenance v1: the commit, the builder and the flags of the build. It has no times,
// so that each builder of a commit gets the same bytes.
func (b *build) provenance(files []string) error {
	s := &statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range files {
		digest, err := digestOf(filepath.Join(b.out, name))
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: digestSet{"sha256": digest}})
	}
	if b.imageDigest != "" {
		s.Subject = append(s.Subject, resource{Name: "image", Digest: digestSet{"sha256": strings.TrimPrefix(b.imageDigest, "sha256:")}})
	}
	var platforms []string
	for _, p := range b.platforms {
		platforms = append(platforms, p.String())
	}
	definition := &s.Predicate.BuildDefinition
	definition.BuildType = "https://stele.dev/stele/make-release/v1"
	definition.ExternalParameters = map[string]any{"version": b.version, "platforms": platforms}
	definition.InternalParameters = map[string]any{"go": runtime.Version(), "flags": b.buildFlags(), "environment": "CGO_ENABLED=0"}
	definition.ResolvedDependencies = []resource{{URI: b.source, Digest: digestSet{"gitCommit": b.commit}}}
	s.Predicate.RunDetails.Builder.ID = b.builder
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return b.write(fmt.Sprintf("stele_%s.provenance.json", b.version), append(text, '\n'))
}

// write writes a small file of the release.
func (b *build) write(name string, text []byte) error {
	file, err := b.create(name)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// checksums writes the SHA-256 of all files of the release, as sha256sum does, and signs them if there is a key.
func (b *build) checksums() error {
	entries, err := os.ReadDir(b.out) // sorted by name
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		digest, err := digestOf(filepath.Join(b.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest, e.Name())
	}
	if err := b.write(sumsName, sums.Bytes()); err != nil || b.key == "" {
		return err
	}
	signer, err := readKey(b.key)
	if err != nil {
		return err
	}
	signature, err := sshsig.Sign(bytes.NewReader(sums.Bytes()), signer, sshsig.HashSHA512, namespace)
	if err != nil {
		return err
	}
	return b.write(signatureName, sshsig.Armor(signature))
}

// readKey reads the key that signs.
func readKey(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("%s: want a private SSH key without a passphrase: %w", file, err)
	}
	return signer, nil
}
