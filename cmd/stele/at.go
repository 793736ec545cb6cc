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
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

type atOptions struct {
	clientOptions
	formatOptions
	use, list, remove bool
}

func atCommand() *cobra.Command {
	o := &atOptions{}
	cmd := &cobra.Command{
		Use:   "at MOMENT [-- COMMAND ARG…] | --list | --remove [CONTEXT…]",
		Short: "Look at a moment with any client: run a command there, or make a context",
		Long: `At finds the revision that a MOMENT means, and lets clients see the control plane as it
was there, to be read and not to be written.

With a COMMAND it runs that with a kubeconfig of its own, removed afterwards, whose server
is at the revision; the exit code is the command's. Without one it adds to the kubeconfig
a context that is like the current one, and named like it with @ and the revision, to stay
there until --remove takes it away. A MOMENT is resolved once: the context stays at its
revision.

` + momentHelp,
		Example: `  stele at 10m -- kubectl get configmaps -A
  stele at "yesterday 14:00" -- k9s
  stele at 1h
  stele at --list
  stele at --remove`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			switch {
			case o.list && len(args) == 0:
				return o.show(cmd)
			case o.remove:
				return o.forget(cmd, args)
			case o.list || len(args) == 0 || cmd.ArgsLenAtDash() == 0 || cmd.ArgsLenAtDash() == len(args):
				return missing(cmd, "MOMENT; a command follows --")
			case len(args) == 1:
				return o.keep(cmd, args[0])
			case cmd.ArgsLenAtDash() != 1:
				return usagef("use one MOMENT, then -- and a command: `%s %s -- %s`", cmd.CommandPath(), quoted(args[0]), strings.Join(args[1:], " "))
			}
			if o.use {
				return usagef("--use and a command cannot be given together: --use is for a context that stays")
			}
			return o.exec(cmd, args[0], args[1:])
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			switch {
			case o.remove:
				return slices.DeleteFunc(o.kept(), func(name string) bool { return slices.Contains(args, name) }), noFiles
			case len(args) == 0 && !o.list:
				return completeMoments(cmd, args, word)
			case len(args) > 0:
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, noFiles
		},
	}
	o.clientOptions.addFlags(cmd)
	o.formatOptions.addFlags(cmd, "json", "yaml", "name")
	f := cmd.Flags()
	f.BoolVar(&o.use, "use", false, "make the new context the current one")
	f.BoolVar(&o.list, "list", false, "list the contexts that are at a moment")
	f.BoolVar(&o.remove, "remove", false, "remove the contexts that are named, or all that are at a moment")
	exclusive(cmd, "use", "list", "remove")
	return cmd
}

// quoted is a word for a shell.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t\"'$") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// atMoment is how the URL of a server ends that is at one.
var atMoment = regexp.MustCompile(`/at/([0-9]+)/?$`)

// anyMoment is how it ends if somebody wrote it.
var anyMoment = regexp.MustCompile(`/at/[0-9][^/]*/?$`)

// presentOf is the URL of a server as it is now.
func presentOf(server string) string {
	return anyMoment.ReplaceAllString(strings.TrimSuffix(server, "/"), "")
}

// at is a kubeconfig's context at a revision.
type contextAt struct {
	name        string // of the context
	clusterName string
	context     *clientcmdapi.Context
	cluster     *clientcmdapi.Cluster
	revision    uint64
	original    string // name of the context that it is like
}

