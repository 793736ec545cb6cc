package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
)

type atOptions struct {
	client.Flags
	show.FormatFlags
	use, list, remove bool
}

func atCommand() *cobra.Command {
	o := &atOptions{}
	cmd := &cobra.Command{
		Use:   "at MOMENT [-- COMMAND ARG…] | --list | --remove [CONTEXT…]",
		Short: "Read the control plane as it was: run a command at a moment, or make a context",
		Long: `At lets any client read the control plane as it was at a MOMENT. Writes are refused there.

With a COMMAND, at runs it with a temporary kubeconfig whose server shows the moment, and exits with
the command's exit code. Without a COMMAND, at adds a context to the kubeconfig. The context has the
name of the current one, followed by @ and the revision. It stays until you remove it by --remove.
The MOMENT is resolved to a revision once.

` + client.MomentHelp,
		Example: `  stele at 10m -- kubectl get configmaps -A
  stele at "yesterday 14:00" -- k9s
  stele at 1h
  stele at --list
  stele at --remove`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.list && len(args) == 0:
				return o.show(cmd)
			case o.remove:
				return o.forget(cmd, args)
			case o.list || len(args) == 0 || cmd.ArgsLenAtDash() == 0 || cmd.ArgsLenAtDash() == len(args):
				return usage.Missing(cmd, "MOMENT; a command follows --")
			case len(args) == 1:
				return o.keep(cmd, args[0])
			case cmd.ArgsLenAtDash() != 1:
				return usage.Errorf("use one MOMENT, then -- and a command: `%s %s -- %s`", cmd.CommandPath(), usage.Quote(args[0]), strings.Join(args[1:], " "))
			}
			if o.use {
				return usage.Errorf("--use and a command cannot be given together: --use is for a context that stays")
			}
			return o.exec(cmd, args[0], args[1:])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch {
			case o.remove:
				return slices.DeleteFunc(o.kept(), func(name string) bool { return slices.Contains(args, name) }), usage.NoFiles
			case len(args) == 0 && !o.list:
				return client.CompleteMoments(cmd, args, word)
			case len(args) > 0:
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, usage.NoFiles
		},
	}
	o.Flags.AddFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	f.BoolVar(&o.use, "use", false, "make the new context the current one")
	f.BoolVar(&o.list, "list", false, "list the contexts that are at a moment")
	f.BoolVar(&o.remove, "remove", false, "remove the named contexts, or all contexts that are at a moment")
	usage.Exclusive(cmd, "use", "list", "remove")
	return cmd
}

// resolve returns the kubeconfig, and a copy of its current context that shows a moment.
func (o *atOptions) resolve(ctx context.Context, text string) (*clientcmdapi.Config, *client.ContextAt, error) {
	config, loader, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, nil, err
	}
	name := raw.CurrentContext
	if o.Context != "" {
		name = o.Context
	}
	current := raw.Contexts[name]
	if current == nil || raw.Clusters[current.Cluster] == nil {
		return nil, nil, fmt.Errorf("the kubeconfig has no context %q with a cluster; `kubectl config get-contexts` lists those it has", name)
	}
	revision, err := client.Resolve(ctx, config, text)
	if err != nil {
		return nil, nil, err
	}
	at := &client.ContextAt{Revision: revision, Original: name, Context: current.DeepCopy(), Cluster: raw.Clusters[current.Cluster].DeepCopy()}
	suffix := fmt.Sprintf("@%d", revision)
	clusterName := current.Cluster
	if old := client.AtMoment.FindStringSubmatch(at.Cluster.Server); old != nil {
		at.Original = strings.TrimSuffix(name, "@"+old[1])
		clusterName = strings.TrimSuffix(clusterName, "@"+old[1])
	}
	at.Name, at.ClusterName = at.Original+suffix, clusterName+suffix
	at.Cluster.Server = fmt.Sprintf("%s/at/%d", client.PresentURL(at.Cluster.Server), revision)
	at.Context.Cluster = at.ClusterName
	if o.Namespace != "" {
		at.Context.Namespace = o.Namespace
	}
	return &raw, at, nil
}

// exec runs a command with a kubeconfig that shows a moment.
func (o *atOptions) exec(cmd *cobra.Command, text string, command []string) error {
	raw, at, err := o.resolve(cmd.Context(), text)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[at.ClusterName], config.Contexts[at.Name], config.CurrentContext = at.Cluster, at.Context, at.Name
	if user := raw.AuthInfos[at.Context.AuthInfo]; user != nil {
		config.AuthInfos[at.Context.AuthInfo] = user
	}
	dir, err := os.MkdirTemp("", "stele-at-") // readable by its owner only
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return err
	}
	child := exec.Command(command[0], command[1:]...)
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.Env = append(os.Environ(), clientcmd.RecommendedConfigPathEnvVar+"="+file)
	return runChild(child)
}

// runChild runs a program in place of this one: it forwards signals, and returns the program's exit code.
func runChild(child *exec.Cmd) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = 127 // the exit code of shells for a command that was not found
		}
		return usage.Exit(code, err)
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	// The terminal sends the signals of Ctrl-C and Ctrl-\ to both programs.
	typed := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case s := <-signals:
			if !typed || s != os.Interrupt && s != syscall.SIGQUIT {
				_ = child.Process.Signal(s) // it fails if the child has ended
			}
		case err := <-done:
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				return err
			}
			if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return usage.Exit(128+int(status.Signal()), usage.ErrPrinted)
			}
			return usage.Exit(ended.ExitCode(), usage.ErrPrinted)
		}
	}
}

