// Package artifact keeps bundles as artifacts in OCI registries: it packs, pushes, signs, reads and verifies them. The
// bytes of an artifact depend on the bundle and its commit only, so that the same bundle has the same digest.
package artifact

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"stele.dev/stele/policy/bundles"
)

const (
	// Type is the artifact type of a policy, and SignatureType that of its signature.
	Type          = "application/vnd.stele.policy.v1"
	SignatureType = "application/vnd.stele.policy.signature.v1"

	moduleLayer    = "application/vnd.stele.policy.module.v1.tar"
	signatureLayer = "application/vnd.stele.policy.signature.v1.sshsig"
	emptyConfig    = "application/vnd.oci.empty.v1+json" // artifacts have no configuration

	// packageKey is the annotation with the folder of the bundle in its module, and revisionKey that with its commit.
	packageKey  = "dev.stele.policy.package"
	revisionKey = "org.opencontainers.image.revision"

	// maxFiles limits the number of files in an artifact.
	maxFiles = 10_000
)

// emptyObject is the content of an empty configuration.
var emptyObject = []byte("{}")

// Artifact is a manifest and its only layer. It is immutable.
type Artifact struct {
	manifest, layer []byte
	layerType       types.MediaType
	digest          v1.Hash // of the manifest
}

// Pack returns a bundle as an artifact. commit is the commit of its files; "" if it is not known.
func Pack(source *bundles.Source, commit string) (*Artifact, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range slices.SortedFunc(slices.Values(source.Files), func(a, b bundles.File) int { return cmp.Compare(a.Path, b.Path) }) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Size: int64(len(f.Data)), Mode: 0o644}); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	annotations := map[string]string{packageKey: source.Package}
	if commit != "" {
		annotations[revisionKey] = commit
	}
	return build(Type, moduleLayer, layer.Bytes(), annotations)
}

// build returns the artifact with a layer.
func build(kind string, layerType types.MediaType, layer []byte, annotations map[string]string) (*Artifact, error) {
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: kind, Annotations: annotations}
	m.Config = descriptor(emptyConfig, emptyObject)
	m.Layers = []v1.Descriptor{descriptor(layerType, layer)}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &Artifact{manifest: text, layer: layer, layerType: layerType, digest: descriptor("", text).Digest}, nil
}

// descriptor describes bytes.
func descriptor(kind types.MediaType, content []byte) v1.Descriptor {
	hash, size, _ := v1.SHA256(bytes.NewReader(content)) // reading memory does not fail
	return v1.Descriptor{MediaType: kind, Size: size, Digest: hash}
}

// Digest returns the digest of the manifest, as sha256:HEX.
func (a *Artifact) Digest() string { return a.digest.String() }

// RawManifest returns the bytes of the manifest, for pushing.
func (a *Artifact) RawManifest() ([]byte, error) { return a.manifest, nil }

// MediaType returns the type of the manifest, for pushing.
func (a *Artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// Manifest says what an artifact is.
type Manifest struct {
	// Digest identifies the artifact for ever, as sha256:HEX.
	Digest string
	// Package is the folder of the bundle in its module, and Commit the commit of its files; "" if it is not known.
	Package, Commit string
	// Size is the number of bytes of the layer.
	Size int64

	layer v1.Hash
}

// parse reads the manifest of an artifact of a kind.
func parse(text []byte, kind string, layerType types.MediaType) (*Manifest, error) {
	var m v1.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	switch {
	case m.ArtifactType != kind:
		return nil, fmt.Errorf("its artifact type is %q, want %s; `stele policy publish` makes such artifacts", m.ArtifactType, kind)
	case len(m.Layers) != 1 || m.Layers[0].MediaType != layerType:
		return nil, fmt.Errorf("its manifest has not exactly one layer of type %s", layerType)
	case m.Layers[0].Size < 0 || m.Layers[0].Digest.Algorithm != "sha256":
		return nil, errors.New("its layer has no size or no SHA-256 digest")
	case kind == Type && !fs.ValidPath(m.Annotations[packageKey]):
		return nil, fmt.Errorf("its annotation %s is %q, want the folder of the bundle", packageKey, m.Annotations[packageKey])
	}
	return &Manifest{
		Digest: descriptor("", text).Digest.String(), Package: m.Annotations[packageKey], Commit: m.Annotations[revisionKey],
		Size: m.Layers[0].Size, layer: m.Layers[0].Digest,
	}, nil
}

// unpack reads the files of a layer. It refuses all that [Pack] does not write.
func unpack(layer []byte, pkg string) (*bundles.Source, error) {
	source := &bundles.Source{Package: pkg}
	r := tar.NewReader(bytes.NewReader(layer))
	var size int64
	for {
		h, err := r.Next()
		if err == io.EOF {
			return source, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its layer is no tar archive: %w", err)
		}
		size += h.Size
		last := ""
		if n := len(source.Files); n > 0 {
			last = source.Files[n-1].Path
		}
		switch {
		case h.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%q in it is a link or no regular file", h.Name)
		case !bundles.ValidPath(h.Name):
			return nil, fmt.Errorf("%q in it is not the path of a source file", h.Name)
		case strings.Compare(h.Name, last) <= 0:
			return nil, fmt.Errorf("%q in it is not sorted by path, or there twice", h.Name)
		case len(source.Files) == maxFiles:
			return nil, fmt.Errorf("it has more than %d files", maxFiles)
		case size > int64(len(layer)): // a sparse file
			return nil, fmt.Errorf("%q in it is larger than the layer", h.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("its layer is damaged: %w", err)
		}
		source.Files = append(source.Files, bundles.File{Path: h.Name, Data: data})
	}
}