// resolve makes the current context one at a moment, without keeping it.
func (o *atOptions) resolve(ctx context.Context, text string) (*clientcmdapi.Config, *contextAt, error) {
	config, loader, err := o.config()
	if err != nil {
		return nil, nil, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, nil, err
	}
	name := raw.CurrentContext
	if o.context != "" {
		name = o.context
	}
	current := raw.Contexts[name]
	if current == nil || raw.Clusters[current.Cluster] == nil {
		return nil, nil, fmt.Errorf("the kubeconfig has no context %q with a cluster; `kubectl config get-contexts` lists those it has", name)
	}
	m, err := newMoments(config)
	if err != nil {
		return nil, nil, err
	}
	revision, err := m.resolve(ctx, text)
	if err != nil {
		return nil, nil, err
	}
	at := &contextAt{revision: revision, original: name, context: current.DeepCopy(), cluster: raw.Clusters[current.Cluster].DeepCopy()}
	suffix := fmt.Sprintf("@%d", revision)
	clusterName := current.Cluster
	if old := atMoment.FindStringSubmatch(at.cluster.Server); old != nil {
		at.original = strings.TrimSuffix(name, "@"+old[1])
		clusterName = strings.TrimSuffix(clusterName, "@"+old[1])
	}
	at.name, at.clusterName = at.original+suffix, clusterName+suffix
	at.cluster.Server = fmt.Sprintf("%s/at/%d", presentOf(at.cluster.Server), revision)
	at.context.Cluster = at.clusterName
	if o.namespace != "" {
		at.context.Namespace = o.namespace
	}
	return &raw, at, nil
}

// exec runs a command at a moment.
func (o *atOptions) exec(cmd *cobra.Command, text string, command []string) error {
	raw, at, err := o.resolve(cmd.Context(), text)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[at.clusterName], config.Contexts[at.name], config.CurrentContext = at.cluster, at.context, at.name
	if user := raw.AuthInfos[at.context.AuthInfo]; user != nil {
		config.AuthInfos[at.context.AuthInfo] = user
	}
	dir, err := os.MkdirTemp("", "stele-at-") // for its owner alone
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

// runChild runs a program as if it were this one: signals go to it, and its exit code is
// this one's.
func runChild(child *exec.Cmd) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		code := 126
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = 127 // as shells have it
		}
		return exitError{code, err}
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	// What is typed at a terminal goes to both without us.
	typed := term.IsTerminal(int(os.Stdin.Fd()))
	for {
		select {
		case s := <-signals:
			if !typed || s != os.Interrupt && s != syscall.SIGQUIT {
				_ = child.Process.Signal(s) // unless it has ended
			}
		case err := <-done:
			var ended *exec.ExitError
			if !errors.As(err, &ended) {
				return err
			}
			if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				return exitError{128 + int(status.Signal()), errSaid}
			}
			return exitError{ended.ExitCode(), errSaid}
		}
	}
}

// keep adds a context at a moment to the kubeconfig.
func (o *atOptions) keep(cmd *cobra.Command, text string) error {
	raw, at, err := o.resolve(cmd.Context(), text)
	if err != nil {
		return err
	}
	if other := raw.Clusters[at.clusterName]; other != nil && other.Server != at.cluster.Server {
		return fmt.Errorf("the kubeconfig has another cluster named %s already, at %s; rename it by `kubectl config`", at.clusterName, other.Server)
	}
	raw.Clusters[at.clusterName], raw.Contexts[at.name] = at.cluster, at.context
	if o.use {
		raw.CurrentContext = at.name
	}
	if err := clientcmd.ModifyConfig(o.loadingRules(), *raw, true); err != nil {
		return err
	}
	if o.format != "" {
		return o.contexts(cmd, raw, at)
	}
	kubectl := "kubectl"
	if o.kubeconfig != "" || !isPlugin() && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		kubectl += " --kubeconfig " + quoted(o.loadingRules().GetDefaultFilename())
	}
	if !o.use {
		kubectl += " --context " + quoted(at.name)
	}
	o.say(cmd, "The context %s is at revision %d. Try\n\n  %s get configmaps\n", at.name, at.revision, kubectl)
	if o.use {
		o.say(cmd, "It is the current one now; `kubectl config use-context %s` goes back.", at.original)
	}
	return nil
}

