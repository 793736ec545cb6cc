package usage

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// environmentPrefix is the prefix of environment variables that set flags: STELE_DATA_DIR sets --data-dir.
const environmentPrefix = "STELE_"

// FromEnvironment sets flags that are not on the command line from their environment variables.
func FromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := environmentPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || Given(flags, f) || f.Name == "help" || f.Name == "version" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		SetOrigin(f, name)
	})
	return errors.Join(errs...)
}

// Given reports whether a flag is set, by its name or by a former one.
func Given(flags *pflag.FlagSet, f *pflag.Flag) bool { return givenAs(flags, f) != nil }

// givenAs returns the flag by whose name the value of a flag is set; nil if it has its default.
func givenAs(flags *pflag.FlagSet, f *pflag.Flag) (as *pflag.Flag) {
	if f.Changed {
		return f
	}
	flags.VisitAll(func(other *pflag.Flag) {
		if other.Changed && other.Value == f.Value {
			as = other
		}
	})
	return as
}

// origin is the annotation of a flag that says what set it.
const origin = "origin"

// SetOrigin notes what has set a flag, if that is not the command line.
func SetOrigin(f *pflag.Flag, what string) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[origin] = []string{what}
}

// Origin returns what has set a flag: an environment variable, a line of a file, or the command line.
func Origin(flags *pflag.FlagSet, f *pflag.Flag) string {
	if as := givenAs(flags, f); as != nil && len(as.Annotations[origin]) > 0 {
		return as.Annotations[origin][0]
	}
	return "command line"
}
