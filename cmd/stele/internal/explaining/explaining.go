// Package explaining has the command `stele policy explain`: why a request is allowed or refused, and which flow it is of, by a
// server or by a bundle.
package explaining

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/explain"
)

type options struct {
	client.Flags
	show.FormatFlags
	compile compiling.Options
	bundle  string

	user, uid, auditID, file     string
	groups, extra                []string
	fieldSelector, labelSelector string
}

// Command returns the command `stele policy explain`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "explain (VERB RESOURCE [NAME] | --audit-id ID)",
		Short: "Show why a request is or was allowed or refused, and which flow it is of: the rule and its line",
		Long: `Explain sends a request through the server as a dry run. It shows for each stage the rule that
decided, where the rule stands, and the other rules that the stage considered. --as, --as-group,
--as-uid and --as-user-extra explain a request of another user, if you may impersonate that user.
RESOURCE may have a subresource, or be a path that begins with /. For writes, -f names the file with
the object; without it, decisions that depend on the object stay open.

--bundle decides by the bundle in a folder, without a server: as in a server without objects, plugins
and webhooks. It stops after the authorization, unless -f gives the object of a create.

The exit code is 0 if the request is allowed, 1 if it is not, and 2 if there is no answer. You need
permission to create explanations.policy.stele.dev.

--audit-id explains a past request: a write, by its event in the log, and what a server has in its
decision log: refusals, dry runs, conflicts, and reads that an audit rule selects. If the server that
answers has no such request, the others are asked, at the addresses that kubectl get replicas shows.
Every answer of a server has its id in the header Audit-Id. You need permission to get
explanations.policy.stele.dev.`,
		Example: `  stele policy explain --as alice --as-group team-data delete databases orders -n default
  stele policy explain --as alice create databases -n default -f orders.yaml
  stele policy explain --as alice --as-user-extra example.com/ticket=CHG-1 delete databases orders
  stele policy explain --bundle clusters/dev --as alice --as-group team-data list databases -A
  stele policy explain --as alice list databases --field-selector spec.owner=alice
  stele policy explain --audit-id 3c6d1a0e-5d0f-4f57-9d8e-6b1f0c2a4b11`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.auditID != "" && len(args) > 0:
				return usage.Errorf("a request and --audit-id cannot be given together")
			case o.auditID == "" && (len(args) < 2 || len(args) > 3):
				return usage.Missing(cmd, "arguments: VERB RESOURCE [NAME], or --audit-id ID")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return usage.NoAnswer(o.run(cmd, args))
		},
	}
	o.Flags.AddFlags(cmd)
	o.AddAllNamespaces(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml")
	o.compile.AddFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&o.user, "as", "", "explain a request of this user (default: yourself)")
	f.StringArrayVar(&o.groups, "as-group", nil, "group of that user; may be repeated")
	f.StringVar(&o.uid, "as-uid", "", "uid of that user")
	f.StringArrayVar(&o.extra, "as-user-extra", nil, "extra attribute of that user, as `KEY=VALUE`; may be repeated")
	f.StringVar(&o.fieldSelector, "field-selector", "", "field selector of the request, for list, watch and deletecollection")
	f.StringVarP(&o.labelSelector, "selector", "l", "", "label selector of the request")
	f.StringVarP(&o.file, "filename", "f", "", "file with the object of a write, YAML or JSON; - for standard input")
	f.StringVar(&o.bundle, "bundle", "", "decide by the bundle in this `DIR`, without a server; needs --as")
	f.StringVar(&o.auditID, "audit-id", "", "explain the request that had this audit id")
	_ = cmd.MarkFlagDirname("bundle")
	usage.Exclusive(cmd, "bundle", "audit-id")
	usage.Exclusive(cmd, "as", "audit-id")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	cmd.ValidArgsFunction = o.CompleteRequest
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	for _, flag := range []string{"as-group", "as-uid", "as-user-extra"} {
		if o.user == "" && cmd.Flags().Changed(flag) {
			return usage.Errorf("--%s needs --as", flag)
		}
	}
	ask := o.ask
	if o.bundle != "" {
		ask = o.offline
	}
	e, err := ask(ctx, cmd, args)
	if err != nil {
		return err
	}
	if o.Format != "" {
		err = o.Document(cmd, e)
	} else {
		err = show.Explanation(cmd.OutOrStdout(), e)
	}
	if err == nil && o.auditID == "" && !e.Status.Allowed {
		return errNotAllowed
	}
	return err
}

