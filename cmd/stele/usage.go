package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"stele.dev/stele/policy/wording"
)

// The exit codes. A command that answers a question (policy explain, diff --exit-code) exits with 1 for "no", and with 2
// if the question could not be answered.
const (
	exitFailure = 1
	exitUsage   = 2
)

// usageError is a command line that means nothing: the program exits with 2, and has done nothing.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes a usage error.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// asUsage marks an error as one of usage; nil stays nil.
func asUsage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// exactly is for commands that take these arguments. If one is missing, the error has what it is and the command's first
// example.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return missing(cmd, strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return usagef("unexpected argument %q; usage: %s", args[len(names)], cmd.UseLine())
		}
		return nil
	}
}

// missing says which argument or flag of a command is missing, with an example.
func missing(cmd *cobra.Command, what string) error {
	return usagef("missing %s%s", what, forExample(cmd))
}

// forExample is the first example of a command, as the end of an error.
func forExample(cmd *cobra.Command) string {
	line, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
	if line == "" {
		return "; see `" + cmd.CommandPath() + " --help`"
	}
	return "; for example: " + strings.TrimSpace(line)
}

// noArguments is for commands that take flags alone.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q; `%s` takes flags only", args[0], cmd.CommandPath())
	}
	return nil
}

// atMost is for commands that may take so many arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef("unexpected argument %q; usage: %s", args[n], cmd.UseLine())
		}
		return nil
	}
}

// checkUsage makes mistakes in arguments and flags errors of usage, in a command and all below it.
func checkUsage(cmd *cobra.Command) {
	if validate := cmd.Args; validate != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return asUsage(validate(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		checkUsage(sub)
	}
}

// requiredFlags has, as a command's annotation, what each required flag is for.
const requiredFlags = "required flags"

// required marks a flag that must be given.
func required(cmd *cobra.Command, flag string) {
	_ = cmd.MarkFlagRequired(flag) // for completion: cobra's message is not for people
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[requiredFlags] = strings.Trim(cmd.Annotations[requiredFlags]+","+flag, ",")
}

// checkRequired says which flags are missing.
func checkRequired(cmd *cobra.Command) error {
	for name := range strings.SplitSeq(cmd.Annotations[requiredFlags], ",") {
		if f := cmd.Flags().Lookup(name); f != nil && !f.Changed {
			value, usage := pflag.UnquoteUsage(f)
			return missing(cmd, fmt.Sprintf("--%s %s (%s)", name, strings.ToUpper(value), usage))
		}
	}
	return nil
}

// flagError is what is wrong with the flags of a command, with the flag that was most likely meant.
func flagError(cmd *cobra.Command, err error) error {
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
	return usagef("%s (see `%s --help`)", text, cmd.CommandPath())
}

const exclusiveFlags = "exclusive flags"

// exclusive says of which flags no two may be given. cobra knows it for completion; its message is not for people.
func exclusive(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...)
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[exclusiveFlags] = strings.Join(flags, ",")
}

func checkExclusive(cmd *cobra.Command) error {
	var given []string
	for flag := range strings.SplitSeq(cmd.Annotations[exclusiveFlags], ",") {
		if cmd.Flags().Changed(flag) {
			given = append(given, "--"+flag)
		}
	}
	if len(given) > 1 {
		return usagef("%s cannot be given together", strings.Join(given, " and "))
	}
	return nil
}

// parent makes a command that only has subcommands refuse an unknown one. It used to print its help and exit with 0.
func parent(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.DisableFlagsInUseLine = true
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// unknownCommand refuses a word that is no subcommand.
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

// helpCommand is cobra's, but for a topic that does not exist: that is an error.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil {
				return asUsage(err)
			}
			if len(rest) > 0 {
				return asUsage(unknownCommand(cmd, rest))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
		ValidArgsFunction: func(help *cobra.Command, args []string, word string) (names []string, _ cobra.ShellCompDirective) {
			cmd, rest, err := help.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, noFiles
			}
			for _, sub := range cmd.Commands() {
				if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), word) {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, noFiles
		},
	}
}

// exitCode of an error.
func exitCode(err error) int {
	var exit exitError
	var usage usageError
	var planned *plannedOnly
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), errors.As(err, &planned):
		return exitUsage
	}
	return exitFailure
}

// oneOf refuses a value that is none of those that a flag has.
func oneOf(flag, value string, values []string) error {
	if slices.Contains(values, value) {
		return nil
	}
	hint := ""
	if near := wording.Nearest(value, values); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return usagef("%s %s: use %s%s", flag, value, enumerated(values), hint)
}

// enumerated is a list of words for a sentence: a, b or c.
func enumerated(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
