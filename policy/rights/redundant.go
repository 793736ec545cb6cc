package rights

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Redundant is a binding or a deny without which the policy would decide the same.
type Redundant struct {
	Ground
	// By are the others that give or refuse the same, sorted by id. system:masters is one of them.
	By []Ground
}

// maxSplits limits the work of a search for what is redundant: the splits of boxes, times the square of the patterns
// in each.
const maxSplits = 1 << 20

// Redundant returns the bindings and denies whose requests others give or refuse to the same subjects, on the same
// condition or on none. Of two that are the same, it returns the later one. It does not return built-in ones. The
// error is [ErrIntricate], or the context's.
func (r *Rights) Redundant(ctx context.Context) ([]Redundant, error) {
	search := covers{ctx: ctx, left: maxSplits}
	of := map[string][]*claim{} // by the id of the binding or deny
	for _, claims := range r.claims {
		for _, c := range claims {
			of[c.ground.ID] = append(of[c.ground.ID], c)
		}
	}
	var ids []string
	for i := range r.access.Denies {
		ids = append(ids, r.access.Denies[i].ID)
	}
	for i := range r.access.Bindings {
		ids = append(ids, r.access.Bindings[i].ID)
	}
	out := map[string]bool{}
	var found []Redundant
	for _, id := range slices.Backward(ids) {
		if policy.OwningTeam(id) == policy.BuiltinTeam || len(of[id]) == 0 {
			continue
		}
		by, err := r.instead(&search, id, of[id], out)
		if err != nil {
			return nil, err
		}
		if by != nil {
			out[id] = true
			found = append(found, Redundant{of[id][0].ground, by})
		}
	}
	slices.SortFunc(found, func(a, b Redundant) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// instead returns what gives or refuses all that the claims do; nil if nothing does. out are the ids that must not be
// counted on.
func (r *Rights) instead(search *covers, id string, claims []*claim, out map[string]bool) ([]Ground, error) {
	var by []Ground
	for _, c := range claims {
		if !c.denies && c.subject.Group == policy.MastersGroup && slices.Contains(r.inside, policy.MastersAuthorizer) {
			by = append(by, Ground{ID: policy.MastersGroup})
			continue
		}
		others := slices.DeleteFunc(slices.Clone(r.all(c.subject)), func(o *claim) bool {
			return o.denies != c.denies || o.ground.ID == id || out[o.ground.ID] || o.condition != "" && o.condition != c.condition
		})
		boxes := make([]box, len(others))
		for i, o := range others {
			boxes[i] = o.box
		}
		used, err := search.cover(c.box, boxes)
		if err != nil || used == nil {
			return nil, err
		}
		for _, i := range used {
			by = append(by, others[i].ground)
		}
	}
	slices.SortFunc(by, func(a, b Ground) int { return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Source, b.Source)) })
	return slices.Compact(by), nil
}

// Covered reports whether others name all requests that a rule names, in all namespaces. The error is [ErrIntricate],
// or the context's.
func Covered(ctx context.Context, rule *policy.Rule, others []policy.Rule) (bool, error) {
	search := covers{ctx: ctx, left: maxSplits / 16}
	everywhere := []string{"*"}
	var by []box
	for i := range others {
		by = append(by, boxesOf(&others[i], everywhere)...)
	}
	boxes := boxesOf(rule, everywhere)
	for _, b := range boxes {
		used, err := search.cover(b, by)
		if err != nil || used == nil {
			return false, err
		}
	}
	return len(boxes) > 0, nil
}

// covers searches for boxes that cover others.
type covers struct {
	ctx  context.Context
	left int // of maxSplits
}

// cover returns the indices of boxes that together cover a box; nil if they do not.
func (s *covers) cover(b box, by []box) (used []int, err error) {
	todo := []box{b}
	for i := range by {
		if len(todo) == 0 {
			break
		}
		if err := s.ctx.Err(); err != nil {
			return nil, err
		}
		var rest []box
		meets := false
		for j := range todo {
			patterns := 1 + len(todo[j].where.but)
			if s.left -= patterns * patterns; s.left < 0 {
				return nil, ErrIntricate
			}
			inside, out := todo[j].split(&by[i])
			meets = meets || len(inside) > 0
			rest = append(rest, out...)
		}
		if meets {
			used = append(used, i)
		}
		todo = rest
	}
	if len(todo) > 0 {
		return nil, nil
	}
	return used, nil
}
