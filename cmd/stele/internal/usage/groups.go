package usage

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroups are the flags of a command that has many. Help shows them in groups, in the order of the groups.
type FlagGroups struct{ groups []*pflag.FlagSet }

// Group returns the flags of a new group. The caller adds flags to it.
func (g *FlagGroups) Group(title string) *pflag.FlagSet {
	f := pflag.NewFlagSet(title, pflag.ContinueOnError)
	g.groups = append(g.groups, f)
	return f
}

// Use adds the flags of all groups to a command, and to its help.
func (g *FlagGroups) Use(cmd *cobra.Command) {
	for _, f := range g.groups {
		cmd.Flags().AddFlagSet(f)
	}
	const flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template := cmd.UsageTemplate()
	before, after, found := strings.Cut(template, "Flags:\n"+flags)
	if !found {
		return // another version of cobra: one list is good enough
	}
	cobra.AddTemplateFunc("flagGroups", g.text)
	cmd.SetUsageTemplate(before + "{{flagGroups .LocalFlags}}" + after)
}

// text returns the help of all flags: of the groups, and of those that cobra has added.
func (g *FlagGroups) text(all *pflag.FlagSet) string {
	others := pflag.NewFlagSet("Other flags", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		for _, group := range g.groups {
			if group.Lookup(f.Name) != nil {
				return
			}
		}
		others.AddFlag(f)
	})
	var sections []string
	for _, group := range append(g.groups[:len(g.groups):len(g.groups)], others) {
		if group.HasAvailableFlags() {
			sections = append(sections, group.Name()+":\n"+strings.TrimRight(group.FlagUsages(), " \n"))
		}
	}
	return strings.Join(sections, "\n\n")
}
