// Package reach says how far back the past of a kind reaches: how much of it users may read (windows), and how long it is
// kept (retentions).
package reach

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"stele.dev/stele/schemas"
)

// builtin is the team in the ids of defaults.
const builtin = "builtin"

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
	defaultWindowID          = builtin + "/windows/all"
	defaultSensitiveWindow   = "5m"
	defaultSensitiveWindowID = builtin + "/windows/secrets"
)

// Default returns the window of a resource for which the bundle sets none.
func Default(resource string, sensitive bool) *Window {
	if sensitive {
		return &Window{ID: defaultSensitiveWindowID, Resource: resource, Reach: defaultSensitiveWindow, duration: 5 * time.Minute}
	}
	return &Window{ID: defaultWindowID, Resource: resource, Reach: unbounded}
}

// IsDefault reports whether no bundle sets the window.
func (w *Window) IsDefault() bool {
	return w.ID == defaultWindowID || w.ID == defaultSensitiveWindowID
}

// Bounded reports whether the window is limited.
func (w *Window) Bounded() bool { return w.Reach != unbounded }

// Duration returns the length of a bounded window that [ByResource] or [Default] returned.
func (w *Window) Duration() time.Duration { return w.duration }

// ByResource returns copies of the windows of a form with their durations, by resource.
func ByResource(windows []Window) (map[string]*Window, error) {
	said := make(map[string]*Window, len(windows))
	for _, w := range windows {
		if w.Bounded() {
			var err error
			if w.duration, err = Parse(w.Reach); err != nil {
				return nil, fmt.Errorf("policy: %s: %w", w.ID, err)
			}
		}
		said[w.Resource] = &w
	}
	return said, nil
}

var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}

// Parse parses a number with a unit: s, m, h or d.
func Parse(s string) (time.Duration, error) {
	if s == "" || units[s[len(s)-1]] == 0 {
		return 0, fmt.Errorf("%q is not a number with a unit of s, m, h or d", s)
	}
	unit := units[s[len(s)-1]]
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, fmt.Errorf("%q is no duration, or one of more than 292 years", s)
	}
	return time.Duration(n) * unit, nil
}
