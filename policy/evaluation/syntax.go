package evaluation

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

// importedBy returns the hint for an error in an imported package.
func importedBy(importer schemas.Position) string {
	if importer.IsZero() {
		return ""
	}
	return "imported by " + importer.String()
}

// Unloadable reports why CUE cannot load the bundle's package. It reports an error in an imported
// file at the position in that file.
func (c *Evaluation) Unloadable(err error) {
	if c.Source.Empty() {
		c.Add(schemas.Position{}, "", "the folder has no CUE files", "name the one that `bundle` is in")
		return
	}
	c.syntax()
	c.missingPackages()
	if len(c.Diags) == 0 && !c.moduleFile(err) {
		left, _ := c.Source.LeftOut(nil)
		c.AddAll(left)
	}
	if len(c.Diags) > 0 {
		return
	}
	for _, e := range cueerrors.Errors(err) {
		innermost, importer := withoutImports(e)
		pos := c.sourceOf(innermost)
		if pos.IsZero() || pos == importer {
			pos, importer = importer, schemas.Position{}
		}
		if path, missing := missingPackage(innermost); missing {
			c.Diags = append(c.Diags, c.noPackage(path, pos))
			continue
		}
		c.Diags = append(c.Diags, schemas.Diagnostic{Pos: pos, Message: MessageOf(innermost), Hint: importedBy(importer)})
	}
}

// missingPackage returns the path of the package that an error says does not exist.
func missingPackage(e cueerrors.Error) (path string, missing bool) {
	_, rest, found := strings.Cut(e.Error(), "cannot find package \"")
	path, _, _ = strings.Cut(rest, "\"")
	return path, found
}

// missingPackages reports the imports of folders of the module that have no CUE files. CUE reports only the first one.
func (c *Evaluation) missingPackages() {
	module := c.Source.ModulePath()
	for _, f := range c.Source.Folders() {
		if len(f.Files) == 0 && !f.Importer.IsZero() {
			c.Diags = append(c.Diags, c.noPackage(module+"/"+f.Dir, f.Importer))
		}
	}
}

// noPackage returns the diagnostic for an import of a package that does not exist, with the most
// similar one.
func (c *Evaluation) noPackage(target string, pos schemas.Position) schemas.Diagnostic {
	module := c.Source.ModulePath()
	if !strings.HasPrefix(target+"/", module+"/") {
		return schemas.Diagnostic{Pos: pos, Message: fmt.Sprintf("there is no package %q", target),
			Hint: "packages of other modules are not fetched: copy it to cue.mod/pkg/" + target}
	}
	return schemas.Diagnostic{Pos: pos, Message: fmt.Sprintf("there is no package %q in the module", target), Hint: wording.DidYouMean(target, c.Source.PackagePaths(), "there are")}
}

// withoutImports returns the innermost error behind any number of imports, and the position of the
// last import.
func withoutImports(e cueerrors.Error) (innermost cueerrors.Error, importer schemas.Position) {
	for {
		wrapped, ok := e.(interface{ Unwrap() error })
		if !ok || formatOf(e) != "import failed" {
			return e, importer
		}
		importer, _ = bundles.Locate(e.Position())
		e = cueerrors.Promote(wrapped.Unwrap(), "")
	}
}

// syntax reports the first syntax error of each file. Later errors may only follow from it.
func (c *Evaluation) syntax() {
	for _, f := range c.Source.Folders() {
		for i := range c.Source.Files {
			file := &c.Source.Files[i]
			if path.Dir(file.Path) != f.Dir || path.Ext(file.Path) != ".cue" {
				continue
			}
			_, err := file.Parse()
			all := cueerrors.Errors(err)
			if len(all) == 0 {
				continue
			}
			pos := c.sourceOf(all[0])
			message, hint := explainSyntax(MessageOf(all[0]), &pos, file.Data)
			hints := []string{hint, importedBy(f.Importer)}
			if n := len(all) - 1; n > 0 {
				hints = append(hints, fmt.Sprintf("%s of the file may follow from this one", wording.Count(n, "more error")))
			}
			hint = strings.Join(slices.DeleteFunc(hints, func(h string) bool { return h == "" }), "; ")
			c.Diags = append(c.Diags, schemas.Diagnostic{Pos: pos, Message: message, Hint: hint})
		}
	}
}

