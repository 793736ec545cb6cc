package bundles

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/policy/format"
)

// Source is the CUE of a bundle: the files of its module as they were at one moment,
// and which package of it is meant.
type Source struct {
	// Package is the package's folder below the module's root, "." for the root.
	Package string
	// Files are the .cue files of the module, and those of data that they embed, sorted by
	// path.
	Files []File
	// Strays are the paths of CustomResourceDefinitions in the module that nothing embeds.
	Strays []string
	// NearMisses are the paths of files whose names are almost those of CUE: access.cu.
	NearMisses []string
}

// File is a source file. Path is relative to the module's root, with slashes.
type File struct {
	Path string
	Data []byte
}

// ReadDir reads the module that the folder belongs to; the folder is its package. It reads
// regular files within limits, and nothing that is outside of the module.
func ReadDir(dir string) (*Source, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(abs); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", dir)
	}
	root := abs
	for {
		if info, err := os.Stat(filepath.Join(root, "cue.mod")); err == nil && info.IsDir() {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return nil, fmt.Errorf("%s is in no CUE module: there is no folder cue.mod in it or above; `cue mod init example.com/policy` makes one", dir)
		}
		root = parent
	}
	pkg, err := filepath.Rel(root, abs)
	if err != nil {
		return nil, err
	}
	module, err := openFolder(root)
	if err != nil {
		return nil, err
	}
	defer module.close()
	return ReadFS(module, filepath.ToSlash(pkg))
}

// ReadFS reads the module whose root is the root of the file system.
func ReadFS(module fs.FS, pkg string) (*Source, error) {
	s := &Source{Package: path.Clean(pkg)}
	r := &reading{module: module, source: s}
	var data []string
	err := fs.WalkDir(module, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// CUE leaves out what begins so: lock files of editors, for one.
		ignored := p != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
		switch {
		case d.IsDir() && ignored:
			return fs.SkipDir
		case !d.IsDir() && !ignored && nearMiss(d.Name()):
			s.NearMisses = append(s.NearMisses, p)
			return nil
		case d.IsDir(), ignored, !IsSource(p), format.Has(p):
			return nil
		case path.Ext(p) != ".cue":
			data = append(data, p)
			return nil
		}
		return r.read(p)
	})
	if err == nil {
		err = r.withData(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return s, nil
}

// ValidPath tells whether a file of a source can have this path.
func ValidPath(name string) bool {
	return fs.ValidPath(name) && IsSource(name) && !format.Has(name)
}

// Size is how many bytes the files have.
func (s *Source) Size() (n int64) {
	for _, f := range s.Files {
		n += int64(len(f.Data))
	}
	return n
}

// Only returns the source with those files alone that have one of these paths.
func (s *Source) Only(paths []string) *Source {
	only := &Source{Package: s.Package}
	for _, f := range s.Files {
		if slices.Contains(paths, f.Path) {
			only.Files = append(only.Files, f)
		}
	}
	return only
}

// Digest identifies the files and the package, whatever they mean.
func (s *Source) Digest() [sha256.Size]byte {
	h := sha256.New()
	write := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	write([]byte(s.Package))
	for _, f := range s.Files {
		write([]byte(f.Path))
		write(f.Data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
