package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"stele.dev/stele/policy/format"
)

var (
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	flagName  = regexp.MustCompile(`^--([a-z][a-z0-9-]+)`)
	flagsSpan = regexp.MustCompile(`(?:^|[\s(\[])--([a-z][a-z0-9-]+\*?)`)
	// stops ends a command in a shell.
	stops = []string{"|", "&&", "||", ";", ">", ">>", "<", "--", "&"}
)

// foreignFlags are flags of other programs, which the documentation names without the program before them.
var foreignFlags = map[string]string{
	"assume-unchanged":          "git update-index",
	"auto-compaction-mode":      "etcd",
	"auto-compaction-retention": "etcd",
	"bump-revision":             "etcdutl",
	"env":                       "docker",
	"include-crds":              "helm",
	"max-request-bytes":         "etcd",
	"quota-backend-bytes":       "etcd",
	"skip-crds":                 "helm",
	"skip-worktree":             "git update-index",
	"take-ownership":            "helm",
}

// TestDocumentsNameCommandsAndFlagsThatExist checks what the documentation says about the command line: each command `stele …`, in text and in
// blocks, with its flags, and each flag that stands alone.
func TestDocumentsNameCommandsAndFlagsThatExist(t *testing.T) {
	root := newCommand()
	root.InitDefaultHelpCmd()
	all := map[string]bool{}
	collectFlags(root, all)
	found, used := 0, map[string]bool{}
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands, spans := namedCommands(string(text))
		for _, c := range commands {
			found++
			if mistake := checkCommand(root, c); mistake != "" {
				t.Errorf("%s: `%s`: %s", file, c, mistake)
			}
		}
		for _, span := range spans {
			for _, m := range flagsSpan.FindAllStringSubmatch(span, -1) {
				used[m[1]] = used[m[1]] || !isFlag(all, m[1])
				if !isFlag(all, m[1]) && foreignFlags[m[1]] == "" {
					t.Errorf("%s: `%s`: no command has the flag --%s. If it is another program's, add it to foreignFlags", file, span, m[1])
				}
			}
		}
	}
	for name := range foreignFlags {
		if !used[name] {
			t.Errorf("no page names the flag --%s without its program, or stele has it now: remove it from foreignFlags", name)
		}
	}
	if found < 300 {
		t.Errorf("only %d commands were found", found)
	}
}

// documents returns the pages for readers.
func documents(t *testing.T) (files []string) {
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/README.md"} {
		matched, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil || len(matched) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, matched...)
	}
	return files
}

func collectFlags(cmd *cobra.Command, all map[string]bool) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	for _, sub := range cmd.Commands() {
		collectFlags(sub, all)
	}
}

// isFlag reports whether there is a flag of a name, or several that begin with a name that ends with a star.
func isFlag(all map[string]bool, name string) bool {
	start, several := strings.CutSuffix(name, "*")
	for flag := range all {
		if flag == name || several && strings.HasPrefix(flag, start) {
			return true
		}
	}
	return false
}

// namedCommands returns the commands of stele in a document, and the other spans of code that begin with a flag.
func namedCommands(text string) (commands, spans []string) {
	inside, console := false, false
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimRight(line, "\n")
		if language, is := strings.CutPrefix(strings.TrimSpace(line), "```"); is {
			inside, console = !inside, strings.HasPrefix(language, "console")
			continue
		}
		if inside {
			prompted, isPrompted := strings.CutPrefix(line, "$ ")
			if isPrompted || !console {
				commands = append(commands, commandsIn(strings.TrimSpace(prompted))...)
			}
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			if named := commandsIn(m[1]); len(named) > 0 {
				commands = append(commands, named...)
			} else if strings.HasPrefix(m[1], "--") {
				spans = append(spans, m[1])
			}
		}
	}
	return commands, spans
}

var steleWord = regexp.MustCompile(`(?:^|sudo |\| |&& |\$\(|ExecStart=|-- )((?:\S*/)?stele [a-z-].*)`)

// commandsIn returns the commands of stele in a line of a shell.
func commandsIn(line string) (commands []string) {
	for {
		m := steleWord.FindStringSubmatchIndex(line)
		if m == nil {
			return commands
		}
		line = line[m[2]:]
		_, arguments, _ := strings.Cut(line, " ")
		commands = append(commands, "stele "+arguments)
		line = arguments
	}
}

