package policy

import (
	"fmt"

	"stele.dev/stele/schemas"
)

// How much of its past a kind shows is decided by the policy in force alone: what another one hid
// binds none that comes later, or a mistake could never be undone. But whoever puts a policy in
// force is to know what it opens, most of all where they said nothing of it: with the last of its
// secrets a kind loses the window that it had for them.

// Opened is what is to be known of a kind of the form that shows more of its past than it did
// as another policy had it; nil if it does not.
func (f *Form) Opened(kind *schemas.Kind, was *Kind) *schemas.Diagnostic {
	from, bounded := was.Window()
	if !bounded {
		return nil
	}
	to, hint := f.reach(kind), ""
	shows := "all that they ever were"
	if to.Bounded() {
		if d, err := ParseReach(to.Reach); err != nil || d <= from {
			return nil
		}
		shows = "what they were in the last " + to.Reach
	}
	if to.ID == defaultWindowID || to.ID == defaultSensitiveWindowID {
		to.Source, hint = kind.Source, fmt.Sprintf("to keep that say history: window: %q", was.Reach().Reach)
	}
	held := ""
	if was.Stored().sensitive() {
		held = "held secrets, and "
	}
	return &schemas.Diagnostic{Pos: to.Source, Path: to.Resource, Hint: hint,
		Message: fmt.Sprintf("%s %sshowed what they were in the last %s: whoever may read them may now see %s", kind.Plural, held, was.Reach().Reach, shows)}
}

// reach is the window of a kind of the form: what that says, or what holds by default.
func (f *Form) reach(kind *schemas.Kind) Window {
	for _, said := range f.Windows {
		if said.Resource == kind.Resource() {
			return said
		}
	}
	if HoldsSecrets(kind) {
		return Window{ID: defaultSensitiveWindowID, Resource: kind.Resource(), Reach: defaultSensitiveWindow}
	}
	return Window{ID: defaultWindowID, Resource: kind.Resource(), Reach: defaultWindow}
}
