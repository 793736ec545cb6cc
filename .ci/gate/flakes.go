package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const repetitions = 20

// runFlakes runs the tests that changed since a revision many times while other threads keep all processors busy. With the
// race detector, if .ci/tests.txt says so.
func runFlakes(base string) error {
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	packages, err := listPackages("./...")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	rules, err := parseRules(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	keepBusy()
	var problems []error
	for _, p := range packages {
		for _, name := range changedTests(p, base, files) {
			args := []string{"test", "-vet=off", "-timeout=0", fmt.Sprint("-count=", repetitions), "-run=^" + strings.ReplaceAll(name, "/", "$/^") + "$"}
			if top, _, _ := strings.Cut(name, "/"); mode(rules, p, top) == modeRace {
				args = append(args, "-race")
			}
			fmt.Printf("== %s %s, %d times\n", p.folder(), name, repetitions)
			if err := show("go", append(args, p.ImportPath)...); err != nil {
				problems = append(problems, fmt.Errorf("%s %s: %w", p.folder(), name, err))
			}
		}
	}
	return errors.Join(problems...)
}

// keepBusy runs four times as many threads as there are processors.
func keepBusy() {
	threads := 4 * runtime.NumCPU()
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			for i := 0; ; i++ {
				_ = i
			}
		}()
	}
}

// changedTests returns the tests of a package that changed: of each changed file the tests with another source, or all of them
// if something else in the file changed; and the subtests of changed scripts.
func changedTests(p goPackage, base string, files []string) []string {
	var names []string
	folder := strings.TrimPrefix(p.folder(), "./")
	for _, file := range files {
		if script, ok := strings.CutPrefix(file, folder+"/testdata/script/"); ok && slices.Contains(p.tests, "TestScripts") {
			if _, err := os.Stat(file); err == nil {
				names = append(names, "TestScripts/"+regexp.QuoteMeta(strings.TrimSuffix(script, ".txtar")))
			}
		}
		if path.Dir(file) != folder || !slices.Contains(slices.Concat(p.TestGoFiles, p.XTestGoFiles), path.Base(file)) {
			continue
		}
		now, err := os.ReadFile(file)
		if err != nil {
			continue // it is gone
		}
		before, _ := exec.Command("git", "show", base+":"+file).Output() // nothing, if the file is new
		names = append(names, changedIn(before, now)...)
	}
	return names
}

// changedIn compares two versions of a file. It returns the tests with another source, or all tests if anything else differs.
func changedIn(before, now []byte) []string {
	old, rest := functions(before)
	current, currentRest := functions(now)
	names, err := testsOf(now)
	if err != nil || rest != currentRest {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool { return old[name] == current[name] })
}

// functions returns the source of each test of a file, and the source of all the rest but for imports.
func functions(source []byte) (tests map[string]string, rest string) {
	tests = map[string]string{}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return tests, string(source)
	}
	for _, declaration := range file.Decls {
		text := string(source[files.Position(declaration.Pos()).Offset:files.Position(declaration.End()).Offset])
		f, ok := declaration.(*ast.FuncDecl)
		g, isGeneral := declaration.(*ast.GenDecl)
		switch {
		case ok && f.Recv == nil && (isTest(f.Name.Name, "Test") || isTest(f.Name.Name, "Fuzz") || isTest(f.Name.Name, "Example")):
			tests[f.Name.Name] = text
		case isGeneral && g.Tok == token.IMPORT:
		default:
			rest += text
		}
	}
	return tests, rest
}
