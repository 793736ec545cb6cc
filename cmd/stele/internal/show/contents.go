package show

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/contents"
)

// contents prints how many kinds, roles and so on a policy has, and how they differ from the policy before.
func (o *FormatFlags) contents(cmd *cobra.Command, p *activation.Policy) {
	if len(p.Status.Contents) == 0 {
		return
	}
	parts := make([]string, len(p.Status.Contents))
	for i, c := range p.Status.Contents {
		parts[i] = fmt.Sprintf("%s %d", c.Part, c.Count)
		if differs := differing(c); differs != "" {
			parts[i] += " (" + differs + ")"
		}
	}
	o.Say(cmd, "It has %s.", strings.Join(parts, ", "))
}

// differing returns how many entries of a part are new, gone and changed: "+1 -2, 3 changed".
func differing(c activation.Content) string {
	var counts, differs []string
	if n := len(c.Added); n > 0 {
		counts = append(counts, fmt.Sprintf("+%d", n))
	}
	if n := len(c.Removed); n > 0 {
		counts = append(counts, fmt.Sprintf("-%d", n))
	}
	if len(counts) > 0 {
		differs = append(differs, strings.Join(counts, " "))
	}
	if n := len(c.Changed); n > 0 {
		differs = append(differs, fmt.Sprintf("%d changed", n))
	}
	return strings.Join(differs, ", ")
}

// ContentsText returns how many entries each part of a policy has: "1 kind, 2 roles".
func ContentsText(form *policy.Form) string {
	var parts []string
	for _, c := range contents.Of(form, nil) {
		noun := strings.TrimSuffix(c.Part, "s")
		if noun == "denie" {
			noun = "deny"
		}
		if c.Count == 1 {
			parts = append(parts, "1 "+noun)
		} else {
			parts = append(parts, fmt.Sprintf("%d %s", c.Count, c.Part))
		}
	}
	return strings.Join(parts, ", ")
}
