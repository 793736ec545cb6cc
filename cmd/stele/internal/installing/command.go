package installing

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// defaultPrefix is the folder of programs that an administrator installs.
const defaultPrefix = "/usr/local"

// places are the flags for where things are.
type places struct {
	root, prefix string
	dryRun       bool
}

func (p *places) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.prefix, "prefix", defaultPrefix, "`DIR` of the program: bin, lib and share are below it")
	f.StringVar(&p.root, "root", "", "for packages: `DIR` in place of the machine's root folder; only files are changed, no user and no service")
	f.BoolVar(&p.dryRun, "dry-run", false, "only print what would be done")
	_ = cmd.MarkFlagDirname("prefix")
	_ = cmd.MarkFlagDirname("root")
}

// check makes the folders absolute.
func (p *places) check() (err error) {
	if !filepath.IsAbs(p.prefix) {
		return usage.Errorf("--prefix %s: give an absolute path", p.prefix)
	}
	if p.root != "" {
		p.root, err = filepath.Abs(p.root)
	}
	p.prefix = filepath.Clean(p.prefix)
	return err
}

// Command returns the command `install`, which takes flags of serve.
func Command(serve func() *cobra.Command) *cobra.Command {
	o := &places{}
	i := &installation{}
	cmd := &cobra.Command{
		Use:   "install [--systemd [-- FLAGS OF SERVE]]",
		Short: "Install this program, and run it as a service",
		Long: `Install copies the program into the folder bin of --prefix, with completions for shells, manual pages and
the plugin of kubectl. With --systemd it also makes the user stele, and starts a service that starts with
the machine. The service has its data in /var/lib/stele and its settings in /etc/stele/stele.env. The
user who called sudo gets the administrator's kubeconfig, ~/.kube/stele.kubeconfig.

Flags after -- are the first settings of the service. A second call changes only what differs: it upgrades
the program, and keeps data and settings. "stele uninstall" goes back.`,
		Example: `  sudo ./stele install --systemd
  sudo ./stele install --systemd -- --listen 0.0.0.0:6443 --host api.example.com
  ./stele install --prefix ~/.local`,
		DisableFlagsInUseLine: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if n := len(args); n > 0 && cmd.ArgsLenAtDash() != 0 {
				return fmt.Errorf("unexpected argument %q; flags of the server follow --: stele install --systemd -- --listen 0.0.0.0:6443", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			if i.program, err = os.Executable(); err != nil {
				return err
			}
			i.machine, i.layout, i.dryRun, i.args, i.out = thisMachine(o.root), layout{o.prefix}, o.dryRun, args, cmd.OutOrStdout()
			return i.run(cmd.Context(), cmd.Root(), serve())
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&i.service, "systemd", false, "run a control plane as the service stele.service of systemd")
	cmd.Flags().BoolVar(&i.overwrite, "overwrite-settings", false, "replace the settings of the service by those after --")
	return cmd
}

// UninstallCommand returns the command `uninstall`.
func UninstallCommand() *cobra.Command {
	o := &places{}
	r := &removal{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service, and remove what install has installed",
		Long: `Uninstall stops and removes the service, and removes the program and its files below --prefix. It keeps
the data in /var/lib/stele, the settings in /etc/stele and the user stele: another install goes on
with them. With --purge they are removed, too, and the control plane is lost.`,
		Example: `  sudo stele uninstall
  sudo stele uninstall --purge --dry-run`,
		Args: usage.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			r.machine, r.layout, r.dryRun, r.out = thisMachine(o.root), layout{o.prefix}, o.dryRun, cmd.OutOrStdout()
			return r.run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&r.purge, "purge", false, "also remove all data, the settings, and the user")
	return cmd
}
