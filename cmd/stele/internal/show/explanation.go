package show

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/resources/explain"
)

// Explanation prints whether a request is allowed, and below it a line for each stage with the rules that the stage
// considered.
func Explanation(out io.Writer, e *explain.Explanation) error {
	fmt.Fprintln(out, Harmless(sentence(e)))
	fmt.Fprintln(out)
	rows := [][4]string{{"STAGE", "VERDICT", "RULE", "SOURCE"}}
	notes := map[int]string{} // below a row
	for _, s := range e.Status.Stages {
		rows = append(rows, [4]string{s.Name, s.Verdict, s.Rule, s.Source})
		if s.Verdict == explain.Passed && s.Rule == "" {
			rows[len(rows)-1][3] = s.Message
		}
		if s.Flow != nil && s.Verdict == explain.Passed {
			notes[len(rows)-1] = "      " + Harmless(s.Message) + "\n"
		}
		for _, c := range s.Considered {
			rows = append(rows, [4]string{"", "  " + c.Verdict, c.Rule, c.Source})
			texts := []string{c.Reason, c.Detail}
			for _, read := range c.Read {
				texts = append(texts, "read "+read)
			}
			for _, text := range texts {
				for line := range strings.Lines(text) {
					notes[len(rows)-1] += "      " + Harmless(strings.TrimSuffix(line, "\n")) + "\n"
				}
			}
		}
	}
	var widths [4]int
	for n := range rows {
		for i, cell := range rows[n] {
			rows[n][i] = Harmless(cell)
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
	if a := e.Status.Audit; a != nil && !a.Unruled { // without rules it goes without saying
		fmt.Fprintf(out, "\nAudit log: %s\n", Harmless(a.String()))
	}
	if e.Status.Message != "" {
		fmt.Fprintln(out)
		for line := range strings.SplitSeq(e.Status.Message, "\n") {
			fmt.Fprintln(out, Harmless(line))
		}
	}
	return nil
}

// sentence returns the result of an explanation in one sentence.
func sentence(e *explain.Explanation) string {
	s, st := &e.Spec, &e.Status
	who := s.User
	who = cmp.Or(who, "You")
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
	policy := fmt.Sprintf("Policy %.12s, revision %d.", st.Policy, st.Revision)
	if st.Revision == 0 { // of a bundle, without a server
		policy = fmt.Sprintf("Policy %.12s.", st.Policy)
	}
	given := len(s.Object) > 0
	switch {
	case st.Written > 0:
		return fmt.Sprintf("%s did %s %s, at revision %d, under policy %.12s.", who, s.Verb, what, st.Written, st.Policy)
	case !st.Allowed && st.Code < 300: // no stage refused it
		depends := "depends on the object; give it with -f"
		if given || s.Verb != "create" && s.Verb != "update" {
			depends = "depends on the object that is there"
		}
		if s.User == "" {
			who = "you"
		}
		return fmt.Sprintf("Whether %s may %s %s %s. %s", who, verbText(s.Verb), what, depends, policy)
	case st.Allowed && !given && st.Code == 0 && (s.Verb == "create" || s.Verb == "update"):
		return fmt.Sprintf("%s may %s %s, as far as that does not depend on the object; give it with -f to check the schema and the rules, too. %s", who, verbText(s.Verb), what, policy)
	case st.Allowed:
		return fmt.Sprintf("%s may %s %s. %s", who, verbText(s.Verb), what, policy)
	}
	verdict := "may not"
	switch st.Stages[len(st.Stages)-1].Name {
	case "impersonation", "authorization", "conditions":
	default: // the user has the permission, but this request fails
		verdict = "cannot"
	}
	return fmt.Sprintf("%s %s %s %s: %d %s. %s", who, verdict, verbText(s.Verb), what, st.Code, st.Reason, policy)
}

// verbText returns a verb as part of a sentence. Only "history" is not one already.
func verbText(verb string) string {
	if verb == "history" {
		return "read past versions of"
	}
	return verb
}
