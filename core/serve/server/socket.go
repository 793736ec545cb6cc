package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketMode is the mode of a unix socket: who may connect to it. It is a flag in octal, as for chmod.
type SocketMode fs.FileMode

// Set implements pflag.Value.
func (m *SocketMode) Set(text string) error {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n&^0o777 != 0 {
		return errors.New("want permissions in octal, such as 0660")
	}
	*m = SocketMode(n)
	return nil
}

// String implements pflag.Value.
func (m *SocketMode) String() string { return fmt.Sprintf("%#04o", uint32(*m)) }

// Type implements pflag.Value.
func (m *SocketMode) Type() string { return "mode" }

// ListenSocket listens on a unix socket with a mode. It replaces a socket of the same user at which nobody listens any more. The path
// must be free otherwise. Closing the listener removes the socket, unless another one has taken its place.
func ListenSocket(path string, mode SocketMode) (net.Listener, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	unlock, err := lockFolder(filepath.Dir(path)) // two servers may start at once
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), uint32(mode)) }) // on Linux nobody else can connect before the chmod below
	}}
	listener, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	own, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, fs.FileMode(mode))
	}
	s := &socket{Listener: listener}
	s.close = sync.OnceValue(func() error {
		if now, err := os.Lstat(path); err == nil && own != nil && os.SameFile(now, own) {
			_ = os.Remove(path) // the next start removes it
		}
		return listener.Close()
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// socket is a listener that removes its file.
type socket struct {
	net.Listener
	close func() error
}

// Close implements [net.Listener].
func (s *socket) Close() error { return s.close() }

// lockFolder lets one process at a time replace sockets in a folder. Where folders cannot be locked, it does not wait.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("the folder of the socket cannot be opened; make it first: %w", err)
	}
	_ = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
	return func() { folder.Close() }, nil
}

// removeStale removes the socket of a server that was killed.
func removeStale(path string) error {
	there, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case there.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket; move it away, or give another path", path)
	}
	if is, ok := there.Sys().(*syscall.Stat_t); ok && int(is.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is a socket of another user; remove it, or give another path", path)
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return fmt.Errorf("a program listens on %s; stop it, or give another path", path)
	} else if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("whether a program listens on the socket cannot be told; remove it if none does: %w", err)
	}
	return os.Remove(path)
}