// checkCommand returns what is wrong with a command, or "".
func checkCommand(root *cobra.Command, line string) string {
	cmd := root
	for _, word := range strings.Fields(line)[1:] {
		word = strings.TrimRight(word, "),;:`'\"")
		if slices.Contains(stops, word) || strings.HasPrefix(word, "#") {
			break
		}
		if m := flagName.FindStringSubmatch(word); m != nil {
			if cmd.Flags().Lookup(m[1]) == nil && cmd.InheritedFlags().Lookup(m[1]) == nil {
				return cmd.CommandPath() + " has no flag --" + m[1]
			}
			continue
		}
		if sub, _, err := cmd.Find([]string{word}); err == nil && sub != cmd {
			cmd = sub
		} else if cmd == root || isParent(cmd) && plainWord.MatchString(word) {
			return cmd.CommandPath() + " has no command " + word
		}
	}
	return ""
}

// isParent reports whether a command does nothing but hold others.
func isParent(cmd *cobra.Command) bool {
	err := cmd.ValidateArgs([]string{"no-command"})
	return err != nil && strings.Contains(err.Error(), "unknown command")
}

var plainWord = regexp.MustCompile(`^[a-z][a-z-]*$`)

var cueBlock = regexp.MustCompile("(?ms)^ *```cue\n(.*?)^ *```$")

// TestDocumentsNameFieldsOfBundlesThatExist checks the fields of each block in CUE that is a bundle or a team, against the format of bundles.
func TestDocumentsNameFieldsOfBundlesThatExist(t *testing.T) {
	schema := cuecontext.New().CompileBytes(format.Files()[format.File])
	bundle, team := schema.LookupPath(cue.ParsePath("#Bundle")), schema.LookupPath(cue.ParsePath("#Team"))
	found := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range cueBlock.FindAllStringSubmatch(string(text), -1) {
			parsed, err := parser.ParseFile(file, block[1])
			if err != nil {
				continue // a fragment with an ellipsis
			}
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.Field)
				if !ok {
					continue
				}
				name, _, _ := ast.LabelName(f.Label)
				part, is := map[string]cue.Value{"bundle": bundle, "team": team}[name]
				if !is {
					continue // a part, or a file of another format
				}
				found++
				for _, mistake := range unknownFields(f.Value, part, name) {
					t.Errorf("%s: the format of bundles has no field %s", file, mistake)
				}
			}
		}
	}
	if found < 25 {
		t.Errorf("only %d parts of bundles were found", found)
	}
}

// unknownFields returns the paths of fields that a schema does not allow.
func unknownFields(x ast.Expr, schema cue.Value, path string) (unknown []string) {
	switch x := x.(type) {
	case *ast.ParenExpr:
		return unknownFields(x.X, schema, path)
	case *ast.BinaryExpr: // operands of &; what is on either side of | is one of several forms
		if x.Op == token.AND {
			return append(unknownFields(x.X, schema, path), unknownFields(x.Y, schema, path)...)
		}
		return nil
	case *ast.ListLit:
		element := schema.LookupPath(cue.MakePath(cue.AnyIndex))
		for i, e := range x.Elts {
			if element.Exists() {
				unknown = append(unknown, unknownFields(e, element, fmt.Sprintf("%s[%d]", path, i))...)
			}
		}
		return unknown
	}
	literal, ok := x.(*ast.StructLit)
	if !ok {
		return nil
	}
	for _, d := range literal.Elts {
		f, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		name, _, err := ast.LabelName(f.Label)
		if err != nil || strings.HasPrefix(name, "#") || strings.HasPrefix(name, "_") {
			continue
		}
		at := path + "." + name
		if !schema.Allows(cue.Str(name)) {
			unknown = append(unknown, at)
			continue
		}
		next := schema.LookupPath(cue.MakePath(cue.Str(name).Optional()))
		if !next.Exists() {
			next = schema.LookupPath(cue.MakePath(cue.AnyString))
		}
		if next.Exists() {
			unknown = append(unknown, unknownFields(f.Value, next, at)...)
		}
	}
	return unknown
}

func TestUnknownFieldsAreFoundWithinConjunctionsParenthesesAndLists(t *testing.T) {
	schema := cuecontext.New().CompileString(`close({a?: close({b?: int}), list?: [...close({c?: int})]})`)
	for text, want := range map[string]string{
		`{a: b: 1, list: [{c: 1}]}`:             "",
		`base & {x: 1}`:                         "t.x",
		`({a: {x: 1}})`:                         "t.a.x",
		`base & ({a: (other & {b: 1, x: 1})})`:  "t.a.x",
		`{list: [{c: 1}, base & {c: 1, x: 1}]}`: "t.list[1].x",
	} {
		x, err := parser.ParseExpr("", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(unknownFields(x, schema, "t"), ", "); got != want {
			t.Errorf("%s has the unknown fields %q, not %q", text, got, want)
		}
	}
}
