package planning

import (
	"fmt"
	"strings"

	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/schemas/wording"
)

// ruleList is the document of all rules.
type ruleList struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"`
	Items      []ruleDetails `json:"items"`
}

// ruleDetails is the document of a rule.
type ruleDetails struct {
	Name    string `json:"name"`
	Section string `json:"section"`
	Class   string `json:"class"`
	Short   string `json:"short"`
	Long    string `json:"long,omitempty"`
}

func detailsOf(r *plan.Rule) ruleDetails {
	return ruleDetails{r.Name, r.Section.Title(), string(r.Class), r.Short, r.Long}
}

// listRules prints the names of all rules.
func listRules(out *show.Output, format string) error {
	list := ruleList{APIVersion: plan.APIVersion, Kind: "RuleList"}
	for i := range plan.Rules {
		list.Items = append(list.Items, detailsOf(&plan.Rules[i]))
	}
	if format != "" {
		return out.Document(format, list)
	}
	c := &show.Columns{Out: out}
	c.Header("SECTION", "RULE", "CLASS", "MEANING")
	for _, r := range list.Items {
		c.Add("", show.Cell{Text: r.Section}, show.Cell{Text: r.Name}, show.Cell{Text: r.Class}, show.Cell{Text: r.Short})
	}
	return c.Flush()
}

// explainRule prints what a rule means.
func explainRule(out *show.Output, format, name string) error {
	r := plan.RuleNamed(strings.ToUpper(name))
	if r == nil {
		return usage.Errorf("no rule is named %s; %s", name, wording.DidYouMean(strings.ToUpper(name), ruleNames(), "stele policy plan --list-rules lists them"))
	}
	if format != "" {
		return out.Document(format, detailsOf(r))
	}
	t := &Text{Out: out}
	t.line("%s  %s, in section %s", r.Name, r.Class, r.Section.Title())
	t.line("")
	t.wrapped("", "", r.Short)
	if r.Long != "" {
		t.line("")
		t.wrapped("", "", r.Long)
	}
	_, err := fmt.Fprint(out, t.b.String())
	return err
}

func ruleNames() []string {
	var names []string
	for i := range plan.Rules {
		names = append(names, plan.Rules[i].Name)
	}
	return names
}
