package policy

import (
	"fmt"

	"stele.dev/stele/policy/reach"
	"stele.dev/stele/schemas"
)

// The policy in force alone decides how much of its history a kind shows. An earlier policy's window
// does not bind it. So a push warns about kinds that a new policy opens, most of all those that lose
// a default window because they lost their last secret field.

// Opened returns a diagnostic if the form shows more history of the kind than was, the kind in
// another policy; otherwise nil.
func (f *Form) Opened(kind *schemas.Kind, was *Kind) *schemas.Diagnostic {
	from, bounded := was.Window()
	if !bounded {
		return nil
	}
	to, hint := f.reach(kind), ""
	shows := "all that they ever were"
	if to.Bounded() {
		if d, err := reach.Parse(to.Reach); err != nil || d <= from {
			return nil
		}
		shows = "what they were in the last " + to.Reach
	}
	if to.IsDefault() {
		to.Source, hint = kind.Source, fmt.Sprintf("to keep that say history: window: %q", was.Reach().Reach)
	}
	held := ""
	if was.Stored().sensitive() {
		held = "held secrets, and "
	}
	return &schemas.Diagnostic{Pos: to.Source, Path: to.Resource, Hint: hint,
		Message: fmt.Sprintf("%s %sshowed what they were in the last %s: whoever may read them may now see %s", kind.Plural, held, was.Reach().Reach, shows)}
}

// reach returns the history window of a kind: that of the form, or the default.
func (f *Form) reach(kind *schemas.Kind) *reach.Window {
	for i := range f.Windows {
		if f.Windows[i].Resource == kind.Resource() {
			w := f.Windows[i]
			return &w
		}
	}
	return reach.Default(kind.Resource(), HoldsSecrets(kind))
}
