// Command stele is a declarative control plane that speaks the Kubernetes API: policy
// as CUE, every write an event in a log. See `stele --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/apiserver"
	"stele.dev/stele/cmd/stele/internal/auditing"
	"stele.dev/stele/cmd/stele/internal/backup"
	"stele.dev/stele/cmd/stele/internal/build"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/console"
	"stele.dev/stele/cmd/stele/internal/doctor"
	"stele.dev/stele/cmd/stele/internal/installing"
	"stele.dev/stele/cmd/stele/internal/logmove"
	"stele.dev/stele/cmd/stele/internal/plugincheck"
	"stele.dev/stele/cmd/stele/internal/proofs"
	"stele.dev/stele/cmd/stele/internal/restore"
	"stele.dev/stele/cmd/stele/internal/top"
	"stele.dev/stele/cmd/stele/internal/usage"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newCommand()
	if isKubeAPIServer() {
		args = append([]string{apiserver.Name}, args...)
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, syscall.EPIPE) { // the reader of a pipe may stop early
		var planned *restore.PlannedOnly
		if errors.As(err, &planned) {
			planned.Args = args
		}
		if text := client.ErrorText(err); text != "" {
			fmt.Fprintln(stderr, "stele: "+text)
		}
		return usage.ExitCode(err)
	}
	return 0
}

// newCommand returns the command `stele` with its subcommands.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "stele",
		Short: "Run and inspect a control plane that speaks the Kubernetes API",
		Long: `stele is a control plane for your own resource types. It speaks the Kubernetes API, so
kubectl and all programs built on client-go work with it. It needs no Kubernetes cluster.
Policies are written in CUE, and every write is an event in a log.

  stele serve                     start a control plane here and now
  export KUBECONFIG=$PWD/stele-data/admin.kubeconfig
  stele status                    show its version, policy and health
  kubectl api-resources           list the kinds that it serves
  stele log --since 1h            show changes, and who made them
  stele at 1h -- kubectl get ns   read it as it was an hour ago

Every flag can also be set by the environment: --data-dir by STELE_DATA_DIR.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := usage.FromEnvironment(cmd.Flags()); err != nil {
				return usage.Mark(err)
			}
			if err := usage.CheckRequired(cmd); err != nil {
				return err
			}
			return usage.CheckExclusive(cmd)
		},
	}
	root.SetFlagErrorFunc(usage.FlagError)
	root.Version = build.Version
	root.SetVersionTemplate(versionText())
	root.SetHelpCommand(usage.HelpCommand())
	addGroup(root, "look", "Look:", statusCommand(), logCommand(), historyCommand(), diffCommand(), blameCommand(), atCommand(), top.Command(), console.Command())
	addGroup(root, "undo", "Take back:", restore.UndoCommand(), restore.RevertCommand(), restore.UndeleteCommand())
	addGroup(root, "policy", "Change the policy:", policyCommand())
	addGroup(root, "access", "Access:", whoCanCommand(), accessCommand())
	addGroup(root, "proof", "Audit and prove:", auditing.Command(), proofCommand())
	addGroup(root, "operate", "Operate:", doctor.Command(checkDatabaseApart), projectionCommand())
	root.AddCommand(versionCommand())
	if !usage.IsPlugin() {
		addGroup(root, "access", "", kubeconfigCommand())
		addGroup(root, "operate", "", serveCommand(), kubeAPIServerCommand(), keysCommand(), backup.Command(checkDatabaseApart, proofs.ReadHead), storeCommand(), plugincheck.Command(), installing.Command(serveCommand), installing.UninstallCommand())
		root.AddCommand(checkDatabaseCommand())
	}
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.AddCommand(completionForKubectl())
		}
		usage.Parents(cmd)
	}
	usage.Parent(root)
	usage.CheckUsage(root)
	if usage.IsPlugin() {
		root.Short = "Read past revisions of a control plane, and put objects back"
		root.Long = pluginHelp
		usage.AsPlugin(root)
	}
	return root
}

// addGroup adds commands that help lists together. An empty title adds to an existing group.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	if title != "" {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
	}
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// proofCommand returns the command `proof`.
func proofCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proof",
		Short: "Prove what the log has, and check proofs",
		Long: `Proof has what auditors need: tree heads, which are hashes of the whole log, proofs that an event is in the log
or that the log was only appended to, and their checks, which need no server.`,
		Args: usage.NoArguments,
	}
	cmd.AddCommand(proofs.Commands(checkDatabaseApart)...)
	return cmd
}

// storeCommand returns the command `store`.
func storeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Show how much of the log is kept, and move it",
		Args:  usage.NoArguments,
	}
	cmd.AddCommand(logRetentionCommand(), logmove.Command(checkDatabaseApart), logmove.NewEpochCommand())
	return cmd
}

// pluginHelp is the help of `kubectl stele`.
const pluginHelp = `Stele keeps every write as an event in a log. These commands read past revisions and changes
from the control plane of the kubeconfig's current context, and put objects back.

  kubectl stele log --since 1h                   show changes, and who made them
  kubectl stele history database orders -p       show the changes of one object
  kubectl stele blame database orders            show who set each field
  kubectl stele diff --from 1h -A                show what differs
  kubectl stele at 1h -- kubectl get databases   read objects as they were
  kubectl stele revert --to 1h database orders   put an object back
  kubectl stele undelete database orders         bring a deleted object back
  kubectl stele undo --actor robot --since 1h    take back the writes of a user
  kubectl stele who-can delete databases         list who may do something, and since when

Every flag can also be set by the environment: --no-pager by STELE_NO_PAGER=true.`
