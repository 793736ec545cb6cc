package installing

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"stele.dev/stele/cmd/stele/internal/build"
)

// The places that do not depend on the prefix.
const (
	settingsFile = "/etc/stele/stele.env"
	dataDir      = "/var/lib/stele"
	unitName     = "stele.service"
	userName     = "stele"
)

// file is a file that an installation has. It has either content or a target.
type file struct {
	path    string // absolute, without --root
	content []byte
	target  string // of a symbolic link
	mode    fs.FileMode
}

// layout is where an installation puts things below its prefix.
type layout struct{ prefix string }

func (l layout) below(elements ...string) string {
	return filepath.Join(append([]string{l.prefix}, elements...)...)
}

func (l layout) program() string { return l.below("bin", "stele") }
func (l layout) unit() string    { return l.below("lib", "systemd", "system", unitName) }
func (l layout) sysusers() string {
	return l.below("lib", "sysusers.d", "stele.conf")
}

// removable returns patterns of all files that an installation of any version has below the prefix.
func (l layout) removable() []string {
	man := l.below("share", "man", "man1")
	return []string{
		l.unit(), l.sysusers(), l.program(), l.below("bin", "kubectl-stele"), l.below("bin", "kubectl_complete-stele"),
		l.below("share", "bash-completion", "completions", "stele"), l.below("share", "zsh", "site-functions", "_stele"),
		l.below("share", "fish", "vendor_completions.d", "stele.fish"), filepath.Join(man, "stele.1"), filepath.Join(man, "stele-*.1"),
	}
}

// programFiles returns the files beside the program: the name of kubectl's plugin, completions and manual pages.
func (l layout) programFiles(root *cobra.Command) ([]file, error) {
	files := []file{{path: l.below("bin", "kubectl-stele"), target: "stele"}}
	kubectl, err := generate(root, "completion", "kubectl")
	if err != nil {
		return nil, err
	}
	files = append(files, file{path: l.below("bin", "kubectl_complete-stele"), content: kubectl, mode: 0o755})
	var bash, zsh, fish bytes.Buffer
	if err := root.GenBashCompletionV2(&bash, true); err != nil {
		return nil, err
	}
	if err := root.GenZshCompletion(&zsh); err != nil {
		return nil, err
	}
	if err := root.GenFishCompletion(&fish, true); err != nil {
		return nil, err
	}
	files = append(files,
		file{path: l.below("share", "bash-completion", "completions", "stele"), content: bash.Bytes(), mode: 0o644},
		file{path: l.below("share", "zsh", "site-functions", "_stele"), content: zsh.Bytes(), mode: 0o644},
		file{path: l.below("share", "fish", "vendor_completions.d", "stele.fish"), content: fish.Bytes(), mode: 0o644})
	pages, err := l.manualPages(root)
	return append(files, pages...), err
}

// generate returns what a command of the program prints that needs no flags.
func generate(root *cobra.Command, args ...string) ([]byte, error) {
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	former := cmd.OutOrStdout()
	cmd.SetOut(&out)
	defer cmd.SetOut(former)
	err = cmd.RunE(cmd, rest)
	return out.Bytes(), err
}

// manualPages returns a page of section 1 for each command. Their date is that of the commit, so that they are the same
// whenever they are made.
func (l layout) manualPages(cmd *cobra.Command) ([]file, error) {
	if !cmd.IsAvailableCommand() && cmd.HasParent() {
		return nil, nil
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
	date := time.Unix(0, 0).UTC()
	if _, _, committed := build.Info(); committed != "" {
		if d, err := time.Parse(time.RFC3339, committed); err == nil {
			date = d
		}
	}
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Date: &date, Source: "stele " + build.Version, Manual: "stele"}
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	files := []file{{path: l.below("share", "man", "man1", name), content: page.Bytes(), mode: 0o644}}
	for _, sub := range cmd.Commands() {
		pages, err := l.manualPages(sub)
		if err != nil {
			return nil, err
		}
		files = append(files, pages...)
	}
	return files, nil
}

//go:embed stele.service
var unitText string

var unit = template.Must(template.New(unitName).Parse(unitText))

// serviceFiles returns the files of the service: its unit and its user.
func (l layout) serviceFiles() ([]file, error) {
	installer := "`stele install --systemd`"
	if l.prefix == packagePrefix {
		installer = "a package"
	}
	var text bytes.Buffer
	if err := unit.Execute(&text, map[string]string{"Program": l.program(), "Installer": installer}); err != nil {
		return nil, err
	}
	user := fmt.Sprintf("# The user of %s, see sysusers.d(5).\nu %s - \"stele control plane\" %s\n", unitName, userName, dataDir)
	return []file{
		{path: l.unit(), content: text.Bytes(), mode: 0o644},
		{path: l.sysusers(), content: []byte(user), mode: 0o644},
	}, nil
}

// packagePrefix is the prefix of packages.
const packagePrefix = "/usr"

// packaged returns the unit of a package of the system that a machine has, or "" if it has none.
func packaged(exists func(string) bool) string {
	units := []string{"/usr/lib/systemd/system/" + unitName, "/lib/systemd/system/" + unitName}
	if i := slices.IndexFunc(units, exists); i >= 0 {
		return units[i]
	}
	return ""
}
