package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// goPackage is a package of the module, with the names of its tests.
type goPackage struct {
	ImportPath, Dir                                               string
	Imports, TestImports, XTestImports, TestGoFiles, XTestGoFiles []string
	Module                                                        struct{ Path string }

	tests []string
	lines int // of its tests
}

// folder returns where the package is, relative to the module's root: "./core/read".
func (p goPackage) folder() string {
	return "." + strings.TrimPrefix(p.ImportPath, p.Module.Path)
}

// test is one top-level test, example or fuzz test of a package.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

// listPackages lists the packages of a pattern and reads the names of their tests from their source. Packages with many tests
// come first: they take the longest, and start first.
func listPackages(pattern string) ([]goPackage, error) {
	out, err := output("go", "list", "-json=ImportPath,Dir,Imports,TestImports,XTestImports,TestGoFiles,XTestGoFiles,Module", pattern)
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			found, err := testsOf(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			p.tests = append(p.tests, found...)
			p.lines += bytes.Count(text, []byte("\n"))
		}
		packages = append(packages, p)
	}
	slices.SortStableFunc(packages, func(a, b goPackage) int { return cmp.Compare(b.lines, a.lines) })
	return packages, nil
}

// testsOf returns the names of what `go test` runs of a file: tests, fuzz tests, and examples with an output.
func testsOf(source []byte) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if ok && f.Recv == nil && f.Name.Name != "TestMain" && (isTest(f.Name.Name, "Test") || isTest(f.Name.Name, "Fuzz")) {
			names = append(names, f.Name.Name)
		}
	}
	for _, example := range doc.Examples(file) {
		if example.Output != "" || example.EmptyOutput {
			names = append(names, "Example"+example.Name)
		}
	}
	return names, nil
}

// isTest reports whether a function's name is the prefix, or the prefix and a word that starts with no small letter.
func isTest(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	first, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || !unicode.IsLower(first))
}

func output(program string, args ...string) ([]byte, error) {
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return out, nil
}
