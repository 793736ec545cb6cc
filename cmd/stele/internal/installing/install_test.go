package installing

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeMachine is a machine with systemd whose files are in a temporary folder. Its programs change what a real machine would
// have them change.
type fakeMachine struct {
	machine
	calls   []string
	active  bool
	created bool     // the user
	refuse  string   // the command that fails
	owned   []string // what was given to alice
}

func newMachine(t *testing.T) *fakeMachine {
	home := t.TempDir()
	m := &fakeMachine{}
	m.machine = machine{
		root: t.TempDir(), systemd: true, caller: &user.User{Uid: "1000", Gid: "1000", Username: "alice", HomeDir: home},
		hasUser: func(string) bool { return m.created },
		listen:  func(string) error { return nil },
		own: func(file *os.File, _ *user.User) error {
			m.owned = append(m.owned, file.Name())
			return nil
		},
	}
	m.run = func(_ context.Context, program string, args ...string) error {
		line := program + " " + strings.Join(args, " ")
		if !strings.Contains(line, "is-active") {
			m.calls = append(m.calls, line)
		}
		switch {
		case m.refuse != "" && strings.Contains(line, m.refuse):
			return errors.New("it failed")
		case strings.Contains(line, "is-active") && !m.active:
			return errors.New("inactive")
		case strings.Contains(line, "restart"):
			m.active = true
			return serveOnce(m.root)
		case strings.Contains(line, "disable"):
			m.active = false
		case program == "systemd-sysusers":
			m.created = true
		case program == "userdel":
			m.created = false
		}
		return nil
	}
	return m
}

// serveOnce makes what a server has made when it is ready.
func serveOnce(root string) error {
	if err := os.MkdirAll(filepath.Join(root, dataDir), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, dataDir, "admin.kubeconfig"), []byte("kubeconfig"), 0o600)
}

// newProgram returns a root command and `serve`, as far as an installation uses them.
func newProgram() (root, serve *cobra.Command) {
	root = &cobra.Command{Use: "stele", Short: "A program"}
	serve = &cobra.Command{Use: "serve", Short: "Serve", Run: func(*cobra.Command, []string) {}}
	f := serve.Flags()
	f.String("listen", "127.0.0.1:6443", "address")
	f.String("data-dir", "", "data")
	f.String("policy", "", "policy")
	_ = serve.MarkFlagDirname("policy")
	f.StringSlice("host", nil, "hosts")
	f.StringArray("service-account-issuer", nil, "issuers")
	f.String("note", "", "text")
	completion := &cobra.Command{Use: "completion", Short: "Completion"}
	completion.AddCommand(&cobra.Command{Use: "kubectl", Short: "For kubectl", RunE: func(cmd *cobra.Command, _ []string) error {
		_, err := cmd.OutOrStdout().Write([]byte("#!/bin/sh\n"))
		return err
	}})
	root.AddCommand(serve, completion)
	return root, serve
}

// install installs the service with what the machine has, and returns what the user reads.
func (m *fakeMachine) install(t *testing.T, change func(*installation), args ...string) (string, error) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "stele")
	require.NoError(t, os.WriteFile(program, []byte("program"), 0o755))
	m.calls = nil
	var out bytes.Buffer
	i := &installation{machine: &m.machine, layout: layout{defaultPrefix}, service: true, program: program, args: args, out: &out}
	if change != nil {
		change(i)
	}
	root, serve := newProgram()
	err := i.run(t.Context(), root, serve)
	return out.String(), err
}

// remove removes what is installed, and returns what the user reads.
func (m *fakeMachine) remove(t *testing.T, purge bool) (string, error) {
	m.calls = nil
	var out bytes.Buffer
	err := (&removal{machine: &m.machine, layout: layout{defaultPrefix}, purge: purge, out: &out}).run(t.Context())
	return out.String(), err
}

// assertUntouched checks that the machine has no files.
func (m *fakeMachine) assertUntouched(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(m.root)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Empty(t, m.calls)
}

