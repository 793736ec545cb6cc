package installing

import (
	"encoding/csv"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// settingsHead begins the file of settings.
const settingsHead = `# Settings of stele.service: each flag of "stele serve" as a variable, such as --max-seats by STELE_MAX_SEATS.
# After a change: systemctl restart stele
# The data directory is /var/lib/stele. Files that the settings name must be readable by the user stele.
`

// settings are what the service sets for the server, by the name of the environment variable.
type settings struct {
	text   string // of the file
	listen string // the address on which the server will listen
	kept   bool   // the file is there, and stays as it is
}

// newSettings returns the settings of flags of `stele serve`. It returns an error for a flag that the service cannot have.
func newSettings(serve *cobra.Command, args []string) (*settings, error) {
	if err := serve.ParseFlags(args); err != nil {
		return nil, usage.FlagError(serve, err)
	}
	if rest := serve.Flags().Args(); len(rest) > 0 {
		return nil, usage.Errorf("unexpected argument %q after --: want flags of `stele serve`", rest[0])
	}
	s := &settings{text: settingsHead, listen: serve.Flags().Lookup("listen").Value.String()}
	var problem error
	serve.Flags().Visit(func(f *pflag.Flag) {
		value, err := settingOf(f)
		if err != nil && problem == nil {
			problem = err
		}
		s.text += variable(f.Name) + "=" + quoteSetting(value) + "\n"
	})
	return s, problem
}

// variable returns the environment variable that sets a flag.
func variable(flag string) string {
	return "STELE_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// settingOf returns the value of a flag as its environment variable has it.
func settingOf(f *pflag.Flag) (string, error) {
	switch f.Name {
	case "data-dir":
		return "", usage.Errorf("--data-dir: the data directory of the service is %s; mount a disk there, or run `stele serve` under a unit of your own", dataDir)
	case "help":
		return "", usage.Errorf("--help cannot be a setting of the service; see `stele serve --help`")
	}
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	if namesFile(f) {
		for _, v := range values {
			if err := checkPath(f.Name, v); err != nil {
				return "", err
			}
		}
	}
	text, err := joinValues(f, values)
	if err != nil {
		return "", err
	}
	if strings.ContainsAny(text, "\n\r\x00") {
		return "", usage.Errorf("--%s: a setting of the service is one line", f.Name)
	}
	return text, nil
}

// joinValues returns the values of a flag as one text, which sets the flag to all of them.
func joinValues(f *pflag.Flag, values []string) (string, error) {
	switch f.Value.Type() {
	case "stringSlice":
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write(values); err != nil {
			return "", err
		}
		w.Flush()
		return strings.TrimSuffix(b.String(), "\n"), nil
	case "stringArray":
		if len(values) > 1 {
			return "", usage.Errorf("--%s: a setting can have one value; add others to ExecStart by `systemctl edit stele`", f.Name)
		}
	}
	return strings.Join(values, ","), nil
}

// namesFile reports whether a flag names a file or a folder.
func namesFile(f *pflag.Flag) bool {
	_, folder := f.Annotations[cobra.BashCompSubdirsInDir]
	_, file := f.Annotations[cobra.BashCompFilenameExt]
	return folder || file || strings.HasSuffix(f.Name, "file") || strings.HasSuffix(f.Name, "-dir")
}

// checkPath returns an error for a path that the service would not find.
func checkPath(flag, path string) error {
	if !filepath.IsAbs(path) {
		return usage.Errorf("--%s %s: the service starts in another folder; give an absolute path", flag, path)
	}
	for _, hidden := range []string{"/home", "/root", "/run/user", "/tmp", "/var/tmp"} {
		if path == hidden || strings.HasPrefix(path, hidden+"/") {
			return usage.Errorf("--%s %s: the service does not see %s; copy it, for example into /etc/stele", flag, path, hidden)
		}
	}
	return nil
}

// quoteSetting quotes a value for a file of systemd's EnvironmentFile=, if necessary.
func quoteSetting(value string) string {
	if !strings.ContainsAny(value, " \t\"'\\$`;#") && value != "" {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(value) + `"`
}

// listenSetting returns the address in a file of settings, or else the default.
func listenSetting(text, otherwise string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "STELE_LISTEN="); ok {
			otherwise = strings.Trim(value, `"'`)
		}
	}
	return otherwise
}
