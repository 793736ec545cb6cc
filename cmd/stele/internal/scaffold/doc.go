// Package scaffold has the commands that make and tend the files of a policy repository: `stele policy init`, `vendor` and `fmt`.
package scaffold

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// moduleRoot returns the folder of the CUE module that contains a folder.
func moduleRoot(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(abs); err != nil {
		return "", err
	} else if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", dir)
	}
	for root := abs; ; root = filepath.Dir(root) {
		if info, err := os.Stat(filepath.Join(root, "cue.mod")); err == nil && info.IsDir() {
			return root, nil
		}
		if filepath.Dir(root) == root {
			return "", fmt.Errorf("%s is in no CUE module: there is no folder cue.mod in it or above; `stele policy init` makes one", dir)
		}
	}
}

// replace writes a file as a whole: readers see the old or the new content, also after a crash. It keeps the file's mode.
func replace(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o644, renameio.WithExistingPermissions())
}

// printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}