func (m *fakeMachine) read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, path))
	require.NoError(t, err)
	return string(text)
}

func TestSettingsAreTheFlagsOfTheServer(t *testing.T) {
	_, serve := newProgram()
	s, err := newSettings(serve, []string{"--listen", "0.0.0.0:443", "--host", "a", "--host", "b,c", "--policy", "/etc/stele/policy", "--note", `say "$x"`})
	require.NoError(t, err)
	assert.Equal(t, "0.0.0.0:443", s.listen)
	assert.Equal(t, settingsHead+`STELE_HOST=a,b,c
STELE_LISTEN=0.0.0.0:443
STELE_NOTE="say \"\$x\""
STELE_POLICY=/etc/stele/policy
`, s.text)
}

func TestSettingsThatTheServiceCannotHaveAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--data-dir /data", "the data directory of the service is /var/lib/stele"},
		{"--policy ./law", "--policy ./law: the service starts in another folder; give an absolute path"},
		{"--policy /home/alice/law", "the service does not see /home; copy it"},
		{"--listne x", "did you mean --listen?"},
		{"law", `unexpected argument "law"`},
		{"--service-account-issuer a --service-account-issuer b", "a setting can have one value"},
	} {
		_, serve := newProgram()
		_, err := newSettings(serve, strings.Fields(c.args))
		assert.ErrorContains(t, err, c.want, c.args)
	}
}

func TestAServiceNeedsRootAndSystemd(t *testing.T) {
	m := newMachine(t)
	m.systemd = false
	_, err := m.install(t, nil)
	assert.ErrorContains(t, err, "this machine does not run systemd")
	m.systemd, m.euid = true, 1000
	_, err = m.install(t, nil)
	assert.ErrorContains(t, err, "a service is installed by root; repeat the command with sudo")
	m.assertUntouched(t)
}

func TestATakenPortIsSeenBeforeAnythingChanges(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	m := newMachine(t)
	m.listen = thisMachine("").listen
	_, err = m.install(t, nil, "--listen", taken.Addr().String())
	assert.ErrorContains(t, err, taken.Addr().String()+" is in use by another program")
	m.assertUntouched(t)
}

func TestAnAddressThatTheMachineDoesNotHaveIsRefused(t *testing.T) {
	m := newMachine(t)
	m.listen = func(string) error { return syscall.EADDRNOTAVAIL }
	_, err := m.install(t, nil, "--listen", "192.0.2.1:6443")
	assert.ErrorContains(t, err, "--listen 192.0.2.1:6443: ")
	m.assertUntouched(t)
}

func TestADryRunOnlyPrints(t *testing.T) {
	m := newMachine(t)
	out, err := m.install(t, func(i *installation) { i.dryRun = true })
	require.NoError(t, err)
	assert.Contains(t, out, "copy the program to /usr/local/bin/stele\n")
	assert.Contains(t, out, "make the user stele\n")
	assert.Contains(t, out, "Nothing was changed.\n")
	m.assertUntouched(t)
}

func TestAnInstallationStartsAServiceAndHandsOutItsKubeconfig(t *testing.T) {
	m := newMachine(t)
	out, err := m.install(t, nil, "--listen", "127.0.0.1:7000")
	require.NoError(t, err)
	assert.Equal(t, []string{
		"systemd-sysusers /usr/local/lib/sysusers.d/stele.conf", "systemctl daemon-reload", "systemctl enable --quiet stele.service", "systemctl restart stele.service",
	}, m.calls)
	assert.Contains(t, m.read(t, "usr/local/lib/systemd/system/stele.service"), "ExecStart=/usr/local/bin/stele serve\n")
	file := kubeconfigOf(m.caller.HomeDir)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	assert.Equal(t, []string{filepath.Dir(file), file + ".next"}, m.owned, "alice owns what is in her home")
	assert.Contains(t, out, "kubectl --kubeconfig "+file)
	assert.Contains(t, out, "Remove    stele uninstall\n")
}

