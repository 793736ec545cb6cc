package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group of the image. It has a number that is nobody's on usual machines, and no rights.
const imageUser = 65532

// imageName returns the name of the archive with the image.
func (b *build) imageName() string { return fmt.Sprintf("stele_%s_oci.tar", b.version) }

// image writes an image for several platforms as an archive with an OCI layout, and returns its name. The image has nothing but
// the program, the authorities of TLS, the user and its folders.
func (b *build) image(programs map[platform]string, staged *tree) (string, error) {
	work, err := os.MkdirTemp("", "image")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	annotations := map[string]string{
		"org.opencontainers.image.title": "stele", "org.opencontainers.image.version": b.version, "org.opencontainers.image.revision": b.commit,
		"org.opencontainers.image.created": b.time.Format("2006-01-02T15:04:05Z07:00"),
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range b.platforms {
		if programs[p] == "" {
			continue
		}
		image, err := b.imageOf(p, staged.with("/usr/bin/stele", programs[p]), programs[p], work)
		if err != nil {
			return "", err
		}
		image = mutate.Annotations(image, annotations).(v1.Image)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	index = mutate.Annotations(index, annotations).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	b.imageDigest = digest.String()
	folder := filepath.Join(work, "layout")
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return "", err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": b.version, "io.containerd.image.name": "stele:" + b.version})); err != nil {
		return "", err
	}
	return b.imageName(), b.tarFolder(b.imageName(), folder)
}

// imageOf returns the image of a platform.
func (b *build) imageOf(p platform, t *tree, program, work string) (v1.Image, error) {
	file := filepath.Join(work, p.arch+".tar.gz")
	if err := b.layer(file, t, program); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: p.arch, OS: p.os, Created: v1.Time{Time: b.time},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%d", imageUser, imageUser), Entrypoint: []string{"/usr/bin/stele"}, Cmd: []string{"serve"}, WorkingDir: "/var/lib/stele",
			// What the program would take from here: its data, and an address that others reach.
			Env:          []string{"PATH=/usr/bin", "HOME=/var/lib/stele", "STELE_DATA_DIR=/var/lib/stele", "STELE_LISTEN=:6443"},
			ExposedPorts: map[string]struct{}{"6443/tcp": {}}, Volumes: map[string]struct{}{"/var/lib/stele": {}},
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: b.time}, CreatedBy: "make release"}})
}

// layer writes the files of the image.
func (b *build) layer(file string, t *tree, program string) (err error) {
	notices, err := noticesOf(program, b.root)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip := gzip.NewWriter(out)
	w := newTarWriter(zip, b.time)
	user := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nstele:x:%d:%d:stele:/var/lib/stele:/sbin/nologin\n", imageUser, imageUser)
	group := fmt.Sprintf("root:x:0:\nstele:x:%d:\n", imageUser)
	err = errors.Join(
		w.bytes("etc/passwd", []byte(user), 0o644, 0), w.bytes("etc/group", []byte(group), 0o644, 0),
		w.bytes("etc/ssl/certs/ca-certificates.crt", authorities(), 0o644, 0),
		w.bytes("usr/share/doc/stele/"+noticesName, notices, 0o644, 0),
		w.folder("var/lib/stele", 0o700, imageUser), w.folder("tmp", 0o1777, 0))
	for _, e := range t.entries {
		if filepath.Dir(e.path) == "/usr/bin" {
			err = errors.Join(err, w.entry(e.path[1:], e))
		}
	}
	return errors.Join(err, w.Close(), zip.Close())
}

// authorities returns the certificates of the authorities that Mozilla trusts, as a module of Go has them. Those with conditions
// that a file cannot say are left out.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return text.Bytes()
}

// tarFolder writes a folder as an archive of the release.
func (b *build) tarFolder(name, folder string) (err error) {
	var paths []string
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(paths)
	file, err := b.create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := newTarWriter(file, b.time)
	for _, path := range paths {
		relative, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if err := w.entry(filepath.ToSlash(relative), entry{source: path, mode: 0o644}); err != nil {
			return err
		}
	}
	return w.Close()
}

// openImage unpacks the image of a release into a folder, and returns its index.
func openImage(archive, folder string) (v1.ImageIndex, error) {
	file, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := untar(file, folder); err != nil {
		return nil, err
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("%s has %d images, and should have one", archive, len(manifest.Manifests))
	}
	return outer.ImageIndex(manifest.Manifests[0].Digest)
}

// untar unpacks an archive into a folder, and nothing outside of it.
func untar(r io.Reader, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(header.Name), 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(header.Linkname, header.Name)
		case tar.TypeReg:
			err = unpackFile(root, header, archive)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, header *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(header.Name), 0o755); err != nil {
		return err
	}
	file, err := root.OpenFile(header.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// push sends the image of a release to a registry, and prints its name with its digest.
func push(ctx context.Context, root, dist, reference string) error {
	if !filepath.IsAbs(dist) {
		dist = filepath.Join(root, dist)
	}
	found, err := filepath.Glob(filepath.Join(dist, "stele_*_oci.tar"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("%s has %d images; want the folder of one release, which `make release` makes", dist, len(found))
	}
	ref, err := name.ParseReference(reference)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "push")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	index, err := openImage(found[0], work)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(ref.Context().Digest(digest.String()))
	return nil
}
