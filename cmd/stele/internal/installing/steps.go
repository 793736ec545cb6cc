package installing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// step is one thing that an installation or its removal changes.
type step struct {
	does string               // what the user reads
	done func() (bool, error) // reports that nothing is to do; nil if that cannot be known
	run  func(context.Context) error
}

// runSteps runs the steps that are not done, and prints each. With dryRun it only prints them. It returns how many there were.
func runSteps(ctx context.Context, out io.Writer, dryRun bool, steps []step) (n int, err error) {
	for _, s := range steps {
		if s.done != nil {
			if done, err := s.done(); err != nil {
				return n, err
			} else if done {
				continue
			}
		}
		n++
		if _, err := fmt.Fprintln(out, "  "+s.does); err != nil {
			return n, err
		}
		if dryRun {
			continue
		}
		if err := s.run(ctx); err != nil {
			return n, err
		}
	}
	return n, nil
}

// writeFiles returns a step that writes files below a root.
func writeFiles(root, does string, files ...file) step {
	return step{
		does: does,
		done: func() (bool, error) {
			for _, f := range files {
				if same, err := f.isAt(filepath.Join(root, f.path)); err != nil || !same {
					return false, err
				}
			}
			return true, nil
		},
		run: func(context.Context) error {
			for _, f := range files {
				if err := f.writeTo(filepath.Join(root, f.path)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// isAt reports whether a path has the file, with its content and mode.
func (f *file) isAt(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if f.target != "" {
		target, err := os.Readlink(path)
		return err == nil && target == f.target, nil
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != f.mode {
		return false, nil
	}
	text, err := os.ReadFile(path)
	return bytes.Equal(text, f.content), err
}

// writeTo replaces a path by the file, at once.
func (f *file) writeTo(path string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if f.target != "" {
		return renameio.Symlink(f.target, path)
	}
	return renameio.WriteFile(path, f.content, f.mode, beside(path), renameio.WithStaticPermissions(f.mode))
}

// beside has a file made in the folder where it is to be. In the folder of temporary files it would get another label of SELinux, with
// which systemd starts nothing.
func beside(path string) renameio.Option { return renameio.WithTempDir(filepath.Dir(path)) }

// makeFolder makes a folder, and those above it, that everybody can read, whatever the umask is.
func makeFolder(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

// copyProgram returns a step that copies the running program, unless it runs from where it is to be.
func copyProgram(root, from, to string) step {
	target := filepath.Join(root, to)
	return step{
		does: "copy the program to " + to,
		done: func() (bool, error) { return sameContent(from, target) },
		run: func(context.Context) error {
			if err := makeFolder(filepath.Dir(target)); err != nil {
				return err
			}
			source, err := os.Open(from)
			if err != nil {
				return err
			}
			defer source.Close()
			pending, err := renameio.NewPendingFile(target, beside(target), renameio.WithStaticPermissions(0o755))
			if err != nil {
				return err
			}
			defer pending.Cleanup()
			if _, err := io.Copy(pending, source); err != nil {
				return err
			}
			return pending.CloseAtomicallyReplace()
		},
	}
}

// sameContent reports whether two files are one, or have the same bytes.
func sameContent(a, b string) (bool, error) {
	one, err := os.Open(a)
	if err != nil {
		return false, err
	}
	defer one.Close()
	other, err := os.Open(b)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer other.Close()
	x, err := one.Stat()
	if err != nil {
		return false, err
	}
	y, err := other.Stat()
	if err != nil || x.Size() != y.Size() {
		return false, err
	}
	return os.SameFile(x, y) || sameBytes(one, other), nil
}

// sameBytes reports whether two readers of the same length have the same bytes.
func sameBytes(a, b io.Reader) bool {
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := io.ReadFull(a, x)
		m, _ := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
	}
}

// removeFiles returns a step that removes files below a root. Their names may be patterns.
func removeFiles(root, does string, patterns ...string) step {
	find := func() (found []string, err error) {
		for _, p := range patterns {
			folder, name := filepath.Split(filepath.Join(root, p))
			entries, err := os.ReadDir(folder)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, e := range entries {
				if is, err := filepath.Match(name, e.Name()); err != nil {
					return nil, err
				} else if is {
					found = append(found, filepath.Join(folder, e.Name()))
				}
			}
		}
		return found, nil
	}
	return step{
		does: does,
		done: func() (bool, error) { found, err := find(); return len(found) == 0, err },
		run: func(context.Context) error {
			found, err := find()
			for _, path := range found {
				err = errors.Join(err, os.RemoveAll(path))
			}
			return err
		},
	}
}

// removeFolder returns a step that removes a folder below a root. Of a disk that is mounted there it removes what is on it.
func removeFolder(root, does, path string) step {
	target := filepath.Join(root, path)
	return step{
		does: does,
		done: func() (bool, error) {
			info, err := os.Lstat(target)
			if errors.Is(err, fs.ErrNotExist) {
				return true, nil
			}
			if err == nil && !info.IsDir() {
				to, _ := os.Readlink(target) // "" for what is no link
				err = fmt.Errorf("%s is no folder, but leads to %q; remove both yourself", target, to)
			}
			return false, err
		},
		run: func(context.Context) error {
			entries, err := os.ReadDir(target)
			for _, e := range entries {
				err = errors.Join(err, os.RemoveAll(filepath.Join(target, e.Name())))
			}
			if err != nil {
				return err
			}
			if err := os.Remove(target); !errors.Is(err, syscall.EBUSY) {
				return err
			}
			return nil
		},
	}
}
