package usage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroups are the flags of a command that has many. Help shows them in groups, in the order of the groups.
type FlagGroups struct {
	groups []*pflag.FlagSet
	first  []string
	all    bool
}

// Group returns the flags of a new group. The caller adds flags to it.
func (g *FlagGroups) Group(title string) *pflag.FlagSet {
	f := pflag.NewFlagSet(title, pflag.ContinueOnError)
	g.groups = append(g.groups, f)
	return f
}

// Use adds the flags of all groups to a command, and to its help. --help shows the flags that people need first, in this
// order, and --help-all shows all.
func (g *FlagGroups) Use(cmd *cobra.Command, first ...string) {
	g.first = first
	for _, f := range g.groups {
		cmd.Flags().AddFlagSet(f)
	}
	cmd.Flags().BoolVar(&g.all, "help-all", false, "help with all flags")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if g.all {
			return cmd.Help()
		}
		return run(cmd, args)
	}
	const flags = "{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}"
	template := cmd.UsageTemplate()
	before, after, found := strings.Cut(template, "Flags:\n"+flags)
	if !found {
		return // another version of cobra: one list is good enough
	}
	name := fmt.Sprintf("flagGroups%p", g) // functions of templates are of all commands
	cobra.AddTemplateFunc(name, func(all *pflag.FlagSet) string {
		if g.all {
			return g.text(all)
		}
		return g.short(all, cmd.CommandPath())
	})
	cmd.SetUsageTemplate(before + "{{" + name + " .LocalFlags}}" + after)
}

// short returns the help of the flags that people need first.
func (g *FlagGroups) short(all *pflag.FlagSet, command string) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	shown.SortFlags = false
	for _, name := range append(g.first[:len(g.first):len(g.first)], "help", "help-all") {
		if f := all.Lookup(name); f != nil {
			shown.AddFlag(f)
		}
	}
	others := 0
	all.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && shown.Lookup(f.Name) == nil {
			others++
		}
	})
	return fmt.Sprintf("Flags:\n%s\n\n`%s --help-all` shows %d more flags, in groups.", strings.TrimRight(shown.FlagUsages(), " \n"), command, others)
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
