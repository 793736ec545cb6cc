package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/explain"
)

type explainOptions struct {
	clientOptions
	formatOptions
	user, uid, auditID, file     string
	groups, extra                []string
	fieldSelector, labelSelector string
}

func explainCommand() *cobra.Command {
	o := &explainOptions{}
	cmd := &cobra.Command{
		Use:   "explain (VERB RESOURCE [NAME] | --audit-id ID)",
		Short: "Say why a request is, or was, allowed or refused: by which rule, on which line",
		Long: `Explain takes a request through the server as a dry run, and shows what each stage made
of it: the rule that decided, where it stands, and the other rules that were considered.
The request need not be one's own: --as, --as-group, --as-uid and --as-user-extra say in whose
name it is, which takes the permission to impersonate them. RESOURCE can have a subresource, and be a path
that begins with /. For writes -f has the object; without it, what depends on the object is
left open.

It exits with 0 if the request may be made as it is described, with 1 if not, and with 2 if
that could not be found out. To ask takes the permission to create explanations.policy.stele.dev.

With --audit-id it says the same of a request that was: of a write, by its event in the
log, or of a refusal that the server still remembers. Every answer has its id in the header
Audit-Id. To ask takes the permission to get explanations.policy.stele.dev.`,
		Example: `  stele policy explain --as alice --as-group team-data delete databases orders -n default
  stele policy explain --as alice create databases -n default -f orders.yaml
  stele policy explain --as alice --as-user-extra example.com/ticket=CHG-1 delete databases orders
  stele policy explain --as alice list databases --field-selector spec.owner=alice
  stele policy explain --audit-id 3c6d1a0e-5d0f-4f57-9d8e-6b1f0c2a4b11`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.auditID != "" && len(args) > 0:
				return usagef("a request and --audit-id cannot be given together")
			case o.auditID == "" && (len(args) < 2 || len(args) > 3):
				return missing(cmd, "arguments: VERB RESOURCE [NAME], or --audit-id ID")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.run(cmd, args)
			if err != nil && !errors.Is(err, errSaid) && !errors.Is(err, syscall.EPIPE) {
				return exitError{exitUsage, err}
			}
			return err
		},
	}
	o.clientOptions.addFlags(cmd)
	o.formatOptions.addFlags(cmd, "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&o.user, "as", "", "explain a request of this user (default: yourself)")
	f.StringArrayVar(&o.groups, "as-group", nil, "group of that user; may be repeated")
	f.StringVar(&o.uid, "as-uid", "", "uid of that user")
	f.StringArrayVar(&o.extra, "as-user-extra", nil, "extra attribute of that user, as `KEY=VALUE`; may be repeated")
	f.StringVar(&o.fieldSelector, "field-selector", "", "what the fields of what is listed, watched or deleted have to be")
	f.StringVarP(&o.labelSelector, "selector", "l", "", "what its labels have to be")
	f.StringVarP(&o.file, "filename", "f", "", "file with the object of a write, YAML or JSON; - for standard input")
	f.StringVar(&o.auditID, "audit-id", "", "explain the request that had this audit id")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	cmd.ValidArgsFunction = o.completeRequest
	return cmd
}

func (o *explainOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	for _, flag := range []string{"as-group", "as-uid", "as-user-extra"} {
		if o.user == "" && cmd.Flags().Changed(flag) {
			return usagef("--%s needs --as", flag)
		}
	}
	policies, err := newPolicyClient(&o.clientOptions, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return err
	}
	var e *explain.Explanation
	if o.auditID != "" {
		e, err = policies.explained(ctx, o.auditID)
	} else {
		var spec *explain.Spec
		if spec, err = o.spec(cmd, args); err != nil {
			return err
		}
		warnOfVerb(cmd.ErrOrStderr(), spec)
		e, err = policies.explain(ctx, spec)
	}
	if err != nil {
		return err
	}
	if o.format != "" {
		err = (&output{Writer: cmd.OutOrStdout()}).document(o.format, e)
	} else {
		err = printExplanation(cmd.OutOrStdout(), e)
	}
	if err == nil && o.auditID == "" && !e.Status.Allowed {
		return errNotAllowed
	}
	return err
}

