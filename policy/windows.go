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

// HistoryVerb is the verb for reading further back than a kind's history window.
const HistoryVerb = "history"

// Window is a history window: how far back users may read objects of a kind without the verb
// history.
type Window struct {
	ID       string `json:"id"`       // history/windows/resource, or team/kinds/resource/history
	Resource string `json:"resource"` // plural.group, or plural in the core group
	// Reach is a duration as the bundle writes it ("10m"), or "all".
	Reach  string           `json:"reach"`
	Source schemas.Position `json:"source,omitzero"`

	duration time.Duration
}

// unbounded is the reach of a window that shows all retained history.
const unbounded = "all"

// Default windows.
const (
	defaultWindow            = unbounded
	defaultWindowID          = BuiltinTeam + "/windows/all"
	defaultSensitiveWindow   = "5m"
	defaultSensitiveWindowID = BuiltinTeam + "/windows/secrets"
)

// Bounded reports whether the window is limited.
func (w *Window) Bounded() bool { return w.Reach != unbounded }

// Duration returns the length of a bounded window.
func (w *Window) Duration() time.Duration { return w.duration }

// Window returns the length of the kind's history window, which counts only if bounded is true.
func (k *Kind) Window() (d time.Duration, bounded bool) {
	w := k.Reach()
	return w.duration, w.Bounded()
}

// Reach returns the kind's window with the id that sets it. The caller must not change it. A kind
// that belongs to no policy has an unbounded window.
func (k *Kind) Reach() *Window {
	if w := k.Stored().window; w != nil {
		return w
	}
	return &Window{ID: defaultWindowID, Resource: k.Resource(), Reach: defaultWindow}
}

// sensitive reports whether a version of the kind has secret fields.
func (k *Kind) sensitive() bool {
	return isSecrets(k.Kind) || slices.ContainsFunc(k.Versions, func(v *Version) bool { return v.Program.Sensitive() })
}

// HoldsSecrets reports whether a version of the kind has secret fields. The kind needs no programs.
func HoldsSecrets(k *schemas.Kind) bool {
	return isSecrets(k) || slices.ContainsFunc(k.Versions, func(v schemas.Version) bool { return v.Schema.HasSensitive() })
}

// isSecrets reports whether the kind is Kubernetes' Secret, whose schema does not mark its fields as
// secret.
func isSecrets(k *schemas.Kind) bool { return k.Builtin && k.Resource() == "secrets" }

// Kind returns the kind of a resource, or nil.
func (p *Policy) Kind(r schema.GroupResource) *Kind { return p.byResource[r] }

// openWindows sets each kind's window: that of the form, or the default.
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

// ParseReach parses a number with a unit: s, m, h or d.
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
