package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is a file or a symbolic link of an installation.
type entry struct {
	path   string // absolute, in the installation
	source string // the file with its content
	target string // of a link
	mode   fs.FileMode
}

// tree is the files of an installation, sorted by path.
type tree struct{ entries []entry }

// stage has the program install itself below a folder, as packages have it.
func stage(ctx context.Context, program, folder string) (*tree, error) {
	if _, err := output(ctx, ".", []string{"GOMEMLIMIT="}, program, "install", "--systemd", "--prefix", "/usr", "--root", folder); err != nil {
		return nil, err
	}
	t := &tree{}
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		e := entry{path: strings.TrimPrefix(file, folder), source: file}
		if d.Type()&fs.ModeSymlink != 0 {
			e.source = ""
			if e.target, err = os.Readlink(file); err != nil {
				return err
			}
		} else if info, err := d.Info(); err != nil {
			return err
		} else {
			e.mode = info.Mode().Perm()
		}
		t.entries = append(t.entries, e)
		return nil
	})
	return t, err
}

// with returns the tree with another content of a file.
func (t *tree) with(path, source string) *tree {
	entries := slices.Clone(t.entries)
	for i := range entries {
		if entries[i].path == path {
			entries[i].source = source
		}
	}
	return &tree{entries}
}