// errNotAllowed is an exit code; what there is to say has been printed.
var errNotAllowed = exitError{exitFailure, errSaid}

// The verbs that rules can name of resources, and of paths. Others are not an error: a
// rule may be looked for that nobody meets.
var (
	resourceVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection",
		"impersonate", "bind", "escalate", "use", "approve", "sign", "history", "*"}
	pathVerbs = []string{"get", "head", "post", "put", "patch", "delete", "options", "connect", "trace", "*"}
)

// warnOfVerb says that a verb is most likely misspelt.
func warnOfVerb(out io.Writer, s *explain.Spec) {
	if s.Path != "" && !slices.Contains(pathVerbs, strings.ToLower(s.Verb)) || s.Path == "" && !slices.Contains(resourceVerbs, s.Verb) {
		fmt.Fprintf(out, "warning: no client of Kubernetes' sends the verb %q\n", s.Verb)
	}
}

// spec is the request that the arguments describe.
func (o *explainOptions) spec(cmd *cobra.Command, args []string) (*explain.Spec, error) {
	s := &explain.Spec{Verb: args[0], User: o.user, UID: o.uid, Groups: o.groups, FieldSelector: o.fieldSelector, LabelSelector: o.labelSelector}
	for _, text := range o.extra {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return nil, usagef("--as-user-extra %s: use KEY=VALUE", text)
		}
		if s.Extra == nil {
			s.Extra = map[string][]string{}
		}
		s.Extra[key] = append(s.Extra[key], value)
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
		s.Verb = strings.ToLower(s.Verb) // people write GET
		if s.Path = args[1]; s.Name != "" {
			return nil, usagef("a path has no NAME")
		}
		return s, nil
	}
	config, loader, err := o.config()
	if err != nil {
		return nil, err
	}
	resource, subresource := splitSubresource(args[1])
	s.Subresource = subresource
	namespaced := false
	if mapping, err := resourceOf(config, resource); err == nil {
		s.Group, s.Version, s.Resource = mapping.Resource.Group, mapping.Resource.Version, mapping.Resource.Resource
		namespaced = mapping.Scope.Name() == meta.RESTScopeNameNamespace
	} else {
		// A rule may name what is not served; users and groups, for one, which are impersonated.
		gr := schema.ParseGroupResource(resource)
		s.Group, s.Version, s.Resource = gr.Group, "v1", gr.Resource
		if slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, s.Verb) {
			return nil, err
		}
	}
	if s.Namespace = o.namespace; s.Namespace == "" && namespaced {
		if s.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, err
		}
	}
	if !namespaced {
		s.Namespace = ""
	}
	o.fromObject(s)
	if s.Name == "" && (s.Verb == "get" || s.Verb == "update" || s.Verb == "patch" || s.Verb == "delete") {
		return nil, fmt.Errorf("to %s takes a NAME", s.Verb)
	}
	if s.Verb == "create" {
		s.Name = "" // it stands in the object
	}
	return s, nil
}

// fromObject takes from the object what was not said.
func (o *explainOptions) fromObject(s *explain.Spec) {
	var object metav1.PartialObjectMetadata
	if json.Unmarshal(s.Object, &object) != nil {
		return
	}
	if s.Name == "" {
		s.Name = object.Name
	}
	if o.namespace == "" && object.Namespace != "" && s.Namespace != "" {
		s.Namespace = object.Namespace
	}
}