// explainSyntax says what to write instead of a syntax error. If CUE's position is behind the
// mistake, it moves pos there.
func explainSyntax(message string, pos *schemas.Position, text []byte) (said, hint string) {
	line, before := lineOf(text, pos.Line), ""
	if pos.Column > 0 && pos.Column-1 <= len(line) {
		before = strings.TrimSpace(line[:pos.Column-1])
	}
	trimmed := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(message, "string literal not terminated"):
		return "the string does not end on its line", `close it with "; a text of several lines stands between """ and """`
	case strings.HasPrefix(message, "unknown escape sequence"):
		return message, `write \\ for a backslash, as in "\\d", or the string as #"\d"#`
	case before == "import" || trimmed == "import (" || strings.HasPrefix(trimmed, "import "):
		return "an import behind other declarations", "imports stand before all other declarations, right after the package"
	case assigns(line), assigns(lineOf(text, pos.Line-1)):
		if !assigns(line) {
			pos.Line--
		}
		pos.Column = strings.Index(lineOf(text, pos.Line), "=") + 1
		return "a field with =", "a field is written name: value, without ="
	case strings.HasPrefix(trimmed, "- "):
		return "CUE has no lists of lines that begin with -", "write them as [{…}, {…}]"
	case strings.HasPrefix(before, "for ") || strings.HasPrefix(trimmed, "for ") || strings.HasSuffix(before, "{ for"):
		return message, "a comprehension is `for x in list {…}`"
	case strings.Contains(message, "found 'EOF'"):
		message = strings.ReplaceAll(message, "found 'EOF'", "found the end of the file")
		if open := unclosed(text); open > 0 {
			return message, fmt.Sprintf("the bracket that is opened in line %d is not closed", open)
		}
		return message, ""
	case strings.HasPrefix(message, "missing ','") && quotesInText(line, pos):
		return "the text ends at this quote", `inside "…" write '…' for the texts of CEL, or \" for a quote`
	case strings.HasPrefix(message, "missing ','"):
		return message, "write a comma between the elements, or each on a line of its own"
	case strings.HasPrefix(message, "expected operand, found"):
		return message, "a value is missing before it"
	}
	return message, ""
}

// quotesInText reports whether a syntax error is behind a text that ends in the middle of what was meant, because it has quotes
// in it, and moves the position to that quote.
func quotesInText(line string, pos *schemas.Position) bool {
	at := pos.Column - 1
	if at < 1 || at > len(line) || strings.Count(line, `"`) < 4 && strings.Count(line, `"`)%2 == 0 {
		return false
	}
	before := strings.TrimRight(line[:at], " ")
	if !strings.HasSuffix(before, `"`) || at < len(line) && line[at-1] == ' ' && !strings.ContainsAny(line[at:at+1], "|&=!<>+)") {
		return false
	}
	pos.Column = len(before)
	return true
}

// assigns reports whether a line sets a field with "=" instead of ":".
func assigns(line string) bool {
	name, value, found := strings.Cut(strings.TrimSpace(line), "=")
	if field, spaced := strings.CutSuffix(name, " "); spaced && !strings.HasSuffix(field, " !") {
		name = strings.TrimRight(field, "!?") // name! = value
	}
	return found && !strings.HasPrefix(name, "let ") && !strings.ContainsAny(name, `:"'<>!(&|/`) && !strings.HasPrefix(value, "=") && !strings.HasPrefix(value, "~")
}