// moments are the contexts that are at one, by their names.
func atContexts(raw *clientcmdapi.Config) map[string]*contextAt {
	all := map[string]*contextAt{}
	for name, c := range raw.Contexts {
		cluster := raw.Clusters[c.Cluster]
		if cluster == nil {
			continue
		}
		end := atMoment.FindStringSubmatch(cluster.Server)
		if end == nil || !strings.HasSuffix(name, "@"+end[1]) {
			continue
		}
		at := &contextAt{name: name, clusterName: c.Cluster, context: c, cluster: cluster, original: strings.TrimSuffix(name, "@"+end[1])}
		if _, err := fmt.Sscan(end[1], &at.revision); err == nil {
			all[name] = at
		}
	}
	return all
}

// kept are their names, sorted.
func (o *atOptions) kept() []string {
	raw, err := o.loadingRules().Load()
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(atContexts(raw)))
}

func (o *atOptions) show(cmd *cobra.Command) error {
	raw, err := o.loadingRules().Load()
	if err != nil {
		return err
	}
	all := atContexts(raw)
	if o.format != "" {
		return o.contexts(cmd, raw, slices.SortedFunc(maps.Values(all), func(a, b *contextAt) int { return strings.Compare(a.name, b.name) })...)
	}
	if len(all) == 0 {
		o.hint(cmd, "No context is at a moment; `%s MOMENT` makes one.", cmd.CommandPath())
		return nil
	}
	c := &columns{out: &output{Writer: cmd.OutOrStdout()}}
	c.header("CURRENT", "CONTEXT", "REVISION", "SERVER")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		mark := ""
		if name == raw.CurrentContext {
			mark = "*"
		}
		c.add("", cell{text: mark}, cell{text: name}, cell{text: fmt.Sprint(all[name].revision)}, cell{text: presentOf(all[name].cluster.Server)})
	}
	return c.flush()
}

// contextDocument is a context at a moment, for programs.
type contextDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Revision   uint64 `json:"revision"`
	Server     string `json:"server"`
	Current    bool   `json:"current"`
}

// contexts prints contexts for programs.
func (o *atOptions) contexts(cmd *cobra.Command, raw *clientcmdapi.Config, all ...*contextAt) error {
	out := &output{Writer: cmd.OutOrStdout()}
	list := documents{out: out, format: o.format}
	for _, at := range all {
		if o.format == "name" {
			fmt.Fprintln(out, at.name)
			continue
		}
		if err := list.add(contextDocument{clientVersion, "Context", at.name, at.revision, at.cluster.Server, at.name == raw.CurrentContext}); err != nil {
			return err
		}
	}
	if o.format == "name" {
		return nil
	}
	return list.end()
}

// forget removes contexts at moments, and their clusters.
func (o *atOptions) forget(cmd *cobra.Command, names []string) error {
	rules := o.loadingRules()
	raw, err := rules.Load()
	if err != nil {
		return err
	}
	all := atContexts(raw)
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	for _, name := range names {
		at := all[name]
		if at == nil {
			return fmt.Errorf("%s is no context that is at a moment; `%s --list` lists them", name, cmd.CommandPath())
		}
		delete(raw.Contexts, name)
		if !slices.ContainsFunc(slices.Collect(maps.Values(raw.Contexts)), func(c *clientcmdapi.Context) bool { return c.Cluster == at.clusterName }) {
			delete(raw.Clusters, at.clusterName)
		}
		if raw.CurrentContext == name {
			raw.CurrentContext = at.original
			if raw.Contexts[at.original] == nil {
				raw.CurrentContext = ""
			}
		}
	}
	if err := clientcmd.ModifyConfig(rules, *raw, true); err != nil {
		return err
	}
	for _, name := range names {
		o.say(cmd, "The context %s is removed.", name)
	}
	if len(names) == 0 {
		o.hint(cmd, "No context is at a moment; there is nothing to remove.")
	}
	return nil
}
