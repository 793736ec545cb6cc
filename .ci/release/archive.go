package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archive writes the archive of a platform: what is below /usr, without the service, which `stele install --systemd` makes.
func (b *build) archive(p platform, t *tree, notices []byte) (name string, err error) {
	name = b.name(p, ".tar.gz")
	file, err := b.create(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zip := gzip.NewWriter(file)
	w := newTarWriter(zip, b.time)
	folder := strings.TrimSuffix(name, ".tar.gz")
	for _, e := range t.entries {
		below, ok := strings.CutPrefix(e.path, "/usr/")
		if ok && !strings.HasPrefix(below, "lib/") {
			if err := w.entry(path.Join(folder, below), e); err != nil {
				return "", err
			}
		}
	}
	documents, err := b.documents()
	if err != nil {
		return "", err
	}
	for _, d := range documents {
		if err := w.entry(path.Join(folder, path.Base(d)), entry{source: d, mode: 0o644}); err != nil {
			return "", err
		}
	}
	if err := w.bytes(path.Join(folder, noticesName), notices, 0o644, 0); err != nil {
		return "", err
	}
	return name, errors.Join(w.Close(), zip.Close())
}

// documents returns the files of the source that an archive has, too: the license, if there is one, and the installation.
func (b *build) documents() ([]string, error) {
	var found []string
	for _, pattern := range []string{"LICENSE*", "NOTICE*", "CHANGELOG.md", "docs/INSTALL.md"} {
		files, err := filepath.Glob(filepath.Join(b.root, pattern))
		if err != nil {
			return nil, err
		}
		found = append(found, files...)
	}
	slices.Sort(found)
	return found, nil
}

// tarWriter writes archives whose bytes depend on names, modes and contents only.
type tarWriter struct {
	*tar.Writer
	time time.Time
	made map[string]bool // folders
}

func newTarWriter(w io.Writer, at time.Time) *tarWriter {
	return &tarWriter{tar.NewWriter(w), at, map[string]bool{}}
}

// folder writes a folder and those above it, once. Folders above it belong to root.
func (w *tarWriter) folder(name string, mode fs.FileMode, owner int) error {
	if name == "." || name == "/" || w.made[name] {
		return nil
	}
	if err := w.folder(path.Dir(name), 0o755, 0); err != nil {
		return err
	}
	w.made[name] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode), Uid: owner, Gid: owner, ModTime: w.time, Format: tar.FormatUSTAR})
}

// entry writes an entry under a name.
func (w *tarWriter) entry(name string, e entry) error {
	if err := w.folder(path.Dir(name), 0o755, 0); err != nil {
		return err
	}
	if e.target != "" {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: e.target, Mode: 0o777, ModTime: w.time, Format: tar.FormatUSTAR})
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: int64(e.mode), ModTime: w.time, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}

// bytes writes a file with a content.
func (w *tarWriter) bytes(name string, content []byte, mode fs.FileMode, owner int) error {
	if err := w.folder(path.Dir(name), 0o755, 0); err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: int64(mode), Uid: owner, Gid: owner, ModTime: w.time, Format: tar.FormatUSTAR}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(w, bytes.NewReader(content))
	return err
}