// Whatever a user has put into the home, root writes nowhere else.
func TestALinkInAHomeLeadsRootNowhere(t *testing.T) {
	m := newMachine(t)
	elsewhere := t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(m.caller.HomeDir, ".kube")))
	_, err := m.install(t, nil)
	require.Error(t, err)
	entries, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

// Settings may have passwords. What an administrator has made of the file stays.
func TestOnlyRootReadsTheSettings(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, nil, "--listen", "127.0.0.1:7000")
	require.NoError(t, err)
	file := filepath.Join(m.root, settingsFile)
	mode := func() os.FileMode {
		info, err := os.Stat(file)
		require.NoError(t, err)
		return info.Mode()
	}
	assert.Equal(t, os.FileMode(0o600), mode())
	require.NoError(t, os.Chmod(file, 0o640))
	_, err = m.install(t, nil)
	require.NoError(t, err)
	assert.Empty(t, m.calls, "nothing differs")
	assert.Equal(t, os.FileMode(0o640), mode())
}

func TestSystemdFindsNoServiceBelowAnotherPrefix(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, func(i *installation) { i.layout.prefix = "/opt/stele" })
	require.ErrorContains(t, err, "leave out --prefix, or --systemd")
	m.assertUntouched(t)
}

// A purge removes the data of no server that runs, and follows no link.
func TestAPurgeIsRefused(t *testing.T) {
	t.Run("while a service of another installation runs", func(t *testing.T) {
		m := newMachine(t)
		m.active = true
		require.NoError(t, serveOnce(m.root))
		_, err := m.remove(t, true)
		assert.ErrorContains(t, err, "systemctl disable --now stele")
		assert.DirExists(t, filepath.Join(m.root, dataDir))
	})
	t.Run("for data behind a link", func(t *testing.T) {
		m := newMachine(t)
		_, err := m.install(t, nil)
		require.NoError(t, err)
		elsewhere, data := t.TempDir(), filepath.Join(m.root, dataDir)
		require.NoError(t, os.RemoveAll(data))
		require.NoError(t, os.Symlink(elsewhere, data))
		_, err = m.remove(t, true)
		assert.ErrorContains(t, err, elsewhere)
		assert.FileExists(t, filepath.Join(m.root, "usr/local/bin/stele"), "nothing was removed")
	})
}

func TestAUserWithoutAHomeIsToldWhereTheKubeconfigIs(t *testing.T) {
	m := newMachine(t)
	m.caller.HomeDir = "/nonexistent"
	out, err := m.install(t, nil)
	require.NoError(t, err)
	assert.Contains(t, out, "kubectl --kubeconfig /var/lib/stele/admin.kubeconfig api-resources\n")
	assert.Empty(t, m.owned)
}

func TestASecondInstallationChangesNothing(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, nil, "--listen", "127.0.0.1:7000")
	require.NoError(t, err)
	m.listen = func(string) error { return syscall.EADDRINUSE } // by the service itself
	out, err := m.install(t, nil)
	require.NoError(t, err)
	assert.Empty(t, m.calls)
	assert.Contains(t, out, "The files are installed already.\n")
	assert.Contains(t, m.read(t, settingsFile), "STELE_LISTEN=127.0.0.1:7000\n", "settings stay")
}

func TestAnUpgradeRestartsTheService(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, nil)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(m.root, "usr/local/bin/stele"), []byte("an older one"), 0o755))
	_, err = m.install(t, nil)
	require.NoError(t, err)
	assert.Equal(t, "program", m.read(t, "usr/local/bin/stele"))
	assert.Contains(t, m.calls, "systemctl restart stele.service")
}

