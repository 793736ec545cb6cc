package usage

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/schemas/wording"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exactly returns a check that a command gets exactly the named arguments. The error for a missing one has the
// command's first example.
func Exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Missing(cmd, strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return Errorf("unexpected argument %q; usage: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// Missing returns the error for a missing argument or flag, with an example.
func Missing(cmd *cobra.Command, what string) error {
	return Errorf("missing %s%s", what, ForExample(cmd))
}

// ForExample returns the first example of a command, as the end of an error message.
func ForExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if line == "" {
		return "; see `" + cmd.CommandPath() + " --help`"
	}
	return "; for example: " + strings.TrimSpace(line)
}

// NoArguments checks that a command gets flags only.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Errorf("unexpected argument %q; `%s` takes flags only", args[0], cmd.CommandPath())
	}
	return nil
}

// AtMost returns a check that a command gets at most n arguments.
func AtMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return Errorf("unexpected argument %q; usage: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// CheckUsage makes the errors of argument checks usage errors, for a command and all its subcommands.
func CheckUsage(cmd *cobra.Command) {
	if validate := cmd.Args; validate != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return Mark(validate(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		CheckUsage(sub)
	}
}

// requiredFlags is the annotation of a command that lists its required flags.
const requiredFlags = "required flags"

// Required marks a flag as required.
func Required(cmd *cobra.Command, flag string) {
	_ = cmd.MarkFlagRequired(flag) // for completion; CheckRequired has a better message
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[requiredFlags] = strings.Trim(cmd.Annotations[requiredFlags]+","+flag, ",")
}

// CheckRequired returns an error if a required flag is missing.
func CheckRequired(cmd *cobra.Command) error {
	for name := range strings.SplitSeq(cmd.Annotations[requiredFlags], ",") {
		if f := cmd.Flags().Lookup(name); f != nil && !f.Changed {
			value, usage := pflag.UnquoteUsage(f)
			return Missing(cmd, fmt.Sprintf("--%s %s (%s)", name, strings.ToUpper(value), usage))
		}
	}
	return nil
}

// FlagError returns the error for wrong flags of a command. For an unknown flag it names the most similar one.
func FlagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedShortnames()) == 0 {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := wording.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			text += "; did you mean --" + near + "?"
		}
	}
	return Errorf("%s (see `%s --help`)", text, cmd.CommandPath())
}

// exclusiveFlags is the annotation of a command that lists flags of which at most one may be given, for each call of [Exclusive].
const exclusiveFlags = "exclusive flags"

// Exclusive marks flags of which at most one may be given.
func Exclusive(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[exclusiveFlags] += strings.Join(flags, ",") + ";"
}

// CheckExclusive returns an error if several exclusive flags are given.
func CheckExclusive(cmd *cobra.Command) error {
	for flags := range strings.SplitSeq(cmd.Annotations[exclusiveFlags], ";") {
		var given []string
		for flag := range strings.SplitSeq(flags, ",") {
			if cmd.Flags().Changed(flag) {
				given = append(given, "--"+flag)
			}
		}
		if len(given) > 1 {
			return Errorf("%s cannot be given together", strings.Join(given, " and "))
		}
	}
	return nil
}

// Parent makes a command that has only subcommands reject an unknown one.
func Parent(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.DisableFlagsInUseLine = true
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// Parents makes a command, and those below it, list their subcommands if they do nothing themselves.
func Parents(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		Parent(cmd)
	}
	for _, sub := range cmd.Commands() {
		Parents(sub)
	}
}

// unknownCommand returns an error for an argument that is not a subcommand.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		text += "\n\nDid you mean this?\n\t" + strings.Join(near, "\n\t") + "\n"
	}
	return errors.New(text)
}

// HelpCommand returns the help command. Unlike cobra's, it returns an error for an unknown topic.
func HelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil {
				return Mark(err)
			}
			if len(rest) > 0 {
				return Mark(unknownCommand(cmd, rest))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(help *cobra.Command, args []string, word string) (names []string, _ cobra.ShellCompDirective) {
			cmd, rest, err := help.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, NoFiles
			}
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), word) {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, NoFiles
		},
	}
}

// OneOf returns an error if a flag has none of its allowed values.
func OneOf(flag, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	hint := ""
	if near := wording.Nearest(value, values); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return Errorf("%s %s: use %s%s", flag, value, Enumerate(values), hint)
}
