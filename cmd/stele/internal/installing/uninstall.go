package installing

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
)

// removal is what `stele uninstall` is asked for.
type removal struct {
	machine *machine
	layout  layout
	purge   bool // removes data, settings and the user, too
	dryRun  bool
	out     io.Writer
}

// run removes what is installed.
func (r *removal) run(ctx context.Context) error {
	m := r.machine
	installed := m.exists(r.layout.unit())
	if !m.offline {
		if found := packaged(m.exists); found != "" && (r.purge || r.layout.prefix == packagePrefix) {
			return fmt.Errorf("a package has installed stele (%s); remove the package stele", found)
		}
		if r.purge && !installed && m.isActive(ctx) {
			return fmt.Errorf("%s runs, and was not installed below %s; stop and remove it first: systemctl disable --now stele", unitName, r.layout.prefix)
		}
		if installed || r.purge {
			if err := m.checkSystemd(); err != nil && !(r.dryRun && m.systemd) {
				return err
			}
		}
	}
	if r.purge { // a refusal comes before anything changes
		for _, s := range r.purgeSteps() {
			if _, err := s.done(); err != nil {
				return err
			}
		}
	}
	n, err := runSteps(ctx, r.out, r.dryRun, r.steps(installed))
	switch {
	case err != nil:
		return err
	case r.dryRun:
		_, err = fmt.Fprintln(r.out, "Nothing was changed.")
	case n == 0:
		_, err = fmt.Fprintf(r.out, "Nothing is installed below %s.\n", r.layout.prefix)
	}
	if err == nil && !r.purge && (m.exists(dataDir) || m.exists(filepath.Dir(settingsFile))) {
		_, err = fmt.Fprintf(r.out, "Kept      %s, %s and the user %s; to remove them too: stele uninstall --purge\n", dataDir, filepath.Dir(settingsFile), userName)
	}
	return err
}

// steps returns the steps of the removal.
func (r *removal) steps(installed bool) []step {
	m := r.machine
	command := func(does, program string, args ...string) step {
		return step{does: does, run: func(ctx context.Context) error { return m.run(ctx, program, args...) }}
	}
	var steps []step
	if installed && !m.offline {
		steps = append(steps, command("stop the service", "systemctl", "disable", "--quiet", "--now", unitName))
	}
	steps = append(steps, removeFiles(m.root, "remove the program and its files below "+r.layout.prefix, r.layout.removable()...))
	if installed && !m.offline {
		steps = append(steps, command("have systemd forget the service", "systemctl", "daemon-reload"))
	}
	if !r.purge {
		return steps
	}
	steps = append(steps, r.purgeSteps()...)
	if m.offline {
		return steps
	}
	if m.caller != nil {
		steps = append(steps, removeFiles("", "remove "+kubeconfigOf(m.caller.HomeDir), kubeconfigOf(m.caller.HomeDir)))
	}
	user := command("remove the user "+userName, "userdel", userName)
	user.done = func() (bool, error) { return !m.hasUser(userName), nil }
	return append(steps, user)
}

// purgeSteps returns the steps that remove data and settings.
func (r *removal) purgeSteps() []step {
	return []step{
		removeFolder(r.machine.root, "remove the data in "+dataDir, dataDir),
		removeFolder(r.machine.root, "remove the settings in "+filepath.Dir(settingsFile), filepath.Dir(settingsFile)),
	}
}
