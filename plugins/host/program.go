package host

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	programBytes = 1 << 30
	secretBytes  = 1 << 20
)

// copyProgram puts the program of a plugin into a folder of the host's own, if it is the one whose checksum the
// policy has, and returns where. What is run is the copy: of a file that others can reach, nobody knows
// that what is run is what was hashed. Running an open file would do without the copy, but only on Linux, and there
// the file can still be written to in place.
func copyProgram(dir string, spec *Spec, folder string) (string, error) {
	want, err := checksum(spec)
	if err != nil {
		return "", err
	}
	if dir == "" {
		return "", errors.New("there is no folder of plugins on this server: give it one with --plugin-dir")
	}
	file, info, err := openIn(dir, spec.Name, "the program", true)
	if err != nil {
		return "", err
	}
	defer file.Close()
	switch mode := info.Mode().Perm(); {
	case mode&0o111 == 0:
		return "", fmt.Errorf("%s is not executable: chmod 0755", file.Name())
	case mode&0o002 != 0:
		return "", fmt.Errorf("%s can be written by everybody: chmod o-w", file.Name())
	case info.Size() > programBytes:
		return "", fmt.Errorf("%s is larger than %d bytes", file.Name(), programBytes)
	}
	path := filepath.Join(folder, spec.Name)
	into, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.CopyBuffer(io.MultiWriter(into, hash), io.LimitReader(file, programBytes), make([]byte, 256<<10))
	if err = errors.Join(err, into.Close()); err != nil {
		return "", err
	}
	if sum := hash.Sum(nil); subtle.ConstantTimeCompare(sum, want) != 1 {
		return "", fmt.Errorf("%s has the checksum %x, and the policy has %x for %s: install the program that the policy means, or push a policy with this checksum",
			file.Name(), sum, want, System)
	}
	return path, nil
}

// System is what this process runs on, as policies name it.
const System = runtime.GOOS + "/" + runtime.GOARCH

func checksum(spec *Spec) ([]byte, error) {
	text, found := spec.SHA256[System]
	if !found {
		return nil, fmt.Errorf("the policy has no checksum for %s: add it to sha256", System)
	}
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("the policy's checksum for %s is no SHA-256 in hexadecimal", System)
	}
	return sum, nil
}

// readSecrets resolves the names of a policy in the operator's folder. What the files hold is handed over as it
// is. A name may be a link to another file of the folder, as in a volume that Kubernetes projects, but not out of it.
func readSecrets(dir string, names map[string]string) (map[string][]byte, error) {
	secrets := map[string][]byte{}
	for name, of := range names {
		if dir == "" {
			return nil, errors.New("there is no folder of secrets on this server: give it one with --plugin-secrets-dir")
		}
		file, _, err := openIn(dir, of, "the secret", false)
		if err != nil {
			return nil, err
		}
		secrets[name], err = io.ReadAll(io.LimitReader(file, secretBytes+1))
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("the secret %s: %w", of, err)
		}
		if len(secrets[name]) > secretBytes {
			return nil, fmt.Errorf("the secret %s has more than %d bytes", of, secretBytes)
		}
	}
	return secrets, nil
}

// openIn opens a regular file of a folder, and nothing that lies elsewhere.
func openIn(dir, name, what string, noLink bool) (*os.File, fs.FileInfo, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return nil, nil, fmt.Errorf("%s %q: a file of %s is meant, by its name", what, name, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	named, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s %s is missing in %s: install it there", what, name, dir)
	}
	if err != nil {
		return nil, nil, err
	}
	if noLink && named.Mode()&fs.ModeSymlink != 0 {
		return nil, nil, fmt.Errorf("%s %s is a symbolic link in %s: install the file itself", what, name, dir)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe must not wait for a writer
	if err != nil && named.Mode()&fs.ModeSymlink != 0 && !errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("%s %s is a symbolic link in %s that leads out of it, or nowhere: install the file itself", what, name, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s in %s: %w", what, name, dir, err)
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || noLink && !os.SameFile(info, named)) {
		err = fmt.Errorf("%s %s in %s is no regular file", what, name, dir)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}