// keep adds a context that shows a moment to the kubeconfig.
func (o *atOptions) keep(cmd *cobra.Command, text string) error {
	raw, at, err := o.resolve(cmd.Context(), text)
	if err != nil {
		return err
	}
	if other := raw.Clusters[at.ClusterName]; other != nil && other.Server != at.Cluster.Server {
		return fmt.Errorf("the kubeconfig has another cluster named %s already, at %s; rename it by `kubectl config`", at.ClusterName, other.Server)
	}
	raw.Clusters[at.ClusterName], raw.Contexts[at.Name] = at.Cluster, at.Context
	if o.use {
		raw.CurrentContext = at.Name
	}
	if err := clientcmd.ModifyConfig(o.LoadingRules(), *raw, true); err != nil {
		return err
	}
	if o.Format != "" {
		return o.contexts(cmd, raw, at)
	}
	kubectl := "kubectl"
	if o.Kubeconfig != "" || !usage.IsPlugin() && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		kubectl += " --kubeconfig " + usage.Quote(o.LoadingRules().GetDefaultFilename())
	}
	if !o.use {
		kubectl += " --context " + usage.Quote(at.Name)
	}
	o.Say(cmd, "The context %s is at revision %d. Try\n\n  %s get configmaps\n", at.Name, at.Revision, kubectl)
	if o.use {
		o.Say(cmd, "It is the current one now; `kubectl config use-context %s` goes back.", at.Original)
	}
	return nil
}

// kept returns the sorted names of the contexts that show a moment.
func (o *atOptions) kept() []string {
	raw, err := o.LoadingRules().Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(client.ContextsAt(raw)))
}

// show lists the contexts that show a moment.
func (o *atOptions) show(cmd *cobra.Command) error {
	raw, err := o.LoadingRules().Load()
	if err != nil {
		return err
	}
	all := client.ContextsAt(raw)
	if o.Format != "" {
		return o.contexts(cmd, raw, slices.SortedFunc(maps.Values(all), func(a, b *client.ContextAt) int { return strings.Compare(a.Name, b.Name) })...)
	}
	if len(all) == 0 {
		o.Hint(cmd, "No context is at a moment; `%s MOMENT` makes one.", cmd.CommandPath())
		return nil
	}
	c := &show.Columns{Out: &show.Output{Writer: cmd.OutOrStdout()}}
	c.Header("CURRENT", "CONTEXT", "REVISION", "SERVER")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mark := ""
		if name == raw.CurrentContext {
			mark = "*"
		}
		c.Add("", show.Cell{Text: mark}, show.Cell{Text: name}, show.Cell{Text: fmt.Sprint(all[name].Revision)}, show.Cell{Text: client.PresentURL(all[name].Cluster.Server)})
	}
	return c.Flush()
}

// contextDocument is the JSON of a context that shows a moment.
type contextDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Revision   uint64 `json:"revision"`
	Server     string `json:"server"`
	Current    bool   `json:"current"`
}

// contexts prints contexts in the format of -o.
func (o *atOptions) contexts(cmd *cobra.Command, raw *clientcmdapi.Config, all ...*client.ContextAt) error {
	out := &show.Output{Writer: cmd.OutOrStdout()}
	list := show.Documents{Out: out, Format: o.Format}
	for _, at := range all {
		if o.Format == "name" {
			fmt.Fprintln(out, at.Name)
			continue
		}
		if err := list.Add(contextDocument{client.DocumentVersion, "Context", at.Name, at.Revision, at.Cluster.Server, at.Name == raw.CurrentContext}); err != nil {
			return err
		}
	}
	if o.Format == "name" {
		return nil
	}
	return list.End()
}

// forget removes contexts that show a moment, and their clusters.
func (o *atOptions) forget(cmd *cobra.Command, names []string) error {
	rules := o.LoadingRules()
	raw, err := rules.Load()
	if err != nil {
		return err
	}
	all := client.ContextsAt(raw)
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	for _, name := range names {
		at := all[name]
		if at == nil {
			return fmt.Errorf("%s is not a context at a moment; `%s --list` lists them", name, cmd.CommandPath())
		}
		delete(raw.Contexts, name)
		if !slices.ContainsFunc(slices.Collect(maps.Values(raw.Contexts)), func(c *clientcmdapi.Context) bool { return c.Cluster == at.ClusterName }) {
			delete(raw.Clusters, at.ClusterName)
		}
		if raw.CurrentContext == name {
			raw.CurrentContext = at.Original
			if raw.Contexts[at.Original] == nil {
				raw.CurrentContext = ""
			}
		}
	}
	if err := clientcmd.ModifyConfig(rules, *raw, true); err != nil {
		return err
	}
	for _, name := range names {
		o.Say(cmd, "The context %s is removed.", name)
	}
	if len(names) == 0 {
		o.Hint(cmd, "No context is at a moment; there is nothing to remove.")
	}
	return nil
}
