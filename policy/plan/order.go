package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Finish completes a plan whose findings have been collected: it sorts them, gives them their IDs, and counts them.
// Findings that agree in rule, kind, version, path, subject and both sides are one.
func (p *Plan) Finish() {
	p.APIVersion, p.Kind = APIVersion, Kind
	slices.SortStableFunc(p.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(SectionOf(a.Rule), SectionOf(b.Rule)),
			cmp.Compare(a.Class.rank(), b.Class.rank()),
			strings.Compare(a.Kind, b.Kind),
			strings.Compare(a.Path, b.Path),
			strings.Compare(a.Subject, b.Subject),
			strings.Compare(a.Rule, b.Rule),
			strings.Compare(a.Version, b.Version),
			strings.Compare(a.Before, b.Before),
			strings.Compare(a.After, b.After))
	})
	p.Findings = slices.CompactFunc(p.Findings, func(a, b Finding) bool { return a.identity() == b.identity() })
	if p.Findings == nil {
		p.Findings = []Finding{}
	}
	used := map[string]bool{}
	p.Summary = Summary{}
	for i := range p.Findings {
		f := &p.Findings[i]
		sum := sha256.Sum256([]byte(f.identity()))
		digits := hex.EncodeToString(sum[:])
		f.ID = ""
		for n := 5; f.ID == "" || used[f.ID]; n++ {
			f.ID = sections[SectionOf(f.Rule)].letter + digits[:n]
		}
		used[f.ID] = true
		p.Summary.add(f)
	}
}

// SetDefaults gives a finding the class of its rule and the evidence "proved", unless it has others.
func (f *Finding) SetDefaults() {
	f.Class, f.Evidence = cmp.Or(f.Class, RuleNamed(f.Rule).Class), cmp.Or(f.Evidence, Proved)
}

// identity is what makes a finding the same in another plan.
func (f *Finding) identity() string {
	return fmt.Sprintf("%q", []string{f.Rule, f.Kind, f.Version, f.Path, f.Subject, f.Before, f.After})
}

func (c Class) rank() int { return slices.Index(Classes, c) }

// Worse reports whether c is more dangerous than other.
func (c Class) Worse(other Class) bool { return c.rank() < other.rank() }

func (s *Summary) add(f *Finding) {
	s.Add(f.Class)
	if f.Accepted != nil {
		s.Accepted++
	}
}

// Add counts a finding of a class.
func (s *Summary) Add(c Class) {
	switch c {
	case Breaks:
		s.Breaks++
	case Widens:
		s.Widens++
	case Narrows:
		s.Narrows++
	case Changes:
		s.Changes++
	case Looks:
		s.Looks++
	}
}

// Of returns the number of findings of a class.
func (s *Summary) Of(c Class) int {
	return map[Class]int{Breaks: s.Breaks, Widens: s.Widens, Narrows: s.Narrows, Changes: s.Changes, Looks: s.Looks}[c]
}