// ask asks the server.
func (o *options) ask(ctx context.Context, cmd *cobra.Command, args []string) (*explain.Explanation, error) {
	policies, err := client.NewPolicies(&o.Flags, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return nil, err
	}
	if o.auditID != "" {
		return policies.Explained(ctx, o.auditID)
	}
	spec, err := o.spec(cmd, args)
	if err != nil {
		return nil, err
	}
	client.WarnOfVerb(cmd.ErrOrStderr(), spec)
	return policies.Explain(ctx, spec)
}

// errNotAllowed is the error for a request that is not allowed. It sets the exit code 1.
var errNotAllowed = usage.Exit(usage.ExitFailure, usage.ErrPrinted)

// spec returns the request that the arguments describe.
func (o *options) spec(cmd *cobra.Command, args []string) (*explain.Spec, error) {
	s := &explain.Spec{Verb: args[0], User: o.user, UID: o.uid, Groups: o.groups, FieldSelector: o.fieldSelector, LabelSelector: o.labelSelector}
	var err error
	if s.Extra, err = o.extras(); err != nil {
		return nil, err
	}
	if len(args) == 3 {
		s.Name = args[2]
	}
	if o.file != "" {
		text, err := readFile(cmd.InOrStdin(), o.file)
		if err != nil {
			return nil, err
		}
		if s.Object, err = yaml.YAMLToJSON(text); err != nil {
			return nil, fmt.Errorf("%s: %w", o.file, err)
		}
	}
	if strings.HasPrefix(args[1], "/") {
		s.Verb = strings.ToLower(s.Verb) // users write GET
		if s.Path = args[1]; s.Name != "" {
			return nil, usage.Errorf("a path has no NAME")
		}
		return s, nil
	}
	config, loader, err := o.Config()
	if err != nil {
		return nil, err
	}
	resource, subresource := client.SplitSubresource(args[1])
	s.Subresource = subresource
	namespaced := false
	if mapping, err := client.ResourceNamed(config, resource); err == nil {
		s.Group, s.Version, s.Resource = mapping.Resource.Group, mapping.Resource.Version, mapping.Resource.Resource
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	} else {
		// A rule may name a resource that is not served, such as users, which are impersonated.
		gr := schema.ParseGroupResource(resource)
		s.Group, s.Version, s.Resource = gr.Group, "v1", gr.Resource
		if slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, s.Verb) {
			return nil, err
		}
	}
	if s.Namespace = o.Namespace; s.Namespace == "" && namespaced {
		if s.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	if !namespaced || o.Everywhere {
		s.Namespace = ""
	}
	o.fromObject(s)
	if s.Name == "" && (s.Verb == "get" || s.Verb == "update" || s.Verb == "patch" || s.Verb == "delete") {
		return nil, fmt.Errorf("%s needs a NAME", s.Verb)
	}
	if s.Verb == "create" {
		s.Name = "" // the object has the name
	}
	return s, nil
}

// extras returns the extra attributes of the user.
func (o *options) extras() (map[string][]string, error) {
	var extra map[string][]string
	for _, text := range o.extra {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return nil, usage.Errorf("--as-user-extra %s: use KEY=VALUE", text)
		}
		if extra == nil {
			extra = map[string][]string{}
		}
		extra[key] = append(extra[key], value)
	}
	return extra, nil
}

// fromObject takes the name and the namespace from the object if the arguments have none.
func (o *options) fromObject(s *explain.Spec) {
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(s.Object, &object) != nil {
		return
	}
	if s.Name == "" {
		s.Name = object.Name
	}
	if o.Namespace == "" && object.Namespace != "" && s.Namespace != "" {
		s.Namespace = object.Namespace
	}
}

// readFile reads a file, or standard input for "-".
func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}
