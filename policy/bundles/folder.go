package bundles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

const (
	// MaxBytes limits the bytes read from a module, and the next constant the number of files.
	MaxBytes       = 320 << 20
	maxSourceFiles = 10_000
)

// moduleFolder is the file system of a module. Its author need not be trusted, for example in a pull
// request. So it opens regular files in the folder only; a symbolic link must lead to a file in the
// folder.
type moduleFolder struct {
	fs.FS // of root
	root  *os.Root
}

// openFolder returns the file system of a folder. The caller closes it.
func openFolder(path string) (*moduleFolder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &moduleFolder{root.FS(), root}, nil
}

func (f *moduleFolder) close() { f.root.Close() }

// Open opens a folder or a regular file.
func (f *moduleFolder) Open(name string) (fs.File, error) {
	// Without O_NONBLOCK, opening a pipe without a writer would block.
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, f.refused(name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fmt.Errorf("%s: it is %s; a bundle consists of regular files", name, typeOf(info.Mode()))
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// refused returns the error for a file that cannot be opened.
func (f *moduleFolder) refused(name string, err error) error {
	info, statErr := f.root.Lstat(name)
	switch {
	case statErr != nil:
	case info.Mode().Type() == fs.ModeSymlink && errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the link leads to a file that does not exist", name)
	case info.Mode().Type() == fs.ModeSymlink && strings.Contains(err.Error(), "escapes"):
		return fmt.Errorf("%s: the link leads out of the module's folder; only relative links to files in it are followed", name)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		return fmt.Errorf("%s: it is %s; a bundle consists of regular files", name, typeOf(info.Mode()))
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// typeOf names the type of a file that is not regular.
func typeOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeDevice != 0:
		return "a device"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a special file"
}

// reading reads the files of a module into a source, within limits.
type reading struct {
	module fs.FS
	source *Source
	bytes  int64
}

// read adds a file.
func (r *reading) read(path string) error {
	if !isPrintable(path) {
		return fmt.Errorf("%q: the path has a control character; rename the file or the folder", path)
	}
	f, err := r.module.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s: it is a folder", path)
	case len(r.source.Files) >= maxSourceFiles:
		return fmt.Errorf("%s: the module has more than %d files of CUE and data", path, maxSourceFiles)
	case r.bytes+info.Size() > MaxBytes:
		return tooMuch(path)
	}
	data := make([]byte, 0, info.Size()+1)
	for limited := io.LimitReader(f, MaxBytes-r.bytes+1); ; {
		n, err := limited.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if len(data) == cap(data) { // the file grew while it was read
			data = append(data, 0)[:len(data)]
		}
	}
	if r.bytes += int64(len(data)); r.bytes > MaxBytes {
		return tooMuch(path)
	}
	r.source.Files = append(r.source.Files, File{Path: path, Data: data})
	return nil
}

func tooMuch(path string) error {
	return fmt.Errorf("%s: the module has more than %d MiB of CUE and data", path, MaxBytes>>20)
}
