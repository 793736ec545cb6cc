package installing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// machine is what an installation asks of the machine and has it do, apart from files. Tests have another one.
type machine struct {
	root    string // folder in whose place the files are; "" for the machine itself
	offline bool   // the files are not those of a machine that runs: there are no users and no services
	euid    int
	systemd bool // it runs systemd
	run     func(ctx context.Context, program string, args ...string) error
	hasUser func(name string) bool
	listen  func(address string) error // returns why nothing could listen on an address
	caller  *user.User                 // the user who runs the installation
	own     func(file *os.File, owner *user.User) error
}

// thisMachine returns the machine on which the program runs.
func thisMachine(root string) *machine {
	_, err := os.Stat("/run/systemd/system") // sd_booted(3)
	return &machine{
		root: root, offline: root != "", euid: os.Geteuid(), systemd: err == nil, run: runProgram, caller: findCaller(), own: giveTo,
		hasUser: func(name string) bool { _, err := user.Lookup(name); return err == nil },
		listen: func(address string) error {
			l, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			return l.Close()
		},
	}
}

// exists reports whether a file is there.
func (m *machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

// hasHome reports whether the user who installs has a home, which users of services have not.
func (m *machine) hasHome() bool {
	if m.caller == nil {
		return false
	}
	info, err := os.Stat(m.caller.HomeDir)
	return err == nil && info.IsDir()
}

// isActive reports whether the service runs.
func (m *machine) isActive(ctx context.Context) bool {
	return m.run(ctx, "systemctl", "is-active", "--quiet", unitName) == nil
}

// checkSystemd returns why the machine cannot have the service.
func (m *machine) checkSystemd() error {
	switch {
	case !m.systemd:
		return errors.New("this machine does not run systemd (/run/systemd/system is missing); run `stele serve` under its service manager, or leave out --systemd to install the program only")
	case m.euid != 0:
		return errors.New("a service is installed by root; repeat the command with sudo")
	}
	return nil
}

// checkPort returns an error if the address of the service is in use.
func (m *machine) checkPort(address string) error {
	err := m.listen(address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use by another program; stop it, or choose another address: stele install --systemd -- --listen HOST:PORT", address)
	}
	if errors.Is(err, syscall.EACCES) || err == nil {
		return nil // what only the service may use is for the service to try
	}
	return fmt.Errorf("--listen %s: %w", address, err)
}

// runProgram runs a program. An error has what it printed.
func runProgram(ctx context.Context, program string, args ...string) error {
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// findCaller returns the user who called sudo or doas, or else the user of the process. It returns nil if the system does not know that user.
func findCaller() *user.User {
	if name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("DOAS_USER")); name != "" {
		if u, err := user.Lookup(name); err == nil {
			return u
		}
	}
	u, err := user.Current()
	if err != nil {
		return nil
	}
	return u
}

// giveKubeconfig writes the kubeconfig into the home of the caller, who becomes its owner. Root writes nowhere else, whatever links are
// in that home.
func (m *machine) giveKubeconfig(text []byte) (err error) {
	home, err := os.OpenRoot(m.caller.HomeDir)
	if err != nil {
		return err
	}
	defer home.Close()
	to, err := filepath.Rel(m.caller.HomeDir, kubeconfigOf(m.caller.HomeDir))
	if err != nil {
		return err
	}
	if err := home.Mkdir(filepath.Dir(to), 0o700); err == nil {
		if err := m.ownIn(home, filepath.Dir(to)); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	next := to + ".next"
	if err := home.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := home.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, m.own(file, m.caller), file.Sync(), file.Close()); err != nil {
		return errors.Join(err, home.Remove(next))
	}
	return home.Rename(next, to)
}

// ownIn makes the caller the owner of a folder in a home.
func (m *machine) ownIn(home *os.Root, name string) error {
	folder, err := home.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(m.own(folder, m.caller), folder.Close())
}

// giveTo makes a user the owner of a file.
func giveTo(file *os.File, owner *user.User) error {
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return err
	}
	return file.Chown(uid, gid)
}
