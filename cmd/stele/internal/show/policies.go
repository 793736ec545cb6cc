package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/wording"
)

// Report prints the result of a push or a rollback.
func (o *FormatFlags) Report(cmd *cobra.Command, before, after *activation.Policy, dryRun bool) error {
	switch {
	case o.Format == "name":
		_, err := fmt.Fprintln(cmd.OutOrStdout(), PolicyName(after))
		return err
	case o.Format != "":
		return (&Output{Writer: cmd.OutOrStdout()}).Document(o.Format, after)
	case after.Name == before.Name:
		o.Say(cmd, "Policy %.12s is in force already, since revision %d.", after.Name, after.Status.Revision)
	case dryRun:
		o.Say(cmd, "Dry run: the server accepts policy %.12s%s in place of %.12s. Nothing was changed.", after.Name, client.CommitText(after.Spec.Commit), before.Name)
		o.contents(cmd, after)
	default:
		o.Say(cmd, "Policy %.12s%s is in force since revision %d, in place of %.12s.", after.Name, client.CommitText(after.Spec.Commit), after.Status.Revision, before.Name)
		o.contents(cmd, after)
	}
	return nil
}

// PolicyName returns the name of a policy in the form of kubectl's -o name.
func PolicyName(p *activation.Policy) string {
	return ResourceName(schema.GroupVersionKind{Group: activation.Group, Kind: activation.Kind}, p.Name)
}

// Policy prints a policy as text.
func Policy(cmd *cobra.Command, p *activation.Policy) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Digest    %s\nCluster   %s\nRevision  %d\nActor     %s\n", p.Name, p.Status.Cluster, p.Status.Revision, p.Status.Actor)
	if p.Spec.Commit != "" {
		fmt.Fprintf(&b, "Commit    %s\n", p.Spec.Commit)
	}
	if p.Status.InForce {
		fmt.Fprintf(&b, "Kinds     %d\n", p.Status.Kinds)
	} else {
		fmt.Fprintln(&b, "In force  no")
	}
	for i := range p.Status.Teams {
		label := ""
		if i == 0 {
			label = "Teams"
		}
		fmt.Fprintf(&b, "%-9s %s\n", label, teamText(&p.Status.Teams[i]))
	}
	for i, f := range p.Spec.Files {
		label := ""
		if i == 0 {
			label = "Files"
		}
		fmt.Fprintf(&b, "%-9s %s\n", label, f.Path)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// teamText returns a team with its limits and their lines.
func teamText(t *policy.Team) string {
	text := t.Name
	for _, l := range []struct {
		name string
		policy.Limit
	}{{"groups", t.Groups}, {"namespaces", t.Namespaces}, {"reads", t.Reads}} {
		if l.name != "reads" || len(l.Values) > 0 {
			text += fmt.Sprintf("  %s [%s]%s", l.name, strings.Join(wording.Quoted(l.Values), ", "), wording.At(l.Source.String()))
		}
	}
	return text
}
