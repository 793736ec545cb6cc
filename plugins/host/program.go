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

// copyProgram copies the program of a plugin into a private folder, checks that it has the checksum in the policy, and
// returns the path of the copy. The copy is run, because somebody could change the original between the check and the
// start. On Linux an open file could be run without a copy, but it could still be written to.
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

// System is the operating system and architecture of this process, as policies name it: linux/amd64.
const System = runtime.GOOS + "/" + runtime.GOARCH

func checksum(spec *Spec) ([]byte, error) {
	text, found := spec.SHA256[System]
	if !found {
		return nil, fmt.Errorf("the policy has no checksum for %s: add it to sha256", System)
	}
	sum, err := hex.DecodeString(text)
	if err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("the policy's checksum for %s is not a SHA-256 in hexadecimal", System)
	}
	return sum, nil
}

// readSecrets reads the files that names refers to in the operator's folder, without changing their content. A file may be
// a symbolic link within the folder, as in a projected volume of Kubernetes, but not out of it.
func readSecrets(dir string, names map[string]string) (map[string][]byte, error) {
	secrets := map[string][]byte{}
	for name, fileName := range names {
		if dir == "" {
			return nil, errors.New("there is no folder of secrets on this server: give it one with --plugin-secrets-dir")
		}
		file, _, err := openIn(dir, fileName, "the secret", false)
		if err != nil {
			return nil, err
		}
		secrets[name], err = io.ReadAll(io.LimitReader(file, secretBytes+1))
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("the secret %s: %w", fileName, err)
		}
		if len(secrets[name]) > secretBytes {
			return nil, fmt.Errorf("the secret %s has more than %d bytes", fileName, secretBytes)
		}
	}
	return secrets, nil
}

// openIn opens a regular file in a folder. It refuses names that lead out of the folder and, if noLink is set, symbolic
// links.
func openIn(dir, name, what string, noLink bool) (*os.File, fs.FileInfo, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return nil, nil, fmt.Errorf("%s %q is not a file name: name a file in %s, without a path", what, name, dir)
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
		err = fmt.Errorf("%s %s in %s is not a regular file", what, name, dir)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}
