package show

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/policy/rights"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/wording"
)

// subjectWords returns the kind and the name of a subject.
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

// subjectText returns the kind and the name of a subject as text.
func subjectText(s policy.Subject) string {
	kind, name := subjectWords(s)
	return kind + " " + name
}

// HolderNames prints each subject that has a permission once. It skips subjects to whom the permission is denied.
func HolderNames(out io.Writer, answer *access.Review) error {
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

// Holders prints who has a permission, as a table.
func Holders(out *Output, answer *access.Review) error {
	st := &answer.Status
	if _, err := fmt.Fprintf(out, "Who can %s, by policy %.12s of revision %d:\n\n", whatText(&answer.Spec), st.Policy, st.PolicyRevision); err != nil {
		return err
	}
	rows := &Columns{Out: out}
	rows.Header("SUBJECT", "BINDING", "SOURCE", "ROLE", "NAMESPACES", "SINCE", "")
	shown := map[string]bool{} // denies
	for i := range st.Holders {
		h := &st.Holders[i]
		how := plain
		switch {
		case h.Denied:
			how = Removed
		case h.When != "" || len(h.Denies) > 0 || len(h.Names) > 0:
			how = Altered
		}
		below := ""
		note := func(format string, args ...any) {
			below += "  " + out.Paint(how, fmt.Sprintf(format, args...)) + "\n"
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
		rows.Add(below, Cell{Text: subjectText(h.Subject), Style: how}, Cell{Text: h.Binding.ID}, Cell{Text: h.Binding.Source, Style: subtle}, Cell{Text: h.Role},
			Cell{Text: strings.Join(h.Namespaces, ", ")}, Cell{Text: sinceText(h), right: h.Since != nil}, Cell{Text: sinceTime(out, h)})
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	st.Denies = slices.DeleteFunc(st.Denies, func(d rights.Objection) bool { return shown[d.ID] })
	return showBesides(out, st)
}

// Grantors prints the teams that may grant a permission, with the limits that let them.
func Grantors(out *Output, answer *access.Review) error {
	st := &answer.Status
	if _, err := fmt.Fprintf(out, "Who may grant to %s, by policy %.12s of revision %d:\n\n", whatText(&answer.Spec), st.Policy, st.PolicyRevision); err != nil {
		return err
	}
	if st.GrantorsUnknown {
		_, err := fmt.Fprintln(out, "The policy does not say the limits of its teams: an earlier version of stele compiled it. Push it again.")
		return err
	}
	rows := &Columns{Out: out}
	rows.Header("TEAM", "LIMIT", "SOURCE", "HOW")
	for _, g := range st.Grantors {
		how := map[string]string{
			rights.ByNamespaces: "a binding of any role",
			rights.ByGroups:     "rules of its roles are added to roles that others bind",
			rights.ByViews:      "rules for its view are added to roles that others bind",
		}[g.By]
		rows.Add("", Cell{Text: g.Team}, Cell{Text: fmt.Sprintf("%s [%s]", g.By, strings.Join(wording.Quoted(g.Values), ", "))}, Cell{Text: g.Source, Style: subtle}, Cell{Text: how})
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	return nil
}

// GrantorNames prints the name of each team that may grant a permission.
func GrantorNames(out io.Writer, answer *access.Review) error {
	for _, g := range answer.Status.Grantors {
		if _, err := fmt.Fprintf(out, "team/%s\n", g.Team); err != nil {
			return err
		}
	}
	return nil
}

// showBesides prints the denies that are not in the table, and the authorizers that may change the result.
func showBesides(out *Output, st *access.ReviewStatus) error {
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

// objectionText returns what a deny rule denies, and where it stands.
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

// groundText returns a rule and where it stands.
func groundText(g rights.Ground) string { return g.ID + wording.At(g.Source) }

// sinceText returns the revision since which a subject has a permission.
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

// sinceTime returns the time since which a subject has a permission.
func sinceTime(out *Output, h *access.Holder) string {
	if h.Since == nil {
		return ""
	}
	at, err := time.Parse(time.RFC3339Nano, h.Since.Time)
	if err != nil {
		return ""
	}
	return out.time(at)
}

// whatText returns the permission that a review is about.
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
