package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/access"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/rights"
)

type whoCanOptions struct {
	clientOptions
	outputOptions
	at string
}

func whoCanCommand() *cobra.Command {
	o := &whoCanOptions{}
	cmd := &cobra.Command{
		Use:   "who-can VERB (RESOURCE[/SUBRESOURCE] [NAME] | PATH)",
		Short: "List who may do something, by which rule, and since when",
		Long: `Who-can lists the users, groups and service accounts whom the policy in force lets do
something, or the one that was at a moment: each with the binding, where that stands, its role and
namespaces, the condition if there is one, the denies that take it away, and since which
revision they have had it without interruption. Without a NAME it asks for any object; with -A for
any namespace. RESOURCE is what kubectl takes, and a path begins with /.

It lists whom the policy names: who is in a group it does not know. Authorizers of the chain
that are not in the policy (a policy file, a webhook, a plugin) cannot be listed; those that may
add to the list or take from it are named below it.

To ask takes the permission to create resourceaccessreviews.policy.stele.dev.

` + momentHelp,
		Example: `  stele who-can delete databases
  stele who-can get secrets -A --at "yesterday 14:00"
  stele who-can update databases/status orders -n shop -o name
  stele who-can get /metrics`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 || len(args) == 3 && strings.HasPrefix(args[1], "/") {
				return missing(cmd, "arguments: VERB RESOURCE [NAME], or VERB PATH")
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
		ValidArgsFunction: o.completeRequest,
	}
	o.clientOptions.addFlags(cmd)
	o.addAllNamespaces(cmd)
	o.addIdentity(cmd)
	o.outputOptions.addFlags(cmd, "json", "yaml", "name")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` whose policy is asked")
	_ = cmd.RegisterFlagCompletionFunc("at", completeMoments)
	return cmd
}

// completeRequest offers verbs, then kinds, then objects.
func (o *clientOptions) completeRequest(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return slices.DeleteFunc(slices.Clone(resourceVerbs), func(v string) bool { return v == "*" }), noFiles
	case 1:
		return o.completeKinds(cmd, nil, word)
	case 2:
		return o.completeNames(cmd, args[1]), noFiles
	}
	return nil, noFiles
}

func (o *whoCanOptions) run(cmd *cobra.Command, args []string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	config, _, err := o.config()
	if err != nil {
		return err
	}
	review := &access.Review{TypeMeta: metav1.TypeMeta{APIVersion: access.Group + "/" + access.Version, Kind: access.ReviewKind}}
	if review.Spec.Revision, err = revisionAt(ctx, config, o.at); err != nil {
		return err
	}
	if err := o.ask(&review.Spec, args); err != nil {
		return err
	}
	warnOfVerb(cmd.ErrOrStderr(), &explain.Spec{Verb: review.Spec.Verb, Path: review.Spec.Path})
	text, err := askAccess(ctx, &o.clientOptions, cmd.ErrOrStderr(), access.ReviewPlural, review)
	if err != nil {
		return err
	}
	answer := new(access.Review)
	if err := json.Unmarshal(text, answer); err != nil {
		return err
	}
	out, err := o.open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	switch o.format {
	case "":
		return showHolders(out, answer)
	case "name":
		return nameHolders(out, answer)
	}
	return out.document(o.format, text)
}

// ask is the question that the arguments mean.
func (o *whoCanOptions) ask(s *access.ReviewSpec, args []string) error {
	s.Verb = args[0]
	if strings.HasPrefix(args[1], "/") {
		s.Verb, s.Path = strings.ToLower(s.Verb), args[1] // people write GET
		return nil
	}
	if len(args) == 3 {
		s.Name = args[2]
	}
	config, loader, err := o.config()
	if err != nil {
		return err
	}
	resource, subresource := splitSubresource(args[1])
	s.Subresource = subresource
	if resource == "*" {
		s.Group, s.Resource, s.Namespace, s.AnyNamespace = "*", "*", o.namespace, o.namespace == ""
		return nil
	}
	today, err := newKinds(config)
	if err != nil {
		return err
	}
	mapping, _, err := today.resourceThen(resource, s.Revision)
	if err != nil {
		// A rule may name what is not served; users and groups, for one, which are impersonated.
		if slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, s.Verb) {
			return err
		}
		gr := schema.ParseGroupResource(resource)
		s.Group, s.Resource, s.Namespace, s.AnyNamespace = gr.Group, gr.Resource, o.namespace, o.everywhere
		return nil
	}
	s.Group, s.Resource = mapping.Resource.Group, mapping.Resource.Resource
	if s.AnyNamespace = o.everywhere && mapping.Scope.Name() == meta.RESTScopeNameNamespace; !s.AnyNamespace {
		s.Namespace, err = o.namespaceFor(mapping, loader)
	}
	return err
}

// splitSubresource takes it from a resource, whose group stands before it or, as they are printed,
// behind it.
func splitSubresource(text string) (resource, subresource string) {
	resource, subresource, _ = strings.Cut(text, "/")
	subresource, group, found := strings.Cut(subresource, ".")
	if found {
		resource += "." + group
	}
	return resource, subresource
}

// askAccess has the server answer a question about the policy.
func askAccess(ctx context.Context, o *clientOptions, warnings io.Writer, plural string, question any) (json.RawMessage, error) {
	client, err := newPolicyClient(o, rest.NewWarningWriter(warnings, rest.WarningWriterOptions{}))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	text, err = client.rest.Post().Resource(plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx)
	if err != nil {
		return nil, readable(err, text)
	}
	return text, nil
}

// subjectWords are a subject's kind and name.
func subjectWords(s policy.Subject) (kind, name string) {
	const accounts = "system:serviceaccount:"
	if s.Group != "" {
		return "Group", s.Group
	}
	if account, is := strings.CutPrefix(s.User, accounts); is {
		return "ServiceAccount", strings.Replace(account, ":", "/", 1)
	}
	return "User", s.User
}

func subjectText(s policy.Subject) string {
	kind, name := subjectWords(s)
	return kind + " " + name
}

// nameHolders prints whom it is not denied, each once.
func nameHolders(out io.Writer, answer *access.Review) error {
	seen := map[policy.Subject]bool{}
	for _, h := range answer.Status.Holders {
		if h.Denied || seen[h.Subject] {
			continue
		}
		seen[h.Subject] = true
		kind, name := subjectWords(h.Subject)
		if _, err := fmt.Fprintf(out, "%s/%s\n", strings.ToLower(kind), name); err != nil {
			return err
		}
	}
	return nil
}

// showHolders prints the list for people.
func showHolders(out *output, answer *access.Review) error {
	st := &answer.Status
	if _, err := fmt.Fprintf(out, "Who can %s, by policy %.12s of revision %d:\n\n", whatText(&answer.Spec), st.Policy, st.PolicyRevision); err != nil {
		return err
	}
	rows := &columns{out: out}
	rows.header("SUBJECT", "BINDING", "SOURCE", "ROLE", "NAMESPACES", "SINCE", "")
	shown := map[string]bool{} // denies
	for i := range st.Holders {
		h := &st.Holders[i]
		how := plain
		switch {
		case h.Denied:
			how = removed
		case h.When != "" || len(h.Denies) > 0 || len(h.Names) > 0:
			how = altered
		}
		below := ""
		note := func(format string, args ...any) {
			below += "  " + out.paint(how, fmt.Sprintf(format, args...)) + "\n"
		}
		if len(h.Names) > 0 {
			note("only %s", strings.Join(h.Names, ", "))
		}
		if h.When != "" {
			note("only when %s", h.When)
		}
		for _, d := range h.Denies {
			note("%s", objectionText(&d))
			shown[d.ID] = true
		}
		rows.add(below, cell{text: subjectText(h.Subject), style: how}, cell{text: h.Binding.ID}, cell{text: h.Binding.Source, style: subtle}, cell{text: h.Role},
			cell{text: strings.Join(h.Namespaces, ", ")}, cell{text: sinceText(h), right: h.Since != nil}, cell{text: sinceTime(out, h)})
	}
	if err := rows.flush(); err != nil {
		return err
	}
	st.Denies = slices.DeleteFunc(st.Denies, func(d rights.Objection) bool { return shown[d.ID] })
	return showBesides(out, st)
}

// showBesides prints what the list does not say.
func showBesides(out *output, st *access.ReviewStatus) error {
	var b strings.Builder
	if len(st.Denies) > 0 {
		b.WriteString("\nThese are refused, whatever grants it:\n")
		for i := range st.Denies {
			d := &st.Denies[i]
			var names []string
			for _, s := range d.Subjects {
				names = append(names, subjectText(s))
			}
			fmt.Fprintf(&b, "  %s: %s\n", strings.Join(names, ", "), objectionText(d))
		}
	}
	if len(st.Outsiders) > 0 {
		b.WriteString("\nThis list may be incomplete. These also decide:\n")
		for _, o := range st.Outsiders {
			does := "may allow others"
			if o.MayDeny {
				does += ", and refuse some of these"
			}
			if o.FailurePolicy != "" {
				does += map[bool]string{true: "; refuses if it cannot be asked", false: "; is passed over if it cannot be asked"}[o.FailurePolicy == "Deny"]
			}
			fmt.Fprintf(&b, "  %s %s\n", o.Authorizer, does)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// objectionText says what a deny takes away.
func objectionText(d *rights.Objection) string {
	text := "denied"
	if len(d.Names) > 0 {
		text += " for " + strings.Join(d.Names, ", ")
	} else if !d.Whole {
		text += " some of it"
	}
	text += " by " + groundText(d.Ground)
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	if d.Unless != "" {
		text += "; unless " + d.Unless
	}
	return text
}

func groundText(g rights.Ground) string {
	if g.Source == "" {
		return g.ID
	}
	return g.ID + " (" + g.Source + ")"
}

func sinceText(h *access.Holder) string {
	switch {
	case h.Denied:
		return "denied"
	case h.Since == nil:
		return ""
	}
	text := fmt.Sprint(h.Since.Revision)
	if h.Since.AtLeast {
		text = "at least " + text
	}
	return text
}

func sinceTime(out *output, h *access.Holder) string {
	if h.Since == nil {
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, h.Since.Time)
	if err != nil {
		return ""
	}
	return out.time(at)
}

// whatText is what is asked about.
func whatText(s *access.ReviewSpec) string {
	if s.Path != "" {
		return s.Verb + " " + s.Path
	}
	resource := s.Resource
	if s.Subresource != "" {
		resource += "/" + s.Subresource
	}
	text := verbText(s.Verb) + " " + schema.GroupResource{Group: s.Group, Resource: resource}.String()
	if s.Name != "" {
		text += " " + s.Name
	}
	switch {
	case s.AnyNamespace:
		text += " in some namespace"
	case s.Namespace != "":
		text += " in namespace " + s.Namespace
	}
	return text
}
