package show

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// FormatFlags are the flags -o and -q.
type FormatFlags struct {
	Format  string // "" for text
	Wide    bool   // text with all columns
	Quiet   bool
	formats []string
}

// AddFlags adds the flags, and checks their values before the command runs. Besides text the command has some of the formats
// wide, json, jsonl, yaml and name.
func (o *FormatFlags) AddFlags(cmd *cobra.Command, formats ...string) {
	o.formats = append([]string{"text"}, formats...)
	f := cmd.Flags()
	f.StringVarP(&o.Format, "output", "o", "text", "output `FORMAT`: "+usage.Enumerate(o.formats))
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "print results and errors only")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats, cobra.ShellCompDirectiveNoFileComp))
}

// check returns an error for a format that the command does not have.
func (o *FormatFlags) check() error {
	if o.Format == "text" {
		o.Format = ""
		return nil
	}
	if err := usage.OneOf("-o", o.Format, o.formats); err != nil {
		return err
	}
	if o.Format == "wide" {
		o.Format, o.Wide = "", true
	}
	return nil
}

// Hint prints advice on standard error, unless -q is given.
func (o *FormatFlags) Hint(cmd *cobra.Command, format string, args ...any) {
	if !o.Quiet {
		fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...)
	}
}

// WarnOf prints a text as warnings of servers are printed, on standard error.
func WarnOf(cmd *cobra.Command, text string) {
	fmt.Fprintln(cmd.ErrOrStderr(), "Warning: "+text)
}

// Say prints the result of a command as a sentence, unless -q is given.
func (o *FormatFlags) Say(cmd *cobra.Command, format string, args ...any) {
	if !o.Quiet {
		fmt.Fprintf(cmd.OutOrStdout(), format+"\n", args...)
	}
}

// Document prints a value in the format of -o, json or yaml.
func (o *FormatFlags) Document(cmd *cobra.Command, value any) error {
	return (&Output{Writer: cmd.OutOrStdout()}).Document(o.Format, value)
}

// OutputFlags are the flags of commands whose output may be long: -o, -q, --color, --no-pager and --utc.
type OutputFlags struct {
	FormatFlags
	color        string
	noPager, utc bool
}

// AddFlags adds the flags, and checks their values before the command runs. Besides text the command has the given formats.
func (o *OutputFlags) AddFlags(cmd *cobra.Command, formats ...string) {
	o.FormatFlags.AddFlags(cmd, formats...)
	f := cmd.Flags()
	f.StringVar(&o.color, "color", "auto", "color the output: auto, always or never; auto is on terminals, unless NO_COLOR is set")
	f.BoolVar(&o.noPager, "no-pager", false, "do not use a pager ($STELE_PAGER, $PAGER or less) for long output")
	f.BoolVar(&o.utc, "utc", false, "show times in UTC (default: in local time)")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	_ = cmd.RegisterFlagCompletionFunc("color", cobra.FixedCompletions(colorValues, cobra.ShellCompDirectiveNoFileComp))
}

// colorValues are the values of --color.
var colorValues = []string{"auto", "always", "never"}

// check returns an error for a value that a flag does not have.
func (o *OutputFlags) check() error {
	if err := o.FormatFlags.check(); err != nil {
		return err
	}
	return usage.OneOf("--color", o.color, colorValues)
}

// Open starts the output of a command. On a terminal the output goes through a pager, unless it is endless. Close waits
// for the pager.
func (o *OutputFlags) Open(cmd *cobra.Command, endless bool) (*Output, error) {
	out := &Output{Writer: cmd.OutOrStdout(), utc: o.utc}
	terminal := IsTerminal(out.Writer)
	if o.Format == "" {
		out.colored = o.color == "always" || o.color == "auto" && terminal && os.Getenv("NO_COLOR") == ""
	}
	if terminal && !endless && !o.noPager {
		pager, err := startPager(pagerCommand(os.LookupEnv), out.Writer, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		if pager != nil {
			out.Writer, out.pager = pager, pager
		}
	}
	return out, nil
}

// Print opens the output, prints the result of a command in the format of the flags, and closes the output. name is for
// -o name; it is nil if the command does not have that format.
func (o *OutputFlags) Print(cmd *cobra.Command, document any, text, name func(*Output) error) (err error) {
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	switch o.Format {
	case "":
		return text(out)
	case "name":
		return name(out)
	}
	return out.Document(o.Format, document)
}