func readFile(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func (c *policyClient) explain(ctx context.Context, spec *explain.Spec) (*explain.Explanation, error) {
	e := &explain.Explanation{TypeMeta: metav1.TypeMeta{APIVersion: explain.Group + "/" + explain.Version, Kind: explain.Kind}, Spec: *spec}
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if text, err = c.rest.Post().Resource(explain.Plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx); err != nil {
		return nil, readable(err, text)
	}
	e = new(explain.Explanation)
	return e, json.Unmarshal(text, e)
}

func (c *policyClient) explained(ctx context.Context, auditID string) (*explain.Explanation, error) {
	text, err := c.rest.Get().Resource(explain.Plural).Name(auditID).DoRaw(ctx)
	if err != nil {
		return nil, readable(err, text)
	}
	e := new(explain.Explanation)
	return e, json.Unmarshal(text, e)
}

// printExplanation shows the verdict, and then a line for each stage, with what it
// considered below.
func printExplanation(out io.Writer, e *explain.Explanation) error {
	fmt.Fprintln(out, harmless(sentence(e)))
	fmt.Fprintln(out)
	rows := [][4]string{{"STAGE", "VERDICT", "RULE", "SOURCE"}}
	notes := map[int]string{} // below a row
	for _, s := range e.Status.Stages {
		rows = append(rows, [4]string{s.Name, s.Verdict, s.Rule, s.Source})
		if s.Verdict == explain.Passed && s.Rule == "" {
			rows[len(rows)-1][3] = s.Message
		}
		for _, c := range s.Considered {
			rows = append(rows, [4]string{"", "  " + c.Verdict, c.Rule, c.Source})
			for _, said := range []string{c.Reason, c.Detail} {
				for line := range strings.Lines(said) {
					notes[len(rows)-1] += "      " + harmless(strings.TrimSuffix(line, "\n")) + "\n"
				}
			}
		}
	}
	var widths [4]int
	for n := range rows {
		for i, cell := range rows[n] {
			rows[n][i] = harmless(cell)
			widths[i] = max(widths[i], len(rows[n][i]))
		}
	}
	for n, row := range rows {
		line := ""
		for i, cell := range row {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
		fmt.Fprint(out, notes[n])
	}
	if e.Status.Message != "" {
		fmt.Fprintln(out)
		for line := range strings.SplitSeq(e.Status.Message, "\n") {
			fmt.Fprintln(out, harmless(line))
		}
	}
	return nil
}

// sentence says it in one line.
func sentence(e *explain.Explanation) string {
	s, st := &e.Spec, &e.Status
	who := s.User
	if who == "" {
		who = "You"
	}
	what := s.Path
	if s.Resource != "" {
		what = schema.GroupResource{Group: s.Group, Resource: s.Resource}.String()
		if s.Subresource != "" {
			what = strings.Replace(what, s.Resource, s.Resource+"/"+s.Subresource, 1)
		}
		if s.Name != "" {
			what += " " + s.Name
		}
		if s.Namespace != "" {
			what += " in namespace " + s.Namespace
		}
	}
	law := fmt.Sprintf("Policy %.12s, revision %d.", st.Policy, st.Revision)
	given := len(s.Object) > 0
	switch {
	case st.Written > 0:
		return fmt.Sprintf("%s did %s %s, at revision %d, under policy %.12s.", who, s.Verb, what, st.Written, st.Policy)
	case !st.Allowed && st.Code < 300: // nobody refused it
		depends := "depends on the object; give it with -f"
		if given || s.Verb != "create" && s.Verb != "update" {
			depends = "depends on the object that is there"
		}
		if s.User == "" {
			who = "you"
		}
		return fmt.Sprintf("Whether %s may %s %s %s. %s", who, verbText(s.Verb), what, depends, law)
	case st.Allowed && !given && st.Code == 0 && (s.Verb == "create" || s.Verb == "update"):
		return fmt.Sprintf("%s may %s %s, as far as that does not depend on the object; give it with -f to have schema and rules asked, too. %s", who, verbText(s.Verb), what, law)
	case st.Allowed:
		return fmt.Sprintf("%s may %s %s. %s", who, verbText(s.Verb), what, law)
	}
	verdict := "may not"
	switch st.Stages[len(st.Stages)-1].Name {
	case "impersonation", "authorization", "conditions":
	default: // they may, but this one would not do
		verdict = "cannot"
	}
	return fmt.Sprintf("%s %s %s %s: %d %s. %s", who, verdict, verbText(s.Verb), what, st.Code, st.Reason, law)
}

// verbText is a verb in a sentence: "history" is none.
func verbText(verb string) string {
	if verb == "history" {
		return "read past versions of"
	}
	return verb
}
