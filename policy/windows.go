package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/schemas"
)

// HistoryVerb is what reading further back than a kind's window takes.
const HistoryVerb = "history"

// Window says how far back in time objects of a kind are shown to all who may read them.
type Window struct {
	ID       string `json:"id"`       // history/windows/resource, or team/kinds/resource/history
	Resource string `json:"resource"` // plural.group, or plural in the core group
	// Reach is a duration as the bundle has it, "10m", or "all".
	Reach  string           `json:"reach"`
	Source schemas.Position `json:"source,omitzero"`

	duration time.Duration
}

// unbounded is the reach of windows that hide nothing of what is retained.
const unbounded = "all"

// What the windows are of kinds of which the policy says nothing.
const (
	defaultWindow          = unbounded
	defaultSensitiveWindow = "5m"
)

// Bounded tells whether there is a limit, and Duration how far back it lies.
func (w *Window) Bounded() bool { return w.Reach != unbounded }

// Duration is how long ago a moment may be to be within the window, if that is bounded.
func (w *Window) Duration() time.Duration { return w.duration }

// Window is how far back objects of the kind are shown to all who may read them; d
// counts if it is bounded.
func (k *Kind) Window() (d time.Duration, bounded bool) {
	w := k.Reach()
	return w.duration, w.Bounded()
}

// Reach is the kind's window, and what says so. It MUST NOT be changed.
func (k *Kind) Reach() *Window { return k.Stored().window }

// Sensitive reports whether objects of the kind hold secrets, in whatever version.
func (k *Kind) Sensitive() bool {
	s := k.Stored()
	return s.Builtin && s.Resource() == "secrets" || slices.ContainsFunc(s.Versions, func(v *Version) bool { return v.Program.Sensitive() })
}

// Kind returns the kind of a resource, or nil.
func (p *Policy) Kind(r schema.GroupResource) *Kind { return p.byResource[r] }

// openWindows gives each kind its window: what the form says, or what holds by default.
func (p *Policy) openWindows() error {
	said := map[string]*Window{}
	for i := range p.form.Windows {
		w := p.form.Windows[i]
		if w.Bounded() {
			var err error
			if w.duration, err = parseReach(w.Reach); err != nil {
				return fmt.Errorf("policy: %s: %w", w.ID, err)
			}
		}
		said[w.Resource] = &w
	}
	for _, k := range p.kinds {
		p.byResource[k.GroupResource()] = k
		if k.window = said[k.Resource()]; k.window != nil {
			continue
		}
		k.window = &Window{ID: BuiltinTeam + "/windows/default", Resource: k.Resource(), Reach: defaultWindow}
		if k.Sensitive() {
			k.window.ID, k.window.Reach = BuiltinTeam+"/windows/secrets", defaultSensitiveWindow
			k.window.duration, _ = parseReach(defaultSensitiveWindow)
		}
	}
	return nil
}

var reachUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// parseReach reads a number with a unit: s, m, h or d.
func parseReach(s string) (time.Duration, error) {
	if s == "" || reachUnits[s[len(s)-1]] == 0 {
		return 0, fmt.Errorf("%q is not a number with a unit of s, m, h or d", s)
	}
	unit := reachUnits[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("%q is no duration, or one of more than 292 years", s)
	}
	return time.Duration(n) * unit, nil
}
