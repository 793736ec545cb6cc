package installing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// installation is what `stele install` is asked for.
type installation struct {
	machine   *machine
	layout    layout
	service   bool // with a service of systemd
	overwrite bool // replaces settings that differ
	dryRun    bool
	program   string // the file of the program
	args      []string
	out       io.Writer
}

// check returns why the installation cannot be done, before it changes anything, and the settings of the service; nil for
// those that it has.
func (i *installation) check(ctx context.Context, serve *cobra.Command) (*settings, error) {
	if !i.service {
		if len(i.args) > 0 {
			return nil, usage.Errorf("flags of the server need --systemd: without it there is no service")
		}
		return nil, nil
	}
	given, err := newSettings(serve, i.args)
	if err != nil {
		return nil, err
	}
	if !i.machine.offline && i.layout.prefix != defaultPrefix {
		return nil, usage.Errorf("--prefix %s: systemd finds services of administrators below %s only; leave out --prefix, or --systemd", i.layout.prefix, defaultPrefix)
	}
	if !i.machine.offline {
		if err := i.machine.checkSystemd(); err != nil && !(i.dryRun && i.machine.systemd) {
			return nil, err
		}
		if found := packaged(i.machine.exists); found != "" {
			return nil, fmt.Errorf("a package has installed stele (%s); put settings into %s and run `systemctl restart stele`, or remove the package first", found, settingsFile)
		}
	}
	former, err := os.ReadFile(filepath.Join(i.machine.root, settingsFile))
	exists := !errors.Is(err, fs.ErrNotExist)
	switch {
	case exists && err != nil:
		return nil, err
	case exists && len(i.args) == 0:
		given.listen, given.kept = listenSetting(string(former), given.listen), true
	case exists && string(former) == given.text:
		given.kept = true
	case exists && !i.overwrite:
		return nil, fmt.Errorf("it is installed with other settings: edit %s and run `systemctl restart stele`, or repeat the command with --overwrite-settings", settingsFile)
	}
	if i.machine.offline || i.machine.isActive(ctx) {
		return given, nil
	}
	return given, i.machine.checkPort(given.listen)
}

// run installs what is missing or differs.
func (i *installation) run(ctx context.Context, root, serve *cobra.Command) error {
	s, err := i.check(ctx, serve)
	if err != nil {
		return err
	}
	files, err := i.fileSteps(root, s)
	if err != nil {
		return err
	}
	changed, err := runSteps(ctx, i.out, i.dryRun, files)
	if err != nil {
		return err
	}
	if i.service && !i.machine.offline {
		if err := i.start(ctx, changed > 0); err != nil {
			return err
		}
	}
	return i.report(changed)
}

// fileSteps returns the steps that write files.
func (i *installation) fileSteps(root *cobra.Command, s *settings) ([]step, error) {
	at, l := i.machine.root, i.layout
	files, err := l.programFiles(root)
	if err != nil {
		return nil, err
	}
	steps := []step{
		copyProgram(at, i.program, l.program()),
		writeFiles(at, "write "+l.below("share")+": completions for bash, zsh and fish, manual pages; "+l.below("bin")+": the plugin of kubectl", files...),
	}
	if !i.service {
		return steps, nil
	}
	service, err := l.serviceFiles()
	if err != nil {
		return nil, err
	}
	if !s.kept {
		// They may have passwords, for example in URLs. systemd reads them as root.
		steps = append(steps, writeFiles(at, "write the settings to "+settingsFile, file{path: settingsFile, content: []byte(s.text), mode: 0o600}))
	}
	return append(steps,
		writeFiles(at, "write the service to "+l.unit()+", its user to "+l.sysusers(), service...)), nil
}

// start makes the user and starts the service, or restarts it if files have changed.
func (i *installation) start(ctx context.Context, changed bool) error {
	m := i.machine
	command := func(does, program string, args ...string) step {
		return step{does: does, run: func(ctx context.Context) error { return m.run(ctx, program, args...) }}
	}
	user := command("make the user "+userName, "systemd-sysusers", i.layout.sysusers())
	user.done = func() (bool, error) { return m.hasUser(userName), nil }
	steps := []step{user}
	if changed || !m.isActive(ctx) {
		start := command("start the service, and wait until it serves", "systemctl", "restart", unitName)
		run := start.run
		start.run = func(ctx context.Context) error {
			if err := run(ctx); err != nil {
				return fmt.Errorf("%w\nSee why: journalctl -u stele -n 50", err)
			}
			return nil
		}
		steps = append(steps,
			command("have systemd read the service", "systemctl", "daemon-reload"),
			command("enable the service, so that it starts with the machine", "systemctl", "enable", "--quiet", unitName), start)
	}
	if m.hasHome() {
		steps = append(steps, i.kubeconfigStep())
	}
	_, err := runSteps(ctx, i.out, i.dryRun, steps)
	return err
}

// kubeconfigOf returns the file of the administrator's kubeconfig in the home of a user.
func kubeconfigOf(home string) string { return filepath.Join(home, ".kube", "stele.kubeconfig") }

// kubeconfigStep returns a step that copies the administrator's kubeconfig to the user who installs.
func (i *installation) kubeconfigStep() step {
	m := i.machine
	from, to := filepath.Join(m.root, dataDir, "admin.kubeconfig"), kubeconfigOf(m.caller.HomeDir)
	return step{
		does: "copy the administrator's kubeconfig to " + to,
		done: func() (bool, error) {
			if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return sameContent(from, to)
		},
		run: func(context.Context) error {
			text, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			return m.giveKubeconfig(text)
		},
	}
}

// report says how to go on, and how to go back.
func (i *installation) report(changed int) (err error) {
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(i.out, format+"\n", args...)
		}
	}
	switch {
	case i.dryRun:
		say("Nothing was changed.")
		return err
	case changed == 0:
		say("The files are installed already.")
	}
	back := "stele uninstall"
	if i.layout.prefix != defaultPrefix {
		back += " --prefix " + i.layout.prefix
	}
	if i.machine.offline {
		back += " --root " + i.machine.root
	}
	if i.service && !i.machine.offline {
		config := filepath.Join(dataDir, "admin.kubeconfig")
		if i.machine.hasHome() {
			config = kubeconfigOf(i.machine.caller.HomeDir)
		}
		say("Try       kubectl --kubeconfig %s api-resources", config)
		say("State     systemctl status stele")
		say("Settings  %s", settingsFile)
	}
	say("Remove    %s", back)
	return err
}
