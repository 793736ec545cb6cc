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
	"unicode"
	"unicode/utf8"

	"stele.dev/stele/policy/format"
)

// Source is the CUE of a bundle: the files of its module at one moment, and the package of the
// bundle.
type Source struct {
	// Package is the package's folder, relative to the module's root; "." is the root.
	Package string
	// Files are the .cue files of the module and the data files that they embed, sorted by path.
	Files []File
	// Strays are the paths of CustomResourceDefinitions in the module that no file embeds.
	Strays []string
	// NearMisses are the paths of files whose names are likely typos of .cue files, such as
	// access.cu.
	NearMisses []string

	mark string // of schemas that are left out, see LoadOutlined; "" if none are
}

// File is a source file. Its path is relative to the module's root, with slashes.
type File struct {
	Path string
	Data []byte
}

// ReadDir reads the module that contains a folder; the folder is the bundle's package. It reads
// regular files inside of the module only, within limits.
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

// ReadFS reads the module at the root of a file system.
func ReadFS(module fs.FS, pkg string) (*Source, error) {
	s := &Source{Package: path.Clean(pkg)}
	r := &reading{module: module, source: s}
	var data []string
	err := fs.WalkDir(module, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// CUE ignores names that begin with "." or "_", for example lock files of editors.
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

// ValidPath reports whether a source file can have this path.
func ValidPath(name string) bool {
	return fs.ValidPath(name) && IsSource(name) && !format.Has(name) && isPrintable(name)
}

// isPrintable reports whether a path has no characters that move the cursor, start a line or change the direction of text: reports and
// reviews show paths.
func isPrintable(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
	})
}

// Size returns the sum of the files' sizes.
func (s *Source) Size() (n int64) {
	for _, f := range s.Files {
		n += int64(len(f.Data))
	}
	return n
}

// Only returns a source with only the files at these paths.
func (s *Source) Only(paths []string) *Source {
	only := &Source{Package: s.Package}
	for _, f := range s.Files {
		if slices.Contains(paths, f.Path) {
			only.Files = append(only.Files, f)
		}
	}
	return only
}

// Digest returns a digest of the files and the package.
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
