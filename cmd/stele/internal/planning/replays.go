package planning

import (
	"slices"

	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/plan"
)

// An outcome is what becomes of recorded requests, and no change of the summary says.
type outcome struct {
	class plan.Class
	text  string
}

// outcomes returns what the summary says of recorded requests, besides those that a change explains: one for those that would be
// refused, allowed, changed in another way, and one for those that could not be decided again.
func (p *Part) outcomes() (list []outcome) {
	r := p.Replay
	if r == nil {
		return nil
	}
	explained := func(id string) bool {
		return slices.ContainsFunc(p.Findings, func(x plan.Finding) bool { return x.ID == id })
	}
	refused, allowed, altered := 0, 0, 0
	for i := range r.Flips {
		switch f := &r.Flips[i]; {
		case explained(f.Finding):
		case f.Refused:
			refused += f.Count
		default:
			allowed += f.Count
		}
	}
	for i := range r.Alterations {
		if a := &r.Alterations[i]; !explained(a.Finding) {
			altered += a.Count
		}
	}
	add := func(n int, class plan.Class, counted, what string) {
		if n > 0 {
			list = append(list, outcome{class, usage.Count(n, counted) + what})
		}
	}
	const unexplained = ", which no change above explains"
	add(refused, plan.Breaks, "recorded request", " would be refused"+unexplained)
	add(allowed, plan.Widens, "recorded refusal", " would be allowed"+unexplained)
	add(altered, plan.Changes, "value", " of recorded writes would be set in another way"+unexplained)
	add(r.Undecided, plan.Changes, "recorded request", " could not be decided again")
	return list
}

// isEmpty reports whether nothing is known to be decided or shown in another way.
func (p *Part) isEmpty() bool {
	return len(p.Findings) == 0 && p.Hidden == 0 && (p.Replay == nil || len(p.Replay.Flips)+len(p.Replay.Alterations) == 0 && p.Replay.Undecided == 0)
}
