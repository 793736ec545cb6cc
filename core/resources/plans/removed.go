package plans

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
)

// namespacesNamed is the largest number of namespaces that a finding names.
const namespacesNamed = 5

// removedKinds counts the objects of kinds that the new policy does not serve as they are stored.
func removedKinds(ctx context.Context, s plan.Sides, o *Options, p *plan.Plan) error {
	if s.From == nil {
		return nil
	}
	for _, was := range s.From.Kinds() {
		is := s.To.Kind(was.GroupResource())
		if was.Of != nil || is != nil && is.Namespaced == was.Namespaced && is.Kind.Kind == was.Kind.Kind && was.StoredAs(is.Kind) {
			continue
		}
		why, err := o.unread(ctx, was.GroupResource(), today, s.From)
		if err != nil {
			return err
		}
		if why != "" {
			p.Leave(was.Resource(), fmt.Sprintf("Whether %s are stored is not known, because %s. The server refuses to put the policy in force as long as there are any.", was.Resource(), why))
			continue
		}
		details, n, err := removedDetails(ctx, was, o)
		if err != nil {
			return err
		}
		known := false
		for i := range p.Findings {
			if f := &p.Findings[i]; f.Kind == was.Resource() && plan.Withdraws(f.Rule) {
				f.Objects, known = &plan.Objects{Of: n}, true
				f.Details = append(f.Details, details...)
			}
		}
		if !known && n > 0 {
			p.Findings = append(p.Findings, plan.Finding{
				Rule: "KIND_REMOVED", Class: plan.Breaks, Kind: was.Resource(), Evidence: plan.Observed, Objects: &plan.Objects{Of: n}, Details: details,
			})
		}
	}
	return nil
}

// removedDetails counts the objects of a kind, and says where they are and who wrote them last.
func removedDetails(ctx context.Context, k *policy.Kind, o *Options) (lines []string, n int, err error) {
	r := k.GroupResource()
	in := map[string]int{}
	for x := range o.Objects.Objects(k) {
		n++
		if x.Namespace != "" {
			in[x.Namespace]++
		}
	}
	if n == 0 {
		return []string{"No objects of it are stored."}, 0, nil
	}
	line := "1 object"
	if n > 1 {
		line = fmt.Sprintf("%d objects", n)
	}
	if len(in) > 0 {
		line += fmt.Sprintf(" in %d namespaces", len(in))
		if len(in) == 1 {
			line = strings.TrimSuffix(line, "s")
		}
	}
	if len(in) > 0 {
		names := slices.SortedFunc(maps.Keys(in), func(a, b string) int {
			if in[a] != in[b] {
				return in[b] - in[a]
			}
			return strings.Compare(a, b)
		})
		var counts []string
		for _, name := range names[:min(len(names), namespacesNamed)] {
			counts = append(counts, fmt.Sprintf("%s %d", name, in[name]))
		}
		if more := len(names) - len(counts); more > 0 {
			counts = append(counts, fmt.Sprintf("%d more", more))
		}
		line += ": " + strings.Join(counts, ", ")
	}
	lines = append(lines, line+". The server refuses to put the policy in force as long as there are any.")
	if o.LastWrite != nil {
		last, err := o.LastWrite(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		if last != nil {
			lines = append(lines, fmt.Sprintf("Last written at revision %d by %s.", last.Revision, last.User))
		}
	}
	return lines, n, nil
}

// LastWrite is the last recorded write of a resource.
type LastWrite struct {
	Revision uint64
	User     string
}