func lineOf(text []byte, n int) string {
	lines := strings.Split(string(text), "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// unclosed returns the line of the bracket that is most likely not closed: the first whose line has
// another indentation than its closing bracket, or else the last that is open at the end. It returns
// 0 if there is none.
func unclosed(text []byte) int {
	var s scanner.Scanner
	file := token.NewFile("", 0, len(text))
	s.Init(file, text, func(token.Pos, string, []any) {}, 0)
	lines := strings.Split(string(text), "\n")
	indent := func(line int) string {
		l := lines[line-1]
		return l[:len(l)-len(strings.TrimLeft(l, " \t"))]
	}
	var open []int
	suspect := 0
	for {
		pos, tok, _ := s.Scan()
		switch tok {
		case token.LBRACE, token.LBRACK, token.LPAREN:
			open = append(open, pos.Line())
		case token.RBRACE, token.RBRACK, token.RPAREN:
			if len(open) == 0 {
				continue
			}
			from := open[len(open)-1]
			open = open[:len(open)-1]
			if first := strings.TrimLeft(lines[pos.Line()-1], " \t"); suspect == 0 && strings.ContainsAny(first[:1], "}])") && indent(pos.Line()) != indent(from) {
				suspect = from
			}
		case token.EOF:
			switch {
			case suspect > 0 && len(open) > 0:
				return suspect
			case len(open) > 0:
				return open[len(open)-1]
			}
			return 0
		}
	}
}

// moduleFile reports an error in the module file; false if the error is not about that file.
func (c *Evaluation) moduleFile(err error) bool {
	i := slices.IndexFunc(c.Source.Files, func(f bundles.File) bool { return f.Path == bundles.ModuleFile })
	if i < 0 {
		return false
	}
	at := func(field string) schemas.Position {
		for n, line := range strings.Split(string(c.Source.Files[i].Data), "\n") {
			if column := strings.Index(line, field); column >= 0 {
				return schemas.Position{File: bundles.ModuleFile, Line: n + 1, Column: column + 1}
			}
		}
		return schemas.Position{File: bundles.ModuleFile, Line: 1, Column: 1}
	}
	e := cueerrors.Errors(err)[0]
	message := e.Error()
	newest := `language: version: "` + cue.LanguageVersion() + `"`
	switch {
	case strings.Contains(message, "is too new for current language version"):
		c.Add(at("version"), "", "the language version is newer than the newest that this version of stele reads, "+cue.LanguageVersion(), "write "+newest)
	case strings.Contains(message, "is not valid semantic version"), strings.Contains(message, "is not canonical"):
		c.Add(at("version"), "", "the language version is not one", "write "+newest)
	case strings.Contains(message, "no language version declared"):
		c.Add(at("language"), "", "there is no language version", "write "+newest)
	case strings.Contains(message, "empty module path"):
		c.Add(at("module"), "", "the module has no path", `write module: "example.com/policy"`)
	case strings.Contains(message, "module.cue"), c.sourceOf(e).File == bundles.ModuleFile:
		pos := c.sourceOf(e)
		if pos.IsZero() {
			pos = at("module")
		}
		said, hint := strings.TrimPrefix(MessageOf(e), "invalid module file syntax: "), ""
		if said == notAllowed {
			hint = wording.DidYouMean(labelAt(c.Source.Files[i].Data, pos), []string{"custom", "deps", "language", "module", "source"}, "allowed here are")
		} else {
			said, hint = explainSyntax(said, &pos, c.Source.Files[i].Data)
		}
		c.Add(pos, "", said, hint)
	default:
		return false
	}
	return true
}

// labelAt returns the label of the field at a position.
func labelAt(text []byte, pos schemas.Position) string {
	line := lineOf(text, pos.Line)
	if pos.Column < 1 || pos.Column > len(line) {
		return ""
	}
	label, _, _ := strings.Cut(line[pos.Column-1:], ":")
	return wording.Unquoted(strings.TrimSpace(label))
}
