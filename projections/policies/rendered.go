package policies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"stele.dev/stele/eventlog"
)

// Rendered says how long the objects as which a policy is shown have been as they are. It is about the activation of a policy, and the
// activation's event has it: whoever activates a policy decides it, and all others read the same, whatever part of the log
// they have. It must not be changed.
type Rendered struct {
	// Times has the log time, in Unix seconds, of each earlier activation that a lineage names.
	Times map[uint64]int64 `json:"times,omitempty"`
	// Objects has a lineage by resource and name for each object that the policy before had, too. All others are new.
	Objects map[string]map[string]Lineage `json:"objects,omitempty"`

	encoded []byte
}

// Lineage says how long an object has been as it is. Revisions are those of activations; 0 stands for the activation that has the
// lineage.
type Lineage struct {
	// Since is when the object appeared. It has been there since then without a break.
	Since uint64 `json:"since"`
	// Changed is when its content changed last.
	Changed uint64 `json:"changed,omitempty"`
	// Generation is how often its spec has changed, and 1; 0 for a kind that does not count it.
	Generation int64 `json:"generation,omitempty"`
	// Source is the line of its rule when its content changed last, if the rule stands at another line now.
	Source string `json:"source,omitempty"`
	// Scoped is when its rule got the namespaces that it has, if Earlier has those of before, the oldest first.
	Scoped  uint64  `json:"scoped,omitempty"`
	Earlier []Scope `json:"earlier,omitempty"`
}

// Scope is the namespaces that a rule had from a revision on.
type Scope struct {
	From       uint64   `json:"from"`
	Namespaces []string `json:"namespaces"`
}

// Encode returns the bytes for the event of an activation.
func (r *Rendered) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("policies: %v", err)) // plain data always encodes
	}
	return text
}

// decodeRendered returns what an activation's event has; nil if it has nothing.
func decodeRendered(text []byte) (*Rendered, error) {
	if len(text) == 0 {
		return nil, nil
	}
	r := &Rendered{encoded: text}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("how long objects have been as they are: %w", err)
	}
	return r, nil
}

// Of returns the lineage of an object under a policy that was activated at a revision. An object of which nothing is known
// is as old as the activation.
func (r *Rendered) Of(resource, name string, activated uint64) Lineage {
	l, known := Lineage{}, false
	if r != nil {
		l, known = r.Objects[resource][name]
	}
	if !known {
		return Lineage{Since: activated, Changed: activated, Generation: 1}
	}
	for _, revision := range []*uint64{&l.Since, &l.Changed, &l.Scoped} {
		if *revision == 0 {
			*revision = activated
		}
	}
	return l
}

// Time returns the log time of an earlier activation that a lineage names.
func (r *Rendered) Time(revision uint64) time.Time {
	return time.Unix(r.Times[revision], 0).UTC()
}

// RecallRendered reads from the log how long objects had been as they were when a policy was activated; nil if the event does
// not say it or is forgotten.
func RecallRendered(ctx context.Context, log eventlog.Reader, activated uint64) (*Rendered, error) {
	e, err := eventAt(ctx, log, activated)
	if errors.As(err, new(*eventlog.ForgottenError)) || errors.Is(err, errNoEvent) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeRendered(e.Meta.GetPolicyActivated().GetRendered())
}
