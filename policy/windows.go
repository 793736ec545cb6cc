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
	defaultWindow            = unbounded
	defaultWindowID          = BuiltinTeam + "/windows/all"
	defaultSensitiveWindow   = "5m"
	defaultSensitiveWindowID = BuiltinTeam + "/windows/secrets"
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

// Reach is the kind's window, and what says so. It MUST NOT be changed. That of a kind which
// is not a policy's is not bounded.
func (k *Kind) Reach() *Window {
	if w := k.Stored().window; w != nil {
		return w
	}
	return &Window{ID: defaultWindowID, Resource: k.Resource(), Reach: defaultWindow}
}

// sensitive reports whether objects of the kind hold secrets, in whatever version.
func (k *Kind) sensitive() bool {
	return isSecrets(k.Kind) || slices.ContainsFunc(k.Versions, func(v *Version) bool { return v.Program.Sensitive() })
}

// holdsSecrets is the same of a kind that has no programs yet.
func HoldsSecrets(k *schemas.Kind) bool {
	return isSecrets(k) || slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Schema.HasSensitive() })
}

// isSecrets: their schema is Kubernetes', which does not say it.
func isSecrets(k *schemas.Kind) bool { return k.Builtin && k.Resource() == "secrets" }

// Kind returns the kind of a resource, or nil.
func (p *Policy) Kind(r schema.GroupResource) *Kind { return p.byResource[r] }

// openWindows gives each kind its window: what the form says, or what holds by default.
func (p *Policy) openWindows() error {
	said := map[string]*Window{}
	for i := range p.form.Windows {
		w := p.form.Windows[i]
		if w.Bounded() {
			var err error
			if w.duration, err = ParseReach(w.Reach); err != nil {
				return fmt.Errorf("policy: %s: %w", w.ID, err)
			}
		}
		said[w.Resource] = &w
	}
	for _, k := range p.kinds {
		p.byResource[k.GroupResource()] = k
		if k.window = said[k.Resource()]; k.window == nil && k.sensitive() {
			d, err := ParseReach(defaultSensitiveWindow)
			if err != nil {
				return err
			}
			k.window = &Window{ID: defaultSensitiveWindowID, Resource: k.Resource(), Reach: defaultSensitiveWindow, duration: d}
		}
	}
	return nil
}

var reachUnits = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// parseReach reads a number with a unit: s, m, h or d.
func ParseReach(s string) (time.Duration, error) {
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
