package reach

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"stele.dev/stele/schemas"
)

// Retention says how long the log keeps the past of a kind. A version becomes past when another one
// replaces it, or when its object is deleted.
type Retention struct {
	// ID is history/retention/kinds/resource, history/retention/default, history/retention/sensitive,
	// or team/kinds/resource/retention.
	ID string `json:"id"`
	// Resource is plural.group, or plural in the core group; empty for default and sensitive.
	Resource string `json:"resource,omitempty"`
	// History is how long a past version can be read: a duration as the bundle writes it ("12h"), "all" or
	// "none"; empty if the bundle does not say.
	History string `json:"history,omitempty"`
	// Records is how long the log shows who changed what: a duration or "all"; empty if the bundle does not
	// say. It is never shorter than History.
	Records string `json:"records,omitempty"`
	// Bytes is the maximum size of the past versions ("10Gi"); the oldest are erased first. Empty for no limit.
	Bytes  string           `json:"bytes,omitempty"`
	Source schemas.Position `json:"source,omitzero"`
}

// IDs of the retention of no single kind.
const (
	RetentionDefaultID   = "history/retention/default"
	RetentionSensitiveID = "history/retention/sensitive"
)

// Kept is how long the past of a kind is kept.
type Kept struct {
	// History and Records are as in [Retention]; [Forever] for "all", 0 for "none".
	History, Records time.Duration
	// Bytes is the maximum size of past versions in bytes; 0 for no limit.
	Bytes int64
	// ID and Source name the retention that sets History; the ID is empty if no policy does.
	ID     string
	Source schemas.Position
}

// Forever is the duration of what is kept without a limit.
const Forever = time.Duration(1<<63 - 1)

// builtinRetentions are the defaults of kinds that are written all the time.
var builtinRetentions = []Retention{
	{ID: builtin + "/retention/events", Resource: "events", History: "24h", Records: "7d"},
	{ID: builtin + "/retention/leases", Resource: "leases.coordination.k8s.io", History: "6h", Records: "24h"},
}

// Retentions are the retentions of a policy, by what they apply to. They are immutable.
type Retentions struct {
	byResource         map[string]Kept // of kinds
	sensitive, general Kept
}

// Of returns how long the past of a resource is kept. sensitive says whether it holds secrets; it is asked only if no
// retention is set for the resource.
func (r *Retentions) Of(resource string, sensitive func() bool) Kept {
	if kept, found := r.byResource[resource]; found {
		return kept
	}
	if sensitive() {
		return r.sensitive
	}
	return r.general
}

// NewRetentions reads the retentions of a form. What a kind's own retention does not say follows the one
// for sensitive kinds, the default, and at last "all". sensitive reports whether a resource holds secrets.
func NewRetentions(list []Retention, sensitive func(resource string) bool) (*Retentions, error) {
	said := map[string]Retention{}
	for _, r := range builtinRetentions {
		said[r.Resource] = r
	}
	var general, secret Retention
	for _, r := range list {
		switch {
		case r.ID == RetentionDefaultID:
			general = r
		case r.ID == RetentionSensitiveID:
			secret = r
		default:
			said[r.Resource] = r
		}
	}
	rs := &Retentions{byResource: make(map[string]Kept, len(said))}
	all := Kept{History: Forever, Records: Forever}
	var err error
	if rs.general, err = general.applyTo(all); err != nil {
		return nil, err
	}
	if rs.sensitive, err = secret.applyTo(rs.general); err != nil {
		return nil, err
	}
	for resource, r := range said {
		base := rs.general
		if sensitive(resource) {
			base = rs.sensitive
		}
		if rs.byResource[resource], err = r.applyTo(base); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// applyTo returns base with what r says.
func (r Retention) applyTo(base Kept) (Kept, error) {
	kept := base
	var err error
	if r.History != "" {
		if kept.History, err = ParseKept(r.History); err != nil {
			return Kept{}, fmt.Errorf("policy: %s: %w", r.ID, err)
		}
		kept.ID, kept.Source = r.ID, r.Source
	}
	if r.Records != "" {
		if kept.Records, err = ParseKept(r.Records); err != nil {
			return Kept{}, fmt.Errorf("policy: %s: %w", r.ID, err)
		}
	}
	kept.Records = max(kept.Records, kept.History)
	if r.Bytes != "" {
		if kept.Bytes, err = ParseBytes(r.Bytes); err != nil {
			return Kept{}, fmt.Errorf("policy: %s: %w", r.ID, err)
		}
	}
	return kept, nil
}

// ParseKept parses how long something is kept: "all", "none", or a number with a unit of s, m, h or d.
func ParseKept(s string) (time.Duration, error) {
	switch s {
	case "all":
		return Forever, nil
	case "none":
		return 0, nil
	}
	return Parse(s)
}

// ParseBytes parses a size: a number with a unit of Ki, Mi, Gi or Ti.
func ParseBytes(s string) (int64, error) {
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		digits, found := strings.CutSuffix(s, unit)
		if !found {
			continue
		}
		shift := 10 * (i + 1)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > (1<<62)>>shift {
			break
		}
		return n << shift, nil
	}
	return 0, fmt.Errorf("%q is not a size above 0 with a unit of Ki, Mi, Gi or Ti", s)
}
