// Package exporting has the command that shows a bundle as Kubernetes objects: `stele policy export`.
package exporting

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/projections/policies"
)

type options struct {
	client.Flags
	compile compiling.Options
	format  string
	digest  string
	audit   bool
}

// Command returns the command `export`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "export [DIR]",
		Short: "Print a policy as Kubernetes objects: definitions, RBAC, admission policies, flow control",
		Long: `Export compiles a bundle and prints what Kubernetes can express of it: CustomResourceDefinitions,
ClusterRoles, ClusterRoleBindings, RoleBindings, ValidatingAdmissionPolicies with their bindings,
FlowSchemas and PriorityLevelConfigurations. What it cannot express is reported on standard error with
its line: denies, conditions of bindings, patterns of namespaces, params. Audit rules are no objects of
the API: with --audit, only they are printed, as the Policy of audit.k8s.io that kube-apiserver reads from
a file (--audit-policy-file).

Without a folder it reads the files of the policy in force from the server, or those of an earlier policy
with --digest, and compiles them on this machine. That needs the right to get policies.`,
		Example: `  stele policy export clusters/dev > dev.yaml
  stele policy export --context prod > prod.yaml
  stele policy export --digest 6e9630c0 -o json
  stele policy export --audit clusters/dev > audit-policy.yaml`,
		Args: usage.AtMost(1),
		RunE: o.run,
	}
	o.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.digest, "digest", "", "beginning of the `DIGEST` of an earlier policy of the server (default: the policy in force)")
	_ = cmd.RegisterFlagCompletionFunc("digest", o.CompleteDigests)
	cmd.Flags().BoolVar(&o.audit, "audit", false, "print the audit rules, as a Policy of audit.k8s.io")
	cmd.Flags().StringVarP(&o.format, "output", "o", "yaml", "output `FORMAT`: yaml or json")
	o.compile.AddFlags(cmd.Flags())
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := usage.OneOf("-o", o.format, []string{"yaml", "json"}); err != nil {
		return err
	}
	compiled, err := o.compiled(cmd, args)
	if err != nil {
		return err
	}
	if o.audit {
		return o.printAudit(cmd, compiled)
	}
	objects, notes := Objects(compiled.Form)
	if n := len(compiled.Form.Audit.Rules); n > 0 {
		notes = append(notes, fmt.Sprintf("%d audit rules are not exported, which are no objects of the API; print them with --audit", n))
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), n); err != nil {
			return err
		}
	}
	return write(cmd.OutOrStdout(), o.format, objects)
}

// printAudit prints the audit rules.
func (o *options) printAudit(cmd *cobra.Command, compiled *compile.Result) error {
	p, notes := Audit(&compiled.Form.Audit)
	if p == nil {
		return fmt.Errorf("the policy has no audit rules")
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), n); err != nil {
			return err
		}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return err
	}
	delete(content, "metadata")
	var text []byte
	if o.format == "json" {
		text, err = json.MarshalIndent(content, "", "  ")
		text = append(text, '\n')
	} else {
		text, err = yaml.Marshal(content)
	}
	if err == nil {
		_, err = cmd.OutOrStdout().Write(text)
	}
	return err
}

// compiled compiles the bundle in the folder that the arguments name, or a policy of the server.
func (o *options) compiled(cmd *cobra.Command, args []string) (*compile.Result, error) {
	if len(args) == 0 {
		return o.ofServer(cmd)
	}
	for _, name := range []string{"digest", "context", "kubeconfig"} {
		if cmd.Flags().Changed(name) {
			return nil, usage.Errorf("a folder and --%s cannot be given together: the folder is exported without a server", name)
		}
	}
	return o.compile.Folder(cmd.Context(), cmd, args[0])
}

// ofServer compiles the policy in force of a server, or that of the digest. If the form differs from the server's, a line on
// standard error says so.
func (o *options) ofServer(cmd *cobra.Command) (*compile.Result, error) {
	ctx := cmd.Context()
	server, err := client.NewPolicies(&o.Flags, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return nil, err
	}
	list, err := server.List(ctx)
	if err != nil {
		return nil, err
	}
	p := list[0]
	if o.digest != "" {
		if p, err = client.FindPolicy(list, o.digest); err != nil {
			return nil, err
		}
	}
	if p, err = server.Get(ctx, p.Name); err != nil {
		return nil, err
	}
	source := p.Spec.Source()
	if len(source.Files) == 0 {
		return nil, fmt.Errorf("the server has no files of the policy %.12s", p.Name)
	}
	compiled, diags, err := o.compile.Compile(ctx, source)
	if err == nil && len(diags) > 0 {
		err = show.ErrDiagnostics(cmd.ErrOrStderr(), source, diags, fmt.Sprintf("the policy %.12s, which the server accepted; use its version of stele", p.Name))
	}
	if err != nil {
		return nil, err
	}
	if encoded, _ := compiled.Form.Encode(); policies.DigestOf(encoded).String() != p.Name {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "the server compiled the policy %.12s with another version of stele; what is exported is what this version makes of its files\n", p.Name)
	}
	return compiled, err
}

// write prints objects: YAML documents, or a List as JSON.
func write(w io.Writer, format string, objects []any) error {
	if format == "json" {
		text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", text)
		}
		return err
	}
	var b strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
