package plan

// Section groups findings for readers.
type Section int

// The sections, in the order in which a plan shows them.
const (
	Files   Section = iota // of the bundle
	Kinds                  // schemas and names of kinds, and stored objects
	Access                 // grants, denies and the chain
	Policy                 // rules of admission, conditions
	History                // windows and retention
	Traffic                // priority and fairness, audit
)

var sections = [...]struct{ title, letter string }{
	Files: {"FILES", "f"}, Kinds: {"KINDS", "k"}, Access: {"ACCESS", "a"}, Policy: {"RULES", "r"},
	History: {"HISTORY", "h"}, Traffic: {"FLOW AND AUDIT", "t"},
}

// Title is the heading of the section.
func (s Section) Title() string { return sections[s].title }

// Rule is a kind of finding. Its name never changes: acceptances and lint configurations have it.
type Rule struct {
	Name    string
	Section Section
	// Class is the class of its findings, unless the evidence says more.
	Class Class
	// Short is one sentence for lists; Long says what it means, how it is found and what to do.
	Short, Long string
}

// RuleNamed returns the rule of that name, or nil.
func RuleNamed(name string) *Rule { return byName[name] }

// Withdraws reports whether findings of a rule are about kinds whose objects the server could not serve any more. It refuses to put
// such a policy in force.
func Withdraws(rule string) bool {
	switch rule {
	case "KIND_REMOVED", "KIND_SCOPE_CHANGED", "VERSION_REMOVED", "STORAGE_VERSION_CHANGED", "KIND_NAMES_CHANGED":
		return true
	}
	return false
}

// SectionOf returns the section of a rule.
func SectionOf(rule string) Section {
	if r := byName[rule]; r != nil {
		return r.Section
	}
	return Policy
}

var byName = func() map[string]*Rule {
	all := map[string]*Rule{}
	for i := range Rules {
		all[Rules[i].Name] = &Rules[i]
	}
	return all
}()