func TestOtherSettingsAreNotReplacedByAccident(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, nil, "--listen", "127.0.0.1:7000")
	require.NoError(t, err)
	former := m.read(t, settingsFile)
	_, err = m.install(t, nil, "--listen", "127.0.0.1:7001")
	require.ErrorContains(t, err, "it is installed with other settings: edit /etc/stele/stele.env")
	assert.Equal(t, former, m.read(t, settingsFile))
	_, err = m.install(t, func(i *installation) { i.overwrite = true }, "--listen", "127.0.0.1:7001")
	require.NoError(t, err)
	assert.Contains(t, m.read(t, settingsFile), "STELE_LISTEN=127.0.0.1:7001\n")
	assert.Contains(t, m.calls, "systemctl restart stele.service")
}

func TestAServiceThatDoesNotStartSaysWhereToLook(t *testing.T) {
	m := newMachine(t)
	m.refuse = "restart"
	_, err := m.install(t, nil)
	assert.ErrorContains(t, err, "See why: journalctl -u stele -n 50")
}

func TestAPackageOfTheSystemIsNotReplaced(t *testing.T) {
	m := newMachine(t)
	unit := filepath.Join(m.root, "usr/lib/systemd/system/stele.service")
	require.NoError(t, os.MkdirAll(filepath.Dir(unit), 0o755))
	require.NoError(t, os.WriteFile(unit, nil, 0o644))
	_, err := m.install(t, nil)
	assert.ErrorContains(t, err, "a package has installed stele (/usr/lib/systemd/system/stele.service)")
	_, err = m.remove(t, true)
	assert.ErrorContains(t, err, "remove the package stele")
	assert.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/stele"))
	assert.FileExists(t, unit)
}

func TestBelowAnotherRootNoProgramRuns(t *testing.T) {
	m := newMachine(t)
	m.offline, m.systemd, m.euid = true, false, 1000
	_, err := m.install(t, nil)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(m.root, "usr/local/lib/systemd/system/stele.service"))
	_, err = m.remove(t, true)
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/stele"))
	assert.Empty(t, m.calls)
}

func TestWithoutSystemdThereIsNoService(t *testing.T) {
	m := newMachine(t)
	program := func(i *installation) { i.service = false }
	_, err := m.install(t, program)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(m.root, "usr/local/bin/stele"))
	assert.FileExists(t, filepath.Join(m.root, "usr/local/share/man/man1/stele-serve.1"))
	assert.NoDirExists(t, filepath.Join(m.root, "usr/local/lib"))
	assert.NoDirExists(t, filepath.Join(m.root, "etc"))
	assert.Empty(t, m.calls)
	_, err = m.install(t, program, "--listen", ":1")
	assert.ErrorContains(t, err, "flags of the server need --systemd")
}

func TestARemovalKeepsDataUnlessItPurges(t *testing.T) {
	m := newMachine(t)
	_, err := m.install(t, nil)
	require.NoError(t, err)
	other := filepath.Join(m.root, "usr/local/share/man/man1/steles.1")
	require.NoError(t, os.WriteFile(other, nil, 0o644))

	out, err := m.remove(t, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"systemctl disable --quiet --now stele.service", "systemctl daemon-reload"}, m.calls)
	assert.Contains(t, out, "Kept      /var/lib/stele")
	assert.NoFileExists(t, filepath.Join(m.root, "usr/local/bin/stele"))
	assert.NoFileExists(t, filepath.Join(m.root, "usr/local/share/man/man1/stele-serve.1"))
	assert.FileExists(t, filepath.Join(m.root, dataDir, "admin.kubeconfig"))
	assert.FileExists(t, other, "it is no page of stele")

	out, err = m.remove(t, false)
	require.NoError(t, err)
	assert.Contains(t, out, "Nothing is installed below /usr/local.")

	_, err = m.remove(t, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"userdel stele"}, m.calls)
	assert.NoDirExists(t, filepath.Join(m.root, dataDir))
	assert.NoDirExists(t, filepath.Join(m.root, "etc/stele"))
	assert.NoFileExists(t, kubeconfigOf(m.caller.HomeDir))
}
